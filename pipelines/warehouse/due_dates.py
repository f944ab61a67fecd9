"""Which dates a run has to book: its own, and those whose neighbours a landing changed.

A delta between two samples belongs to every date from the first to the second. So when the first or last sample of an
entity's day changes, its dates back to the previous landed sample, or on to the next, are stale. The dates wait in
raw.due_dates until a run has booked and then published them. They are written in the landing's own transaction, so a
crash in between loses none. Keep out what a booking computes: that is SQL in `dbt_project`.
"""

from __future__ import annotations

from datetime import date, datetime, time, timedelta

import duckdb

from pipelines.warehouse import database, sealed_dates, settings

BOOKING, PUBLICATION = "booking", "publication"
HELD_BACK, PUBLISHED = "held_back", "published"  # each to be booked again alone; published by this warehouse before
# Published before the dates that come before it: until these are published, it may change without being restated.
AHEAD = "ahead"


def dates_to_book(
    connection: duckdb.DuckDBPyConnection, start: date, end: date, also: str | None = None, until: date = date.max
) -> tuple[date, date]:
    """The run's own dates [start, end), widened to include every due date before `until`: one contiguous half-open
    range.

    `also` is what dates may be due for beside the warehouse's own booking: the marts of another engine, which has
    fewer dates.
    """
    start, end = _hull(connection, BOOKING, start, end)
    if also is not None:
        start, end = _hull(connection, also, start, end)
    return start, min(end, until)


def unasked(connection: duckdb.DuckDBPyConnection, start: date, end: date) -> list[date]:
    """Those of the dates [start, end) that no run has asked for, in order: no source of telemetry has a landing of the
    whole UTC day, whatever came of it. None where nothing has landed so: without sources there is nothing to ask."""
    rows = connection.execute(
        "select distinct cast(window_start_at as date) from raw.landings where asset = 'raw/telemetry'"
        " and window_end_at - window_start_at = interval 1 day"
    ).fetchall()
    asked = {on for (on,) in rows}
    days = (start + timedelta(days=n) for n in range((end - start).days)) if asked else ()
    return [on for on in days if on not in asked]


def mark_due(connection: duckdb.DuckDBPyConnection, start: date, end: date) -> None:
    """Record that the dates [start, end) have to be booked. They stay due until `booked`, however this run ends."""
    mark(connection, BOOKING, start, end)


def dates_to_publish(connection: duckdb.DuckDBPyConnection, start: date, end: date) -> tuple[date, date]:
    """The run's own dates [start, end), widened to include every booked date that is not published yet: half-open."""
    return _hull(connection, PUBLICATION, start, end)


def booked(
    connection: duckdb.DuckDBPyConnection,
    start: date,
    end: date,
    *,
    run_id: str = "",
    also: str | None = None,
    constants: settings.Constants | None = None,
) -> None:
    """Record that a run booked the dates [start, end): they now wait for publication. With `constants`, also record
    today's settings for them. `also` as of `dates_to_book`.

    Dates that are held back (marts.held_back_dates) also wait to be booked again, each alone: they widen no run.
    """
    with database.transaction(connection):
        if constants is not None:
            settings.record(connection, start, end, constants, without=unasked(connection, start, end))
        _clear(connection, BOOKING, start, end)
        _clear(connection, HELD_BACK, start, end)
        if also is not None:
            _clear(connection, also, start, end)
        mark(connection, PUBLICATION, start, end)
        for on in held_back(connection, start, end):
            mark(connection, HELD_BACK, on, on + timedelta(days=1))
        connection.execute("insert into raw.bookings values (?, ?, ?)", [run_id, start, end]).fetchall()


def held_back(connection: duckdb.DuckDBPyConnection, start: date = date.min, end: date = date.max) -> list[date]:
    """The dates in [start, end) for which an invariant does not hold, in order."""
    if "held_back_dates" not in database.tables(connection, "marts"):
        return []
    rows = connection.execute(
        "select distinct date from marts.held_back_dates where date >= ? and date < ? order by date", [start, end]
    )
    return [on for (on,) in rows.fetchall()]


def published(connection: duckdb.DuckDBPyConnection, start: date, end: date) -> None:
    """Record that the dates [start, end) are published: they no longer wait. What was ahead of its history is not where
    this publication begins before it."""
    _clear(connection, PUBLICATION, start, end)
    _clear(connection, AHEAD, start + timedelta(days=1), end)
    mark(connection, PUBLISHED, start, end)


def due(connection: duckdb.DuckDBPyConnection, what: str) -> list[date]:
    """The dates of raw.due_dates that wait for `what`, in order."""
    rows = connection.execute("select date from raw.due_dates where due = ? order by date", [what])
    return [on for (on,) in rows.fetchall()]


def landed(connection: duckdb.DuckDBPyConnection) -> list[date]:
    """The dates of which samples have landed, in order."""
    rows = connection.execute(
        "select distinct cast(chunk_start_at as date) as date from raw.series_chunks where samples > 0 order by date"
    )
    return [on for (on,) in rows.fetchall()]


def mark(
    connection: duckdb.DuckDBPyConnection, due: str, start: date, end: date, *, landing: date | None = None
) -> None:
    """Note that the dates [start, end) are due. A sealed date is never due to be booked, nor is one that no run asked
    for; `landing` is the date that a run is just asking for."""
    left_out: list[date] = []
    if due == BOOKING:
        start = max(start, sealed_dates.open_from(connection))
        left_out = [on for on in unasked(connection, start, end) if on != landing]
    connection.execute(
        """
        insert into raw.due_dates
        select stale.date, ? from (select cast(unnest(range(?, ?, interval 1 day)) as date) as date) as stale
        where stale.date not in (select date from raw.due_dates where due = ?) and not list_contains(?, stale.date)
        """,
        [due, datetime.combine(start, time()), datetime.combine(end, time()), due, left_out],
    ).fetchall()


def _clear(connection: duckdb.DuckDBPyConnection, due: str, start: date, end: date) -> None:
    connection.execute(
        "delete from raw.due_dates where due = ? and date >= ? and date < ?", [due, start, end]
    ).fetchall()


def _hull(connection: duckdb.DuckDBPyConnection, due: str, start: date, end: date) -> tuple[date, date]:
    first, last = connection.execute("select min(date), max(date) from raw.due_dates where due = ?", [due]).fetchall()[
        0
    ]
    if first is None:
        return start, end
    return min(start, first), max(end, last + timedelta(days=1))
