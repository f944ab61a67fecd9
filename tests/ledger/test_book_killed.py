"""A run that is killed at any point, with its children or without, is healed by the next one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from tests.books import Book, command, day, demo_fleet, files_source, on, record, recorded
from tests.killed_runs import has_logged, killed, size


@pytest.mark.long
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
        return lambda: has_logged(root, words)

    # While days land; with dbt at work; and the run alone, so that its dbt lives on as an orphan.
    assert killed(fleet, tmp_path / "killed", has_landed, group=True)
    assert len(book.query("select * from raw.landings")) < 3
    assert killed(fleet, tmp_path / "killed", logged("int_energy_intervals"), group=True)
    assert book.query("select count(*) > 0 from raw.due_dates where due = 'booking'") == [(True,)]
    assert killed(fleet, tmp_path / "killed", logged("START sql incremental model marts.energy_ledger"), group=False)
    done = command(fleet, tmp_path / "killed")
    assert done.returncode == 0, done.stdout + done.stderr
    assert book.hashes() == clean.hashes()


@pytest.mark.long
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
        return has_logged(book.fleet.root, words)

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
