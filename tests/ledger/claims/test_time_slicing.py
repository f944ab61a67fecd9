"""Pods that share a board by turns while its exporter names one of them, and pods that only look so.

A board draws 400 W; each engine moves 10 tokens a second.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.planted import DAY_SECONDS, ENERGY, HOURS, OUTPUT, Series, board, pod, rising, vllm
from tests.shapes import Seen, Shape, shape


def powered(name: str, number: int = 1, last: float = DAY_SECONDS, **labels: str) -> Series:
    return ENERGY, board(f"GPU-t-{name}-{number}", f"n-t-{name}", **labels), rising(400_000, 0, last)


def serves(name: str, which: str, first: float = 0, last: float = DAY_SECONDS) -> Series:
    return OUTPUT, vllm(f"t-{name}-{which}", f"t-{name}", node=f"n-t-{name}"), rising(10, first, last)


def in_turn(name: str, named: Callable[[int], str]) -> list[Series]:
    """A board whose exporter names the pod that `named` has for each minute."""
    metric, labels, samples = powered(name)
    minutes = [(named(minute), sample) for minute, sample in enumerate(samples)]
    return [
        (metric, {**labels, **pod(f"t-{name}-{which}")}, [sample for one, sample in minutes if one == which])
        for which in "ab"
    ]


def series() -> list[Series]:
    return [
        # Hours of each, and minutes in no order.
        *in_turn("hours", lambda minute: "ab"[minute // 60 % 2]),
        *(serves("hours", which) for which in "ab"),
        *in_turn("minutes", lambda minute: "ab"[minute // 7 * 7919 % 13 % 2]),
        *(serves("minutes", which) for which in "ab"),
        # One after the other: the next one is there ten minutes before it has the board.
        *in_turn("rolled", lambda minute: "ab"[minute >= 18 * 60]),
        serves("rolled", "a", last=18 * HOURS),
        serves("rolled", "b", 18 * HOURS - 600),
        powered("turns", **pod("t-turns-a")),
        *(serves("turns", which) for which in "ab"),
        # All of the node ends at 18:00.
        powered("ends", last=18 * HOURS, **pod("t-ends-a")),
        *(serves("ends", which, last=18 * HOURS) for which in "ab"),
        # One of two boards: which is not known.
        *(powered("pair", number, **pod(f"t-pair-{which}")) for number, which in ((1, "a"), (2, "b"))),
        *(serves("pair", which) for which in "abc"),
        # A board is free.
        powered("spare", **pod("t-spare-a")),
        powered("spare", 2),
        *(serves("spare", which) for which in "ab"),
        # There from 18:00 on.
        powered("late", **pod("t-late-a")),
        serves("late", "a"),
        serves("late", "b", 18 * HOURS),
        # There until 18:00.
        powered("early", **pod("t-early-a")),
        serves("early", "a"),
        serves("early", "b", last=18 * HOURS),
        # An address, and no pod.
        powered("bare", **pod("t-bare-a")),
        serves("bare", "a"),
        (OUTPUT, {"model_name": "t-bare", "engine": "0", "instance": "n-t-bare:8000"}, rising(10)),
        # Its own board is on another node.
        powered("away", **pod("t-away-a")),
        (ENERGY, board("GPU-t-away-2", "n-t-other", **pod("t-away-b")), rising(400_000)),
        *(serves("away", which) for which in "ab"),
    ]


SLICED = shape("time_slicing", series)


@pytest.fixture(scope="module")
def book(shared_book: Callable[[Shape], Seen]) -> Seen:
    return shared_book(SLICED)


@pytest.mark.parametrize(
    ("name", "watts"),
    [
        ("hours", [("llm/t-hours-a", 200), ("llm/t-hours-b", 200)]),
        ("minutes", [("llm/t-minutes-a", 200), ("llm/t-minutes-b", 200)]),
        ("rolled", [("llm/t-rolled-a", 300), ("llm/t-rolled-b", 100)]),
        ("turns", [("llm/t-turns-a", 200), ("llm/t-turns-b", 200)]),
        ("ends", [("llm/t-ends-a", 150), ("llm/t-ends-b", 150)]),
        ("pair", [("llm/t-pair-a", 400), ("llm/t-pair-b", 400)]),
        ("spare", [("__unallocated__", 400), ("llm/t-spare-a", 400)]),
        ("late", [("llm/t-late-a", 400)]),
        ("early", [("llm/t-early-a", 400)]),
        ("bare", [("llm/t-bare-a", 400)]),
        ("away", [("llm/t-away-a", 400), ("llm/t-away-b", 400)]),
    ],
)
def test_who_shares_a_board(book: Seen, name: str, watts: list[tuple]) -> None:
    rows = book.query(
        f"select engine, round(sum(energy_joules)::double / {DAY_SECONDS}, 2) from marts.energy_ledger"
        " where meter like ? group by 1 order by 1",
        [f"GPU-t-{name}-%"],
    )
    assert rows == watts


def test_a_share_by_the_node_has_low_confidence(book: Seen) -> None:
    assert book.query(
        "select distinct engine, attribution_method, attribution_confidence from marts.energy_ledger"
        " where meter = 'GPU-t-turns-1' order by 1"
    ) == [("llm/t-turns-a", "token_share", "low"), ("llm/t-turns-b", "node_share", "low")]


def test_the_balance_holds(book: Seen) -> None:
    assert book.query("select * from marts.reconciliation_daily where difference_joules <> 0") == []
    assert book.broken() == {}
