"""The command line: run the ledger in this process, print what it found, judge a fleet file.

    python -m pipelines run [--fleet fleets/demo.yaml] [--start 2026-10-01] [--end 2026-10-08] [--force]
    python -m pipelines run --rebuild [--fleet …] [--start …] [--end …]
    python -m pipelines run --adopt [--fleet …]
    python -m pipelines table [--fleet …]
    python -m pipelines dev [--fleet fleets/demo.yaml fleets/mlperf.yaml] [--port 3000] [options of `dagster dev`]
    python -m pipelines fleet check fleets/demo.yaml

Exit status: 0 all well; 1 the run failed or a check of severity error did; 2 the fleet file or the question is wrong.
What went wrong is one line on standard error (`mistakes`), which names a log file where there is more to know.
"""

from __future__ import annotations

import argparse
import logging
import os
import sqlite3
import sys
import textwrap
import time
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager, redirect_stdout
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

try:
    from pipelines import instance, mistakes
    from pipelines.fleet import DEFAULT_FLEET, Fleet, FleetError, load_fleet
    from pipelines.raw_tables import NewerWarehouse
except ModuleNotFoundError as missing:  # the machine's own Python instead of the one that `make setup` prepares
    if str(missing.name).partition(".")[0] in ("pipelines", "collectors"):
        raise
    sys.exit(
        f"{sys.executable} has no package {missing.name}: run `make setup`, then `.venv/bin/python -m pipelines …`"
    )

if TYPE_CHECKING:
    import dagster as dg


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    parser = _Parser(prog="python -m pipelines", description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="land, book, check and publish; then print the table")
    table = commands.add_parser("table", help="print what is published")
    for command in (run, table):
        command.add_argument("--fleet", type=Path, default=_default_fleet())
    run.add_argument("--start", type=_date, help="first UTC date; by default all that is not landed yet")
    run.add_argument("--end", type=_date, help="the UTC date after the last one")
    run.add_argument("--force", action="store_true", help="let an answer with fewer rows replace what is held")
    run.add_argument(
        "--force-publish", action="store_true", help="publish although readers would lose or see changed what they saw"
    )
    run.add_argument(
        "--rebuild", action="store_true", help="re-book what is booked (all, or these dates) from raw alone"
    )
    run.add_argument(
        "--adopt", action="store_true", help="after a lost warehouse: keep as published what the sources have no more"
    )
    dev = commands.add_parser("dev", help="open the Dagster UI on one fleet or on several")
    dev.add_argument("--fleet", type=Path, nargs="+", default=[_default_fleet()])
    judge = commands.add_parser("fleet", help="judge a fleet file").add_subparsers(dest="judge", required=True)
    judge.add_parser("check").add_argument("fleet", type=Path)
    chosen, others = parser.parse_known_args(arguments)
    if others and chosen.command != "dev":
        parser.error(f"unknown: {' '.join(others)}")
    fleets: list[Fleet] = []
    try:
        fleets += [load_fleet(path) for path in (chosen.fleet if chosen.command == "dev" else [chosen.fleet])]
        return _answer(chosen, others, fleets)
    except (FleetError, mistakes.QuestionError, instance.InstanceError, NewerWarehouse) as wrong:
        print(wrong, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped. What was landed and booked so far is kept; run again to go on from there.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `… table | head`: nobody reads the rest
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        print(mistakes.ended(error, fleets[0] if fleets else None), file=sys.stderr)
        return 1


def _answer(chosen: argparse.Namespace, others: list[str], fleets: list[Fleet]) -> int:
    if chosen.command == "dev":
        instance.open_ui(fleets, others)
    (fleet,) = fleets
    if chosen.command == "run":
        return _run(fleet, chosen)
    if chosen.command == "table":
        return _table(fleet)
    end = fleet.period.end or "yesterday"
    print(f"{chosen.fleet}: fleet {fleet.fleet}, {len(fleet.sources)} source(s), {fleet.period.start} to {end}")
    return 0


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line; argparse would print its usage before."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}. See {self.prog} --help.", file=sys.stderr)
        sys.exit(2)


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a UTC date such as 2026-10-01") from None


def _default_fleet() -> Path:
    return Path(os.environ.get("WATTLEDGER_FLEET") or DEFAULT_FLEET)


def _dates_of(fleet: Fleet, asked: argparse.Namespace) -> tuple[date, date, bool]:
    """The dates [start, end) that a run books, and whether it books them from what has landed; QuestionError says why
    there are none."""
    from pipelines import history  # noqa: PLC0415 (the rest of the command line needs no warehouse)

    days = fleet.days(datetime.now(UTC).date())
    if not days:
        raise mistakes.QuestionError(
            f"{fleet.path}: period.start {fleet.period.start}: no day of the period is over yet"
        )
    lost = history.lost_warehouse(fleet)
    if lost and not (asked.rebuild or asked.adopt):
        raise mistakes.QuestionError(lost)
    start, end = asked.start, asked.end
    is_rebuilt = asked.rebuild and not lost  # what was lost with the warehouse has to be landed again
    if is_rebuilt:
        booked = _booked_dates(fleet, days)
        if not booked:
            raise mistakes.QuestionError(f"fleet {fleet.fleet}: no date is booked yet; run without --rebuild")
        days = [on for on in days if booked[0] <= on <= booked[-1]]
    all_of_it = is_rebuilt or asked.adopt or lost
    start = start or (days[0] if all_of_it else _first_open_day(fleet, days))
    end = end or days[-1] + timedelta(days=1)
    if end <= start:
        raise mistakes.QuestionError(
            f"--start {start} --end {end}: expected an end after the start; the end itself is not booked"
        )
    if not days[0] <= start < end <= days[-1] + timedelta(days=1):
        raise mistakes.QuestionError(
            f"--start {start} --end {end}: expected dates in [{days[0]}, {days[-1] + timedelta(days=1)}]"
        )
    return start, end, is_rebuilt


def _run(fleet: Fleet, asked: argparse.Namespace) -> int:
    _quieten()
    start, end, is_rebuilt = _dates_of(fleet, asked)
    from pipelines import stores, warehouse  # noqa: PLC0415

    warehouse.connect(":memory:").close()  # what bounds DuckDB by the environment is right
    if fleet.warehouse.exists():
        # Whoever writes now is waited for here, once, and not by each of the run's first steps.
        with warehouse.writing(fleet.warehouse, "run"):
            pass
    stores.judge(fleet)
    instance.prepare([fleet])
    began = time.monotonic()
    label = " (synthetic)" if fleet.synthetic else ""
    print(f"fleet {fleet.fleet}{label}: {start} to {end - timedelta(days=1)}", flush=True)

    import dagster as dg  # noqa: PLC0415 (judging a fleet file should not pay for it)

    from pipelines.house import JOB, definitions_of, rebuilt_assets  # noqa: PLC0415
    from pipelines.keys import asset_key  # noqa: PLC0415
    from pipelines.publication import current  # noqa: PLC0415

    job = definitions_of(fleet).resolve_job_def(JOB)
    forced = ("grid_intensity",) if is_rebuilt else ("telemetry", "grid_intensity")
    # dbt's own lines stay in data/<fleet>/dbt/*/dbt.log; the progress handler holds the real console.
    with (
        mistakes.stderr_aside() as aside,
        _history_kept_open(),
        dg.DagsterInstance.get() as dagster_instance,
        Path(os.devnull).open("w") as nowhere,
        redirect_stdout(nowhere),
    ):
        result = job.execute_in_process(
            instance=dagster_instance,
            tags={
                "dagster/asset_partition_range_start": start.isoformat(),
                "dagster/asset_partition_range_end": (end - timedelta(days=1)).isoformat(),
            },
            run_config={
                "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
                "ops": {
                    **{op: {"config": {"force": asked.force}} for op in forced},
                    "ledger": {
                        "config": {
                            "rebuild": asked.rebuild and asked.start is None and asked.end is None,
                            "adopt": asked.adopt,
                        }
                    },
                    asset_key(fleet, "published", "publication").to_python_identifier(): {
                        "config": {"force": asked.force_publish}
                    },
                },
            },
            asset_selection=rebuilt_assets(job) if is_rebuilt else None,
            raise_on_error=False,
        )
        schedule = instance.nightly(fleet, dagster_instance)
    failures = [(event.step_key, event.step_failure_data.error) for event in result.get_step_failure_events()]
    if any(mistakes.is_interrupt(error) for _, error in failures):
        raise KeyboardInterrupt
    for line in mistakes.failures(failures, fleet, aside):
        print(line, file=sys.stderr)
    failed = _report(result)
    print(f"took {time.monotonic() - began:.1f} s\n", flush=True)
    if result.success and current(fleet) is None:
        print("nothing is published: every date is held back")
    elif result.success:
        print(_headline(fleet))
    if schedule is not None:
        print(f"\n{schedule}")
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
    """Print which checks failed; returns how many checks of severity error did."""
    from pipelines.keys import table_of  # noqa: PLC0415 (Dagster takes a second)

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
        print(textwrap.indent(f"{word} {table_of(evaluation.asset_key)} {evaluation.check_name}{why}", "  "))
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


def _table(fleet: Fleet) -> int:
    try:
        print(_headline(fleet))
    except FileNotFoundError as missing:
        raise mistakes.QuestionError(missing) from None
    return 0


def _headline(fleet: Fleet) -> str:
    from pipelines.headline import headline  # noqa: PLC0415

    return headline(fleet)


if __name__ == "__main__":
    sys.exit(main())
