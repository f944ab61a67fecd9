"""Who holds a board whose monitoring moves to another server in mid-day.

Each board draws 300 W; the next pod takes it at 14:00, two hours after the new server has taken over.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.planted import DAY_SECONDS, ENERGY, HOURS, Series, board, pod, rising
from tests.shapes import Seen, Shape, shape

NOON, CHANGE = 12 * HOURS, 14 * HOURS


def held(uuid: str, name: str, first: float, last: float) -> Series:
    return (
        ENERGY,
        {**board(f"GPU-{uuid}", f"n-{uuid}"), **pod(name)},
        rising(300_000, first, last, start=1e9 + 300_000 * first),
    )


def servers() -> dict[str, list[Series]]:
    """`mv-one` moves at noon, four minutes of which both servers read; both read `mv-both` all day."""
    both = [held("mv-both", "mv-a", 0, CHANGE - 60), held("mv-both", "mv-b", CHANGE, DAY_SECONDS)]
    return {
        "mv_old": [held("mv-one", "mv-c", 0, NOON + 240), *both],
        "mv_new": [held("mv-one", "mv-c", NOON, CHANGE - 60), held("mv-one", "mv-d", CHANGE, DAY_SECONDS), *both],
    }


MOVED = shape("moved_servers", servers)


@pytest.fixture(scope="module")
def book(shared_book: Callable[[Shape], Seen]) -> Seen:
    return shared_book(MOVED)


@pytest.mark.parametrize(("uuid", "first", "second"), [("mv-one", "mv-c", "mv-d"), ("mv-both", "mv-a", "mv-b")])
def test_each_pod_holds_the_board_in_its_time(book: Seen, uuid: str, first: str, second: str) -> None:
    rows = book.query(
        "select held_by, sum(energy_joules)::double from marts.energy_ledger where device_uuid = ?"
        " group by 1 order by 1",
        [f"GPU-{uuid}"],
    )
    # The minute in which it changes hands is the first one's.
    assert rows == [(f"llm/{first}", 300 * CHANGE), (f"llm/{second}", 300 * (DAY_SECONDS - CHANGE))]


def test_the_balance_holds(book: Seen) -> None:
    assert book.query("select * from marts.reconciliation_daily where difference_joules <> 0") == []
    assert book.broken() == {}
