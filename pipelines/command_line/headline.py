"""The page that `wattledger run` prints: what a token cost per model, and what to do per deployment.

Add a table here when a newcomer should see it first. Keep out formulas: ratios here are sums over sums of columns of
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
    "period": "the same ratio over all dates, as in the first table",
    "±": "half of the 95 % interval of the window's joules: error of the meters, and gauges between samples",
    "result": "ok, or why the window's figures are not reliable (run_windows.reason_code)",
}


def headline(fleet: Fleet, parts: Parts | None = None) -> str:
    """The printed page, over all published dates. A table that cannot be made is a line of text, and a line of `parts`.
    QuestionError if nothing is published yet."""
    parts = parts or Parts()
    path = fleet.published / DATABASE
    if not path.exists():
        raise nothing_published(fleet.fleet, fleet.path)
    with database.connect(path, read_only=True) as connection:
        first, last = connection.execute("select min(date), max(date) from marts.model_daily").fetchall()[0]
        made: dict[str, Callable[[], str]] = {
            "models": lambda: model_headline.models(connection, fleet),
            "months": lambda: month_headline.months(connection),
            "changes": lambda: month_headline.changes(connection),
            "budgets": lambda: month_headline.budgets(connection),
            "advice": lambda: advice_headline.advice(connection),
            "free accelerators": lambda: advice_headline.free_boards(connection),
            "run windows": lambda: _windows(connection),
        }
        tables = [parts.attempt(f"table of {name}", make, lambda line: f"The {line}") for name, make in made.items()]
        held_back = connection.execute(_HELD_BACK).fetchall()
    label = "SYNTHETIC telemetry: nothing here was measured" if fleet.synthetic else "measured telemetry"
    return "\n\n".join(
        [
            f"fleet {fleet.fleet}, {first} to {last}: {label}",
            *([_held_back(held_back)] if held_back else []),
            *filter(None, tables),
            "\n".join(_ways_in(fleet, path)),
        ]
    )


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
