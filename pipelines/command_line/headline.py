"""The page that `wattledger run` prints: five things, what a token cost per model, the months, what to do.

Add a table here by its name; the first page has three. Keep out formulas: ratios here are sums over sums of columns of
the marts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import duckdb

from pipelines.command_line import advice_headline, model_headline, month_headline
from pipelines.command_line.text_tables import RATIO, SHOWN_ROWS, TEXT, explained, table
from pipelines.fleet.fleet_file import Fleet
from pipelines.fleet.places import fleet_option
from pipelines.publishing import first_screen
from pipelines.publishing.parts import Parts
from pipelines.publishing.publication_manifest import DATABASE, REPORT, WORKBOOK
from pipelines.warehouse import database
from pipelines.warehouse.refusals import nothing_published

_HELD_BACK = """
select date, string_agg(distinct invariant, ', ' order by invariant),
    date in (select date from marts.model_daily) as is_published
from marts.held_back_dates group by date order by date
"""

_WINDOWS = f"""
with {model_headline.OF_SCOPES}
select windows.window_id, windows.mean_watts,
    windows.joules_per_total_token, models.joules_per_total_token as period_joules_per_total_token,
    windows.joules_per_output_token, models.joules_per_output_token as period_joules_per_output_token,
    (windows.energy_joules_high - windows.energy_joules) / windows.energy_joules as interval_ratio,
    windows.reason_code
from marts.run_windows as windows
left join by_scope as models on windows.model = models.model and windows.meter_scope = models.scope
order by windows.start_at, windows.window_id
"""


_WINDOW_COLUMNS = {
    "run window": TEXT,
    "mean W": 2,
    "J/total token": 4,
    "period": 4,
    "J/output token": 4,
    "period ": 4,
    "±": RATIO,
    "result": TEXT,
}
_WINDOW_MEANINGS = {
    "run window": "a time window that the fleet file names; watts and joules of all accelerators of its engine",
    "period": "the same ratio over all dates, as in the table of models",
    "±": "half of the 95 % interval of the window's joules: error of the meters, and gauges between samples",
    "result": "ok, or why the window's figures are not reliable (run_windows.reason_code)",
}


# Those of the first page, then those that are printed by name; what differs by its dates alone has them in its title.
FIRST = ("models", "months", "advice")
TITLES = {
    "models": "What did each model take, on all dates from {} to {} (UTC)?\n",
    "months": "What did each month cost, on the calendar of its sites?\n",
}
BY_NAME = (*FIRST, "changes", "budgets", "free", "windows")


def headline(fleet: Fleet, parts: Parts | None = None) -> str:
    """The printed page, over all published dates: five things, three tables, and where the rest is. What cannot be made
    is a line of text, and a line of `parts`. QuestionError if nothing is published yet."""
    parts = parts or Parts()
    path = fleet.published / DATABASE
    if not path.exists():
        raise nothing_published(fleet.fleet, fleet.path)
    with database.connect(path, read_only=True) as connection:
        first, last = connection.execute("select min(date), max(date) from marts.model_daily").fetchall()[0]
        things = first_screen.things(connection, parts)
        found = {name: _made(connection, fleet, name, parts, is_first=True) for name in FIRST}
        tables = [TITLES.get(name, "").format(first, last) + found[name] for name in FIRST if found[name]]
        held_back = connection.execute(_HELD_BACK).fetchall()
    label = "SYNTHETIC telemetry: nothing here was measured" if fleet.synthetic else "measured telemetry"
    return "\n\n".join(
        [
            f"fleet {fleet.fleet}, {first} to {last}: {label}",
            *([_held_back(held_back)] if held_back else []),
            *([explained(dict(things))] if things else []),
            *tables,
            "\n".join(_ways_in(fleet, path)),
        ]
    )


def one_table(fleet: Fleet, name: str, parts: Parts) -> str:
    """A table of BY_NAME with all columns, or a line where it has no rows. QuestionError if nothing is published."""
    path = fleet.published / DATABASE
    if not path.exists():
        raise nothing_published(fleet.fleet, fleet.path)
    with database.connect(path, read_only=True) as connection:
        return _made(connection, fleet, name, parts, is_first=False) or f"{name}: no rows"


def _made(connection: duckdb.DuckDBPyConnection, fleet: Fleet, name: str, parts: Parts, *, is_first: bool) -> str:
    of_models, of_advice = (model_headline.FIRST,) if is_first else (), (advice_headline.FIRST,) if is_first else ()
    make: Callable[[], str] = {
        "models": lambda: model_headline.models(connection, fleet, *of_models),
        "months": lambda: month_headline.months(connection),
        "advice": lambda: advice_headline.advice(connection, *of_advice),
        "changes": lambda: month_headline.changes(connection),
        "budgets": lambda: month_headline.budgets(connection),
        "free": lambda: advice_headline.free_boards(connection),
        "windows": lambda: _windows(connection),
    }[name]
    return parts.attempt(f"table of {name}", make, lambda line: f"The {line}")


def is_published(fleet: Fleet, on: date) -> bool:
    """Whether the newest publication has figures of the date."""
    if fleet.latest_publication is None:
        return False
    with database.connect(fleet.published / DATABASE, read_only=True) as connection:
        return connection.execute("select count(*) > 0 from marts.model_daily where date = ?", [on]).fetchall() == [
            (True,)
        ]


def _held_back(rows: Sequence[Sequence[Any]]) -> str:
    lines = [
        f"held back: {on} ({invariants}); {'its earlier rows stay published' if is_published else 'not published'}"
        for on, invariants, is_published in rows[:SHOWN_ROWS]
    ]
    return "\n".join([*lines, f"… and {len(rows) - SHOWN_ROWS:,} more"] if len(rows) > SHOWN_ROWS else lines)


def _windows(connection: duckdb.DuckDBPyConnection) -> str:
    rows = connection.execute(_WINDOWS).fetchall()
    return "\n".join([table(_WINDOW_COLUMNS, rows), explained(_WINDOW_MEANINGS)]) if rows else ""


def _ways_in(fleet: Fleet, path: Path) -> Iterator[str]:
    """Where to go on from here: the report and the workbook, where this publication has them, the tables, and a first
    query."""
    folder = fleet.latest_publication
    for name, file in (("report", REPORT), ("workbook", WORKBOOK)):
        if folder is not None and (folder / file).exists():
            yield f"{name}: {_shown(fleet.published / file)}"
    others = ", ".join(BY_NAME[len(FIRST) :])
    yield f"more: wattledger table{fleet_option(fleet.path)} NAME: {others}; models and advice with all columns"
    yield f"tables: {_shown(path)} (schemas finance, marts, published)"
    yield _in_sql(fleet)


def _in_sql(fleet: Fleet) -> str:
    """The command that answers a first query on the snapshot."""
    return f'in SQL: wattledger sql{fleet_option(fleet.path)} "select * from marts.fleet_daily"'


def _shown(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
