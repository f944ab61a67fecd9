"""Child processes and their cost: each leg of the bench runs in a process of its own, so that peaks are its own.

Add here how a child is started and measured. Keep out what it does.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

PROJECT = Path(__file__).parent.parent
SAMPLE_SECONDS = 0.05


class Reading(NamedTuple):
    """A child at one moment (Unix seconds): processor seconds of it and of its ended children, its MiB in memory."""

    at: float
    cpu_seconds: float
    held_mib: float


class Cost(NamedTuple):
    """What a child cost: wall seconds, processor seconds of it and its children, the largest process in MiB, and how
    it came to that: no readings where there is no /proc."""

    seconds: float
    cpu_seconds: float
    peak_mib: int
    readings: tuple[Reading, ...] = ()

    def cpu_between(self, start: float, end: float) -> float | None:
        """Processor seconds between two moments (Unix seconds), by the readings around each; None without readings."""
        if not self.readings:
            return None
        at, used = zip(*((reading.at, reading.cpu_seconds) for reading in self.readings), strict=True)
        return float(np.interp(end, at, used) - np.interp(start, at, used))

    def held_between(self, start: float, end: float) -> float | None:
        """The most MiB that a reading between two moments (Unix seconds) found; None without one."""
        return max((reading.held_mib for reading in self.readings if start <= reading.at <= end), default=None)


def run(module: str, *arguments: object, variables: Mapping[str, str] | None = None) -> tuple[Cost, str]:
    """Run `python -m module arguments` to its end; returns its cost and its output. RuntimeError when it fails."""
    return python("-m", module, *arguments, variables=variables)


def python(*arguments: object, variables: Mapping[str, str] | None = None) -> tuple[Cost, str]:
    """Run Python with these arguments, and `variables` in its environment, to its end: as `run`."""
    cost, status, text = _ended(arguments, variables)
    if status:
        raise RuntimeError(f"python {' '.join(map(str, arguments))} ended with {status}:\n{text[-4000:]}")
    return cost, text


def ended(module: str, *arguments: object, variables: Mapping[str, str] | None = None) -> tuple[Cost, int, str]:
    """As `run`, of a child that may fail: its cost, its exit status and its output."""
    return _ended(("-m", module, *arguments), variables)


def _ended(arguments: Sequence[object], variables: Mapping[str, str] | None) -> tuple[Cost, int, str]:
    with tempfile.TemporaryFile("w+") as printed:
        command = [sys.executable, *map(str, arguments)]
        began = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=PROJECT, env={**os.environ, **(variables or {})}, stdout=printed, stderr=subprocess.STDOUT
        )
        # Unlike Popen.wait(), wait4() returns what this child and its own children used.
        with _read_along(process.pid) as readings:
            _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        printed.seek(0)
        text = printed.read()
    # Linux counts kibibytes, macOS bytes.
    kib = used.ru_maxrss // 1024 if sys.platform == "darwin" else used.ru_maxrss
    return Cost(seconds, used.ru_utime + used.ru_stime, kib // 1024, tuple(readings)), process.returncode, text


@contextmanager
def _read_along(pid: int) -> Iterator[list[Reading]]:
    """Readings of a process, from a thread of this one, until the block is left or the process has ended."""
    readings: list[Reading] = []
    ended = threading.Event()

    def read() -> None:
        while (reading := _reading(pid)) and not ended.wait(SAMPLE_SECONDS):
            readings.append(reading)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield readings
    finally:
        ended.set()
        reader.join()


def _reading(pid: int) -> Reading | None:
    """A process as Linux counts it now; None when it has ended, and where there is no /proc."""
    try:
        # The name of the process, in brackets, may hold blanks.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    ticks = sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
    held_bytes = int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
    return Reading(time.time(), ticks / os.sysconf("SC_CLK_TCK"), held_bytes / 2**20)


def own_peak_mib() -> int:
    """The most memory this process has held, MiB; of a small child `run` sees what its parent held at the fork."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) // 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 2**20  # bytes, where there is no /proc


def printed_json(text: str) -> dict[str, Any]:
    """The JSON of the last line that a child printed."""
    return json.loads(text.strip().splitlines()[-1])


@contextmanager
def running(command: Sequence[object], **options: Any) -> Iterator[subprocess.Popen]:
    """A server for the length of a `with` block; it is ended when the block is left, whatever happens."""
    process = subprocess.Popen([str(word) for word in command], **options)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
