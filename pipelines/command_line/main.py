"""The command line: run the ledger in this process, print what it found, check a fleet file.

    python -m pipelines run [--fleet fleets/demo.yaml] [--start 2026-10-01] [--end 2026-10-08] [--force]
    python -m pipelines run --rebuild [--fleet …] [--start …] [--end …]
    python -m pipelines run --adopt [--fleet …]
    python -m pipelines table [--fleet …]
    python -m pipelines sql "select * from marts.fleet_daily" [--fleet …] [--format table|csv|json] [--limit 40] [--raw]
    python -m pipelines explain known_cost_usd [--month 2026-10] [--team …] [--model …] [--site …] [--json] [--fleet …]
    python -m pipelines close 2026-10 [--undo] [--fleet …]
    python -m pipelines dev [--fleet fleets/demo.yaml fleets/mlperf.yaml] [--port 3000] [options of `dagster dev`]
    python -m pipelines fleet check fleets/demo.yaml

Exit status: 0 success; 1 the run or a check of severity error failed; 2 the fleet file or an option is wrong.
The reason is one line on standard error (`mistakes`), which names a log file where there are details.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import warnings
from datetime import date
from pathlib import Path
from typing import NoReturn

try:
    from pipelines.command_line import instance, mistakes
    from pipelines.fleet.fleet_file import DEFAULT_FLEET, Fleet, FleetError, load_fleet
    from pipelines.warehouse import refusals
    from pipelines.warehouse.raw_tables import NewerWarehouse
except ModuleNotFoundError as missing:  # the machine's own Python instead of the one that `make setup` prepares
    if str(missing.name).partition(".")[0] in ("pipelines", "collectors"):
        raise
    sys.exit(
        f"{sys.executable} has no package {missing.name}: run `make setup`, then `.venv/bin/python -m pipelines …`"
    )


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    parser = _Parser(prog="python -m pipelines", description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="land, book, check and publish; then print the table")
    table = commands.add_parser("table", help="print what is published")
    sql = commands.add_parser("sql", help="print the rows of a query on what is published")
    sql.add_argument("query", nargs="?", help="one SQL query, or - for standard input")
    sql.add_argument("--tables", action="store_true", help="instead of a query: every table by rank and topic")
    sql.add_argument("--format", choices=("table", "csv", "json"), default="table")
    sql.add_argument("--limit", type=_count, default=40, help="rows of a table (default 40; 0: all)")
    sql.add_argument(
        "--raw", action="store_true", help="CSV without the apostrophe before texts that a spreadsheet would run"
    )
    close = commands.add_parser("close", help="close a month: later changes of it are adjustments")
    close.add_argument("month", type=_month, help="the month, such as 2026-10")
    close.add_argument("--undo", action="store_true", help="open it again, if nothing refers to its closing yet")
    explain = commands.add_parser("explain", help="print a headline figure as a tree of what adds up to it")
    explain.add_argument("figure", help="its name, such as known_cost_usd (docs/figures.md has all)")
    explain.add_argument("--month", type=_month, help="the month, such as 2026-10 (default: the newest)")
    for name in ("team", "model", "site"):
        explain.add_argument(f"--{name}", help=f"of one {name} alone")
    explain.add_argument("--json", action="store_true", help="for programs, with all digits")
    for command in (run, table, sql, close, explain):
        command.add_argument("--fleet", type=Path, default=_default_fleet())
    run.add_argument("--start", type=_date, help="first UTC date; by default every date that is not landed yet")
    run.add_argument("--end", type=_date, help="the UTC date after the last one")
    run.add_argument("--force", action="store_true", help="replace landed rows even if a source now returns fewer")
    run.add_argument(
        "--force-publish", action="store_true", help="publish even if published figures change or disappear"
    )
    run.add_argument(
        "--rebuild", action="store_true", help="re-book the booked dates (all, or --start to --end) from raw alone"
    )
    run.add_argument(
        "--adopt",
        action="store_true",
        help="after a lost warehouse: keep published rows that the sources no longer have",
    )
    dev = commands.add_parser("dev", help="open the Dagster UI on one fleet or on several")
    dev.add_argument("--fleet", type=Path, nargs="+", default=[_default_fleet()])
    of_a_file = commands.add_parser("fleet", help="check a fleet file").add_subparsers(dest="action", required=True)
    of_a_file.add_parser("check").add_argument("fleet", type=Path)
    chosen, others = parser.parse_known_args(arguments)
    if others and chosen.command != "dev":
        parser.error(f"unknown option: {' '.join(others)}")
    fleets: list[Fleet] = []
    try:
        fleets += [load_fleet(path) for path in (chosen.fleet if chosen.command == "dev" else [chosen.fleet])]
        return _answer(chosen, others, fleets)
    except (FleetError, refusals.QuestionError, instance.InstanceError, NewerWarehouse) as wrong:
        print(wrong, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped. What was landed and booked so far is kept; run again to continue.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `… table | head`: the reader has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        print(mistakes.ended(error, fleets[0] if fleets else None), file=sys.stderr)
        return 1


def _answer(chosen: argparse.Namespace, others: list[str], fleets: list[Fleet]) -> int:
    if chosen.command == "dev":
        return instance.open_ui(fleets, others)
    (fleet,) = fleets
    if chosen.command == "run":
        _show_progress()
        from pipelines.command_line.run_dates import dates_of  # noqa: PLC0415 (the other commands need no DuckDB)

        dates = dates_of(fleet, chosen)
        from pipelines.command_line.run import run  # noqa: PLC0415 (Dagster takes a second)

        return run(fleet, chosen, *dates)
    if chosen.command == "table":
        return _table(fleet)
    if chosen.command == "sql":
        from pipelines.command_line.sql_command import sql  # noqa: PLC0415

        return sql(fleet, chosen)
    if chosen.command in ("explain", "close"):
        return _of_a_month(chosen, fleet)
    end = fleet.period.end or "yesterday"
    print(f"{chosen.fleet}: fleet {fleet.fleet}, {len(fleet.sources)} source(s), {fleet.period.start} to {end}")
    return 0


def _of_a_month(chosen: argparse.Namespace, fleet: Fleet) -> int:
    if chosen.command == "explain":
        from pipelines.command_line.explain_command import explain  # noqa: PLC0415

        return explain(fleet, chosen)
    from pipelines.command_line.close_command import close  # noqa: PLC0415

    return close(fleet, chosen.month, is_undone=chosen.undo)


class _Parser(argparse.ArgumentParser):
    """Reports an error in one line; argparse itself would print its usage first."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}. See {self.prog} --help.", file=sys.stderr)
        sys.exit(2)


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a UTC date such as 2026-10-01") from None


def _month(text: str) -> date:
    try:
        return date.fromisoformat(f"{text}-01")
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a month such as 2026-10") from None


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a number of rows such as 40, or 0 for all")
    return int(text)


def _default_fleet() -> Path:
    return Path(os.environ.get("WATTLEDGER_FLEET") or DEFAULT_FLEET)


def _table(fleet: Fleet) -> int:
    from pipelines.command_line.headline import headline  # noqa: PLC0415
    from pipelines.publishing.parts import Parts  # noqa: PLC0415

    parts = Parts()
    try:
        print(headline(fleet, parts))
    except FileNotFoundError as missing:
        raise refusals.QuestionError(missing) from None
    return 1 if parts.failed else 0


def _show_progress() -> None:
    """Show our own progress on the console. Of Dagster show only errors: its other events are in its instance."""
    warnings.simplefilter("ignore")
    progress = logging.StreamHandler(sys.stdout)
    progress.setFormatter(logging.Formatter("  %(message)s"))
    ours = logging.getLogger("pipelines")
    ours.setLevel(logging.INFO)
    ours.addHandler(progress)
    ours.propagate = False
    for name in ("dagster", "dagster-dbt", "great_expectations"):
        logging.getLogger(name).setLevel(logging.ERROR)
