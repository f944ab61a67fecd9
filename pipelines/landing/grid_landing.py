"""Grid intensity into raw.grid_intensity: files replaced whole, APIs by source and UTC day.

Add here what has to hold for every source of intensity: what a possible value is, that less never replaces more. Keep
out how an API is asked (`collectors.protocols.grid_apis`) and which value an hour takes in the end
(int_carbon_factors).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

import duckdb
import pyarrow as pa

from collectors.protocols.grid_apis import GridCollector
from collectors.rows import Rejects
from collectors.samples import SourceError, Window
from collectors.text_files import paths_of
from pipelines.fleet.fleet_file import Fleet
from pipelines.fleet.grid_sources import INTENSITIES as VALUES
from pipelines.fleet.grid_sources import AnyGridSource, GridFile
from pipelines.landing import telemetry_landing
from pipelines.landing.grid_rows import cells_of, first_row, rows_of
from pipelines.landing.prefetch import read_ahead
from pipelines.landing.telemetry_landing import Landing
from pipelines.warehouse import database

ASSET = "raw/grid_intensity"
FILE = "file"
# The dirtiest lignite plants emit about 1,400 g/kWh; more is another unit, as is less than nothing.
POSSIBLE_GCO2E_PER_KWH = 2500
# Asked for in one request: Electricity Maps answers ten days of hours at most, the others more.
DAYS_AT_ONCE = 10
FAILURES_IN_A_ROW = 3

# Rows that are left out and can be read.
_NO_REJECTS = (None, "of another zone", "repeated")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Answer:
    """What an API answered for some days: rows of GRID_SCHEMA, or why there are none."""

    window: Window
    url: str
    rows: pa.Table | None = None
    failure: SourceError | None = None


def answers_of(fleet: Fleet, start: date, end: date) -> dict[str, list[Answer]]:
    """By source, what the fleet's APIs answer for the UTC days [start, end), some days at a time."""
    window = _span(start, end)
    return {source.name: list(_answers(source.collector(), window)) for source in fleet.grid_intensity.sources}


def _answers(collector: GridCollector, window: Window) -> Iterator[Answer]:
    failures, start_at = 0, window.start_at
    while start_at < window.end_at:
        asked = Window(start_at, min(start_at + timedelta(days=DAYS_AT_ONCE), window.end_at))
        try:
            yield Answer(asked, collector.url, rows=_asked(collector, asked, failures))
            failures = 0
        except SourceError as failure:
            failures += 1
            yield Answer(asked, collector.url, failure=failure)
        start_at = asked.end_at


def land_grid(
    connection: duckdb.DuckDBPyConnection,
    fleet: Fleet,
    start: date,
    end: date,
    *,
    run_id: str,
    answers: Mapping[str, list[Answer]] | None = None,
    force: bool = False,
    now: datetime | None = None,
) -> list[Landing]:
    """Land all files and, of the UTC days [start, end), all APIs; each landing is audited in raw.landings.

    `answers` are those of the APIs, as `answers_of` gives them; without them they are asked for now.

    What goes wrong in a file or an API is an outcome, not an exception: the others land, and what was held stays. The
    detail of a landing is what was rejected and why.
    """
    results: list[Landing] = []
    answers = answers_of(fleet, start, end) if answers is None else answers
    window = _span(start, end)
    _forget_files(connection, fleet)
    for file in fleet.grid_intensity.files:
        results += _land_files(connection, file, window)
    for source in fleet.grid_intensity.sources:
        results += _land_source(connection, source, answers[source.name], force=force)
    for result in results:
        telemetry_landing.audit(connection, result, run_id, now or datetime.now(UTC), asset=ASSET)
        if result.detail:
            logger.info("%s: %s: %s", result.source, result.outcome, result.detail)
    return results


def names_of(file: GridFile) -> list[str]:
    """What the landings of an entry of the fleet file are called: one per file, or its path where there is none."""
    return list(_found(file)) or [file.source or file.path]


def _forget_files(connection: duckdb.DuckDBPyConnection, fleet: Fleet) -> None:
    """Delete the rows of files that the fleet no longer names."""
    named = [name for file in fleet.grid_intensity.files for name in _found(file)]
    connection.execute(
        "delete from raw.grid_intensity where source_kind = ? and not list_contains(?::varchar[], source)",
        [FILE, named],
    ).fetchall()


def _land_files(connection: duckdb.DuckDBPyConnection, file: GridFile, window: Window) -> Iterator[Landing]:
    try:
        found = _named(file)
    except SourceError as refusal:
        found = {}
        yield Landing(names_of(file)[0], window, "failed", 0, 0, refusal.url, detail=refusal.reason)
    for name, path in found.items():
        held = _held(connection, name, file.zone)
        rejects = Rejects(file.limits.bad_rows_ratio)
        try:
            table, columns = cells_of(file, path, rejects)
            with database.registered(connection, grid_file=table), database.transaction(connection):
                rows = rows_of(file, columns)
                came, rejected = _validated(connection, file.zone, rows, [], rejects)
                if came == 0:
                    first = first_row(table, columns) if table.num_rows else None
                    why = [f"no value of zone {file.zone}", rejected or "it is empty", first if rejected else None]
                    raise SourceError(path, None, "; ".join(filter(None, why)))
                rejects.check(path)
                same = _replace(connection, name, FILE, file.zone)
            yield Landing(name, window, "unchanged" if same else "landed", came, held, path, detail=rejected)
        except SourceError as refusal:
            yield Landing.failed(name, window, refusal, held)
        except duckdb.Error as refusal:
            yield Landing.failed(name, window, SourceError(path, None, str(refusal).partition("\n")[0]), held)


def _land_source(
    connection: duckdb.DuckDBPyConnection, source: AnyGridSource, answers: list[Answer], *, force: bool
) -> Iterator[Landing]:
    """One transaction for each day of an answer."""
    for answer in answers:
        first, length = answer.window.start_at.date(), answer.window.end_at - answer.window.start_at
        days = [Window.of_day(first + timedelta(days=n)) for n in range(length.days)]
        if answer.failure is not None:
            for day in days:
                yield Landing.failed(source.name, day, answer.failure, _held(connection, source.name, source.zone, day))
            continue
        with database.registered(connection, grid_answer=answer.rows):
            for day in days:
                yield _land_day(connection, source, answer.url, day, is_first=day is days[0], force=force)


def _asked(collector: GridCollector, window: Window, failures: int) -> pa.Table:
    """The collector's rows; SourceError also for a defect of its own, which must not stop the other zones."""
    if failures >= FAILURES_IN_A_ROW:
        raise SourceError(
            collector.url, None, f"not asked: {collector.source} had failed {FAILURES_IN_A_ROW} times in a row"
        )
    return next(read_ahead(collector, window, lambda: map(collector.collect, [window])))


def _land_day(
    connection: duckdb.DuckDBPyConnection,
    source: AnyGridSource,
    url: str,
    day: Window,
    *,
    is_first: bool,
    force: bool,
) -> Landing:
    # What has no readable time belongs to no day: it is counted with the first one of the answer.
    timeless = "or start_at is null" if is_first else ""
    place = "coalesce(start_at::varchar, 'an entry') as place, null as cells, row_number() over () as nth"
    rows = f"select ? as zone, *, {place} from grid_answer where (start_at >= ? and start_at < ?) {timeless}"
    held = _held(connection, source.name, source.zone, day)
    rejects = Rejects(setting=None)
    with database.transaction(connection):
        came, detail = _validated(connection, source.zone, rows, [source.zone, day.start_at, day.end_at], rejects)
        try:
            rejects.check(url)
        except SourceError as refusal:
            return Landing.failed(source.name, day, refusal, held)
        if came < held and not force:
            outcome, detail = "refused_fewer", f"the source gave {came} rows, {held} are held; they stay"
        else:
            same = _replace(connection, source.name, source.kind, source.zone, day)
            detail = "; ".join(filter(None, [_missing(connection), detail])) or None
            outcome = "empty" if came == held == 0 else "unchanged" if same else "landed"
    return Landing(source.name, day, outcome, came, held, url, detail=detail)


def _validated(
    connection: duckdb.DuckDBPyConnection, zone: str, rows: str, parameters: list[object], rejects: Rejects
) -> tuple[int, str | None]:
    """Put what is possible of `rows` into the temp table grid_came; (rows there, what was rejected and why).

    A row without any value is a missing hour and no reject. Of rows for the same time the largest value is kept. Rows
    of another zone and repeated ones are left out and named, but are not among the bad ones that `rejects` counts.
    """
    impossible = " or ".join(f"not ({v} between 0 and {POSSIBLE_GCO2E_PER_KWH})" for v in VALUES)
    connection.execute(
        f"""
        create or replace temp table grid_validated as
        with checked as (
            select *, coalesce({", ".join(VALUES)}) is not null as has_value, case
                when zone is distinct from ? then 'of another zone'
                when start_at is null then 'without a UTC time'
                when {impossible} then 'outside 0 to {POSSIBLE_GCO2E_PER_KWH} g/kWh'
                when end_at is null or end_at <= start_at or end_at > start_at + interval 1 day then 'without an end'
            end as reason
            from ({rows}) as came
        )
        select * replace (case
            when reason is null and has_value and row_number() over (
                partition by reason, start_at order by {", ".join(f"{v} desc nulls last" for v in VALUES)}, is_estimated
            ) > 1 then 'repeated' else reason end as reason)
        from checked
        """,
        [zone, *parameters],
    ).fetchall()
    connection.execute(
        "create or replace temp table grid_came as select * exclude (reason, has_value, place, cells, nth)"
        " from grid_validated where reason is null and has_value"
    ).fetchall()
    came = connection.execute("select count(*) from grid_came").fetchall()[0][0]
    counts = connection.execute(
        "select reason, count(*) from grid_validated group by reason order by reason"
    ).fetchall()
    unread = [f"{rejects.rows} not readable"] if rejects.rows else []
    rejects.read += sum(count for reason, count in counts if reason in _NO_REJECTS)
    bad = connection.execute(
        "select place, concat_ws(': ', reason, cells) from grid_validated"
        " where reason is not null and not list_contains(?, reason) order by nth",
        [[reason for reason in _NO_REJECTS if reason]],
    ).fetchall()
    for place, why in bad:
        rejects.add(place, why)
    named = ", ".join([*(f"{count} {reason}" for reason, count in counts if reason), *unread])
    first = f" ({'; '.join(rejects.first)})" if rejects.first else ""
    return came, f"rejected: {named}{first}" if named else None


def _missing(connection: duckdb.DuckDBPyConnection) -> str | None:
    """How many hours of a day have no value in grid_came."""
    hours = connection.execute("select count(distinct date_trunc('hour', start_at)) from grid_came").fetchall()[0][0]
    return f"{24 - hours} of 24 hours have no value" if hours < 24 else None


def _replace(
    connection: duckdb.DuckDBPyConnection, source: str, kind: str, zone: str, day: Window | None = None
) -> bool:
    """Replace the held rows by grid_came; returns whether they were the same."""
    times = "" if day is None else "and start_at >= $3 and start_at < $4"
    held = f"from raw.grid_intensity where source = $1 and zone = $2 {times}"
    edges = [] if day is None else [day.start_at, day.end_at]
    columns = f"zone, start_at, end_at, {', '.join(VALUES)}, is_estimated"
    differing = connection.execute(
        f"select count(*) from ((select {columns} from grid_came except select {columns} {held})"
        f" union all (select {columns} {held} except select {columns} from grid_came))",
        [source, zone, *edges],
    ).fetchall()[0][0]
    connection.execute(f"delete {held}", [source, zone, *edges]).fetchall()
    connection.execute(
        f"insert into raw.grid_intensity select {columns}, ?, ? from grid_came order by start_at", [source, kind]
    ).fetchall()
    return bool(differing == 0)


def _named(file: GridFile) -> dict[str, str]:
    """Source -> path of every file behind a path or glob. SourceError where there are none, or a link leads away."""
    paths = paths_of(file.path)
    names = {path: path.rpartition("/")[2] for path in paths}
    if file.source is not None:
        names = {path: f"{file.source} {name}" if len(paths) > 1 else file.source for path, name in names.items()}
    return {name: path for path, name in names.items()}


def _found(file: GridFile) -> dict[str, str]:
    try:
        return _named(file)
    except SourceError:
        return {}


def _held(connection: duckdb.DuckDBPyConnection, source: str, zone: str, day: Window | None = None) -> int:
    times = "" if day is None else "and start_at >= ? and start_at < ?"
    edges = [] if day is None else [day.start_at, day.end_at]
    query = f"select count(*) from raw.grid_intensity where source = ? and zone = ? {times}"
    return int(connection.execute(query, [source, zone, *edges]).fetchall()[0][0])


def _span(start: date, end: date) -> Window:
    """The UTC days [start, end)."""
    return Window(Window.of_day(start).start_at, Window.of_day(end).start_at)
