"""The commands of `wattledger` and their options.

Add a command or an option here, with a help text that one line holds. Keep out what a command does (`main` finds it),
and any import that `--help` would wait for.
"""

from __future__ import annotations

import argparse
import os
import sys
from datetime import date, datetime
from pathlib import Path
from typing import NoReturn

import pipelines
from pipelines.fleet.places import DEFAULT_FLEET

PROGRAM = "wattledger"
SHELLS = ("bash", "zsh")
# As pipelines.upkeep.layers has them, which imports DuckDB.
LAYERS = ("raw", "intermediate", "publications", "history", "logs", "spools")
# As pipelines.command_line.headline has them.
TABLES = ("models", "months", "advice", "changes", "budgets", "free", "windows")
_LATER = """\
The fleet file: --fleet, else $WATTLEDGER_FLEET, else the demo. Its data: $WATTLEDGER_DATA, else data/ beside it.
"""


def parser() -> argparse.ArgumentParser:
    """The command line; tests read it too, to hold the documentation to it."""
    root = _Parser(
        prog=PROGRAM,
        description="What a token really costs, in joules, CO2 and dollars.",
        epilog=_LATER,
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=24),
    )
    root.add_argument("--version", action="version", version=f"{PROGRAM} {pipelines.__version__}")
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND [OPTIONS]", title="commands")
    _add_run(commands.add_parser("run", help="land, book, check and publish; then print the tables"))
    _add_table(commands.add_parser("table", help="print what is published, or a table by its name"))
    commands.add_parser("report", help="write the report of what is published; print its path")
    _add_sql(commands.add_parser("sql", help="print the rows of a query on what is published"))
    _add_explain(commands.add_parser("explain", help="print a headline figure as a tree of what adds up to it"))
    _add_export(commands.add_parser("export", help="write prices per token for LiteLLM, Langfuse and as CSV"))
    alarms = commands.add_parser("alarms", help="list the alarms that last, or test their receivers")
    alarms.add_argument("--test", action="store_true", help="send a test to each receiver of the fleet file")
    _add_all(commands.add_parser("dev", help="open the Dagster UI, on one fleet or on several"), "all in one UI")
    _add_discover(commands.add_parser("discover", help="look at a server or a folder; write a fleet file"))
    check = commands.add_parser("check", help="list what is wrong or doubtful in a fleet file")
    check.add_argument("--offline", action="store_true", help="the file alone: ask no source")
    check.add_argument("--json", action="store_true", help="for programs: a list of findings")
    today = commands.add_parser("today", help="print the running UTC day so far, as the last tick has it")
    today.add_argument("--refresh", action="store_true", help="make a tick first: land and book the day so far")
    _add_textfile(today)
    _add_serve(commands.add_parser("serve", help="tick every five minutes, run the nights, answer over HTTP"))
    _add_dashboards(commands.add_parser("dashboards", help="write the dashboards for Grafana or Superset"))
    commands.add_parser("mcp", help="answer a program that asks in words (MCP, over stdio)")
    _add_receipt(commands.add_parser("receipt", help="what a request, or a tenant in a month, used"))
    close = commands.add_parser("close", help="close a month: later changes of it are adjustments")
    close.add_argument("month", type=_month, help="the month, such as 2026-10")
    close.add_argument("--undo", action="store_true", help="open it again, if nothing refers to its closing yet")
    prune = commands.add_parser("prune", help="show what `retention` lets go, and with --yes remove it")
    prune.add_argument("layer", nargs="*", metavar="LAYER", help=f"of these alone: {', '.join(LAYERS)}")
    prune.add_argument("--yes", action="store_true", help="remove it")
    erase = commands.add_parser("erase", help="drop a tenant's name from the ledger and its copies")
    erase.add_argument("--tenant", required=True, metavar="NAME", help="the tenant, by its name or its key")
    doctor = commands.add_parser("doctor", help="show how the fleet's data is, what is due, and what to do")
    doctor.add_argument("--json", action="store_true", help="for programs")
    backup = commands.add_parser("backup", help="copy the fleet's data into a new folder")
    backup.add_argument("folder", type=Path, help="where the copy's folder is made, best on another disk")
    for name, command in commands.choices.items():
        if name != "discover":
            _add_fleet(command, several=name == "dev")
    commands.add_parser("schema", help="print the JSON Schema of a fleet file, for editors")
    explained = commands.add_parser("help", help="print what the pages have on a name, or a page")
    explained.add_argument(
        "word", nargs="?", default="index", metavar="CHECK|KEY|FIGURE|PAGE", help="such as costs_are_usual, or install"
    )
    completion = commands.add_parser("completion", help="print what completes commands and options in a shell")
    completion.add_argument("shell", choices=SHELLS)
    return root


def _add_fleet(command: argparse.ArgumentParser, *, several: bool) -> None:
    default = Path(os.environ.get("WATTLEDGER_FLEET") or DEFAULT_FLEET)
    if several:
        command.add_argument("--fleet", type=Path, nargs="+", default=[default], metavar="FILE", help="the fleet files")
    else:
        command.add_argument("--fleet", type=Path, default=default, metavar="FILE", help="the fleet file")


def _add_all(command: argparse.ArgumentParser, what: str) -> None:
    command.add_argument("--all", action="store_true", help=f"{what}: the fleet files of the folder $WATTLEDGER_FLEETS")


def _add_table(table: argparse.ArgumentParser) -> None:
    table.add_argument("name", nargs="?", choices=TABLES, metavar="NAME", help=f"of these: {', '.join(TABLES)}")
    _add_all(table, "one table of all")


def _add_run(run: argparse.ArgumentParser) -> None:
    run.add_argument("--start", type=_date, metavar="DATE", help="first UTC date; by default all that are not booked")
    run.add_argument(
        "--end", type=_date, metavar="DATE", help="the UTC date after the last one, with which printed ranges end"
    )
    run.add_argument("--force", action="store_true", help="replace landed rows even if a source now returns fewer")
    run.add_argument(
        "--force-publish", action="store_true", help="publish even if published figures change or disappear"
    )
    _add_log_format(run)
    run.add_argument(
        "--rebuild", action="store_true", help="re-book the booked dates (all, or --start to --end) from raw alone"
    )
    run.add_argument(
        "--adopt",
        action="store_true",
        help="after a lost warehouse: keep published rows that the sources no longer have",
    )


def _add_serve(serve: argparse.ArgumentParser) -> None:
    serve.add_argument("--host", default="127.0.0.1", help="the address to listen on (default 127.0.0.1)")
    serve.add_argument("--port", type=_port, default=9469, help="the port (default 9469)")
    serve.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name by which requests may ask, of a proxy or a Service; repeat it for more",
    )
    serve.add_argument("--bearer-env", metavar="NAME", help="the variable with the token that requests have to bring")
    serve.add_argument(
        "--textfile", type=Path, metavar="FILE", help="write the figures to a file of node_exporter, too"
    )
    _add_log_format(serve)


def _add_textfile(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--textfile", type=Path, metavar="FILE", help="write the figures for Prometheus to a file of node_exporter, too"
    )


def _add_log_format(command: argparse.ArgumentParser) -> None:
    command.add_argument("--log-format", choices=("text", "json"), default="text", help="of the lines that it prints")


def _add_sql(sql: argparse.ArgumentParser) -> None:
    sql.add_argument("query", nargs="?", help="one SQL query, or - for standard input")
    _add_all(sql, "with a column `fleet`")
    sql.add_argument("--tables", action="store_true", help="instead of a query: every table by rank and topic")
    sql.add_argument("--format", choices=("table", "csv", "json"), default="table")
    sql.add_argument("--limit", type=_count, default=40, metavar="ROWS", help="of a table (default 40; 0: all)")
    sql.add_argument(
        "--raw", action="store_true", help="CSV without the apostrophe before texts that a spreadsheet would run"
    )


def _add_explain(explain: argparse.ArgumentParser) -> None:
    explain.add_argument("figure", help="its name, such as known_cost_usd (docs/figures.md has all)")
    explain.add_argument(
        "--month", type=_month, metavar="MONTH", help="the month, such as 2026-10 (default: the newest)"
    )
    for name in ("team", "model", "site"):
        explain.add_argument(f"--{name}", metavar="NAME", help=f"of one {name} alone")
    explain.add_argument("--json", action="store_true", help="for programs, with all digits")


def _add_receipt(receipt: argparse.ArgumentParser) -> None:
    receipt.add_argument("id", nargs="?", metavar="ID", help="the request, as its log names it")
    receipt.add_argument("--tenant", metavar="NAME", help="the statement of this tenant instead, by name or key")
    receipt.add_argument("--month", type=_month, metavar="MONTH", help="of the statement, such as 2026-10")
    receipt.add_argument("--internal", action="store_true", help="also what it cost and the margin")
    shape = receipt.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="for programs")
    shape.add_argument("--html", action="store_true", help="write the statement as a page to print")


def _add_export(export: argparse.ArgumentParser) -> None:
    period = export.add_mutually_exclusive_group()
    period.add_argument(
        "--month",
        type=_month,
        metavar="MONTH",
        help="such as 2026-10 (default: the newest that is closed, else --lookback)",
    )
    period.add_argument("--lookback", action="store_true", help="the 28 dates up to the newest one")
    export.add_argument("--basis", choices=("fully_loaded", "allocation"), default="fully_loaded")
    export.add_argument(
        "--target", type=_share, default=0.7, metavar="RATIO", help="the other utilisation to price (default 0.7)"
    )
    export.add_argument(
        "--moved",
        type=_share,
        default=0.2,
        metavar="RATIO",
        help="warn of a price that moved by more since the last export (default 0.2)",
    )
    export.add_argument(
        "--out", type=Path, metavar="FOLDER", help="where the files go (default: exports in the fleet's data folder)"
    )


def _add_dashboards(dashboards: argparse.ArgumentParser) -> None:
    dashboards.add_argument("tool", choices=("grafana", "superset"))
    dashboards.add_argument("folder", type=Path, metavar="FOLDER", help="where the files go")
    dashboards.add_argument(
        "--database-env",
        metavar="NAME",
        help="Superset: the variable with the address of the database (default: the published wattledger.duckdb)",
    )


def _add_discover(discover: argparse.ArgumentParser) -> None:
    discover.add_argument(
        "place",
        help="a server with Prometheus' API (http://prometheus:9090), a metrics page, a folder of logs, or a spool",
    )
    discover.add_argument("--name", metavar="NAME", help="the fleet's name (default: from the host)")
    discover.add_argument("--out", type=Path, metavar="FILE", help="the fleet file to write (default: NAME.yaml here)")
    discover.add_argument("--yes", action="store_true", help="ask nothing: leave out what only a person knows")
    discover.add_argument("--at", type=_moment, metavar="TIME", help="look at an earlier moment, not at now")
    discover.add_argument("--matcher", action="append", default=[], help="of series, such as 'cluster=\"west\"'")
    discover.add_argument("--header", action="append", default=[], help="such as 'X-Scope-OrgID: team'")
    for kind in ("bearer", "username", "password"):
        discover.add_argument(f"--{kind}-env", metavar="NAME", help=f"the variable that holds the {kind}")
    discover.add_argument("--json", action="store_true", help="for programs: what was found; writes no file")


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


def _moment(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a time with its zone such as 2026-10-15T11:00:00Z")
    return at


def _month(text: str) -> date:
    try:
        return date.fromisoformat(f"{text}-01")
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a month such as 2026-10") from None


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a port from 1 to 65535, or 0 for a free one")
    return int(text)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a share above 0 and up to 1 such as 0.7")
    return share


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a number of rows such as 40, or 0 for all")
    return int(text)
