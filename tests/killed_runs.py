"""Runs that are killed, and when: what a run that is under way has done is seen in its files alone."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from pipelines.fleet.places import PROJECT
from tests.books import arguments, environment


def size(path: Path) -> int:
    """Bytes of a file; 0 of one that is gone, as a write-ahead log is as soon as DuckDB has merged it."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def killed(fleet: Path, data: Path, is_time: Callable[[], bool], *options: str, group: bool) -> bool:
    """Run the ledger and send it SIGKILL as soon as `is_time`; False when it ended before that."""
    shown = data.with_suffix(".printed")
    with (
        shown.open("wb") as output,
        subprocess.Popen(
            arguments(fleet, *options),
            env=environment(data, PYTHONUNBUFFERED="1", DBT_LOG_LEVEL_FILE="debug"),
            cwd=PROJECT,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        deadline = time.monotonic() + 300
        while process.poll() is None:
            if is_time():
                if group:
                    os.killpg(process.pid, signal.SIGKILL)
                else:
                    process.kill()
                return process.wait() == -signal.SIGKILL
            assert time.monotonic() < deadline, shown.read_text()
            time.sleep(0.02)
    return False


def has_logged(root: Path, words: str) -> bool:
    """Whether dbt has logged these words; `root` is the folder of the fleet's data."""
    return any(words in path.read_text(errors="replace") for path in (root / "dbt").rglob("dbt.log"))
