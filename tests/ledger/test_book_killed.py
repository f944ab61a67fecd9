"""A run that is killed at any point, with its children or without, is healed by the next one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from pipelines.fleet.places import PROJECT
from tests.books import Book, arguments, command, day, demo_fleet, environment, files_source, on, record, recorded


@pytest.mark.rest
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


@pytest.mark.rest
def test_a_rebuild_that_was_killed_is_finished_from_what_has_landed(tmp_path: Path) -> None:
    """A mart got another type, so the rebuild drops it; it is killed before it makes it anew. The source is gone."""
    first, end = on("10-20"), on("10-22")
    for n, of in enumerate((first, on("10-21"))):
        record(recorded(day(of), lambda labels: "a6000-01" in str(labels)), tmp_path / "samples", f"day-{n}")
    sources = [files_source("files", "samples/*.parquet")]
    # An open period of dozens of dates: only two of them were ever booked.
    fleet = demo_fleet(tmp_path, first, end, sources=sources, period={"start": first})
    done = command(fleet, tmp_path / "data", "--start", first, "--end", end)
    assert done.returncode == 0, done.stdout + done.stderr
    book = Book.of(fleet, tmp_path / "data")
    joules, landings = (
        "select date, sum(energy_joules) from marts.model_daily group by 1 order by 1",
        "from raw.landings",
    )
    before, asked = book.query(joules), book.query(landings)
    assert len(before) == 2
    with book.connection() as connection:
        connection.execute("alter table marts.model_daily alter energy_joules type double")

    def is_half_way() -> bool:
        logs = (book.fleet.root / "dbt").rglob("dbt.log")
        return any(words in path.read_text(errors="replace") for path in logs)

    words = "START sql incremental model marts.energy_ledger"
    for path in (book.fleet.root / "dbt").rglob("dbt.log"):
        path.unlink()
    assert killed(fleet, tmp_path / "data", is_half_way, "--rebuild", group=True)
    assert book.query("select count(*) from duckdb_tables() where table_name = 'model_daily'") == [(0,)]
    shutil.rmtree(tmp_path / "samples")
    done = command(fleet, tmp_path / "data", "--rebuild")
    assert done.returncode == 0, done.stdout + done.stderr
    assert book.query("select start_date, end_date from raw.bookings")[-1:] == [(first, end)]
    assert book.query(landings) == asked
    assert book.query(joules) == before
    with duckdb.connect(str(book.fleet.snapshot), read_only=True) as reader:
        assert reader.execute(joules).fetchall() == before


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
