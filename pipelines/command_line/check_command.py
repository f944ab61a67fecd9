"""The command `check`: what is wrong or doubtful in a fleet file, before anything runs."""

from __future__ import annotations

import argparse

from pipelines.fleet.fleet_file import Fleet


def check(fleet: Fleet, options: argparse.Namespace) -> int:
    """Print what the file holds; what is wrong in it was raised while it was read. Returns the exit status."""
    end = fleet.period.end or "yesterday"
    print(f"{fleet.path}: fleet {fleet.fleet}, {len(fleet.sources)} source(s), {fleet.period.start} to {end}")
    return 0
