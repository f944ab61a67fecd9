"""What is landed beyond a run's days: the samples at their edges, by which the steps over the first and the last
midnight are known.

An hour on both sides holds them, unless a series is silent for longer. Where that is on a date that no run asked for,
the run reads on, outwards, until each series of its first or last date is found, for up to `max_spread_days`. A window
here is never a whole day: a date of which a whole day is landed was asked for. Keep out the run's own days
(`landing_days`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import date, datetime, timedelta

import duckdb

from collectors.collector import Collector
from collectors.samples import Window
from pipelines.fleet.fleet_file import Fleet
from pipelines.fleet.sources import Source
from pipelines.landing.telemetry_landing import TELEMETRY
from pipelines.warehouse import sealed_dates

HOUR = timedelta(hours=1)
LONGEST = timedelta(hours=23)


def length(source: Source) -> timedelta:
    """How much of a neighbouring day is asked for its nearest sample: an hour. A source that is read more seldom than
    every half hour is asked for two of its intervals."""
    return min(max(HOUR, timedelta(seconds=2 * (source.interval_seconds or 0))), LONGEST)


def windows(
    connection: duckdb.DuckDBPyConnection,
    fleet: Fleet,
    source: Source,
    collector: Collector,
    *,
    run: tuple[date, date],
    now: datetime,
) -> Iterator[Window]:
    """The windows at both edges of a run's dates [start, end), one after the other: what comes next is decided by what
    has landed. Of a day that the source was asked for whole, and beyond the period but for its hours, none.

    What waits in a spool is landed by whole days. A server is asked again for the dates that no run asked for
    (`relanding`): of it the hours are enough.
    """
    start, end = run
    is_read_on = not hasattr(collector, "days") and not hasattr(collector, "counted")
    open_from = max(fleet.period.start, sealed_dates.open_from(connection))
    open_until = min(fleet.period.end or date.max, now.date())
    for is_before in (True, False):
        if is_before and hasattr(collector, "days") and start > fleet.period.start:
            continue
        missing = _series(connection, source.name, Window.of_day(start if is_before else end - timedelta(days=1)))
        for nth in range(math.ceil(fleet.max_spread_days)):
            on = start - timedelta(days=nth + 1) if is_before else end + timedelta(days=nth)
            is_open = is_read_on and open_from <= on < open_until
            for place, part in enumerate(_parts(on, length(source), is_before=is_before)):
                if nth == place == 0 or (is_open and missing):
                    asked = Window(part.start_at, min(part.end_at, now)) if part.start_at < now else None
                    if asked is not None and not _is_landed(connection, source.name, on, asked):
                        yield asked
                    missing -= _series(connection, source.name, part)
            if not is_open or not missing:
                break


def _parts(on: date, near: timedelta, *, is_before: bool) -> list[Window]:
    """The two parts of a day, from the edge outwards."""
    day = Window.of_day(on)
    cut = day.end_at - near if is_before else day.start_at + near
    parts = [Window(day.start_at, cut), Window(cut, day.end_at)]
    return parts[::-1] if is_before else parts


def _series(connection: duckdb.DuckDBPyConnection, source: str, part: Window) -> set[int]:
    """The series that are known to have samples in a part of a day: it has their first or last one of the day."""
    day = Window.of_day(part.start_at.date())
    rows = connection.execute(
        "select series_id from raw.series_chunks where source = $source and samples > 0"
        " and chunk_start_at >= $day_start and chunk_start_at < $day_end"
        " and (first_at >= $start and first_at < $end or last_at >= $start and last_at < $end)",
        {
            "source": source,
            "day_start": day.start_at,
            "day_end": day.end_at,
            "start": part.start_at,
            "end": part.end_at,
        },
    )
    return {series_id for (series_id,) in rows.fetchall()}


def _is_landed(connection: duckdb.DuckDBPyConnection, source: str, on: date, window: Window) -> bool:
    """Whether the source was asked for the whole day, whatever came of it, or has landed this part of it."""
    day = Window.of_day(on)
    rows = connection.execute(
        "select 1 from raw.landings where asset = ? and source = ? and (window_start_at = ? and window_end_at = ?"
        " or outcome in ('landed', 'unchanged') and window_start_at = ? and window_end_at = ?) limit 1",
        [TELEMETRY, source, day.start_at, day.end_at, window.start_at, window.end_at],
    )
    return bool(rows.fetchall())
