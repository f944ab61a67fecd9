"""What both tables of recommendations have of one fleet: what a saving is, which row to follow, on what evidence.

Nine days are planted, each deployment on a node of its own. Expected numbers are worked out from what is planted: bare
idle watts of an A100 are 55 by reference, its limit 400 W; PUE 1.2, 0.1 USD per kWh, 2 USD per GPU-hour, a host of
200 W; a month has 730 hours.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.advice.shared_columns import mark_preferred
from pipelines.analysis import preference
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
    # Of weekly's tokens two intervals of 96 would wait for its start of 300 s: a fiftieth, above the usual hundredth.
    models = [{"name": "model-weekly", "most_waiting_ratio": 0.03}]
    made = plant(tmp_path_factory.mktemp("advice"), series, days=DAYS, cost_rates=[rate], nodes=nodes, models=models)
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
        # Nine days are too few for an interval of the coming month.
        assert (low, high) == (None, None)


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


def avoidable_of(book: Book) -> dict[str, tuple[Any, ...]]:
    """Deployment -> USD now, at a date, the date, never, and the sum that is saved at once, of the rows to follow."""
    rows = book.query(
        """
        select deployment, avoidable_now_usd_month, avoidable_later_usd_month, avoidable_from, not_avoidable_usd_month,
            saving_now_usd_month
        from (
            select * from published.right_sizing where is_preferred
            union all by name
            select * from published.consolidation where is_preferred
        )
        """
    )
    return {name.removeprefix("llm/model-"): tuple(values) for name, *values in rows}


def test_freed_accelerators_are_saved_now_or_once_no_commitment_pays_for_them(book: Book) -> None:
    """Of five A100s one is freed, alone in its node. Free of contracts it saves 2 USD × 730 h beside 3.942 USD of
    electricity; where all five are committed at 1 USD, 730 USD once that ends."""
    found = avoidable_of(book)
    assert found["silent"] == (pytest.approx(1460), 0, None, 0, pytest.approx(1463.942))
    # Asleep nothing is handed back: electricity alone.
    assert found["weekly"][:4] == (None, None, None, None) and found["weekly"][4] > 0
    terms = "('c', 'west', 'a100-sxm4-80gb', 5, 1, date '2026-01-01', date '2027-07-01')"
    with book.connection() as connection:
        connection.execute(f"insert into fleet.commitments values {terms}")
        mark_preferred(connection)
        connection.execute("delete from fleet.commitments")
    assert avoidable_of(book)["silent"] == (0, 730, date(2027, 7, 1), 0, pytest.approx(3.942))
    with book.connection() as connection:
        connection.execute(
            "insert into fleet.node_gpus (node, site, device_type, gpus, valid_from)"
            " values ('n-silent', 'west', 'a100-sxm4-80gb', 2, date '2026-01-01')"
        )
        mark_preferred(connection)
        connection.execute("delete from fleet.node_gpus")
    # Another accelerator of the node, which no meter shows, may be in use.
    assert avoidable_of(book)["silent"] == (0, 0, None, pytest.approx(1460), pytest.approx(3.942))
    with book.connection() as connection:
        mark_preferred(connection)
    assert avoidable_of(book) == found


# --- which row to follow ----------------------------------------------------------------------------------------------


def row(table: str, group: str, kind: str, kwh: float | None = None, usd: float | None = None, **more: Any) -> dict:
    named = {"table": table, "exclusive_group_id": group, "kind": kind, "colocation_id": None, "current_gpus": None}
    saved = {"saving_kwh_month": kwh, "saving_usd_month_if_released": usd}
    return named | saved | more | {"recommendation_id": f"{table}/{group}/{kind}"}


def preferred(*rows: dict) -> list[str]:
    frame = pd.DataFrame(rows)
    return sorted(frame.loc[preference.preferred(frame), "recommendation_id"])


def test_of_the_rows_of_a_deployment_that_which_saves_most_is_followed_whichever_table_has_it() -> None:
    sized, planned = row("right_sizing", "a", "fewer_gpus", 56), row("consolidation", "a", "sleep_when_idle", 53)
    assert preferred(sized, planned) == ["right_sizing/a/fewer_gpus"]
    assert preferred(sized, planned | {"saving_kwh_month": 57}) == ["consolidation/a/sleep_when_idle"]
    # Of equal savings that which frees more hours; of equal rows that which needs no plan.
    assert preferred(sized, row("consolidation", "a", "spin_down", 56, 10)) == ["consolidation/a/spin_down"]
    both = [row(table, "a", "spin_down", 201, 7008) for table in ("consolidation", "right_sizing")]
    assert preferred(*both) == ["right_sizing/a/spin_down"]


def test_to_keep_is_followed_only_where_there_is_nothing_else() -> None:
    unknown = row("consolidation", "a", "spin_down", None, 7008)
    assert preferred(row("right_sizing", "a", "keep"), unknown) == ["consolidation/a/spin_down"]
    kept = row("right_sizing", "a", "keep"), row("consolidation", "a", "insufficient_data")
    assert preferred(*reversed(kept)) == ["right_sizing/a/keep"]


def test_a_deployment_without_advice_is_shown_by_its_boards() -> None:
    """Two seconds of the host's meter while the boards' exporter was silent are a row as well: its reason and its
    0 GPUs were shown for a deployment of 4."""
    sliver, boards, silent = (
        row("right_sizing", "a", "insufficient_data", current_gpus=gpus) | {"recommendation_id": name}
        for name, gpus in (("1", 0.0), ("2", 4.0), ("0", None))
    )
    assert preferred(sliver, boards, silent) == ["2"]
    # What saves more is followed all the same.
    assert preferred(boards, row("right_sizing", "a", "fewer_gpus", 5, current_gpus=2)) == ["right_sizing/a/fewer_gpus"]


@pytest.mark.parametrize(
    ("alone", "expected"),
    [
        (99, ["consolidation/host/colocate", "consolidation/mover/colocate"]),
        # The host's own row saves more than both together: then the mover has nowhere to go.
        (101, ["right_sizing/host/fewer_gpus", "right_sizing/mover/keep"]),
    ],
)
def test_who_shares_does_so_together_or_not_at_all(alone: float, expected: list[str]) -> None:
    rows = [
        row("consolidation", "mover", "colocate", 100, colocation_id="c"),
        row("consolidation", "host", "colocate", 0, colocation_id="c"),
        row("right_sizing", "mover", "keep"),
        row("right_sizing", "host", "fewer_gpus", alone),
    ]
    assert preferred(*rows) == expected


row_lists = st.lists(
    st.tuples(
        st.sampled_from(preference.TABLES),
        st.sampled_from("abcd"),
        st.sampled_from(preference.KINDS),
        st.none() | st.integers(0, 5),
        st.none() | st.integers(0, 5),
        st.sampled_from(["c1", "c2"]),
    ),
    min_size=1,
    max_size=16,
    unique_by=lambda one: one[:3],
)


@settings(max_examples=200, deadline=None)
@given(row_lists)
def test_one_row_of_each_deployment_is_followed_and_no_half_of_a_plan(tuples: list[tuple]) -> None:
    rows = [
        row(*one[:5], colocation_id=one[5] if one[2] == "colocate" and one[0] == "consolidation" else None)
        for one in tuples
    ]
    frame = pd.DataFrame(rows)
    chosen = frame[preference.preferred(frame)]
    assert chosen["exclusive_group_id"].is_unique
    # A deployment with only half of a plan has no row.
    unplanned = frame[frame["colocation_id"].isna()]
    assert set(unplanned["exclusive_group_id"]) <= set(chosen["exclusive_group_id"])
    for colocation, several in chosen.dropna(subset="colocation_id").groupby("colocation_id"):
        assert len(several) == (frame["colocation_id"] == colocation).sum()
    shuffled = frame.sample(frac=1, random_state=1)
    assert set(shuffled.loc[preference.preferred(shuffled), "recommendation_id"]) == set(chosen["recommendation_id"])


# --- how sure it is ---------------------------------------------------------------------------------------------------

SURE = {"kind": "fewer_gpus", "days": 28, "coverage_ratio": 0.99, "has_queue_telemetry": True}


@pytest.mark.parametrize(
    ("changes", "evidence", "word"),
    [
        ({}, "requests_within_slo", "high"),
        ({"days": 21, "coverage_ratio": 0.95}, "histogram_within_slo", "high"),
        ({"days": 20}, "requests_within_slo", "medium"),
        ({"coverage_ratio": 0.94}, "requests_within_slo", "medium"),
        ({"has_queue_telemetry": False}, "requests_within_slo", "medium"),
        ({"has_queue_telemetry": None}, "requests_within_slo", "medium"),
        ({}, "highest_observed", "medium"),
        ({}, "lower_limit_seen", "medium"),
        ({}, "published_benchmark", "medium"),
        ({}, "scaled_by_bandwidth", "medium"),
        ({}, "measured_on_size", "medium"),
        ({}, "unknown", "low"),
        ({"kind": "try_it"}, "bandwidth_floor", None),
        ({"days": 13}, "requests_within_slo", "low"),
        ({"kind": "spin_down", "has_queue_telemetry": False}, "no_demand", "high"),
        ({"kind": "sleep_outside_hours", "has_queue_telemetry": False}, "idle_hours", "high"),
        ({"kind": "keep"}, None, None),
        ({"kind": "insufficient_data"}, None, None),
    ],
)
def test_confidence_is_a_word(changes: dict[str, Any], evidence: str | None, word: str | None) -> None:
    rows = pd.DataFrame([SURE | changes])
    serves_less = rows["kind"].isin(["fewer_gpus"])
    assert preference.confidence(rows, pd.Series([evidence]), serves_less).replace(np.nan, None).tolist() == [word]
