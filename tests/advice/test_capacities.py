"""What a replica of a size serves, and what is only to be tried: hand-computed, without a warehouse."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pipelines.analysis import capacities, right_sizing, sizes, trials
from tests.advice import test_sizes
from tests.advice.test_right_sizing import NO_HOURS, days_of, rows_of
from tests.advice.test_sizes import NO_BENCHMARKS, proposed, tried, usage

# The same: 12 tokens/s in its best interval; 5 to one request. 9.9 are asked for. On four GPUs the data sheets allow
# 82.7, in proportion it did 4.44.
LARGE: dict[str, Any] = test_sizes.LARGE | {
    "request_tokens_per_second": 5.0,
    "demand_tokens_per_second_mean": 3.3,
    "demand_tokens_per_second_max": 12.0,
    "train_demand_p99": 9.9,
    "train_demand_max": 12.0,
    "capacity_tokens_per_second": 8.88,
    "is_capacity_lower_bound": True,
}
FOUR = np.array([4.0])
SAVINGS = [
    *("freed_gpus", "freed_gpus_on_empty_nodes", "saving_watts", "saving_kwh_month", "saving_energy_usd_month"),
    *("saving_kgco2e_month", "saving_low", "saving_high", "saving_kwh_month_if_nodes_off"),
    "saving_usd_month_if_released",
]


def of_size(*rows: tuple[float, float], **changes: Any) -> pd.DataFrame:
    """What was measured: accelerators, tokens per second."""
    names = {"model": "m", "device_type": "a100", "role": "unified"} | changes
    return pd.DataFrame([names | {"accelerators": n, "tokens_per_second": rate} for n, rate in rows])


def test_the_engines_own_best_counts_in_proportion_and_its_own_rates_are_the_most() -> None:
    """Low: 8.88 × 4 / 8. High: 5 tok/s to each of 4 requests are 20; once requests waited it was full at 12."""
    waited = {"queued_intervals": 5}
    frame = usage(LARGE, LARGE | waited, LARGE | {"request_tokens_per_second": np.nan})
    found = capacities.smaller(frame, NO_BENCHMARKS, sizes.NOTHING_MEASURED, np.full(3, 4.0))
    assert found.low == pytest.approx([4.44] * 3)
    assert found.high == pytest.approx([20, 12, np.nan], nan_ok=True)
    assert list(found.basis) == ["scaled_by_bandwidth"] * 3
    assert found.on_paper == pytest.approx([82.716] * 3, rel=1e-4)


def test_a_size_that_only_data_sheets_allow_is_tried_unless_its_own_rates_exclude_it() -> None:
    """9.9 are asked for: within 12. At 2.4 tok/s to each of 4 requests it never does more than 9.6."""
    frame = usage(LARGE, LARGE | {"queued_intervals": 5}, LARGE | {"request_tokens_per_second": 2.4})
    assert [row[:2] for row in proposed(frame)] == [(0, "try_it"), (1, "try_it")]
    assert tried(frame) == [(1, 4), (1, 4)]
    rows = rows_of(frame)
    assert rows.set_index("usage")["reason_code"].sort_index().tolist() == [
        *["data_sheet_only"] * 2,
        "demand_needs_it",
    ]


# Five replicas that share 400 tokens/s evenly: none served more than 100, and 99.99 % of requests kept the SLO.
BALANCED = {
    **{"replicas": 5, "gpus": 5.0, "is_capacity_lower_bound": True, "demand_tokens_per_second_p99": 400.0},
    **{"demand_tokens_per_second_max": 500.0, "train_demand_p99": 400.0, "train_demand_max": 500.0},
}


def test_of_replicas_that_share_a_load_one_less_is_tried_for_a_day() -> None:
    """400 over 0.8 × 100 are five: nothing shows that four are enough, and no load was seen to be too much."""
    (row,) = rows_of(usage(BALANCED)).to_dict("records")
    assert (row["kind"], row["reason_code"]) == ("try_it", "no_load_was_too_much")
    assert (row["trial_replicas"], row["trial_gpus_per_replica"], row["recommended_replicas"]) == (4, 1, 5)
    assert [name for name in SAVINGS if not pd.isna(row[name])] == []
    intervals = pd.DataFrame({"usage": 0, "date": [0, 1] * 2, "tokens_per_second": [300.0, 0.0, 400.0, 400.0]})
    chosen = sizes.candidates(usage(BALANCED), NO_BENCHMARKS, "demand_tokens_per_second")
    plan = trials.planned(chosen, intervals)[["trial_days", "trial_deciding_intervals"]]
    assert plan.to_numpy().tolist() == [[1, 3]]


@pytest.mark.parametrize(
    ("changes", "kind", "reason"),
    [
        ({"is_capacity_lower_bound": False}, "keep", "demand_needs_it"),  # a load was too much
        ({"min_replicas": 5}, "keep", "min_replicas"),
        ({"queued_intervals": 100}, "keep", "queueing"),
        # 8 requests at 12 tokens/s are 96 of one replica, 384 of four.
        ({"request_tokens_per_second": 12.0}, "keep", "capacity_not_observed"),
        ({"kv_cache_usage_ratio_max": 0.8}, "keep", "capacity_not_observed"),  # 1.0 in four
        ({"demand_tokens_per_second_p99": 320.0}, "fewer_replicas", "demand_fits"),  # four are seen to be enough
        # Data sheets allow two, if no SLO was measured: that trial comes first.
        ({"capacity_basis": "highest_observed", "active_weights_gib": 0.5}, "try_it", "data_sheet_only"),
    ],
)
def test_no_replica_less_is_tried_with_evidence_or_where_it_cannot_do(
    changes: dict[str, Any], kind: str, reason: str
) -> None:
    (row,) = rows_of(usage(BALANCED | changes)).to_dict("records")
    assert (row["kind"], row["reason_code"]) == (kind, reason)


def test_what_is_tried_has_no_dollar_no_time_short_and_no_replay() -> None:
    (row,) = rows_of(usage(LARGE)).to_dict("records")
    assert (row["kind"], row["reason_code"], row["evidence_basis"]) == ("try_it", "data_sheet_only", "bandwidth_floor")
    assert (row["current_gpus"], row["recommended_gpus"], row["recommended_gpus_per_replica"]) == (8, 8, 8)
    assert (row["trial_replicas"], row["trial_gpus_per_replica"]) == (1, 4)
    assert (row["capacity_low_tokens_per_second"], row["capacity_high_tokens_per_second"]) == pytest.approx((4.44, 20))
    unknown = [*SAVINGS, "risk_ratio", "recommended_capacity_tokens_per_second", "backtest_short_ratio"]
    assert [name for name in [*unknown, "backtest_held", "confidence"] if not pd.isna(row[name])] == []
    assert json.loads(row["evidence"])["request_tokens_per_second"] == 5
    assert row["is_preferred"]


def test_fewer_replicas_of_todays_size_stay_evidenced_by_the_best_of_a_replica() -> None:
    """The innocent twin: four replicas of which each did 100, 150 are asked for: two, with dollars, whatever data
    sheets allow. 2 × 45 W × 0.73 × 1.25 are 82.1 kWh, and 2 × 730 h × 2 USD."""
    seen = {"capacity_basis": "highest_observed", "is_capacity_lower_bound": True, "active_weights_gib": 0.5}
    (row,) = rows_of(usage(seen), short=40).to_dict("records")
    assert (row["kind"], row["evidence_basis"], row["confidence"]) == ("fewer_replicas", "highest_observed", "medium")
    assert (row["recommended_gpus"], row["recommended_capacity_tokens_per_second"]) == (2, 200)
    assert (row["saving_kwh_month"], row["saving_usd_month_if_released"]) == pytest.approx((82.125, 2920))
    assert (row["risk_ratio"], row["backtest_held"]) == (pytest.approx(40 / 8064), True)


def test_a_smaller_size_with_its_own_load_test_is_recommended_with_dollars() -> None:
    """13 tok/s were measured on four GPUs, 9.9 / 0.8 are 12.4. On 4 × 730 h × 2 USD = 5840 a month, 4 × 45 W."""
    frame = usage(LARGE)
    measured = of_size((4, 13.0), (2, 90.0), (8, 90.0))  # two do not hold the weights
    chosen = sizes.candidates(frame, NO_BENCHMARKS, "demand_tokens_per_second", measured)
    counts = {"intervals": 8064, "short_intervals": 0, "held_intervals": 2016, "held_short_intervals": 0}
    counted = chosen[["candidate"]].assign(**counts)
    tests = right_sizing.backtest(frame, chosen, counted, NO_HOURS)
    rows = right_sizing.recommend(frame, chosen, counted, hours=NO_HOURS, days=days_of(frame), backtests=tests)
    (row,) = rows.to_dict("records")
    assert (row["kind"], row["evidence_basis"], row["confidence"]) == ("fewer_gpus", "measured_on_size", "medium")
    assert (row["recommended_gpus"], row["recommended_capacity_tokens_per_second"]) == (4, 13)
    assert row["saving_usd_month_if_released"] == pytest.approx(5840)
    assert row["saving_kwh_month"] == pytest.approx(4 * 45 * 0.73 * 1.25 * (800 / 8 - 55) / 45)
    assert (row["risk_ratio"], row["backtest_held"]) == (0, True)


@pytest.mark.parametrize(
    "measured",
    [
        of_size((4, 12.3)),  # measured, and too little: there is nothing to try
        of_size((4, 12.3), (8, 90.0)),
    ],
)
def test_a_size_that_was_measured_to_be_too_small_is_not_even_tried(measured: pd.DataFrame) -> None:
    assert sizes.candidates(usage(LARGE), NO_BENCHMARKS, "demand_tokens_per_second", measured).empty


@pytest.mark.parametrize("other", [{"model": "n"}, {"device_type": "h100"}, {"role": "decode"}])
def test_what_was_measured_of_another_engine_is_no_measurement(other: dict[str, str]) -> None:
    rows = sizes.candidates(usage(LARGE), NO_BENCHMARKS, "demand_tokens_per_second", of_size((4, 13.0), **other))
    assert rows["kind"].tolist() == ["try_it"]


def test_a_published_result_counts_for_half_and_not_beyond_the_engines_own_rates() -> None:
    """400 tok/s on each of four, half of it 800. Its own rates leave 4 × 5 or 4 × 7 possible on eight, half on four."""
    published = pd.DataFrame(
        [
            {
                "model": "m",
                "device_type": "a100",
                "device_since": 1,
                "accelerators": 4,
                "tokens_per_second_per_gpu": 400.0,
                "joules_per_output_token": 1.0,
            }
        ]
    )
    frame = usage(LARGE | {"request_tokens_per_second": np.nan}, LARGE, LARGE | {"request_tokens_per_second": 7.0})
    found = capacities.smaller(frame, published, sizes.NOTHING_MEASURED, np.full(3, 4.0))
    assert found.low == pytest.approx([800, 10, 14])
    assert found.high == pytest.approx([1600, 20, 28])
    # 9.9 need 12.4: 800 and 14 show it, 10 does not.
    assert [row[:2] for row in sorted(proposed(frame, published))] == [
        (0, "fewer_gpus"),
        (1, "try_it"),
        (2, "fewer_gpus"),
    ]


def test_an_interval_in_which_requests_waited_is_short_for_a_smaller_engine_and_not_for_fewer_replicas() -> None:
    candidates = pd.DataFrame(
        {
            "candidate": [0, 1, 2],
            "usage": 0,
            "kind": ["fewer_gpus", "fewer_replicas", "try_it"],
            "recommended_capacity_tokens_per_second": [5.0, 5.0, np.nan],
        }
    )
    demand = pd.DataFrame(
        {
            "usage": 0,
            "is_held": [False, False, True, True],
            "is_pressed": [True, False, True, False],
            "tokens_per_second": [1.0, 6.0, 2.0, 3.0],
        }
    )
    columns = ["candidate", "intervals", "short_intervals", "held_intervals", "held_short_intervals"]
    assert right_sizing.shortfalls(candidates, demand)[columns].values.tolist() == [[0, 4, 3, 2, 1], [1, 4, 1, 2, 0]]


@pytest.mark.parametrize(
    ("above", "days"),
    [
        (120, 7),  # 300 of them take 2.5 days, and each weekday has to be seen
        (30, 10),
        (1, 28),
        (0, 28),
    ],
)
def test_a_trial_lasts_until_the_intervals_that_decide_were_seen(above: int, days: int) -> None:
    """`above` intervals of each of two dates ask for more than the 4.44 that its own best shows for four GPUs."""
    demand = pd.DataFrame(
        {
            "usage": 0,
            "date": np.repeat([1, 2], 288),
            "tokens_per_second": np.tile(np.where(np.arange(288) < above, 4.5, 4.4), 2),
        }
    )
    proposals = sizes.candidates(usage(LARGE), NO_BENCHMARKS, "demand_tokens_per_second")
    found = trials.planned(proposals, demand)
    assert found[["trial_days", "trial_deciding_intervals"]].values.tolist() == [[days, 2 * above]]
    evidenced = sizes.candidates(usage({}), NO_BENCHMARKS, "demand_tokens_per_second")
    assert trials.planned(evidenced, demand)["trial_days"].isna().all()
