"""Which metric's labels name who holds a board, where its counter and its gauge differ: those that name an engine for
longer.

Add here labels of one board that contradict each other. Keep out labels that change on all of its metrics
(`test_claims`). Boards draw 300 W from midnight to midnight, 25,920,000 J; their engines count all day.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from tests.planted import DAY_SECONDS, ENERGY, HOURS, OUTPUT, WATTS, Series, board, pod, rising, steady, vllm
from tests.shapes import Seen, Shape, shape

JOB = {"job": "dcgm"}


def labelled(name: str, counter: dict[str, str], gauge: dict[str, str]) -> Iterable[Series]:
    """A board whose labels change after an hour: those of its counter and those of its gauge from then on."""
    first = {**JOB, **pod(name)}
    for metric, later, samples in (
        (ENERGY, counter, rising(300e3, 0, DAY_SECONDS)),
        (WATTS, gauge, steady(300, 0, DAY_SECONDS)),
    ):
        before = board(f"GPU-{name}", f"node-{name}", **first)
        if later == first:
            yield metric, before, samples
            continue
        cut = HOURS // 60
        yield metric, before, samples[:cut]
        yield metric, board(f"GPU-{name}", f"node-{name}", **later), samples[cut:]
    yield OUTPUT, vllm(name, f"m-{name}"), rising(100, 0, DAY_SECONDS)


def series() -> Iterable[Series]:
    def stays(name: str) -> dict[str, str]:
        return {**JOB, **pod(name)}

    yield from labelled("lab-pod", {**JOB, **pod("lab-other")}, stays("lab-pod"))
    yield from labelled("lab-space", {**JOB, **pod("lab-space", namespace="llm-b")}, stays("lab-space"))
    yield from labelled("lab-bare", JOB, stays("lab-bare"))
    # The gauge's labels change, or both do: another pod has the board.
    yield from labelled("lab-gauge", stays("lab-gauge"), {**JOB, **pod("lab-gauges")})
    yield from labelled("lab-both", {**JOB, **pod("lab-next")}, {**JOB, **pod("lab-next")})


LABELS = shape("label_readings", series)


@pytest.fixture(scope="module")
def book(shared_book: Callable[[Shape], Seen]) -> Seen:
    return shared_book(LABELS)


@pytest.mark.parametrize(
    ("name", "hours"),
    [("lab-pod", 24), ("lab-space", 24), ("lab-bare", 24), ("lab-gauge", 24), ("lab-both", 1)],
)
def test_an_engine_has_the_joules_for_as_long_as_any_metric_of_the_board_names_it(
    book: Seen, name: str, hours: int
) -> None:
    found = book.query("select sum(energy_joules)::double from marts.energy_ledger where engine = ?", [f"llm/{name}"])
    # Between two series a minute belongs to none of them.
    assert found == [(pytest.approx(300 * HOURS * hours, abs=300 * 60),)]
