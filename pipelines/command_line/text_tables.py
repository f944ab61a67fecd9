"""Rows as text under their columns, as `headline` prints them.

Add here how a table looks. Keep out its contents.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from collectors.samples import printable

MISSING = "–"
TEXT, RATIO = -1, -2  # instead of digits after the point: as it is, or a percentage
WIDTH = 100  # of a line of words
SHOWN_ROWS = 40  # of a table; a big fleet's others are in the published tables


def table(columns: Mapping[str, int], rows: Sequence[Sequence[Any]], marks: Sequence[Mapping[str, str]] = ()) -> str:
    """Rows under their columns (name to digits, TEXT or RATIO); empty without rows.

    `marks` has, for each row, formats of marked cells by column: {"kWh": "≥ {}"}.
    """
    if not rows:
        return ""
    shown = rows[:SHOWN_ROWS]
    cells = [[_cell(value, digits) for value, digits in zip(row, columns.values(), strict=True)] for row in shown]
    for line, marked in zip(cells, marks, strict=False):
        for place, name in enumerate(columns):
            if name in marked and line[place] != MISSING:
                line[place] = marked[name].format(line[place])
    printed = aligned([list(columns), *cells], [digits == TEXT for digits in columns.values()])
    return "\n".join([*printed, f"… and {len(rows) - SHOWN_ROWS:,} more"] if len(rows) > SHOWN_ROWS else printed)


def aligned(lines: Sequence[Sequence[str]], texts: Sequence[bool]) -> list[str]:
    """Cells in columns, the first line as headings; `texts` has whether a column begins at its left."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if is_text else cell.rjust(width)
            for cell, width, is_text in zip(line, widths, texts, strict=True)
        ).rstrip()
        for line in [lines[0], ["-" * width for width in widths], *lines[1:]]
    ]


def explained(words: Mapping[str, str]) -> str:
    """What each heading means, beside it."""
    width = max(map(len, words))
    room = max(WIDTH - width - 4, 40)
    lines = []
    for heading, meaning in words.items():
        first, *rest = textwrap.wrap(meaning, room, break_long_words=False, break_on_hyphens=False) or [""]
        lines += [f"  {heading.ljust(width)}  {first}", *(" " * (width + 4) + more for more in rest)]
    return "\n".join(lines)


def narrowed(
    columns: Mapping[str, int], rows: Sequence[Sequence[Any]], names: Sequence[str]
) -> tuple[dict[str, int], list[list[Any]]]:
    """Some of the columns, in the order of `names`, and their cells of the rows."""
    places = [list(columns).index(name) for name in names]
    return {name: columns[name] for name in names}, [[row[place] for place in places] for row in rows]


def _cell(value: Any, digits: int) -> str:
    if value is None:
        return MISSING
    if digits == TEXT:
        return printable(str(value))  # names come from servers and files
    return f"{value:.1%}" if digits == RATIO else f"{value:,.{digits}f}"
