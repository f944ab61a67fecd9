"""How fast a smaller engine has to serve each request before its saving counts: hand-computed, without a warehouse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from pipelines.analysis import capacities, sizes, trials
from tests.advice.test_capacities import LARGE, SAVINGS, of_size
from tests.advice.test_right_sizing import rows_of
from tests.advice.test_sizes import NO_BENCHMARKS, proposed, tried, usage

# 12.8 tok/s on four GPUs in proportion, 12.4 are needed. When most is asked for, a request has 4 tok/s on eight GPUs,
# so 2 on four.
ENOUGH: dict[str, Any] = LARGE | {
    "capacity_tokens_per_second_per_gpu": 3.2,
    "capacity_tokens_per_second": 25.6,
    "unpressed_tokens_per_second_per_gpu": 3.2,
    "busiest_request_tokens_per_second": 4.0,
}


@pytest.mark.parametrize(
    ("change", "kind", "reason"),
    [
        ({"tpot_slo_seconds": 0.5}, "fewer_gpus", "demand_fits"),  # 2 tok/s are asked for
        ({"tpot_slo_seconds": 0.49}, "try_it", "latency_not_shown"),  # 2.04 are
        ({"tpot_slo_seconds": 0.5, "busiest_request_tokens_per_second": np.nan}, "try_it", "latency_not_shown"),
        ({"tpot_slo_seconds": 0.5, "role": "prefill"}, "try_it", "latency_not_shown"),
        ({"role": "prefill"}, "try_it", "latency_not_shown"),
        ({}, "try_it", "no_latency_objective"),
    ],
)
def test_a_smaller_engine_has_to_keep_the_pace_that_the_model_promises(
    change: dict[str, Any], kind: str, reason: str
) -> None:
    (row,) = rows_of(usage(ENOUGH | change)).to_dict("records")
    assert (row["kind"], row["reason_code"], row["evidence_basis"]) == (kind, reason, "scaled_by_bandwidth")
    is_tried = kind == "try_it"
    assert (row["recommended_gpus"], pd.notna(row["trial_gpus_per_replica"])) == (8 if is_tried else 4, is_tried)
    assert row["capacity_low_tokens_per_second"] == pytest.approx(12.8)
    # Four boards, 5840 USD of hours.
    assert row["saving_usd_month_if_released"] == pytest.approx(np.nan if is_tried else 5840, nan_ok=True)
    unknown = [*SAVINGS, "risk_ratio", "recommended_capacity_tokens_per_second", "backtest_short_ratio"]
    assert not is_tried or [name for name in [*unknown, "backtest_held", "confidence"] if not pd.isna(row[name])] == []


def test_of_several_sizes_the_least_that_keeps_the_pace_is_counted_and_else_the_largest_is_tried() -> None:
    """Weights of 16 GiB fit on one GPU. A request has 4 tok/s on eight, so 2 on four, 1 on two, 0.5 on one."""
    small = ENOUGH | {"weights_gib": 16.0, "demand_tokens_per_second_p99": 1.0}
    frame = usage(*(small | {"tpot_slo_seconds": seconds} for seconds in (2.0, 1.0, 0.5, 0.4)))
    assert sorted(proposed(frame)) == [
        (0, "fewer_gpus", 1, 1, "scaled_by_bandwidth"),
        (1, "fewer_gpus", 1, 2, "scaled_by_bandwidth"),
        (2, "fewer_gpus", 1, 4, "scaled_by_bandwidth"),
        (3, "try_it", 1, 8, "scaled_by_bandwidth"),
    ]
    assert tried(frame) == [(1, 4)]


def test_without_an_objective_a_fifth_of_the_pace_may_go() -> None:
    frame = usage(*(ENOUGH | {"gpus_per_replica": gpus} for gpus in (8.0, 6.0, 5.0, 4.0)))
    doubts = capacities.pace_doubts(frame, np.full(4, "scaled_by_bandwidth", dtype=object), np.full(4, 4.0))
    assert list(doubts) == ["no_latency_objective"] * 2 + [""] * 2


def test_what_was_measured_or_published_of_that_size_has_shown_its_pace() -> None:
    """Innocent twins: a load test on four GPUs, and half of 400 tok/s published of four, at the engine's own rates."""
    measured = sizes.candidates(usage(ENOUGH), NO_BENCHMARKS, "demand_tokens_per_second", of_size((4, 13.0)))
    assert measured[["kind", "evidence_basis"]].values.tolist() == [["fewer_gpus", "measured_on_size"]]
    published = {"model": "m", "device_type": "a100", "device_since": 1, "accelerators": 4}
    published |= {"tokens_per_second_per_gpu": 400.0, "joules_per_output_token": 1.0}
    rates = {"request_tokens_per_second": 7.0}  # 4 × 7 on eight GPUs, 14 on four
    assert proposed(usage(ENOUGH | rates), pd.DataFrame([published])) == [
        (0, "fewer_gpus", 1, 4, "published_benchmark")
    ]


@pytest.mark.parametrize("objective", [{}, {"tpot_slo_seconds": 0.001}, {"tpot_slo_seconds": 0.05}])
def test_fewer_replicas_of_todays_size_keep_their_pace(objective: dict[str, float]) -> None:
    """The innocent twin: each replica is as fast as today."""
    seen = {"capacity_basis": "highest_observed", "is_capacity_lower_bound": True} | objective
    (row,) = rows_of(usage(seen)).to_dict("records")
    assert (row["kind"], row["reason_code"], row["recommended_gpus"]) == ("fewer_replicas", "demand_fits", 2)


def test_where_only_the_pace_is_in_doubt_every_interval_with_requests_decides() -> None:
    """Ten of the 288 of a date: 300 take 30 days, and four weeks are the most. None is above 12.8."""
    rates = np.tile(np.where(np.arange(288) < 10, 9.0, 0.0), 2)
    demand = pd.DataFrame({"usage": 0, "date": np.repeat([1, 2], 288), "tokens_per_second": rates})
    found = trials.planned(sizes.candidates(usage(ENOUGH), NO_BENCHMARKS, "demand_tokens_per_second"), demand)
    assert found[["trial_days", "trial_deciding_intervals"]].values.tolist() == [[28, 20]]
