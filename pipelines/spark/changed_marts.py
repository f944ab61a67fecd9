"""Upgrades of the marts that Spark built: which of them start anew because the dbt project changed.

The files of a committed folder keep their columns, so there is less that can be kept than in a warehouse
(`pipelines.booking.upgrades`). Keep out how a warehouse's own marts are brought up to date.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

import duckdb

from pipelines.booking import upgrades
from pipelines.fleet.fleet_file import Fleet
from pipelines.spark.committed_marts import Committed
from pipelines.warehouse import settings
from pipelines.warehouse.contracts import Contracts

Dates = tuple[date, date]  # half-open
# Spark's names for the contracts' types, which are DuckDB's.
SPARK_TYPES = {"integer": "int", "timestamptz": "timestamp"}


def to_forget(
    connection: duckdb.DuckDBPyConnection, fleet: Fleet, contracts: Contracts, committed: Committed, run: Dates
) -> frozenset[str]:
    """The marts of earlier runs to drop when Spark books the dates `run`: those that changed or are not made any more.

    The files of a committed folder keep their columns, so even a new column needs a run of all booked dates. Raises
    NeedsRebuild as `upgrades.prepare` does.
    """
    held = upgrades.marts_of(connection)
    found = upgrades.changes(connection, contracts, held)
    if committed.run_id:
        found += upgrades.differing(contracts, committed.columns, SPARK_TYPES)
    booked = {*settings.booked_dates(connection), *map(date.fromisoformat, committed.folders.get("fleet_daily", ()))}
    lasting = [change for change in found if contracts.marts[change.mart].replaces != "all"]
    if not all(run[0] <= on < run[1] for on in booked):
        why = sorted({change.why or f"mart {change.mart} has other columns" for change in lasting})
        upgrades.refuse(fleet, [*upgrades.other_methods(connection, contracts, *run), *why], sorted(booked))
        return frozenset(change.mart for change in found)
    leftover = (held.keys() | committed.columns.keys()) - contracts.marts.keys()
    return frozenset({change.mart for change in found} | leftover)


def forget(connection: duckdb.DuckDBPyConnection, marts: Iterable[str]) -> None:
    """Drop these marts of the warehouse, so that Spark's rows go into tables with today's columns."""
    for mart in sorted(marts):
        connection.execute(f'drop table if exists marts."{mart}"')
