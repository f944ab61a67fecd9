"""The command `run`: land, book, check and publish in this process, then print the tables.

Add here what a run prints. Keep out the options (`main`), the dates (`run_dates`) and what a run executes
(`pipelines.code_location`).
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import sys
import textwrap
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import dagster as dg
import duckdb
from sqlalchemy import Engine, event

from collectors.samples import printable
from pipelines.alarming.delivery import after_run
from pipelines.alarming.run_outcome import Outcome, outcome_of, together
from pipelines.booking import checks
from pipelines.code_location import (
    JOB,
    definitions_of,
    first_look_assets,
    published_assets,
    rebuilt_assets,
    stretch_assets,
    validate,
)
from pipelines.command_line import instance, run_dates
from pipelines.command_line.headline import headline, is_published
from pipelines.command_line.service_commands.alarms_command import print_lines
from pipelines.fleet.data_owner import claim
from pipelines.fleet.fleet_file import Fleet
from pipelines.publishing.parts import Parts
from pipelines.upkeep import dagster_history, event_log, run_costs, run_lock
from pipelines.warehouse import database, disk_room, mistakes, progress
from pipelines.warehouse.asset_keys import asset_key, table_of
from pipelines.warehouse.raw_tables import NewerWarehouse, create_tables


def run(fleet: Fleet, options: argparse.Namespace, start: date, end: date, is_rebuilt: bool) -> int:
    """Book the dates [start, end) of the fleet and print the result; returns the exit status."""
    database.connect(":memory:").close()  # raises if DuckDB's limits in the environment are wrong
    if fleet.warehouse.exists():
        # Wait for another writer here, once, and not in each of the run's first steps.
        with database.writing(fleet.warehouse, "run"):
            pass
    home, is_ours = instance.chosen([fleet])
    validate(fleet)
    # Nothing is written for a fleet file that cannot work.
    claim(fleet)
    run_lock.hold(fleet.root)
    instance.create(home, is_ours=is_ours)
    label = " (synthetic)" if fleet.synthetic else ""
    newest = run_dates.looks_first(fleet, options, start, end)
    if newest is not None:
        print(f"fleet {fleet.fleet}{label}: {newest} first", flush=True)
        _look_first(fleet, home, newest, (end - start).days - 1)
    # With the number of dates: the last one is booked, and --end is the date after it.
    dates = (end - start).days
    span = f"{start} to {end - timedelta(days=1)}, {dates:,} dates" if dates > 1 else f"{start}"
    print(f"fleet {fleet.fleet}{label}: {span}", flush=True)

    job = definitions_of(fleet).resolve_job_def(JOB)
    *earlier, last = run_dates.stretches(fleet, options, start, end)
    done: list[_Done] = []
    for first, until in earlier:
        print(f"{first} to {until - timedelta(days=1)}, published with all dates:", flush=True)
        config = _config(fleet, options, is_rebuilt=is_rebuilt, is_followed=True)
        done.append(_done(fleet, job, (first, until), config, stretch_assets(job)))
        # A stretch of which no source answered is left to a later run; what else fails would fail the next one, too.
        if {step for step, _ in _failures(done[-1].result)} - {"telemetry"}:
            break
    else:
        if earlier:
            print(f"{last[0]} to {last[1] - timedelta(days=1)}, and all dates:", flush=True)
        config = _config(fleet, options, is_rebuilt=is_rebuilt)
        done.append(_done(fleet, job, last, config, rebuilt_assets(job) if is_rebuilt else None))
    result, schedule = done[-1].result, done[-1].schedule
    failed = sum(one.failed for one in done)
    outcome = together([one.outcome for one in done])
    parts = Parts()
    if result.success and fleet.latest_publication is None:
        print("nothing is published: every date is held back")
    elif result.success:
        print(headline(fleet, parts))
    if schedule is not None:
        print(f"\n{schedule}", flush=True)
    if parts.failed:
        outcome = replace(outcome, is_success=False, failures=(*outcome.failures, *parts.failed))
    print_lines(after_run(fleet, outcome))
    return 0 if all(one.result.success for one in done) and not failed and not parts.failed else 1


class _Done(NamedTuple):
    """What a run of Dagster's did; `failed` is the number of its checks of severity error that failed."""

    result: dg.ExecuteInProcessResult
    outcome: Outcome
    failed: int
    schedule: str | None


def _done(
    fleet: Fleet,
    job: dg.JobDefinition,
    dates: tuple[date, date],
    config: dict[str, dict[str, object]],
    selected: list[dg.AssetKey] | None,
) -> _Done:
    """Run what is selected, of the dates, and print what failed and what it took."""
    began = time.monotonic()
    with _instance(instance.home_of([fleet])) as (dagster_instance, aside):
        dagster_history.end_broken_off(dagster_instance, fleet)
        result = _executed(job, dagster_instance, dates, config, selected)
        schedule = instance.nightly(fleet, dagster_instance)
        outcome = outcome_of(fleet, dagster_instance, result.run_id, job)
    _print_failures(fleet, result, aside)
    is_followed = config["ledger"]["is_followed"]
    failed = _report(result, checks.OF_WHAT_IS_UNPUBLISHED if is_followed else ())
    used = cost_noted(fleet, result.run_id, is_success=result.success)
    print(f"took {time.monotonic() - began:.1f} s{used}\n", flush=True)
    return _Done(result, outcome, failed, schedule)


def _config(
    fleet: Fleet, options: argparse.Namespace, *, is_rebuilt: bool, is_followed: bool = False
) -> dict[str, dict[str, object]]:
    """The configuration of a run's steps. One that `is_followed` by another of the same command publishes nothing."""
    forced = ("grid_intensity",) if is_rebuilt else ("telemetry", "grid_intensity")
    publication = asset_key(fleet, "published", "publication").to_python_identifier()
    is_whole = options.start is None and options.end is None
    return {
        **{op: {"force": options.force} for op in forced},
        "ledger": {
            "rebuild": options.rebuild and is_whole,
            "adopt": options.adopt,
            "anew": options.rebuild or options.force,
            "is_followed": is_followed,
        },
        **({} if is_followed else {publication: {"force": options.force_publish}}),
    }


def cost_noted(fleet: Fleet, run_id: str, *, is_success: bool) -> str:
    """Note what the run took, also where it failed; returns it as words. Where that cannot be written, the run is still
    what it is; one that failed has waited for the file, and the reason is on the screen already."""
    if not is_success and database.writer(fleet.warehouse):
        return ""
    patience = None if is_success else 0.0
    try:
        with (
            database.writing(fleet.warehouse, "run_costs"),
            database.connect(fleet.warehouse, patience_seconds=patience) as connection,
        ):
            create_tables(connection)
            used = run_costs.note(connection, fleet, run_id, run_costs.END)
    except (database.WarehouseBusy, NewerWarehouse, duckdb.Error, OSError) as refusal:
        if is_success:
            print(f"what this run took could not be noted: {' '.join(str(refusal).split())}", file=sys.stderr)
        return ""
    return f": {used.core_seconds:,.1f} core-seconds and {disk_room.shown(used.peak_memory_bytes)} of memory"


def _look_first(fleet: Fleet, home: Path, newest: date, others: int) -> None:
    """Book and publish the newest date and print its tables. What fails here is left to the run of all dates, which
    reports it; so are the checks, most of which are about more than one date."""
    began = time.monotonic()
    run_dates.mark_ahead(fleet, newest)
    job = definitions_of(fleet).resolve_job_def(JOB)
    with _instance(home) as (dagster_instance, _):
        dates = (newest, newest + timedelta(days=1))
        result = _executed(job, dagster_instance, dates, {}, first_look_assets(job))
    _raise_if_stopped(_failures(result))
    print(f"took {time.monotonic() - began:.1f} s\n", flush=True)
    if not result.success or not is_published(fleet, newest):
        print(f"{newest} has no figures by itself; now with the {others} dates before it.\n", flush=True)
        return
    print(headline(fleet))
    print(
        f"\nThese are figures of {newest} alone; the {others} dates before it follow, and then the checks."
        " If you stop it now, they stay, and the next run goes on from here.\n",
        flush=True,
    )


def publish(fleet: Fleet, on: date) -> int:
    """Publish what the warehouse has, without booking; returns the exit status. `on` names the run in Dagster."""
    job = definitions_of(fleet).resolve_job_def(JOB)
    fleet.root.mkdir(parents=True, exist_ok=True)
    run_lock.hold(fleet.root)
    with _instance(instance.prepare([fleet])) as (dagster_instance, aside):
        dates = (on, on + timedelta(days=1))
        result = _executed(job, dagster_instance, dates, {}, published_assets(job))
    _print_failures(fleet, result, aside)
    return 0 if result.success and not _report(result) else 1


@contextmanager
def _instance(home: Path) -> Iterator[tuple[dg.DagsterInstance, list[str]]]:
    """Dagster's instance, and what is written to standard error meanwhile; the progress handler holds the real
    console."""
    with (
        mistakes.stderr_aside() as aside,
        history_kept_open(home),
        event_log.instance_of(home) as dagster_instance,
        Path(os.devnull).open("w") as nowhere,
        redirect_stdout(nowhere),
    ):
        try:
            yield dagster_instance, aside
        finally:
            progress.over()


def _executed(
    job: dg.JobDefinition,
    dagster_instance: dg.DagsterInstance,
    dates: tuple[date, date],
    config: dict[str, dict[str, object]],
    selected: list[dg.AssetKey] | None,
) -> dg.ExecuteInProcessResult:
    run_id = str(uuid.uuid4())
    dagster_instance.add_event_listener(run_id, _steps_shown(dagster_instance, run_id))
    return job.execute_in_process(
        instance=dagster_instance,
        run_id=run_id,
        tags={
            run_lock.TAG: run_lock.own(),
            "dagster/asset_partition_range_start": dates[0].isoformat(),
            "dagster/asset_partition_range_end": (dates[1] - timedelta(days=1)).isoformat(),
        },
        run_config={
            "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
            "ops": {op: {"config": of_op} for op, of_op in config.items()},
        },
        asset_selection=selected,
        raise_on_error=False,
    )


def _steps_shown(dagster_instance: dg.DagsterInstance, run_id: str) -> Callable[[dg.EventLogEntry], None]:
    """Shows which of a run's steps is under way, as its events come."""
    started: set[str] = set()
    whole: list[int] = []

    def show(entry: dg.EventLogEntry) -> None:
        if entry.dagster_event is None or entry.dagster_event.event_type_value != "STEP_START":
            return
        if not whole:
            run = dagster_instance.get_run_by_id(run_id)
            plan = run and run.execution_plan_snapshot_id
            if not plan:
                return
            whole.append(len(dagster_instance.get_execution_plan_snapshot(plan).step_keys_to_execute))
        started.add(entry.dagster_event.step_key or "")
        progress.of(f"step {entry.dagster_event.step_key}", len(started), *whole)

    return show


def _print_failures(fleet: Fleet, result: dg.ExecuteInProcessResult, aside: list[str]) -> None:
    failures = _failures(result)
    _raise_if_stopped(failures)
    for line in mistakes.failures(failures, fleet, aside):
        print(line, file=sys.stderr)


def _failures(result: dg.ExecuteInProcessResult) -> list[tuple[str, Any]]:
    """The steps that failed, each with Dagster's record of its error."""
    return [(step.step_key or "", step.step_failure_data.error) for step in result.get_step_failure_events()]


def _raise_if_stopped(failures: list[tuple[str, Any]]) -> None:
    if any(mistakes.is_interrupt(error) for _, error in failures):
        raise KeyboardInterrupt


@contextmanager
def history_kept_open(folder: Path) -> Iterator[None]:
    """Hold a connection to each of Dagster's SQLite files under `folder` while a run lasts.

    Dagster opens a file again for each transaction; of its events a run does not (`upkeep.event_log`). Whenever the
    last connection of a file closes, SQLite writes its log back and waits for the disk: 10 ms each.
    """
    held: dict[str, sqlite3.Connection] = {}

    def hold(connection: object, _: object) -> None:
        if not isinstance(connection, sqlite3.Connection):
            return
        path = connection.execute("pragma database_list").fetchone()[2]
        if not Path(path).is_relative_to(folder.resolve()):
            return
        # Waits for the disk when the log is written back, not with each of the transactions.
        connection.execute("pragma synchronous = normal")
        # Before a file is in this mode Dagster is still setting it up, and needs to be the only one to have it open.
        if path not in held and connection.execute("pragma journal_mode").fetchone()[0] == "wal":
            held[path] = sqlite3.connect(path, check_same_thread=False)
            held[path].execute("select count(*) from sqlite_master").fetchall()

    event.listen(Engine, "connect", hold)
    try:
        yield
    finally:
        event.remove(Engine, "connect", hold)
        for connection in held.values():
            connection.close()


def _report(result: dg.ExecuteInProcessResult, later: Collection[str] = ()) -> int:
    """Print which checks failed, but those that are asked again `later`; returns how many of severity error did."""
    evaluations = [one for one in result.get_asset_check_evaluations() if one.check_name not in later]
    failed = [evaluation for evaluation in evaluations if not evaluation.passed]
    errors = [evaluation for evaluation in failed if evaluation.severity.value == "ERROR"]
    print(
        f"{len(evaluations)} checks: {len(evaluations) - len(failed)} passed, {len(errors)} failed,"
        f" {len(failed) - len(errors)} warned"
    )
    for evaluation in failed:
        word = "FAILED" if evaluation.severity.value == "ERROR" else "warned"
        # A description may quote what a server or a file wrote.
        lines = [printable(line) for line in (evaluation.description or "").splitlines()]
        why = ": " + "\n".join(lines) if lines else ""
        print(textwrap.indent(f"{word} {table_of(evaluation.asset_key)} {evaluation.check_name}{why}", "  "))
    return len(errors)
