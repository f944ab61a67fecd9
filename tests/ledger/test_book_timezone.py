"""Dates are UTC, whatever the machine's time zone is."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tests.books import Book, later_command
from tests.planted import DAY, DAY_SECONDS, ENERGY, OUTPUT, board, plant, pod, rising, vllm


@pytest.mark.long
def test_a_run_in_los_angeles_books_the_same_dates(tmp_path: Path) -> None:
    """Boards and an engine run on over midnight UTC, which is 17:00 there; an engine moves at that hour."""
    days = (-600, 2 * DAY_SECONDS + 600)
    here = plant(
        tmp_path,
        [
            (ENERGY, board("GPU-a", "n-a", **pod("a-0")), rising(300_000, *days)),
            (ENERGY, board("GPU-b", "n-b", **pod("b-0")), rising(100_000, -600, DAY_SECONDS)),
            (ENERGY, board("GPU-b", "n-b", **pod("c-0")), rising(100_000, DAY_SECONDS + 60, days[1], start=1e9)),
            (OUTPUT, vllm("a-0", "both-days"), rising(50, *days)),
            (OUTPUT, vllm("b-0", "first-day"), rising(20, -600, DAY_SECONDS)),
            (OUTPUT, vllm("c-0", "second-day"), rising(30, DAY_SECONDS + 60, days[1])),
        ],
        days=2,
    )
    here.run()
    options = ("--start", DAY, "--end", DAY + timedelta(days=2))
    done = later_command(tmp_path / "fleet.yaml", tmp_path / "west", *options, TZ="America/Los_Angeles")
    assert done.returncode == 0, done.stdout + done.stderr
    there = Book.of(tmp_path / "fleet.yaml", tmp_path / "west")
    dates = "select distinct date from marts.energy_ledger order by 1"
    assert there.query(dates) == here.query(dates) == [(DAY,), (DAY + timedelta(days=1),)]
    tokens = "select model, date, sum(tokens)::double from marts.token_ledger where model <> 'both-days'"
    assert there.query(f"{tokens} group by all order by 1") == [
        ("first-day", DAY, 20 * DAY_SECONDS),
        ("second-day", DAY + timedelta(days=1), 30 * (DAY_SECONDS - 60)),
    ]
    assert there.hashes() == here.hashes()
