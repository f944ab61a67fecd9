"""Dates are UTC, whatever the machine's time zone is."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from tests.books import Book, command, demo_fleet, on


def test_a_run_in_los_angeles_books_the_same_dates(tmp_path: Path) -> None:
    fleet = demo_fleet(tmp_path, on("10-17"), on("10-19"))
    here = Book.of(fleet, tmp_path / "utc")
    here.run()
    # The later day first: what the earlier one makes due is found by dates, too.
    for month_day in ("10-18", "10-17"):
        start = on(month_day)
        days = ("--start", start, "--end", start + timedelta(days=1))
        done = command(fleet, tmp_path / "west", *days, TZ="America/Los_Angeles")
        assert done.returncode == 0, done.stdout + done.stderr
    there = Book.of(fleet, tmp_path / "west")
    dates = "select distinct date from marts.energy_ledger order by 1"
    assert there.query(dates) == here.query(dates) == [(on("10-17"),), (on("10-18"),)]
    assert there.hashes() == here.hashes()
