"""The command `backup`: a consistent copy of a fleet's data, and how it is restored.

Add here what is printed. Keep out what is copied: that is `pipelines.upkeep.backups`.
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime

from pipelines.fleet.fleet_file import Fleet
from pipelines.upkeep import backups
from pipelines.warehouse import disk_room


def backup(fleet: Fleet, options: argparse.Namespace) -> int:
    """Make a backup and print where it is; returns the exit status."""
    try:
        made = backups.back_up(fleet, options.folder, datetime.now(UTC))
    except disk_room.TooLittleRoom as refusal:
        print(refusal, file=sys.stderr)
        return 1
    dates = f"{made.dates[0]} to {made.dates[-1]}" if made.dates else "no date"
    print(f"{made.folder}: {dates}, {disk_room.shown(made.bytes)}")
    if fleet.landing.target == "lake":
        print("Its samples are in the lake, which is no part of it: copy that like any folder.")
    print(f"To restore it: cp -a {made.folder / fleet.fleet} {fleet.root.parent}/  (docs/operations.md)")
    return 0
