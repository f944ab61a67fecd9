"""Nights that go wrong: `python -m bench.nights --faults SEED` gives each night one of these faults by chance, then
runs it again, and ends with the violations that it found.

The run is killed; the disk is full; the clock is two days ahead or three hours behind; `wattledger serve`, which
answers beside the nights, is ended or killed and started anew. The data is on a disk of its own, an image in the
folder, so it takes root; the clock takes faketime. Add here a fault. Keep out what comes late, is silent or down: that
is chance in `nights`, with or without faults.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from random import Random

import duckdb

from bench import children
from tests.same_rows import compare
from tests.servers import free_port

FAULTS = ("none", "killed", "full disk", "clock ahead", "clock behind", "serve ended", "serve killed")
DISK_BYTES = 8 << 30
# A night of two boards takes some ten seconds, and writes some megabytes.
MOST_SECONDS_UNTIL_KILLED, MOST_BYTES_LEFT = 12.0, 6 << 20
CLOCKS = {"clock ahead": "+2d", "clock behind": "-3h"}
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"
SERVE_SECONDS, MOST_SECONDS_OF_A_RUN = 60.0, 900.0


@contextmanager
def disk(folder: Path) -> Iterator[Path]:
    """A disk of its own at `folder`/data for the length of a block; what is on it stays in an image beside it."""
    image, data = folder / "data.img", folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    if not image.exists():
        with image.open("wb") as file:
            file.truncate(DISK_BYTES)
        # Without blocks that root alone may use.
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, data], check=True)
    try:
        yield data
    finally:
        subprocess.run(["umount", data], check=True)


class Faults:
    """The command `wattledger` with a fault before it, by chance: the same of a date at each call. What was met and
    what it broke is written into `folder` as it comes, so a stopped call goes on."""

    def __init__(self, folder: Path, seed: int) -> None:
        if not Path(FAKETIME).exists():
            raise SystemExit(f"{FAKETIME} is not there: apt-get install faketime")
        self._data, self._fleet, self._seed = folder / "data", folder / "fleet.yaml", seed
        self._met, self._broken = folder / "met.txt", folder / "violations.txt"
        self._serving = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None
        self._url = ""

    def __call__(self, words: Sequence[str], variables: Mapping[str, str]) -> tuple[float, int, str]:
        """Run it with the fault, and then again without."""
        day = words[words.index("--start") + 1]
        random = Random(f"{self._seed}:{day}")
        fault = random.choice(FAULTS)
        command = [sys.executable, "-m", "pipelines", *words]
        if fault.startswith("serve") or self._process is None:
            self._serve(variables, is_killed=fault == "serve killed")
        if fault != "none" and not fault.startswith("serve"):
            status = self._status_with(fault, random, command, {**os.environ, **variables})
            _add(self._met, f"{fault}, status {status}")
        cost, status, printed = children.ended("pipelines", *words, variables=variables)
        for line in self._found(status, printed):
            _add(self._broken, f"{day}, {fault}: {line}")
        return cost.seconds, status, printed

    def _status_with(self, fault: str, random: Random, command: list[str], variables: Mapping[str, str]) -> int:
        """The exit status of a run with this fault."""
        ballast = self._data / "ballast"
        if fault == "full disk":
            left = random.randrange(MOST_BYTES_LEFT)
            free = os.statvfs(self._data).f_bavail * os.statvfs(self._data).f_frsize
            with ballast.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, max(free - left, 1))
        elif fault in CLOCKS:
            variables = {**variables, "LD_PRELOAD": FAKETIME, "FAKETIME": CLOCKS[fault]}
        process = subprocess.Popen(
            command, cwd=children.PROJECT, env=variables, process_group=0,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            if fault == "killed":
                time.sleep(random.uniform(0, MOST_SECONDS_UNTIL_KILLED))
                os.killpg(process.pid, signal.SIGKILL)
            return process.wait()
        finally:
            ballast.unlink(missing_ok=True)

    def _serve(self, variables: Mapping[str, str], *, is_killed: bool) -> None:
        """End or kill the server, start it anew, and wait until it is healthy."""
        if self._process is not None:
            if is_killed:
                self._process.kill()
                self._process.wait()
            _add(self._met, "serve killed" if is_killed else "serve ended")
        self._serving.close()
        port = free_port()
        self._url = f"http://127.0.0.1:{port}"
        self._process = self._serving.enter_context(
            children.running(
                [sys.executable, "-m", "pipelines", "serve", "--fleet", self._fleet, "--port", port],
                cwd=children.PROJECT, env={**os.environ, **variables},
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )
        )  # fmt: skip
        deadline = time.monotonic() + SERVE_SECONDS
        while not self._answers() and time.monotonic() < deadline:
            time.sleep(0.5)

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(f"{self._url}/-/healthy", timeout=5).close()
        except OSError:
            return False
        return True

    def _found(self, status: int, printed: str) -> Iterator[str]:
        """What is wrong after a night."""
        if status not in (0, 1):
            yield f"the run after it ended with {status}: {printed[-500:]}"
        if not self._answers():
            yield "serve does not answer"
        with closing(self._warehouse()) as warehouse:
            for question in (
                "select 'held back: ' || invariant || ' ' || date from marts.held_back_dates",
                "select 'joules: ' || date from marts.reconciliation_daily where difference_joules <> 0",
                "select 'tokens: ' || date from marts.token_reconciliation_daily where difference_tokens <> 0",
            ):
                yield from (line for (line,) in warehouse.execute(question).fetchall())

    def _warehouse(self) -> duckdb.DuckDBPyConnection:
        """The warehouse, once a run that `serve` began has ended."""
        deadline = time.monotonic() + MOST_SECONDS_OF_A_RUN
        while True:
            try:
                return duckdb.connect(str(self._data / "nights" / "warehouse.duckdb"), read_only=True)
            except duckdb.IOException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(1)

    def lines(self) -> Iterator[str]:
        """What was met, how often, and what it broke: also what all dates, run once more, have otherwise than a
        warehouse of the same input without faults."""
        control = self._data.with_name("control")
        for data in (self._data, control):
            children.run("pipelines", "run", "--fleet", self._fleet, variables={"WATTLEDGER_DATA": str(data)})
        found = compare(self._data / "nights" / "warehouse.duckdb", control / "nights" / "warehouse.duckdb")
        # What landed, and when, is not the same.
        violations = [*_lines(self._broken), *(line for line in found.differences if not line.startswith("raw."))]
        for met, count in sorted(Counter(_lines(self._met)).items()):
            yield f"{count} × {met}"
        yield f"compared with a warehouse without faults: {found.tables} tables, {found.rows:,} rows"
        yield f"{len(violations)} violations"
        yield from violations

    def close(self) -> None:
        """End the server."""
        self._serving.close()


def _add(file: Path, line: str) -> None:
    with file.open("a", encoding="utf-8") as opened:
        opened.write(" ".join(line.split()) + "\n")


def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []
