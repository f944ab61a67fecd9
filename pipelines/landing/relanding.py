"""Which dates a server is asked for again: those without samples up to their end, and the newest of the others.

raw.unfilled_dates has the first kind, until samples up to the date's end have landed, and when a date was given up. Add
here what decides on dates. Keep out what is compared (`source_counts`) and what a landing does (`telemetry_landing`).
Of what is no server, a date is asked for again only if it failed, and is given up as well: a spool lists the days that
wait in it (`landing_days`), and of files a run reads the dates that it is to book.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

import duckdb
import pyarrow as pa

from collectors.collector import Collector
from collectors.samples import Family, Window
from pipelines.fleet.fleet_file import Fleet
from pipelines.fleet.sources import Source
from pipelines.landing import source_counts, stale_dates
from pipelines.landing.telemetry_landing import TELEMETRY, Landing, rows_of
from pipelines.warehouse import database, statements


def is_asked_again(collector: Collector, fleet: Fleet, now: datetime) -> bool:
    """Whether the source can be asked how many samples it has, of a period that goes on. A period that is over is a
    recording: each run lands it whole, and it may end within a date."""
    is_over = fleet.period.end is not None and fleet.period.end <= now.date()
    return hasattr(collector, "counted") and not is_over


def failed(
    connection: duckdb.DuckDBPyConnection, fleet: Fleet, source: str, start: date, asset: str = TELEMETRY
) -> list[date]:
    """The dates before `start` whose newest landing failed, in order, and that are not too old to be tried again."""
    horizon = _horizon(fleet, start + timedelta(days=1))
    return [on for on in _failed(connection, source, start, asset) if on >= horizon]


def missed(connection: duckdb.DuckDBPyConnection, fleet: Fleet, source: str, start: date) -> list[date]:
    """The dates before `start` that another source was asked for since this one had landed something, and this one was
    not, in order: a server catches up on dates without a run, and they would be booked by halves. What other sources
    had before a new source came is none of them."""
    rows = connection.execute(
        """
        with whole_days as (
            select source, cast(window_start_at as date) as date, min(landed_at) as first_at
            from raw.landings
            where asset = $asset and window_end_at - window_start_at = interval 1 day
            group by all
        )

        select distinct date from whole_days
        where source <> $source and date >= $first and date < $start
            and date not in (select date from whole_days where source = $source)
            and first_at > (select min(first_at) from whole_days where source = $source)
        order by date
        """,
        {
            "asset": TELEMETRY,
            "source": source,
            "first": max(fleet.period.start, _horizon(fleet, start + timedelta(days=1))),
            "start": start,
        },
    )
    return [on for (on,) in rows.fetchall()]


def given_up(
    connection: duckdb.DuckDBPyConnection, fleet: Fleet, source: str, start: date, asset: str = TELEMETRY
) -> list[Landing]:
    """Of the dates before `start` whose newest landing failed, those that are too old to be tried again. Once they are
    in the audit, they are none of these any more."""
    horizon = _horizon(fleet, start + timedelta(days=1))
    days = fleet.relanding.give_up_days
    return [
        Landing(source, Window.of_day(on), "given_up", 0, 0, detail=_why_not_tried_again(on, days))
        for on in _failed(connection, source, start, asset)
        if fleet.period.start <= on < horizon
    ]


def _failed(connection: duckdb.DuckDBPyConnection, source: str, start: date, asset: str) -> list[date]:
    rows = connection.execute(
        """
        select cast(window_start_at as date) as date
        from raw.landings
        where asset = $asset and source = $source and window_end_at - window_start_at = interval 1 day
            and date < $start
        group by all
        having max_by(outcome, rowid) = 'failed'
        order by date
        """,
        {"asset": asset, "source": source, "start": start},
    )
    return [on for (on,) in rows.fetchall()]


def _horizon(fleet: Fleet, end: date) -> date:
    """The first date that a run up to `end` does not give up."""
    return end - timedelta(days=fleet.relanding.give_up_days)


def _why_not_tried_again(on: date, give_up_days: int) -> str:
    return (
        f"it could not be landed within {give_up_days} days (relanding.give_up_days): no run tries it again. Once it"
        f" can be read: wattledger run --start {on} --end {on + timedelta(days=1)}"
    )


def _why_given_up(on: date, last_at: datetime | None, give_up_days: int) -> str:
    newest = f" after {last_at.astimezone(UTC).time().isoformat('seconds')} UTC" if last_at else ""
    return (
        f"no samples{newest} came within {give_up_days} days (relanding.give_up_days): no run asks for this date any"
        f" more. Once they are there: wattledger run --start {on} --end {on + timedelta(days=1)}"
    )


@dataclass(frozen=True)
class Relanded:
    """The dates of a source in a run that begins at `now`; `is_server` as `is_asked_again` finds."""

    connection: duckdb.DuckDBPyConnection
    fleet: Fleet
    source: Source
    families: Mapping[str, Family]
    now: datetime
    is_server: bool

    def unfilled(self, start: date) -> list[date]:
        """The dates before `start` without samples up to their end that are not given up, in order. A date on which no
        run was is one of them."""
        self._note(start, start)
        rows = self.connection.execute(
            "select date from raw.unfilled_dates"
            " where source = ? and given_up_at is null and date >= ? and date < ? order by date",
            [self.source.name, self.fleet.period.start, start],
        )
        return [on for (on,) in rows.fetchall()]

    def counted(self, start: date) -> list[date]:
        """The newest dates before `start` of which the source's answer to today's question is kept, in order."""
        held = source_counts.dates(self.connection, self.source.name, source_counts.question_of(self.families))
        days = self.fleet.relanding.days
        return sorted(on for on in held if self.fleet.period.start <= on < start)[-days:] if days else []

    def has_more(self, on: date, counts: pa.Table) -> bool | None:
        """Whether the source has more of a date than when it landed; None where no answer to today's question is
        kept."""
        question = source_counts.question_of(self.families)
        if on not in source_counts.dates(self.connection, self.source.name, question):
            return None
        return source_counts.has_more(self.connection, self.source.name, on, counts)

    def settled(self, start: date, end: date) -> list[Landing]:
        """After a run of [start, end): note which dates are due again, and forget the answers that no run will compare.
        Returns what is given up. Of a source that is not asked again nothing is due."""
        if not self.is_server:
            self.connection.execute("delete from raw.unfilled_dates where source = ?", [self.source.name]).fetchall()
            return []
        given_up = self.connection.execute(
            "update raw.unfilled_dates set given_up_at = ? where source = ? and given_up_at is null and date < ?"
            " returning date, last_sample_at",
            [self.now, self.source.name, _horizon(self.fleet, end)],
        ).fetchall()
        self._note(start, end)
        source_counts.forget(self.connection, self.source.name, end - timedelta(days=self.fleet.relanding.days))
        return [self._given_up(on, last_at) for on, last_at in sorted(given_up)]

    def _given_up(self, on: date, last_at: datetime | None) -> Landing:
        window = Window.of_day(on)
        held = rows_of(stale_dates.chunks(self.connection, self.source.name, window))
        detail = _why_given_up(on, last_at, self.fleet.relanding.give_up_days)
        return Landing(self.source.name, window, "given_up", 0, held, detail=detail)

    def _note(self, start: date, end: date) -> None:
        """Bring raw.unfilled_dates to what has landed: of [start, end), of the dates before it that are not too old,
        and of those that it has. What is too old when it lands, as the history of a first run, is not due."""
        horizon = _horizon(self.fleet, end)
        first = max(min(start, horizon), self.fleet.period.start)
        interval_seconds = self.source.interval_seconds or 0
        with database.transaction(self.connection):
            self.connection.execute(
                statements.read(__file__, "silent_dates"),
                {"source": self.source.name, "start": first, "end": end, "interval_seconds": interval_seconds},
            ).fetchall()
            self.connection.execute(
                "delete from raw.unfilled_dates where source = ? and date not in (select date from silent_dates)",
                [self.source.name],
            ).fetchall()
            self.connection.execute(
                """
                merge into raw.unfilled_dates as known using (select $source as source, * from silent_dates) as silent
                    on known.source = silent.source and known.date = silent.date
                when matched then update set last_sample_at = silent.last_sample_at
                when not matched then insert values (
                    silent.source, silent.date, silent.last_sample_at, case when silent.date < $horizon then $now end)
                """,
                {"source": self.source.name, "horizon": horizon, "now": self.now},
            ).fetchall()
