"""Removing raw: up to which date it may go, what that frees, and that the dates without it are sealed.

Samples and requests go; what a landing counted of them (raw.series_chunks), the audit and the fleet's small tables
stay, so that the first open date still finds the counters' last readings. Add here a reason for which raw has to stay.
Keep out what a sealed date means for whoever books (`pipelines.warehouse.sealed_dates`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple

import duckdb

from pipelines.fleet.fleet_file import Fleet
from pipelines.landing import stores
from pipelines.landing.lake import SAMPLE_TABLES
from pipelines.landing.stores import LakeStore
from pipelines.publishing.publication_manifest import DATABASE
from pipelines.warehouse import closings, database, due_dates, sealed_dates, settings

# A date is compared with as many dates before its lookback as the lookback has (dbt_project/macros/cost_changes.sql).
LOOKBACKS = 2
_WAITING = {
    due_dates.BOOKING: "waits to be booked",
    due_dates.PUBLICATION: "waits to be published",
    due_dates.HELD_BACK: "is held back",
}


class Bound(NamedTuple):
    """The first date that has to stay open, and why."""

    open_date: date
    why: str


class Removal(NamedTuple):
    """What would go of raw: `open_date` is the first date that stays open, and raw before `raw_from` goes. `refused` is
    why dates stay that `retention.raw_days` would let go."""

    open_date: date
    raw_from: date
    dates: tuple[date, ...]
    bytes: int
    refused: str | None = None


def planned(connection: duckdb.DuckDBPyConnection, fleet: Fleet, lookback_days: int) -> Removal | None:
    """What `retention.raw_days` lets go and nothing needs; None where nothing is stated or booked."""
    booked = settings.booked_dates(connection)
    if fleet.retention.raw_days is None or not booked:
        return None
    wanted = booked[-1] - timedelta(days=fleet.retention.raw_days - 1)
    open_from = sealed_dates.open_from(connection)
    found = [bound for bound in _bounds(connection, fleet, booked, wanted, lookback_days) if bound.open_date < wanted]
    bound = min(found, key=lambda one: one.open_date, default=None)
    open_date = max(open_from, bound.open_date if bound else wanted)
    raw_from = open_date - timedelta(days=spread_days(fleet))
    refused = None
    if bound is not None and wanted > booked[0]:
        refused = f"raw of {max(booked[0], bound.open_date)} and later stays: {bound.why}"
    dates = _dates_with_raw(connection, raw_from)
    size = _bytes(connection, max(dates)) if dates else 0
    store = stores.store_of(fleet)
    if isinstance(store, LakeStore):
        files = store.lake.dated_files(raw_from)
        dates.update(files)
        size += store.lake.bytes_of(path for paths in files.values() for path in paths)
    return Removal(open_date, raw_from, tuple(sorted(dates)), size, refused)


def remove(connection: duckdb.DuckDBPyConnection, fleet: Fleet, removal: Removal) -> list[date]:
    """Seal the dates and remove their raw, in one transaction; returns the dates that were open before. A lake's files
    go after it: what a crash leaves of them, no run reads, and the next removal takes."""
    until = datetime.combine(removal.raw_from, time(), UTC)
    with database.transaction(connection):
        fresh = sealed_dates.seal(connection, settings.booked_dates(connection), removal.open_date)
        for table, column, goes in [*_own_tables(connection)]:
            connection.execute(f"delete from raw.{table} where {column} < ? and {goes}", [until]).fetchall()
        connection.execute("delete from raw.lake_days where date < ?", [removal.raw_from]).fetchall()
    store = stores.store_of(fleet)
    if isinstance(store, LakeStore):
        store.lake.forget(removal.raw_from)
        store.lake.expose(connection, "raw")
    return fresh


def spread_days(fleet: Fleet) -> int:
    """Dates before the first open one whose raw its booking reads."""
    return math.ceil(fleet.max_spread_days) + 1


def _bounds(
    connection: duckdb.DuckDBPyConnection, fleet: Fleet, booked: list[date], wanted: date, lookback_days: int
) -> Iterator[Bound]:
    lookback = LOOKBACKS * lookback_days
    yield Bound(
        booked[-1] - timedelta(days=lookback - 1),
        f"the newest {lookback} dates are those of the lookback and of what it is compared with",
    )
    for what, state in _WAITING.items():
        waiting = due_dates.due(connection, what)
        if waiting:
            yield Bound(waiting[0], f"{waiting[0]} {state}")
    yield from _open_months(connection, fleet, max(booked[0], sealed_dates.open_from(connection)), wanted)
    rows = connection.execute(
        "select window_id, cast(start_at as date) from raw.run_windows where start_at < ? and end_at > ? order by 2",
        [datetime.combine(wanted, time(), UTC)] * 2,
    ).fetchall()
    yield from (Bound(on, f"the run window {name} goes on after {wanted}") for name, on in rows)


def _open_months(connection: duckdb.DuckDBPyConnection, fleet: Fleet, start: date, wanted: date) -> Iterator[Bound]:
    """The first month that may still change: one that is not closed, unless it can never be, as it has no cost."""
    closings.create(connection)
    priced = _priced_months(fleet)
    month = start.replace(day=1)
    while month <= wanted:
        following = (month + timedelta(days=31)).replace(day=1)
        last = closings.last_event(connection, "published", month)
        is_closed = last is not None and last[1] == "closed"
        if not is_closed and (priced is None or month in priced or following > wanted):
            # A site east of UTC has hours of the month on the UTC date before it.
            what = f"{month:%Y-%m} is not closed (`wattledger close {month:%Y-%m}`)"
            yield Bound(month - timedelta(days=1), what)
            return
        month = following


def _priced_months(fleet: Fleet) -> set[date] | None:
    """The months with a cost, which can be closed; None where nothing is published that has them."""
    folder = fleet.latest_publication
    if folder is None:
        return None
    with database.connect(folder / DATABASE, read_only=True) as published:
        if "cost" not in database.tables(published, "finance"):
            return None
        rows = published.execute("select distinct month from finance.cost where closed_cost_usd is not null").fetchall()
    return {month for (month,) in rows}


def _dates_with_raw(connection: duckdb.DuckDBPyConnection, until: date) -> set[date]:
    """The dates before `until` of which samples or requests are in the warehouse itself. Newer rows are not read."""
    queries = [
        f"select distinct cast({column} as date) from raw.{table} where {column} < $until and {goes}"
        for table, column, goes in _own_tables(connection)
    ]
    rows = connection.execute(" union ".join(queries), {"until": datetime.combine(until, time(), UTC)}).fetchall()
    return {on for (on,) in rows}


def _bytes(connection: duckdb.DuckDBPyConnection, last: date) -> int:
    """Bytes of the dates up to the last one in the tables of raw, by their share of the rows."""
    until = datetime.combine(last + timedelta(days=1), time(), UTC)
    size = 0
    for table, column, goes in _own_tables(connection):
        ((older, rows),) = connection.execute(
            f"select (select count(*) from raw.{table} where {column} < ? and {goes}), count(*) from raw.{table}",
            [until],
        ).fetchall()
        size += round(table_bytes(connection, "raw", table) * older / rows) if rows else 0
    return size


def _own_tables(connection: duckdb.DuckDBPyConnection) -> Iterator[tuple[str, str, str]]:
    """The tables of raw of which rows go, the column of their time, and which of their rows; no views of a lake."""
    yield from (
        (table, "observed_at", "true") for table in SAMPLE_TABLES if table in database.tables(connection, "raw")
    )
    # A load test's requests are what its windows are made of.
    yield "requests", "started_at", "window_id is null"


def table_bytes(connection: duckdb.DuckDBPyConnection, schema: str, table: str) -> int:
    """Bytes of the blocks that a table is in; small tables may share one."""
    ((size,),) = connection.execute(
        "select count(distinct block_id) * (select block_size from pragma_database_size()"
        f" where database_name = current_database()) from pragma_storage_info('{schema}.{table}') where block_id >= 0"
    ).fetchall()
    return int(size)
