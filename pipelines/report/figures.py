"""A figure of the report: its query, what it covers, and how its rows become a sentence, a picture and a table.

Add here what all figures have. Keep out single figures: `cost_figures`, `energy_figures`, `advice_figures` and
`quality_figures` have them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from pipelines.publishing.parts import Parts
from pipelines.report.markup import opened, text, unbroken
from pipelines.warehouse import statements

Row = dict[str, Any]


@dataclass(frozen=True)
class Drawn:
    """What a figure shows, as HTML: one sentence from its numbers, its picture, and the numbers of the picture."""

    sentence: str
    picture: str
    numbers: str = ""


@dataclass(frozen=True)
class Figure:
    """The figure `title`, drawn from the rows of sql/<query>.sql.

    `boundary` is what the numbers include, with units. `empty` is why there may be no rows; where it is empty itself,
    the figure is then left out.
    """

    query: str
    title: str
    boundary: str
    empty: str
    draw: Callable[[Sequence[Row]], Drawn]


def rows(connection: duckdb.DuckDBPyConnection, query: str) -> list[Row]:
    """The rows of sql/<query>.sql, each by the names of its columns. Decimals are floats: the page shows few digits."""
    found = connection.execute(statements.read(__file__, query))
    names = [column[0] for column in found.description or ()]
    return [
        {
            name: float(value) if type(value).__name__ == "Decimal" else value
            for name, value in zip(names, row, strict=True)
        }
        for row in found.fetchall()
    ]


def html(figure: Figure, connection: duckdb.DuckDBPyConnection, colours: Mapping[str, int], parts: Parts) -> str:
    """The figure as a section of the page; one line where it has no rows, where the publication lacks its table, or
    where it cannot be made.

    `colours` has the number of a model's colour, which is the same in every chart.
    """

    def failed(line: str) -> str:
        return f'<p class="none">The {text(line)}</p>{opened("SQL query", _query(figure))}'

    name = f"figure {figure.title} (query pipelines/report/sql/{figure.query}.sql)"
    contents = parts.attempt(name, lambda: _contents(figure, connection, colours), failed)
    return _section(figure, contents) if contents else ""


def _contents(figure: Figure, connection: duckdb.DuckDBPyConnection, colours: Mapping[str, int]) -> str:
    try:
        found = rows(connection, figure.query)
    except duckdb.CatalogException as refusal:
        return f'<p class="none">Not in this publication: {text(str(refusal).splitlines()[0])}</p>'
    if not found:
        return f'<p class="none">{text(figure.empty)}</p>' if figure.empty else ""
    for row in found:
        row["colour"] = colours.get(str(row.get("model") or row.get("name")))
    drawn = figure.draw(found)
    pieces = [
        f'<p class="sentence">{drawn.sentence}</p>',
        drawn.picture,
        f'<p class="boundary"><b>Includes:</b> {text(figure.boundary)}</p>',
        opened("Numbers of this picture", drawn.numbers) if drawn.numbers else "",
        opened("SQL query", _query(figure)),
    ]
    return "".join(pieces)


def text_of(query: str) -> str:
    """A query as HTML; its line breaks stay."""
    return "\n".join(text(line) for line in statements.read(__file__, query).rstrip().split("\n"))


def _query(figure: Figure) -> str:
    # A long line scrolls sideways: by the keyboard, too.
    name = f'tabindex="0" role="region" aria-label="SQL query: {text(figure.title)}"'
    return f"<pre {name}><code>{text_of(figure.query)}</code></pre>"


def _section(figure: Figure, contents: str) -> str:
    name = figure.query.replace("_", "-")
    title = f'<h3 id="{name}-title">{text(figure.title)}</h3>'
    return f'<section id="{name}" aria-labelledby="{name}-title">{title}{unbroken(contents)}</section>'
