"""Which meter a joule is counted on: closed periods, boards without an identity, limits, scopes. Planted fleets.

Add here a case of metering, with its innocent twin. Keep out who used the energy (`test_claims`).
"""

from __future__ import annotations

import pytest

from tests.books import Book
from tests.planted import DAY, DAY_SECONDS, ENERGY, WATTS, board, plant, pod, rising, steady

EARLY, LATE = -630, DAY_SECONDS + 630  # 10.5 minutes around the day: no sample is at a midnight
DAY_ONLY = (30, DAY_SECONDS - 30)


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Book:
    """A closed period of one day; the files hold samples around it of boards 2 and 3 only."""
    series = [
        (ENERGY, board("GPU-0", "n0", **pod("p0")), rising(100_000, *DAY_ONLY)),
        (WATTS, board("GPU-1", "n0", **pod("p1")), steady(100, *DAY_ONLY)),
        (ENERGY, board("GPU-2", "n0", **pod("p2")), rising(100_000, EARLY, LATE)),
        (WATTS, board("GPU-3", "n0", **pod("p3")), steady(100, EARLY, LATE)),
    ]
    book = plant(tmp_path_factory.mktemp("closed"), series)
    assert book.run() == (DAY, book.fleet.period.end)
    return book


def test_a_closed_period_has_all_its_seconds(closed: Book) -> None:
    daily = "select device_uuid, sum(energy_joules)::double, sum(covered_seconds)::double from marts.energy_ledger"
    assert closed.query(f"{daily} group by 1 order by 1") == [
        ("GPU-0", 100 * (DAY_SECONDS - 60), DAY_SECONDS - 60),
        ("GPU-1", 100 * (DAY_SECONDS - 60), DAY_SECONDS - 60),
        ("GPU-2", 100 * DAY_SECONDS, DAY_SECONDS),
        ("GPU-3", 100 * DAY_SECONDS, DAY_SECONDS),
    ]
    assert closed.query("select distinct date from marts.fleet_daily") == [(DAY,)]
    assert closed.query("select distinct date from marts.reconciliation_daily") == [(DAY,)]


def test_neighbours_of_a_closed_period_are_never_due(closed: Book) -> None:
    copy = "select date from raw.due_dates where date < ? or date >= ?"
    assert closed.query(copy, [closed.fleet.period.start, closed.fleet.period.end]) == []
