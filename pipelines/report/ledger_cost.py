"""What the ledger itself takes per GPU-day, as one sentence: the foot of the report, `wattledger doctor`.

Add here how an amount of it is written. Keep out the amounts: they are SQL (finance.ledger_cost, sql/ledger_cost.sql).
"""

from __future__ import annotations

from collections.abc import Iterator

import duckdb

from pipelines.report import figures
from pipelines.report.figures import Row
from pipelines.report.sentences import listed
from pipelines.warehouse import disk_room

_UNITS_OF_JOULES = ((1e6, "MJ"), (1e3, "kJ"), (1, "J"))


def amounts(connection: duckdb.DuckDBPyConnection) -> Row | None:
    """The amounts by their names; None in a warehouse or a publication without the table."""
    # A view in a warehouse, a table in a publication.
    held = connection.execute(
        "select count(*) from information_schema.tables where table_schema = 'finance' and table_name = 'ledger_cost'"
    ).fetchall()
    return figures.rows(connection, "ledger_cost")[0] if held != [(0,)] else None


def sentence(row: Row | None) -> str:
    """`This ledger itself: 1.3 core-seconds, 3.7 MB on disk and 5.2 J (stated) per GPU-day.`; empty where nothing of it
    is known."""
    found = list(_amounts(row)) if row else []
    return f"This ledger itself: {listed(found)} per GPU-day." if found else ""


def _amounts(row: Row) -> Iterator[str]:
    if row["core_seconds_per_gpu_day"] is not None:
        yield f"{_three_digits(row['core_seconds_per_gpu_day'])} core-seconds"
    if row["held_bytes_per_gpu_day"] is not None:
        yield f"{disk_room.shown(row['held_bytes_per_gpu_day'])} on disk"
    if row["joules_per_gpu_day"] is not None:
        yield f"{_joules(row['joules_per_gpu_day'])} ({row['joules_basis']})"


def _joules(value: float) -> str:
    size, unit = next((one for one in _UNITS_OF_JOULES if value >= one[0]), _UNITS_OF_JOULES[-1])
    return f"{_three_digits(value / size)} {unit}"


def _three_digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.3g}"
