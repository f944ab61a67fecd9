"""MIG instances that an exporter names by UUIDs of their own: one meter where each repeats the board's power, as NVML
does not measure an instance; else a meter each.

Two pods per case, of 10 tokens a second each, on instances of one board.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.planted import DAY_SECONDS, ENERGY, HOURS, OUTPUT, WATTS, Samples, Series, board, pod, rising, steady, vllm
from tests.shapes import Seen, Shape, shape

NOON = 12 * HOURS


def instance(name: str, number: int, samples: Samples, metric: str = WATTS, index: str = "0") -> Series:
    return metric, board(f"MIG-u-{name}-{number}", f"n-u-{name}", gpu=index, **pod(f"u-{name}-{number}")), samples


def engines(name: str) -> list[Series]:
    return [(OUTPUT, vllm(f"u-{name}-{number}", f"u-{name}"), rising(10)) for number in (1, 2)]


def at_noon(watts: float) -> Samples:
    return [(at, watts if index == 720 else 100) for index, (at, _) in enumerate(steady(0))]


def series() -> list[Series]:
    return [
        # Both repeat the board.
        *(instance("gauge", number, steady(400)) for number in (1, 2)),
        *engines("gauge"),
        # The board has a series under its own UUID, too.
        (ENERGY, board("GPU-u-count", "n-u-count", gpu="0"), rising(400_000)),
        *(instance("count", number, rising(400_000), ENERGY) for number in (1, 2)),
        *engines("count"),
        # Each has its own power; once, equal at both ends of the date.
        *(instance("own", number, steady(watts)) for number, watts in ((1, 250), (2, 150))),
        *engines("own"),
        *(instance("ends", number, at_noon(watts)) for number, watts in ((1, 200), (2, 300))),
        *engines("ends"),
        # Equal, on two boards.
        *(instance("boards", number, steady(200), index=str(number)) for number in (1, 2)),
        *engines("boards"),
    ]


MIG_UUIDS = shape("mig_uuids", series)


@pytest.fixture(scope="module")
def book(shared_book: Callable[[Shape], Seen]) -> Seen:
    return shared_book(MIG_UUIDS)


@pytest.mark.parametrize(
    ("name", "watts"),
    [
        ("gauge", [("n-u-gauge/0", 400)]),
        ("count", [("GPU-u-count", 400)]),
        ("own", [("MIG-u-own-1", 250), ("MIG-u-own-2", 150)]),
        # A sample of 200 W or 300 W between others of 100 W adds 100 W or 200 W for a minute.
        ("ends", [("MIG-u-ends-1", 100 + 100 / 1440), ("MIG-u-ends-2", 100 + 200 / 1440)]),
        ("boards", [("MIG-u-boards-1", 200), ("MIG-u-boards-2", 200)]),
    ],
)
def test_a_board_is_booked_once(book: Seen, name: str, watts: list[tuple]) -> None:
    rows = book.query(
        f"select meter, sum(energy_joules)::double / {DAY_SECONDS} from marts.energy_ledger where meter like ?"
        " group by 1 order by 1",
        [f"%u-{name}%"],
    )
    assert rows == [(meter, pytest.approx(drawn)) for meter, drawn in watts]


@pytest.mark.parametrize("name", ["gauge", "count"])
def test_the_pods_of_its_instances_share_it(book: Seen, name: str) -> None:
    rows = book.query(
        "select engine, round(sum(energy_joules)::double) from marts.energy_ledger where model = ?"
        " group by 1 order by 1",
        [f"u-{name}"],
    )
    assert rows == [(f"llm/u-{name}-{number}", 200 * DAY_SECONDS) for number in (1, 2)]


def test_the_balance_holds(book: Seen) -> None:
    assert book.query("select * from marts.reconciliation_daily where difference_joules <> 0") == []
    assert book.broken() == {}
