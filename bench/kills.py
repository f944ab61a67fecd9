"""Commands that are killed, and what is left of them: `python -m bench.kills --times 10` prints a table.

A fleet of `nights` with a history of 40 days, whose first month is closed but for `close` itself, is copied for each
trial. A command is killed, with its children, at a moment by chance; two runs begin at once; the disk is full during a
run; a backup is restored. Then the same command is given again, and what it leaves is compared, by every figure, with
what an undisturbed command leaves. Add here what may be killed. Keep out nights that go wrong
(`night_faults`). It takes root, for a disk of its own.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random

import yaml

from bench import children, nights
from bench.night_faults import disk
from tests.same_rows import compare
from tests.servers import free_port, victoria_metrics_with_history

HISTORY = 40
MONTH = f"{nights.FIRST:%Y-%m}"
NEXT = nights.FIRST + timedelta(days=HISTORY)
RUN = ("run", "--start", f"{NEXT}", "--end", f"{NEXT + timedelta(days=1)}")
CLOSE, PRUNE = ("close", MONTH), ("prune", "--yes")
# A publication needs some megabytes: below this a run fails somewhere between landing and publishing.
MOST_BYTES_LEFT = 12 << 20


@dataclass(frozen=True)
class Data:
    """The folder with the fleet's data, and the fleet file."""

    path: Path
    fleet: Path

    def copy(self, path: Path) -> Data:
        """The same data elsewhere."""
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self.path, path, symlinks=True)
        return Data(path, self.fleet)

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Begin a command in a process group of its own."""
        command = [sys.executable, "-m", "pipelines", *words, "--fleet", str(self.fleet)]
        return subprocess.Popen(
            command, cwd=children.PROJECT, env={**os.environ, "WATTLEDGER_DATA": str(self.path)}, process_group=0,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def end(self, *words: str) -> tuple[int, str, float]:
        """Run a command to its end: status, what it printed, seconds."""
        began = time.monotonic()
        process = self.begin(*words)
        printed, _ = process.communicate()
        return process.returncode, printed, time.monotonic() - began

    def killed(self, after_seconds: float, *words: str) -> bool:
        """Begin a command and kill it, with its children; False where it ended before that."""
        process = self.begin(*words)
        time.sleep(after_seconds)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return process.returncode == -signal.SIGKILL

    def file(self, name: str) -> Path:
        return self.path / "nights" / name

    def differences(self, other: Data) -> list[str]:
        """Figures that are otherwise in the warehouse or the publication.

        What landed, and when, is never the same; what was published the warehouse copies when its next run begins.
        """
        left_out = {"warehouse.duckdb": ("raw.", "published.", "finance."), "published/wattledger.duckdb": ("raw.",)}
        found = []
        for name, left in left_out.items():
            lines = compare(self.file(name), other.file(name)).differences
            found += [f"{name}: {line}" for line in lines if not line.startswith(left)]
        return found


class Trials:
    """The commands, each tried on copies of `base`; `folder` is ours."""

    def __init__(self, folder: Path, base: Data, times: int, seed: int) -> None:
        self.folder, self.base, self.times, self.random = folder, base, times, Random(seed)

    def killed(self, name: str, *words: str, ready: Callable[[Data], object] = lambda data: None) -> str:
        """The command is killed at a moment by chance, and given again."""
        control = self.base.copy(self.folder / "control")
        ready(control)
        status, printed, seconds = control.end(*words)
        if status:
            raise RuntimeError(printed[-2000:])
        died, violations = 0, []
        for _ in range(self.times):
            data = self.base.copy(self.folder / "trial")
            ready(data)
            died += data.killed(self.random.uniform(0, seconds), *words)
            status, printed, _ = data.end(*words)
            # A refusal names what was done before the kill: no error of the data.
            if status and "is closed" not in printed:
                violations.append(f"again: status {status}: {printed[-300:]}")
            violations += data.differences(control)
        return self._row(f"{name} killed", died, violations)

    def served(self) -> str:
        """`serve` is killed in the night that it makes up for; then a run by hand."""
        control = self.base.copy(self.folder / "control")
        seconds = control.end(*RUN)[2]
        died, violations = 0, []
        for _ in range(self.times):
            data = self.base.copy(self.folder / "trial")
            died += data.killed(self.random.uniform(2, 2 + 2 * seconds), "serve", "--port", str(free_port()))
            status, printed, _ = data.end(*RUN)
            if status:
                violations.append(f"the run after it: status {status}: {printed[-300:]}")
            violations += data.differences(control)
        return self._row("`serve` killed", died, violations)

    def two_writers(self) -> str:
        """Two runs of one date begin at once: one waits."""
        control = self.base.copy(self.folder / "control")
        control.end(*RUN)
        violations = []
        for _ in range(self.times):
            data = self.base.copy(self.folder / "trial")
            both = [data.begin(*RUN), data.begin(*RUN)]
            printed = [process.communicate()[0] for process in both]
            for process, text in zip(both, printed, strict=True):
                if process.returncode:
                    violations.append(f"status {process.returncode}: {text[-300:]}")
            violations += data.differences(control)
        return self._row("two runs at once", self.times, violations)

    def full_disk(self) -> str:
        """A run whose disk is full at a moment by chance, and again with room."""
        control = self.base.copy(self.folder / "control")
        control.end(*RUN)
        failed, violations = 0, []
        small = self.folder / "small"
        small.mkdir(exist_ok=True)
        with disk(small) as path:
            for _ in range(self.times):
                data = self.base.copy(path / "data")
                ballast = path / "ballast"
                free = os.statvfs(path).f_bavail * os.statvfs(path).f_frsize
                with ballast.open("wb") as file:
                    os.posix_fallocate(file.fileno(), 0, free - self.random.randrange(MOST_BYTES_LEFT))
                failed += data.end(*RUN)[0] != 0
                ballast.unlink()
                status, printed, _ = data.end(*RUN)
                if status:
                    violations.append(f"again: status {status}: {printed[-300:]}")
                violations += data.differences(control)
        return self._row("a run on a full disk", failed, violations)

    def restored(self) -> str:
        """A backup is killed, made again, restored where the warehouse is lost, and the next date is booked."""
        control = self.base.copy(self.folder / "control")
        control.end(*RUN)
        seconds = self.base.end("backup", str(self.folder / "timed"))[2]
        died, violations = 0, []
        for _ in range(self.times):
            backups = self.folder / "backups"
            shutil.rmtree(backups, ignore_errors=True)
            died += self.base.killed(self.random.uniform(0, seconds), "backup", str(backups))
            status, printed, _ = self.base.end("backup", str(backups))
            made = sorted(backups.glob("nights-*"))
            if status or not made:
                violations.append(f"again: status {status}: {printed[-300:]}")
                continue
            if left := [path.name for path in backups.iterdir() if path not in made]:
                violations.append(f"left beside the backup: {left}")
            data = Data(self.folder / "trial", self.base.fleet)
            shutil.rmtree(data.path, ignore_errors=True)
            shutil.copytree(made[-1], data.path, symlinks=True)
            status, printed, _ = data.end(*RUN)
            if status:
                violations.append(f"the run after it: status {status}: {printed[-300:]}")
            violations += data.differences(control)
        return self._row("`backup` killed, made again, restored", died, violations)

    def _row(self, name: str, count: int, violations: Sequence[str]) -> str:
        row = f"| {name} | {self.times} | {count} | {len(violations)} |"
        return "\n".join([row, *(" ".join(line.split()) for line in violations)])


def book(folder: Path, url: str) -> Data:
    """The history, booked in one run, with one date more on the server."""
    year = nights.Year(folder, url, nights.in_a_process, seed=1, history=HISTORY, nights=1)
    if not year.data.exists():
        year.backfill()
    for half in year.drawn(1).halves:
        year.send(half)
    year.write_fleet(url)
    stated = yaml.safe_load(year.fleet.read_text(encoding="utf-8"))
    stated["retention"] |= {"raw_days": 20, "intermediate": False, "publications": 1}
    year.fleet.write_text(yaml.safe_dump(stated, sort_keys=False), encoding="utf-8")
    return Data(year.data, year.fleet)


def main() -> int:
    """Try all, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="a folder to keep: a later call books no history")
    parser.add_argument("names", nargs="*", help="of close, prune, serve, writers, disk, backup (all)")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wattledger-kills-")))
        (folder / "server").mkdir(parents=True, exist_ok=True)
        url = stack.enter_context(victoria_metrics_with_history(folder / "server", ()))
        trials = Trials(folder, book(folder, url), options.times, options.seed)
        rows = {
            "close": lambda: trials.killed("`close`", *CLOSE),
            "prune": lambda: trials.killed("`prune`", *PRUNE, ready=lambda data: data.end(*CLOSE)),
            "serve": trials.served,
            "writers": trials.two_writers,
            "disk": trials.full_disk,
            "backup": trials.restored,
        }
        print("| what | times | that it met | violations |\n|---|---|---|---|", flush=True)
        for name, row in rows.items():
            if name in (options.names or rows):
                print(row(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
