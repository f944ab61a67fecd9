"""A tick: the running UTC day as far as its sources have it, landed and booked beside the warehouse.

    data/<fleet>/today.duckdb     schema today: what readers open, replaced whole by each tick
    data/<fleet>/.today/          the tick's own warehouse, which may be removed at any time

Joules and tokens of a closed interval are those of the later booking, unless a sample of it arrives later. An interval
is closed when each series that still reports has a sample after it. Add here what a tick does. Keep out what its file
has (`today_file`), and when a tick is due (`pipelines.serving`).
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import duckdb
from filelock import FileLock, Timeout

import pipelines
from collectors.samples import Window
from pipelines.fleet.fleet_file import Fleet
from pipelines.fleet.sources import Source
from pipelines.landing import grid_landing, landing_days, landing_edges, stale_dates
from pipelines.today import aside, today_file
from pipelines.today.today_file import SourceState, Tick, Today
from pipelines.warehouse import database, statements
from pipelines.warehouse.refusals import QuestionError

# What the figures are read from; dbt makes what this reads, and no more.
MART = "model_hourly"
# A source that has given no sample for so long is not waited for: the others' intervals are closed without it.
SILENT_SECONDS = 900
WORK, LOCK = ".today", "tick.lock"


class TickSkipped(Exception):
    """No tick was made, and the file stays as it was: the message has the reason."""


def refresh(fleet: Fleet, at: datetime | None = None) -> Path:
    """Make a tick of the UTC day of `at`, by default now; returns the file. TickSkipped where the warehouse is being
    written, or another tick is being made; QuestionError where no day of the period is running."""
    began = time.monotonic()
    at = (at or datetime.now(UTC)).astimezone(UTC)
    on = at.date()
    if on < fleet.period.start or (fleet.period.end is not None and on >= fleet.period.end):
        until = f" to {fleet.period.end - timedelta(days=1)}" if fleet.period.end else " on"
        raise QuestionError(
            f"{fleet.path}: period: {fleet.period.start}{until}: {on} is not in it, so no day is running"
        )
    if writer := database.writer(fleet.warehouse):
        raise TickSkipped(f"the warehouse is being written by {writer}")
    with _alone(fleet) as work:
        parsed = aside.parsed_project(fleet)
        apart = aside.placed(fleet, work)
        is_fresh = _started_anew(apart, on, (parsed / "manifest.digest").read_text(encoding="utf-8"))
        sources, closed_until = _landed(fleet, apart, on, at)
        _keep_what_is_lost(today_file.last(fleet), on, sources)
        if is_fresh:
            aside.seed(apart, parsed)
            _note(apart, on, (parsed / "manifest.digest").read_text(encoding="utf-8"))
        aside.book(apart, on, parsed, [MART], closed_until)
        tick = Tick(fleet, on, at, closed_until, sources)
        return today_file.write(tick, apart.warehouse, lambda: time.monotonic() - began)


@contextmanager
def _alone(fleet: Fleet) -> Iterator[Path]:
    """The folder of the tick's own warehouse, which only this process writes."""
    work = fleet.root / WORK
    work.mkdir(parents=True, exist_ok=True)
    lock = FileLock(work / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise TickSkipped("another process is making a tick") from None
    try:
        yield work
    finally:
        lock.release()


def _started_anew(apart: Fleet, on: date, project: str) -> bool:
    """Whether the tick's warehouse is made anew: it is of another date, another fleet file or another project, or it
    cannot be read."""
    made_with = apart.root / "made_with.json"
    try:
        if json.loads(made_with.read_text(encoding="utf-8")) == _made_with(apart, on, project):
            with database.connect(apart.warehouse) as connection:
                connection.execute("select 1 from raw.series_chunks limit 1").fetchall()
            return False
    except (OSError, ValueError, duckdb.Error):
        pass
    made_with.unlink(missing_ok=True)
    for left in (apart.warehouse, Path(f"{apart.warehouse}.wal")):
        left.unlink(missing_ok=True)
    shutil.rmtree(apart.root / "dbt", ignore_errors=True)
    return True


def _keep_what_is_lost(last: Today | None, on: date, sources: list[SourceState]) -> None:
    """TickSkipped where a source cannot be read of which the last tick had samples of the day, and this one, which has
    started anew, has none."""
    had = {one.source for one in last.sources if one.newest_at is not None} if last and last.on == on else set()
    for one in sources:
        if last and one.problem is not None and one.newest_at is None and one.source in had:
            raise TickSkipped(
                f"{one.source}: {one.problem}; what it had of the day until {last.closed_until_at:%H:%M} stays"
            )


def _note(apart: Fleet, on: date, project: str) -> None:
    text = json.dumps(_made_with(apart, on, project))
    (apart.root / "made_with.json").write_text(text, encoding="utf-8")


def _made_with(apart: Fleet, on: date, project: str) -> dict[str, str]:
    fleet_file = hashlib.blake2b(apart.model_dump_json().encode(), digest_size=16).hexdigest()
    return {"date": on.isoformat(), "version": pipelines.__version__, "project": project, "fleet_file": fleet_file}


def _landed(fleet: Fleet, apart: Fleet, on: date, at: datetime) -> tuple[list[SourceState], datetime]:
    """Land the day until `at`; each source as it is now, and the end of the last closed interval."""
    day = Window.of_day(on)
    until = max(at, day.start_at + timedelta(seconds=1))
    problems: dict[str, str] = {}
    with database.connect(apart.warehouse) as connection:
        aside.prepare(connection, apart)
        # Hours that an API has not given yet have the yearly factor; it is asked by the run that books the day.
        unasked: dict[str, list[grid_landing.Answer]] = {one.name: [] for one in apart.grid_intensity.sources}
        grid_landing.land_grid(connection, apart, on, on + timedelta(days=1), run_id=aside.RUN, answers=unasked, now=at)
        _take_over(connection, fleet, day)
        for source in apart.sources:
            before = _hour_before(source, day)
            if not stale_dates.chunks(connection, source.name, before).num_rows:
                aside.land(connection, source, before, is_neighbour=True)
            landing = aside.land(connection, source, Window(day.start_at, until))
            if landing.outcome == "failed":
                problems[source.name] = landing_days.why(landing)
        given = {"start_at": day.start_at, "asked_until": until, "silent_seconds": SILENT_SECONDS}
        rows = connection.execute(statements.read(__file__, "sources"), given).fetchall()
    sources = [
        SourceState(name, newest_at, closed_at, samples, is_silent, problems.get(name))
        for name, newest_at, closed_at, samples, is_silent in rows
    ]
    return sources, closed_until(sources, day.start_at, timedelta(seconds=apart.grid_seconds))


def _take_over(connection: duckdb.DuckDBPyConnection, fleet: Fleet, day: Window) -> None:
    """What the warehouse holds of the day, and of the day before it, of sources that forget what was landed: a spool
    that a run has emptied. Once, into a warehouse of the tick that holds nothing of them."""
    forgetful = [source.name for source in fleet.sources if hasattr(source.collector(), "landed")]
    held = "select 1 from raw.series_chunks where source in (select unnest(?)) limit 1"
    if not forgetful or not fleet.warehouse.exists() or connection.execute(held, [forgetful]).fetchall():
        return
    given = {"sources": forgetful, "from": day.start_at - timedelta(days=1), "to": day.end_at}
    connection.execute(f"attach {database.literal(fleet.warehouse)} as booked (read_only)")
    with database.transaction(connection):
        for statement in statements.read(__file__, "take_over").split(";\n"):
            connection.execute(statement, given).fetchall()
    connection.execute("detach booked")


def _hour_before(source: Source, day: Window) -> Window:
    """What has the last sample before the day: an hour, or of a source that is read seldom, two of its intervals."""
    return Window(day.start_at - landing_edges.length(source), day.start_at)


def closed_until(sources: list[SourceState], start_at: datetime, grid: timedelta) -> datetime:
    """The end of the last closed interval, the day's start where there is none. A silent source is not waited for,
    unless all are silent."""
    read = [one for one in sources if one.closed_at is not None]
    times = [one.closed_at for one in read if not one.is_silent] or [one.closed_at for one in read]
    newest = min((at for at in times if at is not None), default=start_at)
    return start_at + (newest - start_at) // grid * grid
