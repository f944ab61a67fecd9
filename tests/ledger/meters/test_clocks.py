"""A board whose clock, or its engine's, is wrong: what it draws at work and what it draws idle change places.

Add here what is stamped at the wrong time by less than a day. Keep out samples of the future (`booking.test_alarms`).
Each board draws 500 W at work and 40 W idle, too little for a pool; its engine counts 600 tokens a minute of work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from tests.planted import DAY_SECONDS, HOURS, OUTPUT, WATTS, Samples, Series, board, moment, pod, vllm
from tests.shapes import Seen, Shape, shape

MINUTES = range(0, DAY_SECONDS + 1, 60)
LATE = 1_200


def hourly(second: float) -> bool:
    """At work in every second hour."""
    return second // HOURS % 2 == 0


def quarterly(second: float) -> bool:
    return second // 900 % 2 == 0


def nightly(second: float) -> bool:
    """At work from 06:00 to 22:00: twenty minutes are 3 % of its idle and its busy time."""
    return 6 * HOURS <= second < 22 * HOURS


def watts(is_busy: Callable[[float], bool], late: float = 0) -> Samples:
    return [(moment(second), 500.0 if is_busy(second - late) else 40.0) for second in MINUTES]


def tokens(is_busy: Callable[[float], bool], late: float = 0) -> Samples:
    """Tokens of each minute of work."""
    counted, samples = 1e6, []
    for second in MINUTES:
        counted += 600 if is_busy(second - 60 - late) else 0
        samples.append((moment(second), counted))
    return samples


def at_its_end(length: int) -> Samples:
    """Requests of this length, one after another in every second hour, are counted when they end."""
    counted, samples = 1e6, []
    for second in MINUTES:
        counted += length * 10 if hourly(second - 1) and second % length == 0 else 0
        samples.append((moment(second), counted))
    return samples


CELLS = {
    "watts": (watts(hourly, LATE), tokens(hourly)),
    "page": (watts(hourly), tokens(hourly, LATE)),
    "right": (watts(hourly), tokens(hourly)),
    # Less than an interval and its neighbours.
    "near": (watts(hourly, 240), tokens(hourly)),
    # Half an hour later all is the same again.
    "quarter": (watts(quarterly), tokens(quarterly)),
    "night": (watts(nightly, LATE), tokens(nightly)),
    "always": (watts(lambda _: True, LATE), tokens(lambda _: True)),
    "ends": (watts(hourly), at_its_end(LATE)),
}


def series() -> Iterable[Series]:
    for name, (drawn, counted) in CELLS.items():
        yield WATTS, {**board(f"GPU-clk-{name}", f"clk-{name}"), **pod(f"clk-{name}-0")}, drawn
        yield OUTPUT, vllm(f"clk-{name}-0", f"clk-{name}"), counted


CLOCKS = shape("clocks", series)


@pytest.fixture(scope="module")
def book(shared_book: Callable[[Shape], Seen]) -> Seen:
    return shared_book(CLOCKS)


def test_boards_whose_watts_and_tokens_are_apart_are_in_doubt(book: Seen) -> None:
    assert book.query(
        "select entity, figure, evidence from marts.doubts where reason = 'clocks_apart' order by entity"
    ) == [
        ("GPU-clk-page", "energy", "its watts are 1200 s earlier than the tokens of llm/clk-page-0"),
        ("GPU-clk-watts", "energy", "its watts are 1200 s later than the tokens of llm/clk-watts-0"),
    ]


@pytest.mark.parametrize("name", sorted(CELLS))
def test_their_rows_are_marked_and_no_others(book: Seen, name: str) -> None:
    is_apart = name in {"watts", "page"}
    assert book.query(
        "select doubt_reasons, doubted_energy_ratio from marts.model_daily where model = ?", [f"clk-{name}"]
    ) == [("clocks_apart" if is_apart else "", 1.0 if is_apart else 0.0)]
