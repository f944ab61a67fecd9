"""The command line: run the ledger in this process, print what it found, judge a fleet file.

    python -m pipelines run [--fleet fleets/demo.yaml] [--start 2026-10-01] [--end 2026-10-08] [--force]
    python -m pipelines run --rebuild [--fleet …] [--start …] [--end …]
    python -m pipelines table [--fleet …]
    python -m pipelines fleet check fleets/demo.yaml

Exit status: 0 all well; 1 the run failed or a check of severity error did; 2 the fleet file or the question is wrong.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sqlite3
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager, redirect_stdout
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.fleet import DEFAULT_FLEET, PROJECT, Fleet, FleetError, load_fleet
from pipelines.raw_tables import NewerWarehouse

if TYPE_CHECKING:
    import dagster as dg


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m pipelines", description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="land, book, check and publish; then print the table")
    table = commands.add_parser("table", help="print what is published")
    for command in (run, table):
        command.add_argument("--fleet", type=Path, default=os.environ.get("WATTLEDGER_FLEET") or DEFAULT_FLEET)
    run.add_argument("--start", type=date.fromisoformat, help="first UTC date; by default all that is not landed yet")
    run.add_argument("--end", type=date.fromisoformat, help="the UTC date after the last one")
    run.add_argument("--force", action="store_true", help="let an answer with fewer rows replace what is held")
    run.add_argument(
        "--force-publish", action="store_true", help="publish although readers would lose or see changed what they saw"
    )
    run.add_argument(
        "--rebuild", action="store_true", help="re-book what is booked (all, or these dates) from raw alone"
    )
    judge = commands.add_parser("fleet", help="judge a fleet file").add_subparsers(dest="judge", required=True)
    judge.add_parser("check").add_argument("fleet", type=Path)
    chosen = parser.parse_args(arguments)
    try:
        fleet = load_fleet(chosen.fleet)
        if chosen.command == "run":
            return _run(fleet, chosen)
        if chosen.command == "table":
            print(_headline(fleet))
        else:
            end = fleet.period.end or "yesterday"
            print(f"{chosen.fleet}: fleet {fleet.fleet}, {len(fleet.sources)} source(s), {fleet.period.start} to {end}")
    except (FleetError, FileNotFoundError, NewerWarehouse) as wrong:
        print(wrong, file=sys.stderr)
        return 2
    return 0


def _run(fleet: Fleet, asked: argparse.Namespace) -> int:
    days = fleet.days(datetime.now(UTC).date())
    if not days:
        print(f"{fleet.path}: period.start {fleet.period.start}: no day of the period is over yet", file=sys.stderr)
        return 2
    start, end = asked.start, asked.end
    is_all_rebuilt = asked.rebuild and start is None and end is None
    if asked.rebuild:
        booked = _booked_dates(fleet, days)
        if not booked:
            print(f"fleet {fleet.fleet}: no date is booked yet; run without --rebuild", file=sys.stderr)
            return 2
        days = [on for on in days if booked[0] <= on <= booked[-1]]
        start, end = start or booked[0], end or booked[-1] + timedelta(days=1)
    start = start or _first_open_day(fleet, days)
    end = end or days[-1] + timedelta(days=1)
    if not days[0] <= start < end <= days[-1] + timedelta(days=1):
        print(
            f"--start {start} --end {end}: expected dates in [{days[0]}, {days[-1] + timedelta(days=1)}]",
            file=sys.stderr,
        )
        return 2
    from pipelines import stores  # noqa: PLC0415

    stores.judge(fleet)
    _prepare_environment(fleet)
    _quieten()
    began = time.monotonic()
    label = " (synthetic)" if fleet.synthetic else ""
    print(f"fleet {fleet.fleet}{label}: {start} to {end - timedelta(days=1)}", flush=True)

    import dagster as dg  # noqa: PLC0415 (judging a fleet file should not pay for it)

    from pipelines.house import JOB, definitions_of, rebuilt_assets  # noqa: PLC0415
    from pipelines.publication import current  # noqa: PLC0415

    job = definitions_of(fleet).resolve_job_def(JOB)
    forced = ("grid_intensity",) if asked.rebuild else ("telemetry", "grid_intensity")
    # dbt's own lines stay in data/<fleet>/dbt/*/dbt.log; the progress handler holds the real console.
    with (
        _history_kept_open(),
        dg.DagsterInstance.get() as instance,
        Path(os.devnull).open("w") as nowhere,
        redirect_stdout(nowhere),
    ):
        result = job.execute_in_process(
            instance=instance,
            tags={
                "dagster/asset_partition_range_start": start.isoformat(),
                "dagster/asset_partition_range_end": (end - timedelta(days=1)).isoformat(),
            },
            run_config={
                "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
                "ops": {
                    **{op: {"config": {"force": asked.force}} for op in forced},
                    "ledger": {"config": {"rebuild": is_all_rebuilt}},
                    "published__publication": {"config": {"force": asked.force_publish}},
                },
            },
            asset_selection=rebuilt_assets(job) if asked.rebuild else None,
            raise_on_error=False,
        )
    failed = _report(result)
    print(f"took {time.monotonic() - began:.1f} s\n", flush=True)
    if result.success and current(fleet) is None:
        print("nothing is published: every date is held back")
    elif result.success:
        print(_headline(fleet))
    return 0 if result.success and not failed else 1


@contextmanager
def _history_kept_open() -> Iterator[None]:
    """Hold a connection to each of Dagster's SQLite files while a run lasts.

    Dagster opens a file anew for each of a run's 900 transactions, and whenever a file's last connection closes SQLite
    writes its log back and waits for the disk: 10 ms each, as much as all the rest of an empty day.
    """
    from sqlalchemy import Engine, event  # noqa: PLC0415 (Dagster's own; only a run needs it)

    held: dict[str, sqlite3.Connection] = {}

    def hold(connection: sqlite3.Connection, _: object) -> None:
        path = connection.execute("pragma database_list").fetchone()[2]
        # Until a file is in this mode Dagster is still setting it up, for which nobody else may have it open.
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


def _report(result: dg.ExecuteInProcessResult) -> int:
    """Print what failed; returns how many checks of severity error did."""
    for event in result.get_step_failure_events():
        error = event.step_failure_data.error
        cause = error
        while cause is not None and cause.cause is not None:
            cause = cause.cause
        print(f"step {event.step_key} failed: {cause.message.strip() if cause else event.message}", file=sys.stderr)
    evaluations = result.get_asset_check_evaluations()
    failed = [evaluation for evaluation in evaluations if not evaluation.passed]
    errors = [evaluation for evaluation in failed if evaluation.severity.value == "ERROR"]
    print(
        f"{len(evaluations)} checks: {len(evaluations) - len(failed)} passed, {len(errors)} failed,"
        f" {len(failed) - len(errors)} warned"
    )
    for evaluation in failed:
        word = "FAILED" if evaluation.severity.value == "ERROR" else "warned"
        why = f": {evaluation.description}" if evaluation.description else ""
        print(f"  {word} {evaluation.asset_key.to_user_string()} {evaluation.check_name}{why}")
    return len(errors)


def _first_open_day(fleet: Fleet, days: list[date]) -> date:
    """Where a run without --start begins: a closed period is booked whole, an open one from where landing stopped."""
    if fleet.period.end is not None or not fleet.warehouse.exists():
        return days[0]
    from pipelines import warehouse  # noqa: PLC0415
    from pipelines.raw_tables import create_tables  # noqa: PLC0415

    with warehouse.writing(fleet.warehouse, "run"), closing(warehouse.connect(fleet.warehouse)) as connection:
        create_tables(connection)
        landed = connection.execute(
            "select cast(window_start_at as date) from raw.landings where asset = 'raw/telemetry'"
            " and outcome <> 'failed' and window_end_at - window_start_at = interval 1 day group by 1"
        ).fetchall()
    open_days = set(days) - {row[0] for row in landed}
    return min(open_days, default=days[-1])


def _booked_dates(fleet: Fleet, days: list[date]) -> list[date]:
    """The dates of the period that the warehouse has booked."""
    if not fleet.warehouse.exists():
        return []
    from pipelines import settings, warehouse  # noqa: PLC0415
    from pipelines.raw_tables import create_tables  # noqa: PLC0415

    with warehouse.writing(fleet.warehouse, "run"), closing(warehouse.connect(fleet.warehouse)) as connection:
        create_tables(connection)
        return [on for on in settings.booked_dates(connection) if days[0] <= on <= days[-1]]


def _prepare_environment(fleet: Fleet) -> None:
    """One DAGSTER_HOME for `make run` and `make dev`, with the committed instance file."""
    os.environ["WATTLEDGER_FLEET"] = str(fleet.path)
    home = Path(os.environ.setdefault("DAGSTER_HOME", str(fleet.root.parent / ".dagster")))
    home.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(PROJECT / "dagster.yaml", home / "dagster.yaml")


def _quieten() -> None:
    """Progress on the console, and nothing of Dagster below a warning: its events are in the instance."""
    warnings.simplefilter("ignore")
    progress = logging.StreamHandler(sys.stdout)
    progress.setFormatter(logging.Formatter("  %(message)s"))
    ours = logging.getLogger("pipelines")
    ours.setLevel(logging.INFO)
    ours.addHandler(progress)
    ours.propagate = False
    for name in ("dagster", "dagster-dbt", "great_expectations"):
        logging.getLogger(name).setLevel(logging.ERROR)


def _headline(fleet: Fleet) -> str:
    from pipelines.headline import headline  # noqa: PLC0415

    return headline(fleet)


if __name__ == "__main__":
    sys.exit(main())
