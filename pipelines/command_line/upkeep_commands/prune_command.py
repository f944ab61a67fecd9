"""The command `prune`: what `retention` lets go, layer by layer, and with `--yes` its removal.

Exit status: 0 whether or not something goes, 1 where the disk has no room to write the warehouse anew. Add here what is
printed. Keep out what goes: that is `pipelines.upkeep.pruning`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

import dagster as dg

from pipelines.command_line import instance
from pipelines.command_line.text_tables import MISSING, TEXT, table
from pipelines.fleet.fleet_file import Fleet
from pipelines.upkeep import layers, pruning
from pipelines.warehouse import compaction, database, disk_room
from pipelines.warehouse.raw_tables import create_tables
from pipelines.warehouse.refusals import QuestionError


def prune(fleet: Fleet, options: argparse.Namespace) -> int:
    """Print what would go, or remove it; returns the exit status."""
    unknown = [name for name in options.layer if name not in layers.LAYERS]
    if unknown:
        raise QuestionError(f"layer: got {unknown[0]!r}, expected one of {', '.join(layers.LAYERS)}")
    if not fleet.warehouse.exists():
        raise QuestionError(f"fleet {fleet.fleet} has no warehouse yet: run `wattledger run` first")
    chosen = options.layer or layers.LAYERS
    home, is_ours = instance.chosen([fleet])
    now = datetime.now(UTC)
    instance.create(home, is_ours=is_ours)
    with dg.DagsterInstance.get() as dagster_instance, database.writing(fleet.warehouse, "prune"):
        history = pruning.History(dagster_instance, home, is_ours)
        with database.connect(fleet.warehouse) as connection:
            create_tables(connection)
            before = layers.measured(connection, fleet, home)
            found = pruning.looked(connection, fleet, history, now, chosen)
            if options.yes:
                for layer in found:
                    layer.remove()
        if not options.yes:
            print("\n".join(_page(fleet, found, before)))
            return 0
        status = _written_anew(fleet) if layers.IN_WAREHOUSE & {*chosen} else 0
        with database.connect(fleet.warehouse) as connection:
            after = layers.measured(connection, fleet, home)
    for line in pruning.lines(found):
        print(line)
    print(f"freed {disk_room.shown(sum(before.values()) - sum(after.values()))}")
    return status


def _written_anew(fleet: Fleet) -> int:
    try:
        freed = pruning.compacted(fleet, is_asked=True)
    except disk_room.TooLittleRoom as refusal:
        print(f"{refusal}; what was removed leaves room inside the file", file=sys.stderr)
        return 1
    if freed:
        print(f"{fleet.warehouse} was written anew without its free blocks ({disk_room.shown(freed)} less)")
    return 0


def _page(fleet: Fleet, found: Sequence[pruning.Layer], sizes: dict[str, int]) -> list[str]:
    rows = [
        (
            one.name,
            disk_room.shown(sizes[one.name]),
            disk_room.shown(one.frees_bytes) if one.goes else MISSING,
            _what(one),
        )
        for one in found
    ]
    page = [table(dict.fromkeys(("layer", "has", "frees", "what goes"), TEXT), rows), ""]
    page += [f"{one.name}: {one.refused}" for one in found if one.refused]
    free = sizes[layers.FREE]
    is_free = free >= compaction.LEAST_BYTES and any(one.name in layers.IN_WAREHOUSE for one in found)
    if is_free:
        page.append(f"{fleet.warehouse} has {disk_room.shown(free)} of free blocks, without which --yes writes it anew")
    if is_free or any(one.goes for one in found):
        page.append(f"Nothing was removed. To remove it: wattledger prune --fleet {fleet.path} --yes")
    elif not any(one.rule for one in found):
        page.append("Nothing goes: the fleet file states no `retention` (docs/operations.md).")
    return page


def _what(one: pruning.Layer) -> str:
    if one.rule is None:
        return "stays: `retention` does not name it"
    return f"{one.goes or 'nothing'} ({one.rule})"
