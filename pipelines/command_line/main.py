"""`wattledger`: one command, its errors in one line, its exit status.

Exit status: 0 success; 1 the run or a check of severity error failed, or a source does not answer `check`; 2 the fleet
file or an option is wrong; 130 a person stopped it. The reason is one line on standard error (`mistakes`), which names
a log file where there are details. Add here how a command is found. Keep out its options (`options`) and what it does:
each imports that when it begins, so that none waits for the packages of another.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
from collections.abc import Callable

try:
    from collectors import durable_files
    from pipelines.command_line import console, instance, options
    from pipelines.fleet.fleet_file import Fleet, FleetError, load_fleet
    from pipelines.upkeep import process_meter
    from pipelines.warehouse import mistakes, refusals
    from pipelines.warehouse.raw_tables import NewerWarehouse
except ModuleNotFoundError as missing:  # the machine's own Python instead of the one that `make setup` prepares
    if str(missing.name).partition(".")[0] in ("pipelines", "collectors"):
        raise
    sys.exit(f"{sys.executable} has no package {missing.name}: run `make setup`, then `.venv/bin/wattledger …`")


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    # Dagster and dbt make millions of objects that live as long as the process; Python would look through them again
    # and again, a tenth of a run's processor time.
    gc.set_threshold(50_000, 20, 100)
    durable_files.private_from_here()
    parser = options.parser()
    chosen, others = parser.parse_known_args(arguments)
    if others and chosen.command != "dev":
        parser.error(f"unknown option: {' '.join(others)}{_fleet_hint(others)}")
    fleets: list[Fleet] = []
    try:
        if chosen.command in _WITHOUT_A_FLEET:
            return _WITHOUT_A_FLEET[chosen.command](parser, chosen)
        return _of_fleets(chosen, others, fleets)
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


def _of_fleets(chosen: argparse.Namespace, others: list[str], fleets: list[Fleet]) -> int:
    """Run a command of one fleet or of several; `fleets` gets them as they are read, for the message of a failure."""
    if getattr(chosen, "all", False):
        return _of_all(chosen, others)
    fleets += [load_fleet(path) for path in (chosen.fleet if chosen.command == "dev" else [chosen.fleet])]
    if chosen.command == "dev":
        return instance.open_ui(fleets, others)
    return _OF_A_FLEET[chosen.command](fleets[0], chosen)


def _of_all(chosen: argparse.Namespace, others: list[str]) -> int:
    from pipelines.command_line import several_fleets  # noqa: PLC0415 (the other commands need no DuckDB)

    if chosen.command == "table":
        return several_fleets.print_table()
    fleets, wrong = several_fleets.fleets_of_folder()
    if wrong:
        raise refusals.QuestionError("\n".join(wrong))
    if chosen.command == "dev":
        return instance.open_ui(fleets, others)
    from pipelines.command_line.sql_command import sql_of_all  # noqa: PLC0415

    return sql_of_all(fleets, chosen)


def _run(fleet: Fleet, chosen: argparse.Namespace) -> int:
    process_meter.of_this_process()  # measures from here on
    console.show(chosen.log_format)
    from pipelines.command_line.run_dates import dates_of  # noqa: PLC0415 (the other commands need no DuckDB)
    from pipelines.command_line.service_commands.alarms_command import failure_alarmed  # noqa: PLC0415

    with failure_alarmed(fleet, chosen):
        dates = dates_of(fleet, chosen)
        from pipelines.command_line.run import run  # noqa: PLC0415 (Dagster takes a second)

        return run(fleet, chosen, *dates)


def _table(fleet: Fleet, chosen: argparse.Namespace) -> int:
    from pipelines.command_line.headline import headline, one_table  # noqa: PLC0415
    from pipelines.publishing.parts import Parts  # noqa: PLC0415

    parts = Parts()
    print(headline(fleet, parts) if chosen.name is None else one_table(fleet, chosen.name, parts))
    return 1 if parts.failed else 0


def _report(fleet: Fleet, _: argparse.Namespace) -> int:
    from pipelines.publishing.parts import Parts  # noqa: PLC0415
    from pipelines.publishing.publication_manifest import REPORT  # noqa: PLC0415
    from pipelines.report.fleet_report import write_report  # noqa: PLC0415

    parts = Parts()
    if write_report(fleet, parts) is None:
        raise refusals.nothing_published(fleet.fleet, fleet.path)
    print(fleet.published / REPORT)
    return 1 if parts.failed else 0


def _sql(fleet: Fleet, chosen: argparse.Namespace) -> int:
    from pipelines.command_line.sql_command import sql  # noqa: PLC0415

    return sql(fleet, chosen)


def _explain(fleet: Fleet, chosen: argparse.Namespace) -> int:
    from pipelines.command_line.explain_command import explain  # noqa: PLC0415

    return explain(fleet, chosen)


def _export(fleet: Fleet, chosen: argparse.Namespace) -> int:
    from pipelines.command_line.export_command import export  # noqa: PLC0415

    return export(fleet, chosen)


def _today(fleet: Fleet, chosen: argparse.Namespace) -> int:
    from pipelines.command_line.service_commands.today_command import today  # noqa: PLC0415

    return today(fleet, chosen)


def _serve(fleet: Fleet, chosen: argparse.Namespace) -> int:
    from pipelines.command_line.service_commands.serve_command import serve  # noqa: PLC0415

    return serve(fleet, chosen)


def _dashboards(fleet: Fleet, chosen: argparse.Namespace) -> int:
    from pipelines.command_line.service_commands.dashboards_command import dashboards  # noqa: PLC0415

    return dashboards(fleet, chosen)


def _mcp(fleet: Fleet, chosen: argparse.Namespace) -> int:
    from pipelines.command_line.service_commands.mcp_command import mcp  # noqa: PLC0415

    return mcp(fleet, chosen)


def _receipt(fleet: Fleet, chosen: argparse.Namespace) -> int:
    from pipelines.command_line.tenant_commands.receipt_command import receipt  # noqa: PLC0415

    return receipt(fleet, chosen)


def _close(fleet: Fleet, chosen: argparse.Namespace) -> int:
    from pipelines.command_line.close_command import close  # noqa: PLC0415

    return close(fleet, chosen.month, is_undone=chosen.undo)


def _alarms(fleet: Fleet, chosen: argparse.Namespace) -> int:
    from pipelines.command_line.service_commands.alarms_command import alarms  # noqa: PLC0415

    return alarms(fleet, chosen)


def _prune(fleet: Fleet, chosen: argparse.Namespace) -> int:
    from pipelines.command_line.upkeep_commands.prune_command import prune  # noqa: PLC0415

    return prune(fleet, chosen)


def _erase(fleet: Fleet, chosen: argparse.Namespace) -> int:
    from pipelines.command_line.tenant_commands.erase_command import erase  # noqa: PLC0415

    return erase(fleet, chosen.tenant)


def _doctor(fleet: Fleet, chosen: argparse.Namespace) -> int:
    from pipelines.command_line.upkeep_commands.doctor_command import doctor  # noqa: PLC0415

    return doctor(fleet, chosen)


def _backup(fleet: Fleet, chosen: argparse.Namespace) -> int:
    from pipelines.command_line.upkeep_commands.backup_command import backup  # noqa: PLC0415

    return backup(fleet, chosen)


def _check(_: argparse.ArgumentParser, chosen: argparse.Namespace) -> int:
    from pipelines.command_line.check_command import check  # noqa: PLC0415

    return check(chosen)


def _discover(_: argparse.ArgumentParser, chosen: argparse.Namespace) -> int:
    from pipelines.command_line.discover_command import discover  # noqa: PLC0415

    return discover(chosen)


def _schema(_: argparse.ArgumentParser, __: argparse.Namespace) -> int:
    from pipelines.fleet.fleet_schema import fleet_schema  # noqa: PLC0415

    print(json.dumps(fleet_schema(), indent=2))
    return 0


def _help(_: argparse.ArgumentParser, chosen: argparse.Namespace) -> int:
    from pipelines.command_line.upkeep_commands.help_command import help_on  # noqa: PLC0415

    return help_on(chosen.word)


def _completion(parser: argparse.ArgumentParser, chosen: argparse.Namespace) -> int:
    import shtab  # noqa: PLC0415

    print(shtab.complete(parser, chosen.shell))
    return 0


_OF_A_FLEET: dict[str, Callable[[Fleet, argparse.Namespace], int]] = {
    "run": _run,
    "table": _table,
    "report": _report,
    "today": _today,
    "serve": _serve,
    "dashboards": _dashboards,
    "mcp": _mcp,
    "sql": _sql,
    "explain": _explain,
    "export": _export,
    "alarms": _alarms,
    "receipt": _receipt,
    "close": _close,
    "prune": _prune,
    "erase": _erase,
    "doctor": _doctor,
    "backup": _backup,
}

# Commands that need no fleet, or read its file themselves.
_WITHOUT_A_FLEET: dict[str, Callable[[argparse.ArgumentParser, argparse.Namespace], int]] = {
    "check": _check,
    "discover": _discover,
    "schema": _schema,
    "help": _help,
    "completion": _completion,
}


def _fleet_hint(others: list[str]) -> str:
    """`wattledger run mine.yaml` is what many type first."""
    file = next((word for word in others if word.endswith((".yaml", ".yml"))), None)
    return f"; a fleet file is named by --fleet {file}" if file else ""
