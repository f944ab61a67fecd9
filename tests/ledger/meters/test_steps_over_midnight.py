"""Steps from the last sample of a date to the first one of the next: book and balance see the same two samples, and
fill or leave the same silence.

Two days of a sample a minute, from 10.5 minutes before the first midnight to 10.5 minutes after the last. Keep out
limits and leaps (`test_doubted_limits`, `test_leaps`).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.books import LEDGER, Book
from tests.planted import DAY, DAY_SECONDS, HOURS, WATTS, Samples, Series, board, plant, rising, steady

EARLY, LATE = -630, 2 * DAY_SECONDS + 630
NEXT = DAY + timedelta(days=1)
PARTITIONS = 8
BOARDS = 4
FAST, SLOW = 15, 240  # the source states 60 s, so a silence of up to 180 s is filled where most steps are shorter


def partitioned(serial: str, metric: str, samples: Samples) -> Iterator[Series]:
    """An AMD board in partitions: the first one shows the board's value, the others 0, all at the same moments."""
    for partition in range(PARTITIONS):
        labels = {
            "gpu_id": str(partition),
            "gpu_partition_id": str(partition),
            "serial_number": serial,
            "card_series": "AMD Instinct MI300X OAM",
            "hostname": f"host-of-{serial}",
        }
        yield metric, labels, [(at, 0 if partition else value) for at, value in samples]


def paced(watts: float, change: float, first: float, then: float) -> Samples:
    """A gauge that is read every `first` seconds until `change`, and from there every `then`; both meet there."""
    before = [second for second in _seconds(change, EARLY, -first)][::-1]
    after = _seconds(change, LATE, then)[1:]
    return [(at + steady(0, 0, 0)[0][0], watts) for at in before + after]


def _seconds(start: float, end: float, step: float) -> list[float]:
    return [start + n * step for n in range(int((end - start) // step) + 1)]


def planted() -> Iterator[Series]:
    # Which of eight equal moments a query meets first is chance: four boards of each kind.
    for n in range(BOARDS):
        yield from partitioned(f"AMD-c{n}", "gpu_energy_consumed", rising(640e6, EARLY, LATE, start=64e10))
        yield from partitioned(f"AMD-w{n}", "gpu_package_power", steady(640, EARLY, LATE))
    # 240 s are a silence on the first date and the interval of the second.
    yield WATTS, board("GPU-slower", "paced"), paced(250, 12 * HOURS + 30, FAST, SLOW)
    # The interval of the first date is a silence on the second.
    yield WATTS, board("GPU-faster", "paced"), paced(250, DAY_SECONDS + 30, SLOW, FAST)
    yield WATTS, board("GPU-even", "paced"), steady(250, EARLY, LATE)


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    book = plant(tmp_path_factory.mktemp("midnights"), planted(), days=2, marts=LEDGER)
    book.run()
    return book


def joules(book: Book, meter: str) -> list[float]:
    """Of both dates."""
    rows = book.query(
        "select date, sum(energy_joules)::double from marts.energy_ledger where meter = ? group by all order by all",
        [meter],
    )
    return [value for _, value in rows]


@pytest.mark.parametrize("meter", [f"AMD-{kind}{n}" for kind in "cw" for n in range(BOARDS)])
def test_partitions_that_show_zero_are_no_sample_of_the_board(book: Book, meter: str) -> None:
    assert joules(book, meter) == [640 * DAY_SECONDS] * 2


@pytest.mark.parametrize(
    ("meter", "seconds"),
    [
        # Until noon, and from the last sample before midnight, 23:56:30, on.
        ("slower", [12 * HOURS + 30 + 210, DAY_SECONDS]),
        # Until 23:56:30, and from 00:00:30 on.
        ("faster", [DAY_SECONDS - 210, DAY_SECONDS - 30]),
        ("even", [DAY_SECONDS] * 2),
    ],
)
def test_a_step_over_midnight_is_a_silence_by_the_date_on_which_it_ends(
    book: Book, meter: str, seconds: list[float]
) -> None:
    assert joules(book, f"GPU-{meter}") == [250 * of_date for of_date in seconds]


def differing(book: Book) -> list[tuple]:
    return book.query("from marts.reconciliation_daily where difference_joules <> 0")


def test_it_balances(book: Book) -> None:
    assert (differing(book), book.broken()) == ([], {})


@pytest.mark.rest
def test_it_is_the_same_book_in_any_order(book: Book, tmp_path: Path) -> None:
    expected = book.hashes()
    for name, order in {"forward": (DAY, NEXT), "backward": (NEXT, DAY)}.items():
        other = Book.of(book.fleet.path, tmp_path / name, marts=LEDGER)
        for on in order:
            other.run(on, on + timedelta(days=1))
            assert differing(other) == [], (name, on)
        assert other.hashes() == expected, name
