"""What both tables of recommendations say of one fleet: what a saving is, which row to follow, on what evidence.

Nine days are planted, each deployment on a node of its own. Expected numbers are worked out from what is planted: bare
idle watts of an A100 are 55 by reference, its limit 400 W; PUE 1.2, 0.1 USD per kWh, 2 USD per GPU-hour, a host of
200 W; a month has 730 hours.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.books import Book
from tests.planted import (
    DAY_SECONDS,
    HOURS,
    INPUT,
    OUTPUT,
    WATTS,
    Samples,
    Series,
    board,
    moment,
    plant,
    pod,
    steady,
    vllm,
)

DAYS = 9
END = DAYS * DAY_SECONDS
STEP = 300
LAST = END + STEP  # the first sample after the end: without it the last date is not booked
RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
KWH = 0.73 * 1.2  # of a month, per watt
# Saturday, the third day, from 8:00 to 16:00. Watts rise and fall within it, from one sample to the next.
SHIFT = range(2 * DAY_SECONDS + 8 * HOURS, 2 * DAY_SECONDS + 16 * HOURS)
DRAWING = range(SHIFT.start + STEP, SHIFT.stop)


def counted(rate: Any) -> Samples:
    """A counter whose speed at each moment is `rate(second)`, read every STEP seconds."""
    value, samples = 1e6, [(moment(0), 1e6)]
    for second in range(0, LAST, STEP):
        value += rate(second) * STEP
        samples.append((moment(second + STEP), value))
    return samples


def serves(name: str, boards: int, watts: Any, rate: Any) -> Iterator[Series]:
    """A pod on so many boards of its own node, each of which draws `watts(second)`, at `rate(second)` output tokens."""
    for number in range(boards):
        drawn = [(moment(second), float(watts(second))) for second in range(0, LAST + STEP, STEP)]
        yield WATTS, board(f"GPU-{name}-{number}", f"n-{name}", **pod(f"{name}-0")), drawn
    labels = vllm(f"{name}-0", f"model-{name}")
    yield OUTPUT, labels, counted(rate)
    yield INPUT, labels, counted(rate)
    yield RUNNING, labels, [(moment(s), float(rate(s) > 0)) for s in range(0, LAST + STEP, STEP)]
    yield WAITING, labels, steady(0, 0, LAST, step=STEP)


def during(hours: range, busy: float, idle: float) -> Any:
    return lambda second: busy if second in hours else idle


def always(value: float) -> Any:
    return lambda _: value


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    """weekly: works eight of 168 hours. silent: is never asked. tenth: works at one load, the only one ever seen.
    peaks: the same load for two hours of a day, a twentieth of it else."""
    series = [
        *serves("weekly", 2, during(DRAWING, 300, 95), during(SHIFT, 50, 0)),
        *serves("silent", 1, always(100), always(0)),
        *serves("tenth", 1, always(250), always(10)),
        *serves("peaks", 1, always(250), lambda second: 10 if 10 * HOURS <= second % DAY_SECONDS < 12 * HOURS else 0.5),
    ]
    rate = {"device_type": "a100-sxm4-80gb", "usd_per_gpu_hour": 2, "valid_from": "2026-01-01", "source": "planted"}
    nodes = [
        {"name": f"n-{name}", "site": "west", "host_watts": 200} for name in ("weekly", "silent", "tenth", "peaks")
    ]
    made = plant(tmp_path_factory.mktemp("advice"), series, days=DAYS, cost_rates=[rate], nodes=nodes)
    made.run()
    return made


def advised(book: Book, table: str, name: str, *columns: str) -> list[tuple[Any, ...]]:
    return book.query(
        f"select {', '.join(columns)} from published.{table} where deployment = 'llm/model-{name}' order by kind"
    )


def test_a_saving_is_what_is_saved_while_nodes_and_hosts_stay_on(book: Book) -> None:
    """(100 − 55) W × 730 h × 1.2 = 39.42 kWh; with the node off the board and its host of 200 W: 262.8 kWh."""
    columns = ("kind", "saving_kwh_month", "saving_energy_usd_month", "saving_kwh_month_if_nodes_off")
    for table in ("right_sizing", "consolidation"):
        ((kind, kwh, usd, nodes_off),) = advised(book, table, "silent", *columns)
        assert kind == "spin_down"
        assert kwh == pytest.approx(45 * KWH, rel=1e-6)
        assert usd == pytest.approx(45 * KWH * 0.1, rel=1e-6)
        assert nodes_off == pytest.approx(300 * KWH, rel=1e-6)
        ((released, low, high),) = advised(
            book, table, "silent", "saving_usd_month_if_released", "saving_low", "saving_high"
        )
        assert released == pytest.approx(2 * 730, rel=1e-5)
        # The meter never differs; the bare watts are a reference, 30 % off either way: 16.5 W.
        assert (low, high) == (pytest.approx((45 - 16.5) * KWH), pytest.approx((45 + 16.5) * KWH))


def test_every_hour_of_the_week_that_was_never_worked_in_is_slept_through(book: Book) -> None:
    """Two boards asleep for 160 hours less a start of 300 s save 95 − 55 W each; loading takes 0.3 × 400 W × 300 s."""
    joules = (160 * 3600 - 300) * 40 - 36_000
    (row,) = advised(book, "right_sizing", "weekly", "kind", "idle_hours_per_week", "saving_kwh_month")
    assert row[:2] == ("sleep_outside_hours", 160)
    assert row[2] == pytest.approx(2 * joules / 604_800 * KWH, rel=1e-6)


def test_sleep_after_some_idle_time_counts_the_idle_time_of_the_whole_lookback(book: Book) -> None:
    """Two gaps, 208 of 216 hours, each less 900 s until loading (36 kJ) has paid for itself at 40 W."""
    joules = (208 * 3600 - 2 * 900) * 40 - 2 * 36_000
    (row,) = advised(book, "consolidation", "weekly", "kind", "reason_code", "saving_kwh_month")
    assert row[:2] == ("sleep_when_idle", "idle_gaps")
    assert row[2] == pytest.approx(2 * joules / END * KWH, rel=1e-6)


def test_a_load_that_was_only_seen_is_no_capacity(book: Book) -> None:
    """Whoever worked at one load all the time may carry ten times as much; whose highest load is 13 times the mean has
    room in any case."""
    assert advised(book, "consolidation", "tenth", "usage_ratio", "quadrant") == [(None, None)]
    assert advised(book, "consolidation", "peaks", "usage_ratio", "quadrant") == [(None, "high_allocation_low_usage")]


def test_each_deployment_has_one_row_to_follow_and_they_add_up(book: Book) -> None:
    rows = book.query(
        """
        with rows as (
            select 'right_sizing' as named, deployment, kind, confidence, is_preferred from published.right_sizing
            union all
            select 'consolidation', deployment, kind, confidence, is_preferred from published.consolidation
        )
        select deployment, named, kind, confidence from rows where is_preferred order by deployment
        """
    )
    assert rows == [
        ("llm/model-peaks", "right_sizing", "keep", None),
        ("llm/model-silent", "right_sizing", "spin_down", "low"),  # nine days
        ("llm/model-tenth", "right_sizing", "keep", None),
        ("llm/model-weekly", "consolidation", "sleep_when_idle", "low"),  # a hair more than by the clock
    ]
