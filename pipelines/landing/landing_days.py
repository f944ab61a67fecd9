"""A run of days: which windows of which source are landed, in which order, and when a source is not asked any more.

Keep out what one landing does (`telemetry_landing`) and what Dagster shows of it (`telemetry_assets`).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import duckdb

from collectors.collector import Collector
from collectors.samples import SourceError, Window
from pipelines.fleet import catalog
from pipelines.fleet.fleet_file import Fleet
from pipelines.fleet.sources import Source
from pipelines.landing import healing, stale_dates, stores, telemetry_landing
from pipelines.landing.telemetry_landing import Landing
from pipelines.warehouse import progress, sealed_dates, step_deadline

# What is landed beyond the run's days, to have the sample before the period and the one after each run.
NEIGHBOUR = timedelta(hours=1)
# A source that cannot be reached at all will not be reached for the next day either; asking a month costs its timeouts.
FAILURES_IN_A_ROW = 3

logger = logging.getLogger(__name__)


def silent_sources(fleet: Fleet, start: date) -> dict[str, SourceError]:
    """The servers that give no answer at all, by source, and why. Asked before the warehouse is locked: a server that
    hangs must not keep other runs from writing.
    """
    silent = {}
    for collector in fleet.collectors():
        if hasattr(collector, "check"):
            try:
                collector.check(Window.of_day(start))
            except SourceError as failure:
                silent[collector.source] = failure
            step_deadline.progressed()
    return silent


def land_days(
    connection: duckdb.DuckDBPyConnection,
    fleet: Fleet,
    start: date,
    end: date,
    *,
    run_id: str,
    force: bool = False,
    now: datetime | None = None,
    silent: Mapping[str, SourceError] | None = None,
) -> list[Landing]:
    """Land the UTC days [start, end) of every source, and their neighbours: the head of day `end`, by which the last
    midnight is known, and before the period's first day the tail of the day before it.

    A source that keeps late data (a spool) also lands the other days that wait in it. Sources of `silent` are not
    asked: their windows fail. Nothing is landed of a sealed date: what came late for it stays where it is.
    """
    now = now or datetime.now(UTC)
    store = stores.store_of(fleet)
    catalogue = telemetry_landing.Catalogue(
        catalog.families(), catalog.device_labels(), (fleet.period.start, fleet.period.end)
    )
    open_from = sealed_dates.open_from(connection)
    start = max(start, open_from)
    if start >= end:
        return []
    days = [start + timedelta(days=n) for n in range((end - start).days)]
    healing.heal(connection, store, catalogue, run_id=run_id, now=now)
    results = []
    for source, collector in zip(fleet.sources, fleet.collectors(), strict=True):
        waiting = _waiting(collector, fleet, start, end)
        late = [day for day in waiting if day < open_from]
        if late:
            logger.warning(
                "%s: what came late for sealed dates stays in the spool: %s", source.name, ", ".join(map(str, late))
            )
        windows = [Window.of_day(day) for day in (*(day for day in waiting if day >= open_from), *days)]
        neighbours = [
            window
            for window in _neighbours(fleet, source, start, end, now)
            if not stale_dates.chunks(connection, source.name, window).num_rows
        ]
        windows += neighbours
        failures, answers = 0, []
        of_source = replace(catalogue, families=catalog.families(prefix=source.metric_prefix))
        silence = (silent or {}).get(source.name)
        for window in windows:
            if silence is None and failures >= FAILURES_IN_A_ROW:
                reason = f"not asked: {source.name} had failed {failures} times in a row"
                silence = SourceError(getattr(collector, "url", ""), None, reason)
            if silence is not None:
                result = Landing.failed(source.name, window, silence)
                telemetry_landing.audit(connection, result, run_id, now)
            else:
                result = telemetry_landing.land(
                    connection,
                    collector,
                    window,
                    of_source,
                    run_id=run_id,
                    store=store,
                    replica_labels=source.replica_labels,
                    most_series=source.limits.series,
                    is_neighbour=any(window is neighbour for neighbour in neighbours),
                    force=force,
                )
            failures = failures + 1 if result.outcome == "failed" else 0
            if result.detail:
                logger.info("%s %s: %s: %s", source.name, shown(window), result.outcome, why(result))
            answers.append(result)
            step_deadline.progressed()
            progress.of(f"landing {source.name}, windows", len(answers), len(windows))
        outcomes = ", ".join(f"{n} {outcome}" for outcome, n in Counter(answer.outcome for answer in answers).items())
        logger.info("%s: %s rows; windows: %s", source.name, f"{sum(a.rows for a in answers):,}", outcomes)
        results += answers
    healing.expose(connection, store)
    return results


def _waiting(collector: Collector, fleet: Fleet, start: date, end: date) -> Sequence[date]:
    """Days outside the run of which late files wait in a spool; none where the source cannot list them."""
    if not hasattr(collector, "days"):
        return []
    try:
        days = collector.days()
    except SourceError:
        return []  # the run's own days will fail the same way, and be recorded
    last = fleet.period.end or date.max
    return [day for day in days if fleet.period.start <= day < last and day < end and not start <= day]


def _neighbours(fleet: Fleet, source: Source, start: date, end: date, now: datetime) -> Iterator[Window]:
    """The last hour before the period, if the run begins with it, and the first hour after the run, if it has
    started."""
    length = neighbour_length(source)
    if start <= fleet.period.start:
        start_at = Window.of_day(fleet.period.start).start_at
        yield Window(start_at - length, start_at)
    end_at = Window.of_day(end).start_at
    if now > end_at:
        yield Window(end_at, min(end_at + length, now))


def neighbour_length(source: Source) -> timedelta:
    """How much of a neighbouring day is asked for its nearest sample: an hour. A source that is read more seldom than
    every half hour is asked for two of its intervals."""
    return min(max(NEIGHBOUR, timedelta(seconds=2 * (source.interval_seconds or 0))), timedelta(days=1))


def why(result: Landing) -> str:
    """The detail, behind the file or URL that it is about."""
    return f"{result.url}: {result.detail}" if result.outcome == "failed" and result.url else str(result.detail)


def shown(window: Window) -> str:
    """A day by its date, a part of one with its hours."""
    if window.end_at - window.start_at == timedelta(days=1):
        return window.start_at.date().isoformat()
    return f"{window.start_at:%Y-%m-%d %H:%M}–{window.end_at:%H:%M}"
