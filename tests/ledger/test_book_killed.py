"""A run that is killed at any point, with its children or without, is healed by the next one."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from pipelines.fleet.fleet_file import PROJECT
from tests.books import Book, arguments, command, demo_fleet, environment, on


def test_a_run_that_was_killed_anywhere_is_healed_by_the_next(tmp_path: Path) -> None:
    start, end = on("10-16"), on("10-19")
    fleet = demo_fleet(tmp_path, start, end)
    clean = Book.of(fleet, tmp_path / "clean")
    clean.run()
    book = Book.of(fleet, tmp_path / "killed")
    root = book.fleet.root

    def has_landed() -> bool:
        return sum(size(path) for path in root.glob("warehouse.duckdb*")) > 2_000_000

    def logged(words: str) -> Callable[[], bool]:
        return lambda: any(words in path.read_text(errors="replace") for path in (root / "dbt").rglob("dbt.log"))

    # While days land; with dbt at work; and the run alone, so that its dbt lives on as an orphan.
    assert killed(fleet, tmp_path / "killed", has_landed, group=True)
    assert len(book.query("select * from raw.landings")) < 3
    assert killed(fleet, tmp_path / "killed", logged("int_energy_intervals"), group=True)
    assert book.query("select count(*) > 0 from raw.due_dates where due = 'booking'") == [(True,)]
    assert killed(fleet, tmp_path / "killed", logged("START sql incremental model marts.energy_ledger"), group=False)
    done = command(fleet, tmp_path / "killed")
    assert done.returncode == 0, done.stdout + done.stderr
    assert book.hashes() == clean.hashes()


def size(path: Path) -> int:
    """Bytes of a file; 0 of one that is gone, as a write-ahead log is as soon as DuckDB has merged it."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def killed(fleet: Path, data: Path, is_time: Callable[[], bool], *, group: bool) -> bool:
    """Run the ledger and send it SIGKILL as soon as `is_time`; False when it ended before that."""
    shown = data.with_suffix(".printed")
    with (
        shown.open("wb") as output,
        subprocess.Popen(
            arguments(fleet),
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
