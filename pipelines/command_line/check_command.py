"""The command `check`: what is wrong or doubtful in a fleet file, before anything runs.

Exit status: 0 with warnings at most, 1 if a source does not answer, 2 if the file is wrong. Add here what is printed.
Keep out what is found: the file alone shows `plausibility`, a warehouse `unmatched_entries`, the sources
`collectors.probes`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from collectors.samples import printable
from pipelines.command_line.text_tables import aligned
from pipelines.fleet.fleet_file import Fleet, FleetError, read_fleet
from pipelines.fleet.plausibility import (
    Finding,
    of_line,
    silenced_by,
    unknown_types,
    unused_acceptances_of_sources,
)
from pipelines.fleet.targets.alarm_rules import unset_variables

if TYPE_CHECKING:
    from pipelines.command_line.source_probes import Answer


def check(options: argparse.Namespace) -> int:
    """Print what is found, as lines for a person or as a list for a program; returns the exit status."""
    try:
        fleet, found = read_fleet(options.fleet)
    except FleetError as wrong:
        if not options.json:
            raise
        _print_json([of_line(line, "error") for line in wrong.problems])
        return 2
    unmatched = None if options.offline else _unmatched(fleet)
    found += unknown_types(fleet) if unmatched is None else unmatched
    asked = [] if options.offline else _answers(fleet)
    answered = [one for answer in asked for one in answer.findings]
    found += [one for one in answered if one.key not in fleet.accepted]
    if not options.offline:
        found += unused_acceptances_of_sources(fleet, [one.key for one in answered])
    found += [Finding("", line) for line in unset_variables(fleet.alarms, os.environ)]
    if options.json:
        _print_json(found)
    else:
        print("\n".join(_page(fleet, asked, found)))
    return 1 if any(one.severity == "error" for one in found) else 0


def _unmatched(fleet: Fleet) -> list[Finding] | None:
    """Entries that no landed telemetry matches; before the first booking those that the sources do not have now. None
    where neither is known."""
    import duckdb  # noqa: PLC0415 (the file alone needs none of it)

    from pipelines.discovery.first_check import before_first_booking  # noqa: PLC0415
    from pipelines.warehouse import database  # noqa: PLC0415
    from pipelines.warehouse.unmatched_entries import unmatched  # noqa: PLC0415

    try:
        found = None
        if fleet.warehouse.exists():
            # Reading alone, without a run's lock: nothing is written, and a run in progress is not waited for.
            with database.connect(fleet.warehouse, read_only=True, patience_seconds=0) as connection:
                found = unmatched(fleet, connection)
        return before_first_booking(fleet, datetime.now(UTC)) if found is None else found
    except (database.WarehouseBusy, duckdb.Error) as refusal:
        why = " ".join(str(refusal).split())
        return [Finding("", f"names are not compared with what was landed: {why}")]


def _answers(fleet: Fleet) -> list[Answer]:
    from pipelines.command_line.source_probes import answers  # noqa: PLC0415 (the file alone needs no pyarrow)

    return list(answers(fleet))


def _page(fleet: Fleet, asked: Sequence[Answer], found: Sequence[Finding]) -> Iterator[str]:
    end = fleet.period.end - timedelta(days=1) if fleet.period.end else "yesterday"
    yield f"{fleet.path}: fleet {fleet.fleet}, {len(fleet.sources)} source(s), {fleet.period.start} to {end}"
    if asked:
        lines = [[printable(text) for text in (one.source, one.kind, one.at, one.text)] for one in asked]
        yield from aligned([["source", "kind", "at", "answer"], *lines], [True] * 4)
    if found:
        cells = [[printable(text) for text in (one.severity, one.key, one.text)] for one in found]
        yield from aligned([["finding", "key", "what"], *cells], [True] * 3)
        keyed = [one for one in found if one.severity == "warning" and one.key and not one.key.startswith("accepted[")]
        if keyed:
            yield silenced_by(keyed)


def _print_json(found: Sequence[Finding]) -> None:
    json.dump([one._asdict() for one in found], sys.stdout, indent=2)
    print()
