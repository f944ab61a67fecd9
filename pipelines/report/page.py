"""The page: five things, the month, what to do next, the newest day, a section per question, in the order of decisions.

Add a figure to its section here. Keep out what a figure shows. The page has no script, and its policy forbids every
request: it looks the same on a disk, in a mail and on a machine without a network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb

from pipelines.fleet.fleet_file import Fleet
from pipelines.publishing import first_screen
from pipelines.publishing.parts import Parts
from pipelines.report import advice_figures, figures, ledger_cost, month_trees
from pipelines.report.advice_figures import ADVICE, FREE_BOARDS
from pipelines.report.cost_figures import HEADLINE, MODELS, OVER_TIME
from pipelines.report.energy_figures import CARBON, CURVES, IDLE
from pipelines.report.figures import Figure, Row
from pipelines.report.finance_figures import BILLS, PARTIAL_LOAD, PARTS
from pipelines.report.markup import text, unbroken
from pipelines.report.month_figures import BRIDGE, BUDGETS, MONTH, PAYERS, RESTATED
from pipelines.report.platform_figures import CROSSOVER, PLATFORMS
from pipelines.report.quality_figures import ALARMS, COVERAGE, ESTIMATES, HELD_BACK
from pipelines.report.score_figures import SCORE
from pipelines.warehouse import database

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
# Where the header ends and the sections start: what is live goes here (`pipelines.serving`).
MAIN = "</header><main>"
SECTIONS: dict[str, tuple[Figure, ...]] = {
    "The month": (MONTH, BUDGETS, BRIDGE, PAYERS, RESTATED),
    "The newest day": (HEADLINE,),
    "What to do": (ADVICE, SCORE),
    "Cost and energy": (OVER_TIME, MODELS, CURVES),
    "Idle and free": (IDLE, FREE_BOARDS, PARTIAL_LOAD),
    "What the cost is made of": (PARTS, BILLS),
    "Carbon": (CARBON,),
    "Platforms": (PLATFORMS, CROSSOVER),
    "Data quality": (COVERAGE, HELD_BACK, ALARMS, ESTIMATES),
}


def page(path: Path, parts: Parts | None = None, fleet: Fleet | None = None) -> str:
    """The report of the published DuckDB file at `path`, as HTML; the same publication gives the same bytes. A figure
    that cannot be made is a line of text, and a line of `parts`. With the fleet, the figures of the month are also
    shown as trees."""
    parts = parts or Parts()
    with database.connect(path, read_only=True) as connection:
        (made,) = figures.rows(connection, "publication")
        advice, free, days, alarms = (
            _rows_or_none(connection, figure) for figure in (ADVICE, FREE_BOARDS, HEADLINE, ALARMS)
        )
        colours = _colours(connection)
        sections = [_section(title, contents, connection, colours, parts) for title, contents in SECTIONS.items()]
        sections[0] += _trees(connection, fleet, parts)
        own_cost = _own_cost(connection, parts)
        opening = _opening(first_screen.things(connection, parts))
    links = "".join(f'<li><a href="#{_anchor(title)}">{text(title)}</a></li>' for title in SECTIONS)
    name = text(made["fleet"])
    day_usd = days[0]["cost_usd"] if days and days[0]["is_cost_complete"] else None
    steps = '<p>No advice: <a href="#advice">the section below</a> has the reason.</p>'
    if advice is not None:
        steps = parts.attempt(
            "section What to do next",
            lambda: advice_figures.next_steps(advice, free or (), day_usd, alarms or ()),
            lambda line: f"<p>The {text(line)}</p>",
        )
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="referrer" content="no-referrer"><link rel="icon" href="data:,">',
            f"<title>Fleet report: {name}, {made['last_date']}</title>",
            f"<style>{(Path(__file__).parent / 'page.css').read_text(encoding='utf-8')}</style></head><body>",
            '<a class="skip" href="#next">Skip to what to do next</a>',
            f"<header><h1>Fleet report: <bdi>{name}</bdi></h1>{unbroken(_about(made))}{opening}{MAIN}",
            sections[0],
            '<section class="next" id="next" aria-labelledby="next-title"><h2 id="next-title">What to do next</h2>'
            f"{unbroken(steps)}</section>",
            f'<nav aria-label="Sections"><ul>{links}</ul></nav>',
            *sections[1:],
            f"</main><footer>{_footer(made)}{own_cost}</footer></body></html>\n",
        ]
    )


def _opening(things: Sequence[first_screen.Thing]) -> str:
    """The five things, as the terminal has them."""
    shown = "".join(f"<dt>{text(one.name)}</dt><dd>{unbroken(text(one.words))}</dd>" for one in things)
    return f'<dl class="first">{shown}</dl>' if things else ""


def _trees(connection: duckdb.DuckDBPyConnection, fleet: Fleet | None, parts: Parts) -> str:
    if fleet is None or "months" not in database.tables(connection, "finance"):
        return ""
    return parts.attempt(
        "section How the figures of the month add up",
        lambda: month_trees.html(connection, fleet),
        lambda line: f'<p class="none">The {text(line)}</p>',
    )


def _about(made: Row) -> str:
    kind = (
        '<span class="synthetic">Synthetic telemetry: nothing here was measured</span>'
        if made["is_synthetic"]
        else "Measured telemetry."
    )
    held = f" <b>Held back: {text(made['held_back_dates'])}</b>." if made["held_back_dates"] else ""
    if made["last_date"] is None:
        return f'<p class="about">{kind} No date is published yet.{held}</p>'
    return (
        f'<p class="about">{kind} Data of {made["first_date"]} to {made["last_date"]} (UTC), published'
        f" {made['published_at']:%Y-%m-%d %H:%M};"
        f" {made['sites']} site{'' if made['sites'] == 1 else 's'},"
        f" {made['models']} model{'' if made['models'] == 1 else 's'}.{held}</p>"
    )


def _footer(made: Row) -> str:
    """What the page is of. Paper has neither queries nor the numbers of pictures, so it names where they are."""
    return (
        f"<p>Publication {text(made['publication_id'])}, published {made['published_at']:%Y-%m-%d %H:%M} UTC by"
        f" Wattledger {text(made['code_version'])}."
        ' <span class="screen">Every figure has the query that made it: it runs as it is on'
        " <code>wattledger.duckdb</code> in the publication's folder.</span>"
        ' <span class="paper">The query of every figure and the numbers of every picture are on the screen page,'
        " <code>report.html</code> in the publication's folder.</span>"
        " An unknown number is shown as unknown, never as 0; – is what does not apply.</p>"
    )


def _own_cost(connection: duckdb.DuckDBPyConnection, parts: Parts) -> str:
    """What the ledger itself takes; nothing where that is not known, or was not noted yet when this was published."""
    shown = parts.attempt(
        "line of what the ledger itself takes (query pipelines/report/sql/ledger_cost.sql)",
        lambda: ledger_cost.sentence(ledger_cost.amounts(connection)),
        str,
    )
    return f"<p>{unbroken(text(shown))} Each run is a row of <code>finance.ledger_cost</code>.</p>" if shown else ""


def _section(
    title: str,
    contents: Sequence[Figure],
    connection: duckdb.DuckDBPyConnection,
    colours: Mapping[str, int],
    parts: Parts,
) -> str:
    shown = "\n".join(figures.html(figure, connection, colours, parts) for figure in contents)
    return f'<h2 id="{_anchor(title)}">{text(title)}</h2>\n{shown}'


def _colours(connection: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """Model -> the number of its colour, in the order of the lines over time; 0 is the whole fleet's."""
    names = [row["model"] for row in _rows_or_none(connection, OVER_TIME) or () if row["model"] is not None]
    return {name: number for number, name in enumerate(dict.fromkeys(names), start=1)}


def _rows_or_none(connection: duckdb.DuckDBPyConnection, figure: Figure) -> Sequence[Row] | None:
    """The rows of a figure that other places of the page use, too; None where its query fails: its own section has the
    reason."""
    try:
        return figures.rows(connection, figure.query)
    except duckdb.IOException:
        raise
    except duckdb.Error:
        return None


def _anchor(title: str) -> str:
    return "section-" + title.lower().replace(" ", "-").replace(",", "")
