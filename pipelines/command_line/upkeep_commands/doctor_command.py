"""The command `doctor`: how a fleet's data is, what is due, and what to do.

Exit status: 0 with warnings at most, 1 where something is wrong. Add here what is printed. Keep out what is found: that
is `pipelines.upkeep.diagnosis`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import dagster as dg
import duckdb

from pipelines.command_line import instance
from pipelines.command_line.text_tables import MISSING, TEXT, table
from pipelines.fleet.fleet_file import Fleet
from pipelines.report import ledger_cost
from pipelines.report.figures import Row
from pipelines.upkeep import dagster_history, diagnosis
from pipelines.warehouse import database, disk_room

# Runs and dates that are listed; the JSON has all dates.
RUNS = 5
DATES = 10


def doctor(fleet: Fleet, options: argparse.Namespace) -> int:
    """Print the page, or the JSON for a program; returns the exit status."""
    home, _ = instance.chosen([fleet])
    runs, schedule = [], None
    if (home / "dagster.yaml").exists():
        with dg.DagsterInstance.get() as dagster_instance:
            runs = dagster_history.last_runs(dagster_instance, fleet, RUNS)
            schedule = instance.nightly(fleet, dagster_instance)
    found = diagnosis.diagnosed(fleet, home, runs, schedule, datetime.now(UTC))
    per_gpu_day = _per_gpu_day(fleet, found)
    if options.json:
        json.dump({**found.to_json(), "per_gpu_day": per_gpu_day}, sys.stdout, indent=2, default=str)
        print()
    else:
        print("\n".join(_page(fleet, found, ledger_cost.sentence(per_gpu_day))))
    return 1 if any(one.severity == diagnosis.ERROR for one in found.troubles) else 0


def _per_gpu_day(fleet: Fleet, found: diagnosis.Diagnosis) -> Row | None:
    """What the ledger itself takes; None where the warehouse cannot be read now, or has no run that was measured."""
    if not found.disk:
        return None
    try:
        with database.connect(fleet.warehouse, read_only=True, patience_seconds=0) as connection:
            return ledger_cost.amounts(connection)
    except (database.WarehouseBusy, duckdb.Error):
        return None


def _page(fleet: Fleet, found: diagnosis.Diagnosis, own_cost: str) -> Iterator[str]:
    yield f"{fleet.path}: fleet {fleet.fleet}, data in {fleet.root}"
    if found.busy:
        yield f"{fleet.warehouse} is open in {found.busy}: what is in it is left out"
    if found.disk:
        rows = [(one.layer, disk_room.shown(one.bytes), _growth(one.bytes_per_day)) for one in found.disk]
        yield from ("", table(dict.fromkeys(("layer", "size", "a day"), TEXT), rows))
    full = f"; at this growth full in {found.full_in_days:,.0f} days" if found.full_in_days else ""
    yield f"free on the disk: {disk_room.shown(found.disk_free_bytes)}{full}"
    if found.runs:
        lines = [
            (
                f"{one.began_at:%Y-%m-%d %H:%M}",
                MISSING if one.seconds is None else f"{one.seconds:,.0f}",
                one.status.lower().replace("_", " "),
                one.dates,
            )
            for one in found.runs
        ]
        yield from ("", table(dict.fromkeys(("run (UTC)", "seconds", "status", "dates"), TEXT), lines))
    if own_cost:
        yield own_cost
    if found.schedule:
        yield found.schedule
    yield from ("", table({"version of": TEXT, "": TEXT}, list(found.versions.items())))
    yield f"clock: {found.clock['now']}; newest landing: {found.clock['newest_landing'] or MISSING}"
    if found.sealed:
        yield found.sealed
    if found.due:
        due = [(one.date, one.waits_for.replace("_", " "), one.why) for one in found.due[:DATES]]
        yield from ("", table({"due": TEXT, "waits for": TEXT, "why": TEXT}, due))
        if len(found.due) > DATES:
            yield f"… and {len(found.due) - DATES:,} more (--json lists all)"
    yield ""
    if found.troubles:
        troubles = [(one.severity, one.what, one.remedy) for one in found.troubles]
        yield table({"finding": TEXT, "what": TEXT, "what to do": TEXT}, troubles)
    else:
        yield "Nothing is wrong, and nothing is to be done" + (", as far as can be seen now." if found.busy else ".")


def _growth(size: float | None) -> str:
    return MISSING if size is None else f"{'+' if size >= 0 else '-'}{disk_room.shown(abs(size))}"
