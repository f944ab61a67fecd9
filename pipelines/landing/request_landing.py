"""Landing of requests: one source's log becomes rows of raw.requests, one transaction per UTC day.

Add here what has to hold for every request log. Keep out its shape (collectors), and what telemetry needs that requests
do not: series, facts and neighbours (`telemetry_landing`).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

import duckdb
import pyarrow as pa

from collectors.records.request_records import REQUEST_SCHEMA, RequestCollector
from collectors.rows import BAD_ROWS_RATIO, Rejects
from collectors.samples import SourceError, Window
from pipelines.fleet.fleet_file import Fleet
from pipelines.landing import relanding, telemetry_landing
from pipelines.landing.prefetch import read_ahead
from pipelines.landing.telemetry_landing import Landing
from pipelines.warehouse import database, due_dates
from pipelines.warehouse.tenants.tenant_names import TenantKeys

ASSET = "raw/requests"
_COLUMNS = ", ".join(REQUEST_SCHEMA.names)
# A log that was rotated or exported twice holds a request twice; requests without an id are all different.
_ONCE = f"""
    select {_COLUMNS} from requests_seen where started_at >= $start and started_at < $end
    qualify request_id is null or row_number() over (
        partition by request_id order by ended_at desc nulls last, output_tokens desc nulls last, hash({_COLUMNS})
    ) = 1
"""

logger = logging.getLogger(__name__)


def land(
    connection: duckdb.DuckDBPyConnection,
    collector: RequestCollector,
    start: date,
    end: date,
    *,
    run_id: str,
    bad_rows_ratio: float = BAD_ROWS_RATIO,
    force: bool = False,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> list[Landing]:
    """Land the requests that began on the UTC days [start, end), and audit each day.

    The source is read once, into a table of its own that spills to disk; then each day is replaced in one transaction,
    unless it holds more requests than came (`force` replaces it all the same) or exactly these. What goes wrong in the
    source is an outcome of every day, not an exception, and the old rows stay.
    """
    windows = [Window.of_day(start + timedelta(days=n)) for n in range((end - start).days)]
    rejects = Rejects(bad_rows_ratio)
    failure: SourceError | None = None
    try:
        _stage(connection, collector, Window(windows[0].start_at, windows[-1].end_at), rejects)
    except SourceError as refusal:
        failure = refusal
    except Exception as defect:
        # A defect in one reader must not stop the run's other sources.
        logger.exception("request source %s failed", collector.source)
        failure = SourceError(getattr(collector, "url", ""), None, f"{type(defect).__name__}: {defect}")
    results = []
    for window in windows:
        if failure is not None:
            held = _fingerprint(connection, *_of_day(collector.source, window))[0]
            result = Landing.failed(collector.source, window, failure, held)
            telemetry_landing.audit(connection, result, run_id, now(), ASSET)
        else:
            result = _validated(connection, collector, window, force, str(rejects) or None)
            _write(connection, result, run_id, now())
        results.append(result)
    connection.execute("drop table if exists requests_seen")
    outcomes = ", ".join(f"{n} {outcome}" for outcome, n in Counter(result.outcome for result in results).items())
    came = sum(result.rows for result in results)
    summary = "; ".join(part for part in (outcomes, str(rejects), failure.reason if failure else "") if part)
    logger.info("%s: %s requests; days: %s", collector.source, f"{came:,}", summary)
    return results


def given_up(
    connection: duckdb.DuckDBPyConnection, fleet: Fleet, source: str, start: date, run_id: str
) -> list[Landing]:
    """Audit the failed dates before `start` that a run from `start` on is the first not to try again."""
    found = relanding.given_up(connection, fleet, source, start, ASSET)
    for landing in found:
        telemetry_landing.audit(connection, landing, run_id, datetime.now(UTC), ASSET)
    return found


def _stage(
    connection: duckdb.DuckDBPyConnection, collector: RequestCollector, window: Window, rejects: Rejects
) -> None:
    connection.execute(f"create or replace temp table requests_seen as select {_COLUMNS} from raw.requests limit 0")
    tenants = TenantKeys(connection)
    for batch in read_ahead(collector, window, lambda: collector.collect(window, rejects)):
        with database.registered(connection, requests_came=pa.Table.from_batches([tenants.keyed(batch)])):
            connection.execute(f"insert into requests_seen select {_COLUMNS} from requests_came").fetchall()


def _validated(
    connection: duckdb.DuckDBPyConnection, collector: RequestCollector, window: Window, force: bool, detail: str | None
) -> Landing:
    """What is to become of the day, by what it holds and what came."""
    held = _fingerprint(connection, *_of_day(collector.source, window))
    came = _fingerprint(connection, _ONCE, {"start": window.start_at, "end": window.end_at})
    outcome = "landed"
    if came[0] < held[0] and not force:
        fewer = f"the source gave {came[0]} requests, {held[0]} are held; they stay"
        outcome, detail = "refused_fewer", "; ".join(filter(None, [fewer, detail]))
    elif came == held:
        outcome = "unchanged" if came[0] else "empty"
    url = getattr(collector, "url", None)
    return Landing(collector.source, window, outcome, came[0], held[0], url=url, detail=detail and detail[:1000])


def _write(connection: duckdb.DuckDBPyConnection, result: Landing, run_id: str, landed_at: datetime) -> None:
    """Replace the day and audit it, in one transaction."""
    day = {"source": result.source, "start": result.window.start_at, "end": result.window.end_at}
    with database.transaction(connection):
        if result.outcome == "landed":
            connection.execute(
                "delete from raw.requests where source = $source and started_at >= $start and started_at < $end", day
            ).fetchall()
            connection.execute(
                f"insert into raw.requests by name select $source as source, * from ({_ONCE})", day
            ).fetchall()
            # A day that had failed is none of those that the run is to book.
            on = result.window.start_at.date()
            due_dates.mark(connection, due_dates.BOOKING, on, on + timedelta(days=1))
        telemetry_landing.audit(connection, result, run_id, landed_at, ASSET)


def _of_day(source: str, window: Window) -> tuple[str, dict[str, object]]:
    query = f"select {_COLUMNS} from raw.requests where source = $source and started_at >= $start and started_at < $end"
    return query, {"source": source, "start": window.start_at, "end": window.end_at}


def _fingerprint(
    connection: duckdb.DuckDBPyConnection, query: str, parameters: dict[str, object]
) -> tuple[int, int | None]:
    """(rows, a hash of them in whatever order) of what a query gives."""
    return connection.execute(
        f"select count(*), sum(cast(hash({_COLUMNS}) as hugeint)) from ({query})", parameters
    ).fetchall()[0]
