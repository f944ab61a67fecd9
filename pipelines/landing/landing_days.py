"""A run of days: which windows of which source are landed, in which order, and when a source is not asked any more.

Keep out what one landing does (`telemetry_landing`) and what Dagster shows of it (`telemetry_assets`).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from itertools import chain
from typing import Any

import duckdb
import pyarrow as pa

from collectors.collector import Collector
from collectors.samples import SourceError, Window
from pipelines.fleet import catalog
from pipelines.fleet.fleet_file import Fleet
from pipelines.landing import healing, landing_edges, relanding, stores, telemetry_landing
from pipelines.landing.telemetry_landing import Landing
from pipelines.warehouse import progress, sealed_dates, step_deadline

# A source that cannot be reached at all will not be reached for the next day either; asking a month costs its timeouts.
FAILURES_IN_A_ROW = 3

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Asked:
    """A window for which a run asks a source. `is_again`: of a date before the run's own, to be landed again if there
    is more of it; `is_unfilled`: of which samples up to its end are missing, or that failed."""

    window: Window
    is_neighbour: bool = False
    is_counted: bool = False
    is_again: bool = False
    is_unfilled: bool = False

    def is_due(self, relanded: relanding.Relanded, counts: pa.Table | None) -> bool:
        """Whether to land a day again. One that is not whole is landed also where nothing can be compared."""
        has_more = None if counts is None else relanded.has_more(self.window.start_at.date(), counts)
        return self.is_unfilled if has_more is None else has_more


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
    """Land the UTC days [start, end) of every source, and what is at their edges (`landing_edges`).

    A source that keeps late data (a spool) also lands the other days that wait in it; a server is asked again for days
    before these (`relanding`). Sources of `silent` are not asked: their windows fail. Nothing is landed of a sealed
    date: what came late for it stays where it is.
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
    # Servers first: files land the dates on which these catch up.
    sources = sorted(
        zip(fleet.sources, fleet.collectors(), strict=True),
        key=lambda pair: not relanding.is_asked_again(pair[1], fleet, now),
    )
    for source, collector in sources:
        of_source = replace(catalogue, families=catalog.families(prefix=source.metric_prefix))
        is_server = relanding.is_asked_again(collector, fleet, now)
        relanded = relanding.Relanded(connection, fleet, source, of_source.families, now, is_server)
        windows = [
            *(_Asked(Window.of_day(day)) for day in _waiting(collector, fleet, start, end, open_from)),
            *_own_days(fleet, days, is_server=is_server),
            # After the run's own, because a server may refuse what is older.
            *(again for again in _days_again(relanded, collector, start) if again.window.start_at.date() >= open_from),
        ]
        edges = landing_edges.windows(connection, fleet, source, collector, run=(start, end), now=now)
        failures, answers = 0, []
        silence = (silent or {}).get(source.name)
        for asked in chain(windows, (_Asked(window, is_neighbour=True) for window in edges)):
            window = asked.window
            if silence is None and failures >= FAILURES_IN_A_ROW:
                reason = f"not asked: {source.name} had failed {failures} times in a row"
                silence = SourceError(getattr(collector, "url", ""), None, reason)
            counts, uncounted = None, None
            if silence is None and asked.is_counted:
                counts, uncounted = _counted(collector, window, of_source)
            if asked.is_again and not asked.is_due(relanded, counts):
                if uncounted:
                    answers.append(Landing(source.name, window, "unchanged", 0, 0, detail=uncounted))
                step_deadline.progressed()
                continue
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
                    tenant_labels=source.named_labels,
                    most_series=source.limits.series,
                    is_neighbour=asked.is_neighbour,
                    is_merged=asked.is_neighbour or (asked.is_again and asked.is_counted),
                    counts=counts,
                    force=force,
                )
            if uncounted and result.outcome != "failed":
                result = replace(result, detail="; ".join(filter(None, [result.detail, uncounted])))
            failures = failures + 1 if result.outcome == "failed" else 0
            if result.detail:
                logger.info("%s %s: %s: %s", source.name, shown(window), result.outcome, why(result))
            answers.append(result)
            step_deadline.progressed()
            progress.of(f"landing {source.name}, windows", len(answers), max(len(answers), len(windows)))
        for given_up in (*relanded.settled(start, end), *_given_up(relanded, collector, start)):
            telemetry_landing.audit(connection, given_up, run_id, now)
            answers.append(given_up)
        outcomes = ", ".join(f"{n} {outcome}" for outcome, n in Counter(answer.outcome for answer in answers).items())
        logger.info("%s: %s rows; windows: %s", source.name, f"{sum(a.rows for a in answers):,}", outcomes)
        results += answers
    healing.expose(connection, store)
    return results


def _own_days(fleet: Fleet, days: Sequence[date], *, is_server: bool) -> Iterator[_Asked]:
    """The run's own days. Of the newest, for which the next runs ask again, the source counts its samples first: what
    comes while they land is then late data. A period with an end is landed whole by each run."""
    is_counted = is_server and fleet.relanding.days and fleet.period.end is None
    again = days[-fleet.relanding.days :] if is_counted else ()
    for day in days:
        yield _Asked(Window.of_day(day), is_counted=day in again)


def _days_again(relanded: relanding.Relanded, collector: Collector, start: date) -> Iterator[_Asked]:
    """The days before the run's own of which a server may have more by now, or that failed of another source. A spool
    lists what waits in it."""
    if relanded.is_server:
        unfilled = relanded.unfilled(start)
        for day in sorted({*unfilled, *relanded.counted(start)}):
            yield _Asked(Window.of_day(day), is_counted=True, is_again=True, is_unfilled=day in unfilled)
    elif not hasattr(collector, "days"):
        wanted = (relanded.connection, relanded.fleet, collector.source, start)
        for day in sorted({*relanding.failed(*wanted), *relanding.missed(*wanted)}):
            yield _Asked(Window.of_day(day), is_again=True, is_unfilled=True)


def _given_up(relanded: relanding.Relanded, collector: Collector, start: date) -> Sequence[Landing]:
    """The failed dates that this run was the first not to try again, of a source that `_days_again` asks for them."""
    if relanded.is_server or hasattr(collector, "days"):
        return []
    return relanding.given_up(relanded.connection, relanded.fleet, collector.source, start)


def _counted(collector: Any, window: Window, catalogue: telemetry_landing.Catalogue) -> tuple[pa.Table | None, str]:
    """What the source answers about the number of its samples, or why it does not."""
    try:
        return collector.counted(window, catalogue.families), ""
    except SourceError as refusal:
        return None, _why_uncounted(refusal)[:1000]


def _why_uncounted(refusal: SourceError) -> str:
    return f"late data of this date cannot be found, as its samples were not counted: {refusal.reason}"


def _waiting(collector: Collector, fleet: Fleet, start: date, end: date, open_from: date) -> Sequence[date]:
    """Days outside the run of which late files wait in a spool, without sealed ones; none where the source cannot list
    them."""
    if not hasattr(collector, "days"):
        return []
    try:
        days = collector.days()
    except SourceError:
        return []  # the run's own days will fail the same way, and be recorded
    last = fleet.period.end or date.max
    found = [day for day in days if fleet.period.start <= day < last and day < end and not start <= day]
    if late := [day for day in found if day < open_from]:
        shown = ", ".join(map(str, late))
        logger.warning("%s: what came late for sealed dates stays in the spool: %s", collector.source, shown)
    return [day for day in found if day >= open_from]


def why(result: Landing) -> str:
    """The detail, behind the file or URL that it is about."""
    return f"{result.url}: {result.detail}" if result.outcome == "failed" and result.url else str(result.detail)


def shown(window: Window) -> str:
    """A day by its date, a part of one with its hours."""
    if window.end_at - window.start_at == timedelta(days=1):
        return window.start_at.date().isoformat()
    return f"{window.start_at:%Y-%m-%d %H:%M}–{window.end_at:%H:%M}"
