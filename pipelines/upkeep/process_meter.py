"""What this process takes of the machine: processor seconds, memory, and what the whole machine takes beside it.

Ask for it early (`of_this_process`): wall time and joules count from then on. Add here a quantity that the system
knows. Keep out tables and formulas (`run_costs`, finance.ledger_cost).
"""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pipelines.upkeep.package_energy import PackageEnergy

PROCESSORS = Path("/proc/stat")
# Of the first line of /proc/stat: user, nice, system, interrupts. The time of guests is in user; waiting is no work.
_BUSY = (1, 2, 3, 6, 7)


class Reading(NamedTuple):
    """What was used up to a moment; None is what this machine does not show."""

    at: datetime
    wall_seconds: float
    core_seconds: float
    busy_core_seconds: float | None
    package_joules: float | None


class Use(NamedTuple):
    """What a run has used. `busy_core_seconds` and `package_joules` are the whole machine's."""

    began_at: datetime
    measured_at: datetime
    wall_seconds: float
    core_seconds: float
    busy_core_seconds: float | None
    package_joules: float | None
    peak_memory_bytes: int


class ProcessMeter:
    """Readings of this process, shared among the runs that it makes one after another: each has what was used since the
    last reading of the run before, the first one since the process started. So nothing is counted twice."""

    def __init__(self, packages: PackageEnergy, processors: Path = PROCESSORS) -> None:
        self._packages = packages
        self._processors = processors
        self._lock = threading.Lock()
        # The processor seconds of a process are known from its start on, before this object was made.
        self._since = self._last = self._read()._replace(core_seconds=0.0)
        self._run_id: str | None = None

    def of_run(self, run_id: str) -> Use:
        """What the run has used so far."""
        with self._lock:
            if self._run_id not in (None, run_id):
                self._since = self._last
            self._run_id = run_id
            self._last = now = self._read()
            since = self._since
        return Use(
            since.at,
            now.at,
            now.wall_seconds - since.wall_seconds,
            now.core_seconds - since.core_seconds,
            _between(since.busy_core_seconds, now.busy_core_seconds),
            _between(since.package_joules, now.package_joules),
            _peak_memory_bytes(),
        )

    def _read(self) -> Reading:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return Reading(
            datetime.now(UTC),
            time.monotonic(),
            sum(one.ru_utime + one.ru_stime for one in used),
            _busy_core_seconds(self._processors),
            self._packages.joules(),
        )


def _between(since: float | None, now: float | None) -> float | None:
    return None if since is None or now is None else now - since


def _busy_core_seconds(processors: Path) -> float | None:
    """Seconds that the processors of the machine have worked since it started; None on one without /proc."""
    try:
        ticks = processors.read_text().split("\n", 1)[0].split()
        return sum(int(ticks[place]) for place in _BUSY) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def _peak_memory_bytes() -> int:
    """The most memory that the process, or one of its children that have ended, has held at a time."""
    most = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return most * (1 if sys.platform == "darwin" else 1024)


@cache
def of_this_process() -> ProcessMeter:
    """The meter of this process, which begins with the first call."""
    return ProcessMeter(PackageEnergy())
