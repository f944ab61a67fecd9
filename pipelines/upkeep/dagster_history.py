"""Dagster's history of a fleet's runs: what the newest ones did, and which may go, so that the newest events of every
partition stay.

Only what Dagster documents is used: runs are listed and deleted by its instance. Dagster's SQLite files do not become
smaller by that, so those of an instance of ours are tidied with SQLite's own means. Of a run there are two: the events
of assets and checks are in `index.db`, by which Dagster knows what each partition is; its own file has these once more,
and all that it logged. Keep out everything else that is in the instance's folder.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import dagster as dg

from pipelines.fleet.fleet_file import Fleet
from pipelines.upkeep import run_lock

# Of a SQLite file that is written anew: the share of its pages that are free.
FREE_RATIO = 0.25
# The table of a run's own file.
_EVENTS = "event_logs"
_START, _END, _ONE = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end", "dagster/partition"
# The status of a run whose process was killed: Dagster's own is STARTED until the next run.
BROKEN_OFF = "BROKEN_OFF"
_OVER = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)


@dataclass(frozen=True)
class Run:
    """One run: `seconds` is None while it is under way, and `dates` is empty for one of assets without dates."""

    began_at: datetime
    seconds: float | None
    status: str
    dates: str


class Old(NamedTuple):
    """Ids of old runs. `runs`: no event is the newest of its partition, as later runs made every asset of all their
    dates. `logs`: their events stay, and what they logged may go."""

    runs: list[str]
    logs: list[str]


class CheckState(NamedTuple):
    """A check as a run found it; `table` is schema and name. `severity` is error or warn."""

    table: str
    check: str
    severity: str
    is_passed: bool


@dataclass(frozen=True)
class EndedRun:
    """A run that has ended, and what its checks found."""

    ended_at: datetime
    seconds: float
    is_successful: bool
    checks: list[CheckState]


def removable(instance: dg.DagsterInstance, fleet: Fleet, days: int, now: datetime) -> Old:
    """What the fleet's runs that ended more than so many days ago leave behind, and nothing needs."""
    limit = (now - timedelta(days=days)).timestamp()
    covered: set[date | None] = set()
    runs, logs = [], []
    records = instance.get_run_records(_of(fleet))  # the newest first
    newest = next((record for record in records if record.dagster_run.status in _OVER), None)
    for record in records:
        run = record.dagster_run
        dates = _dates(run.tags)
        ended = record.end_time or record.update_timestamp.timestamp()
        if run.status in _OVER and ended < limit:
            if covered.issuperset(dates):
                runs.append(run.run_id)
            elif record is not newest:  # what the last run found is shown from its own file
                logs.append(run.run_id)
        is_whole = not (run.asset_selection or run.asset_check_selection or run.op_selection)
        if run.status == dg.DagsterRunStatus.SUCCESS and is_whole:
            covered.update(dates)
            covered.add(None)
    return Old(runs, logs)


def with_logs(home: Path, runs: Sequence[str]) -> list[str]:
    """Those of the runs that have logged something, or printed it."""
    return [run_id for run_id in runs if _has_events(_own_file(home, run_id)) or (home / "storage" / run_id).exists()]


def remove(instance: dg.DagsterInstance, old: Old, home: Path | None) -> None:
    """Delete the runs with their events, and of the others what they logged; `home` is the instance's folder where it
    is ours to tidy."""
    for run_id in old.runs:
        instance.delete_run(run_id)
    if home is None:
        return
    for run_id in old.runs:
        for path in home.glob(f"history/runs/{run_id}.db*"):
            path.unlink(missing_ok=True)  # Dagster empties a run's file and leaves it
    for run_id in old.logs:
        # Its file stays, empty: a webserver that has opened it would not make it anew. One that is busy is the next
        # removal's.
        if _own_file(home, run_id).exists():
            with suppress(sqlite3.OperationalError), _opened(_own_file(home, run_id)) as connection:
                connection.execute(f"delete from {_EVENTS}")
    for run_id in (*old.runs, *old.logs):
        shutil.rmtree(home / "storage" / run_id, ignore_errors=True)  # what its steps printed
    for path in _databases(home):
        # Another process reads or writes it: the next removal tidies it.
        with suppress(sqlite3.OperationalError):
            _tidy(path)


def bytes_of_runs(home: Path, runs: Iterable[str]) -> int:
    """Bytes of the files of these runs alone."""
    paths = [path for run_id in runs for path in home.glob(f"history/runs/{run_id}.db*")]
    return sum(path.stat().st_size for path in paths)


def _own_file(home: Path, run_id: str) -> Path:
    return home / "history" / "runs" / f"{run_id}.db"


def _has_events(path: Path) -> bool:
    if not path.exists():
        return False
    try:
        with _opened(path) as connection:
            return connection.execute(f"select 1 from {_EVENTS} limit 1").fetchone() is not None
    except sqlite3.OperationalError:
        return False


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, timeout=5, isolation_level=None)) as connection:
        yield connection


def _dates(tags: Mapping[str, str]) -> set[date | None]:
    """The partitions of a run; None for a run of assets without partitions."""
    if _START in tags:
        first, last = date.fromisoformat(tags[_START]), date.fromisoformat(tags[_END])
        return {first + timedelta(days=n) for n in range((last - first).days + 1)}
    return {date.fromisoformat(tags[_ONE])} if _ONE in tags else {None}


def _databases(home: Path) -> Iterator[Path]:
    yield from sorted(home.glob("history/**/*.db"))
    yield from sorted(home.glob("schedules/*.db"))


def _tidy(path: Path) -> None:
    with _opened(path) as connection:
        ((pages,),) = connection.execute("pragma page_count").fetchall()
        ((free,),) = connection.execute("pragma freelist_count").fetchall()
        if free > FREE_RATIO * pages:
            connection.execute("vacuum")
            connection.execute("pragma wal_checkpoint(truncate)").fetchall()


def last_runs(instance: dg.DagsterInstance, fleet: Fleet, count: int) -> list[Run]:
    """The newest runs of the fleet, the newest first."""
    return [
        replace(_run(record), status=BROKEN_OFF) if _is_broken_off(record, fleet) else _run(record)
        for record in instance.get_run_records(_of(fleet), limit=count)
    ]


def end_broken_off(instance: dg.DagsterInstance, fleet: Fleet) -> None:
    """Report runs as failed whose process was killed: Dagster would list them as started for good."""
    for record in instance.get_run_records(_of(fleet, [dg.DagsterRunStatus.STARTED])):
        if _is_broken_off(record, fleet):
            instance.report_run_failed(record.dagster_run, "its process ended before the run did")


def _is_broken_off(record: dg.RunRecord, fleet: Fleet) -> bool:
    """Whether a run of the command `run` is under way by Dagster's history, and its process is gone."""
    run = record.dagster_run
    tag = run.tags.get(run_lock.TAG)
    return run.status == dg.DagsterRunStatus.STARTED and tag is not None and not run_lock.is_alive(fleet.root, tag)


def last_ended(fleet: Fleet, home: Path) -> EndedRun | None:
    """The fleet's newest run that has ended, in the instance of the folder `home`; None where there is none."""
    if not (home / "dagster.yaml").exists():
        return None
    with dg.DagsterInstance.from_config(str(home)) as instance:
        for record in instance.get_run_records(_of(fleet, _OVER), limit=1):
            run, run_id = _run(record), record.dagster_run.run_id
            if run.seconds is None:
                continue  # it was cancelled before it began
            events = instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
            checks = {state[:2]: state for state in map(_check_state, events) if state is not None}
            is_successful = record.dagster_run.status == dg.DagsterRunStatus.SUCCESS
            ended_at = run.began_at + timedelta(seconds=run.seconds)
            return EndedRun(ended_at, run.seconds, is_successful, sorted(checks.values()))
    return None


def _of(fleet: Fleet, statuses: Sequence[dg.DagsterRunStatus] = ()) -> dg.RunsFilter:
    return dg.RunsFilter(tags={"fleet": fleet.fleet}, statuses=statuses)


def _run(record: dg.RunRecord) -> Run:
    began = record.start_time or record.create_timestamp.timestamp()
    seconds = record.end_time - began if record.end_time else None
    dates = sorted(on for on in _dates(record.dagster_run.tags) if on is not None)
    span = "" if not dates else str(dates[0]) if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return Run(datetime.fromtimestamp(began, UTC), seconds, record.dagster_run.status.value, span)


def _check_state(event: dg.EventLogEntry) -> CheckState | None:
    if event.dagster_event is None:
        return None
    found = event.dagster_event.asset_check_evaluation_data
    table = "/".join(found.asset_key.path[-2:])
    return CheckState(table, found.check_name, found.severity.value.lower(), bool(found.passed))
