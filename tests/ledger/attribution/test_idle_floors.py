"""Whose parked watts make a board's idle floor: its own first, whatever other boards report.

One fleet is planted for a day; each device type is one case, so that no pool reaches into another case. A board rests
for so many hours at its parked watts, then works at 300 W until midnight. Its idle floor is its baseline × the seconds
in which it works: 79,200 s after two hours of rest, 86,400 s without rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import date, datetime

import numpy as np
import pytest

from pipelines.warehouse import database
from tests.books import Book
from tests.planted import (
    DAY_SECONDS,
    ENERGY,
    HOURS,
    INPUT,
    OUTPUT,
    Samples,
    Series,
    board,
    moment,
    plant,
    pod,
    rising,
    vllm,
)

WORKING_WATTS = 300
ALL_DAY, AFTER_TWO_HOURS = DAY_SECONDS, DAY_SECONDS - 2 * HOURS
BY_BOARD, BY_MODEL, BY_NODE, BY_FLEET = (f"parked_p10_of_{level}" for level in ("board", "model", "node", "fleet"))
BY_MINUTES = "parked_minutes_of_board"
REFERENCE_WATTS = {kind: 93.0 for kind in ("pair", "high", "lone", "far", "wrong", "short", "minutes")}


@dataclass(frozen=True)
class Board:
    """One board with an engine of its own: how it rests, and the idle floor that it has to have."""

    name: str
    kind: str
    parked_watts: float
    parked_hours: float
    floor: tuple[str, float]
    model: str = "m"
    node: str = "n"

    def series(self) -> Iterator[Series]:
        name = f"{self.kind}-{self.name}"
        rest = self.parked_hours * HOURS
        place = board(name, f"{self.kind}-{self.node}", modelName=self.kind, **pod(name))
        yield ENERGY, place, two_rates(1000 * self.parked_watts, 1000 * WORKING_WATTS, rest)
        for metric in (INPUT, OUTPUT):
            yield metric, vllm(name, f"{self.kind}-{self.model}"), two_rates(0, 5, rest)


def two_rates(resting: float, working: float, rest: float) -> Samples:
    """A counter that rises by `resting` a second until `rest` seconds after midnight, then by `working`."""
    before = rising(resting, 0, rest)
    after = rising(working, rest, DAY_SECONDS, start=before[-1][1])
    return [*before, *(sample for sample in after if sample[0] > moment(rest))]


def boards() -> Iterator[Board]:
    # Nine healthy boards and an odd one of one type and model. A tenth healthy one never rests: the median of the odd
    # 3.7 W and 75.0 to 75.8 W is midway between 75.3 and 75.4 W.
    for n in range(9):
        yield Board(f"healthy{n}", "ten", 75 + n / 10, 2, (BY_BOARD, (75 + n / 10) * AFTER_TWO_HOURS))
    yield Board("odd", "ten", 3.7, 2, (BY_BOARD, 3.7 * AFTER_TWO_HOURS))
    yield Board("busy", "ten", 0, 0, (BY_MODEL, 75.35 * ALL_DAY))
    # Two boards only: by themselves neither is odd, so the reference of 93 W decides which one others may follow.
    yield Board("healthy", "pair", 75, 2, (BY_BOARD, 75 * AFTER_TWO_HOURS))
    yield Board("odd", "pair", 3.7, 2, (BY_BOARD, 3.7 * AFTER_TWO_HOURS))
    yield Board("busy", "pair", 0, 0, (BY_MODEL, 75 * ALL_DAY))
    # The same with a board that never rests below 290 W: over its 187 W.
    yield Board("healthy", "high", 75, 2, (BY_BOARD, 75 * AFTER_TWO_HOURS))
    yield Board("odd", "high", 290, 2, (BY_BOARD, 290 * AFTER_TWO_HOURS))
    yield Board("busy", "high", 0, 0, (BY_MODEL, 75 * ALL_DAY))
    # Only the odd board rests: of its model, its node, its fleet. The others keep the reference.
    yield Board("odd", "lone", 3.7, 2, (BY_BOARD, 3.7 * AFTER_TWO_HOURS))
    yield Board("busy", "lone", 0, 0, ("device_type_reference", 93 * ALL_DAY))
    yield Board("beside", "lone", 0, 0, ("device_type_reference", 93 * ALL_DAY), model="other")
    yield Board("away", "lone", 0, 0, ("device_type_reference", 93 * ALL_DAY), model="third", node="n2")
    # A healthy one alone serves its node first, then the fleet.
    yield Board("healthy", "far", 75, 2, (BY_BOARD, 75 * AFTER_TWO_HOURS))
    yield Board("beside", "far", 0, 0, (BY_NODE, 75 * ALL_DAY), model="other")
    yield Board("away", "far", 0, 0, (BY_FLEET, 75 * ALL_DAY), model="third", node="n2")
    # Boards far from the reference have their own watts, however many they are, and lend them to no other board.
    for n in range(3):
        yield Board(f"low{n}", "wrong", 22, 2, (BY_BOARD, 22 * AFTER_TWO_HOURS))
    yield Board("busy", "wrong", 0, 0, ("device_type_reference", 93 * ALL_DAY))
    # 10 minutes of six boards are an hour of the pool, and of none a quarter of an hour of its own: 70 to 80 W.
    for watts in (70, 72, 74, 76, 78, 80):
        yield Board(f"w{watts}", "short", watts, 1 / 6, (BY_MODEL, 75 * (DAY_SECONDS - 600)))
    # 20 minutes are its own.
    for watts in (70, 80):
        yield Board(f"w{watts}", "minutes", watts, 1 / 3, (BY_MINUTES, watts * (DAY_SECONDS - 1200)))
    # No reference of this type is known: what two boards report is all there is, 20 and 40 W.
    yield Board("one", "undescribed", 20, 2, (BY_BOARD, 20 * AFTER_TWO_HOURS))
    yield Board("two", "undescribed", 40, 2, (BY_BOARD, 40 * AFTER_TWO_HOURS))
    yield Board("busy", "undescribed", 0, 0, (BY_MODEL, 30 * ALL_DAY))


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    """The day of all cases."""
    planted = plant(
        tmp_path_factory.mktemp("floors"),
        [series for one in boards() for series in one.series()],
        marts=("energy_ledger",),
        device_types=[
            {"name": kind, "power_limit_watts": 400, "idle_watts_loaded": watts}
            for kind, watts in REFERENCE_WATTS.items()
        ],
    )
    planted.run()
    return planted


@pytest.fixture(scope="module")
def floors(book: Book) -> dict[str, tuple[str, float]]:
    """Meter -> the basis and the joules of its idle floor."""
    rows = book.query(
        "select meter, idle_basis, sum(idle_floor_joules)::double, sum(covered_seconds)::double"
        " from marts.energy_ledger where state = 'active' group by all order by all"
    )
    assert len(rows) == len({meter for meter, *_ in rows}), "a board has one basis"
    return {meter: (basis, joules) for meter, basis, joules, _ in rows}


@pytest.mark.parametrize("kind", sorted({one.kind for one in boards()}))
def test_a_board_has_its_own_idle_floor_before_that_of_others(floors: dict[str, tuple[str, float]], kind: str) -> None:
    expected = {f"{kind}-{one.name}": one.floor for one in boards() if one.kind == kind}
    found = {meter: floors[meter] for meter in expected}
    assert found == {meter: (basis, pytest.approx(joules, abs=1e-3)) for meter, (basis, joules) in expected.items()}


def test_twenty_minutes_of_its_own_are_the_floor_of_that_date_in_the_demo(four_weeks: tuple[Book, str]) -> None:
    """A board of gpt-oss-120b on 2026-10-11: parked from 09:15 to 09:35, and on no other date. Its gauge read 74.216 to
    74.616 W; boards of its type with another model were parked at 72.9 W, its floor on each other date."""
    board, first, last = "GPU-15928254-5d00-5ad3-809f-5365a7b71505", "2026-10-11 09:14", "2026-10-11 09:36"
    with closing(database.connect(four_weeks[0].fleet.warehouse, read_only=True)) as connection:
        samples = connection.execute(
            "select epoch(observed_at), value from raw.power_samples inner join staging.stg_series using (series_id)"
            " where metric = 'DCGM_FI_DEV_POWER_USAGE' and meter = ? and observed_at between ? and ?"
            " order by observed_at",
            [board, f"{first}:00+00", f"{last}:00+00"],
        ).fetchall()
        floors = connection.execute(
            "select date, idle_basis, sum(idle_floor_joules)::double / sum(covered_seconds)::double"
            " from marts.energy_ledger where meter = ? and state = 'active' group by all order by date",
            [board],
        ).fetchall()
    times, watts = np.array(samples, dtype=float).T
    assert (len(samples), min(watts[1:-1]), max(watts[1:-1])) == (22, 74.216, 74.616)
    # Means of four intervals of 300 s, by trapezoid from the samples and their neighbours.
    fine = np.arange(0, 1200, 0.01) + epoch("2026-10-11 09:15:00")
    means = np.interp(fine, times, watts).reshape(4, -1).mean(axis=1)
    assert np.percentile(means, 10) == pytest.approx(74.3453, abs=2e-4)
    own = {day: watts for day, basis, watts in floors if basis == "parked_minutes_of_board"}
    assert own == {date(2026, 10, 11): pytest.approx(74.3453, abs=2e-4)}
    others = [watts for _, basis, watts in floors if basis == "parked_p10_of_fleet"]
    assert len(others) == 14  # from the 15th on no pod holds it
    assert 72.5 < min(others) <= max(others) < 73.5


def epoch(text: str) -> float:
    return datetime.fromisoformat(f"{text}+00:00").timestamp()
