"""When `serve` runs the fleet's nights, and the run itself: `wattledger run`, as a process of its own.

A night that was missed, or that failed, is run again: the run books every date that is not booked. Keep out what a run
does, and Dagster's own schedule, which `dev` follows.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta

from pipelines.fleet.fleet_file import Fleet
from pipelines.fleet.places import PROJECT
from pipelines.serving.child_process import ChildProcess

# Until the next try of a date that was not booked.
AGAIN = timedelta(hours=1)


@dataclass(frozen=True)
class Attempt:
    """A run of this process: the newest date that it was to book, when it ended, and its exit status."""

    on: date
    ended_at: datetime
    status: int


def due(fleet: Fleet, now: datetime, nightly: time, newest_booked: date | None, last: Attempt | None) -> date | None:
    """The newest date that a run should book now; None where there is nothing to do. `nightly` is the time of day, UTC,
    from which yesterday is booked."""
    over = now.date() if now.time() >= nightly else now.date() - timedelta(days=1)
    days = fleet.days(over)
    if not days or (newest_booked is not None and newest_booked >= days[-1]):
        return None
    if last is not None and last.on >= days[-1] and (last.status == 0 or now - last.ended_at < AGAIN):
        return None
    return days[-1]


def start(fleet: Fleet, log_format: str, environ: Mapping[str, str] = os.environ) -> ChildProcess:
    """Start a run of all that is due of the fleet."""
    path = os.pathsep.join(filter(None, [str(PROJECT), environ.get("PYTHONPATH")]))
    options = ["--log-format", log_format]
    command = [sys.executable, "-m", "pipelines", "run", "--fleet", str(fleet.path), *options]
    return ChildProcess(command, {**environ, "PYTHONPATH": path, "WATTLEDGER_DATA": str(fleet.root.parent)})
