"""Smaller sizes, hours to sleep through, intervals of a saving: hand-computed, without a warehouse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from pipelines.analysis import capacities, sizes, sleep

NO_BENCHMARKS = pd.DataFrame(
    columns=[
        "model",
        "device_type",
        "device_since",
        "accelerators",
        "tokens_per_second_per_gpu",
        "joules_per_output_token",
    ]
)
# Four replicas of an 8B model on one 80 GB accelerator each, assessed under an SLO: 100 tokens/s per GPU.
DEPLOYMENT = {
    "held_back_dates": None,
    "is_complete": True,
    "doubt_reasons": "",
    "as_of_date": pd.Timestamp("2026-10-28"),
    "last_seen_date": pd.Timestamp("2026-10-28"),
    "lookback_start_at": pd.Timestamp("2026-10-01", tz="UTC"),
    "lookback_end_at": pd.Timestamp("2026-10-29", tz="UTC"),
    "site": "west",
    "deployment": "d",
    "model": "m",
    "device_type": "a100",
    "meter_scope": "board",
    "role": "unified",
    "days": 28,
    "span_days": 28,
    "intervals": 8064,
    "coverage_ratio": 1.0,
    "gpu_activity_ratio": None,
    "replicas": 4,
    "gpus": 4.0,
    "gpus_per_replica": 1.0,
    "min_replicas": 1,
    "cold_start_seconds": np.nan,
    "most_waiting_ratio": 0.01,
    "mean_watts": 800.0,
    "parked_watts_per_gpu": 100.0,
    "parked_watts_basis": "intervals_without_tokens",
    "demand_tokens_per_second_mean": 80.0,
    "demand_tokens_per_second_p99": 150.0,
    "demand_tokens_per_second_max": 170.0,
    "train_demand_p99": 150.0,
    "train_demand_max": 170.0,
    "busy_intervals": 6000,
    "train_busy_intervals": 4500,
    "held_busy_intervals": 1500,
    "held_intervals": 2016,
    "active_time_ratio": 0.7,
    "capacity_tokens_per_second_per_gpu": 100.0,
    "unpressed_tokens_per_second_per_gpu": 100.0,
    "capacity_tokens_per_second": 400.0,
    "capacity_basis": "requests_within_slo",
    "is_capacity_lower_bound": False,
    "weights_gib": 16.0,
    "active_weights_gib": 16.0,
    "weights_basis": "seed",
    "kv_bytes_per_token": 131072.0,
    "kv_heads": 8,
    "max_tensor_parallel": 32,
    "context_tokens": 8192,
    "memory_gib": 80.0,
    "memory_bandwidth_gb_per_second": 2039.0,
    "power_limit_watts": 400.0,
    "idle_watts_bare": 55.0,
    "hours": 672,
    "pressure_intervals": 8064,
    "queued_intervals": 0,
    "preempted_hours": 0,
    "full_cache_hours": 0,
    "kv_cache_usage_ratio_max": np.nan,
    "running_requests_max": 8.0,
    "request_tokens_per_second": np.nan,
    "busiest_request_tokens_per_second": np.nan,
    "tpot_slo_seconds": np.nan,
    "has_queue_telemetry": True,
    "allocation_ratio": 1.0,
    "pue": 1.25,
    "facility_per_device_ratio": 1.5,
    "usd_per_kwh": 0.2,
    "gco2e_per_kwh": 400.0,
    "usd_per_gpu_hour": 2.0,
    "charged_energy_ratio": 1.0,
}


def usage(*changes: dict[str, Any]) -> pd.DataFrame:
    """One deployment per `changes`, each DEPLOYMENT but for what it names."""
    return pd.DataFrame([DEPLOYMENT | {"deployment": f"d{n}"} | change for n, change in enumerate(changes or ({},))])


# One engine of a large model on eight GPUs: 8.88 tokens/s were its best load, four requests ran at once at most.
LARGE = {
    "replicas": 1,
    "gpus": 8.0,
    "gpus_per_replica": 8.0,
    "weights_gib": 214.446,
    "active_weights_gib": 9.183,
    "kv_bytes_per_token": 30720.0,
    "kv_heads": 2,
    "context_tokens": np.nan,
    "running_requests_max": 4.0,
    "demand_tokens_per_second_p99": 9.9,
    "capacity_tokens_per_second_per_gpu": 1.11,
    "unpressed_tokens_per_second_per_gpu": 1.11,
    "capacity_basis": "highest_observed",
}


def proposed(frame: pd.DataFrame, benchmarks: pd.DataFrame = NO_BENCHMARKS) -> list[tuple]:
    rows = sizes.candidates(frame, benchmarks, "demand_tokens_per_second")
    columns = ["usage", "kind", "recommended_replicas", "recommended_gpus_per_replica", "evidence_basis"]
    return list(rows[columns].itertuples(index=False, name=None))


def tried(frame: pd.DataFrame) -> list[tuple]:
    """Replicas and GPUs per replica of each size to try."""
    rows = sizes.candidates(frame, NO_BENCHMARKS, "demand_tokens_per_second")
    columns = ["trial_replicas", "trial_gpus_per_replica"]
    return list(rows.loc[rows["kind"] == "try_it", columns].itertuples(index=False, name=None))


def test_replicas_are_enough_that_serve_the_99th_percentile_at_four_fifths_of_their_capacity() -> None:
    # 150 tok/s need 187.5 tok/s of capacity: 2 replicas of 100; 161 need 201.25: 3. 400 need 5: nothing is less.
    frame = usage({}, {"demand_tokens_per_second_p99": 161.0}, {"demand_tokens_per_second_p99": 400.0})
    assert proposed(frame) == [
        (0, "fewer_replicas", 2, 1, "requests_within_slo"),
        (1, "fewer_replicas", 3, 1, "requests_within_slo"),
    ]


def test_the_fleet_files_least_replicas_stand_and_a_cache_may_not_be_made_to_overflow() -> None:
    # Of a cache that 4 replicas filled to 0.5, two would fill 1.0.
    frame = usage({"min_replicas": 3}, {"min_replicas": 4}, {"kv_cache_usage_ratio_max": 0.5})
    assert proposed(frame) == [(0, "fewer_replicas", 3, 1, "requests_within_slo")]


def test_what_was_merely_seen_is_no_capacity_beyond_what_was_seen() -> None:
    """Seen: 40 tok/s per GPU, so 150 need 5 GPUs. The bandwidth floor, 0.1 × 2039e9 / (16 × 2^30) = 11.87 tok/s, is
    lower; of a model with 1 GiB active it is 189.9: one replica may be tried. Under an SLO it is not asked."""
    seen = {"capacity_tokens_per_second_per_gpu": 40.0, "capacity_basis": "highest_observed"}
    frame = usage(
        seen,
        seen | {"active_weights_gib": 1.0},
        {"capacity_tokens_per_second_per_gpu": 40.0} | {"active_weights_gib": 1.0},
    )
    assert proposed(frame) == [(1, "try_it", 4, 1, "bandwidth_floor")]
    found = capacities.unchanged(frame, NO_BENCHMARKS)
    assert found.low == pytest.approx([40, 40, 40])
    assert list(found.basis) == ["highest_observed", "highest_observed", "requests_within_slo"]
    assert found.on_paper == pytest.approx([11.8685, 189.896, np.nan], rel=1e-5, nan_ok=True)


def test_a_load_at_which_requests_waited_is_no_capacity_of_a_replica() -> None:
    """Seen: 100 tok/s per GPU, with requests waiting; 40 without. Under an SLO waiting is in what the SLO measures."""
    seen = {"capacity_basis": "highest_observed"}
    waited = {"unpressed_tokens_per_second_per_gpu": 40.0}
    never_calm = {"unpressed_tokens_per_second_per_gpu": np.nan}
    frame = usage(seen, seen | waited, seen | never_calm, waited)
    found = capacities.unchanged(frame, NO_BENCHMARKS)
    assert found.low == pytest.approx([100, 40, np.nan, 100], nan_ok=True)
    assert list(found.basis) == ["highest_observed", "highest_observed", "unknown", "requests_within_slo"]


def test_without_any_capacity_there_is_no_size() -> None:
    frame = usage({"capacity_tokens_per_second_per_gpu": np.nan, "capacity_basis": None, "active_weights_gib": np.nan})
    assert proposed(frame) == []


def test_tensor_parallelism_shrinks_to_the_least_power_of_two_that_holds_weights_and_cache() -> None:
    """Weights of 214.4 GiB on 80 GiB × 0.9: 4 GPUs hold 53.6 each; the cache of 4 requests × 32,768 × 30,720 B = 3.75
    GiB is shared by the 2 KV heads alone: 1.9. 2 GPUs would have to hold 107. 9.9 tok/s need 12.4: half of 8.88 shows
    less, and only the bandwidth floor, 82.7, shows more."""
    frame = usage(
        LARGE,
        LARGE | {"running_requests_max": 60.0},
        LARGE | {"running_requests_max": np.nan},
        LARGE | {"max_tensor_parallel": 6},
    )
    # 60 requests are 56 GiB of cache: 28 + 53.6 do not fit on 4. Who runs at once is not known. 6 heads are no 4s.
    assert proposed(frame) == [(0, "try_it", 1, 8, "bandwidth_floor")]
    assert tried(frame) == [(1, 4)]
    fast = {"tpot_slo_seconds": 0.5, "busiest_request_tokens_per_second": 4.0}
    assert proposed(usage(LARGE | fast | {"capacity_tokens_per_second_per_gpu": 3.2})) == [
        (0, "fewer_gpus", 1, 4, "scaled_by_bandwidth")  # 4 × 3.2 = 12.8
    ]
    assert list(sizes.fits(frame.iloc[:1], np.array([2.0]), np.array([1.0]))) == [False]


def test_a_published_benchmark_counts_for_half_and_only_where_it_ran() -> None:
    benchmarks = pd.DataFrame(
        [
            {
                "model": "m",
                "device_type": "a100",
                "device_since": 1,
                "accelerators": 1,
                "tokens_per_second_per_gpu": 400.0,
                "joules_per_output_token": 1.0,
            },
            {
                "model": "m",
                "device_type": "a100",
                "device_since": 1,
                "accelerators": 2,
                "tokens_per_second_per_gpu": 900.0,
                "joules_per_output_token": 0.8,
            },
            {
                "model": "m",
                "device_type": "b200",
                "device_since": 2,
                "accelerators": 1,
                "tokens_per_second_per_gpu": 2000.0,
                "joules_per_output_token": 0.3,
            },
            {
                "model": "m",
                "device_type": "t4",
                "device_since": 0,
                "accelerators": 1,
                "tokens_per_second_per_gpu": 2000.0,
                "joules_per_output_token": 0.75,
            },
            {
                "model": "else",
                "device_type": "b200",
                "device_since": 2,
                "accelerators": 1,
                "tokens_per_second_per_gpu": 2000.0,
                "joules_per_output_token": 0.1,
            },
        ]
    )
    seen = {"capacity_tokens_per_second_per_gpu": 40.0, "capacity_basis": "highest_observed"}
    frame = usage(seen, seen | {"role": "prefill"})
    # One accelerator: 0.5 × 400 = 200 tok/s, enough for 187.5. The T4 takes 0.75 J where the best A100 takes 0.8.
    assert proposed(frame, benchmarks) == [
        (0, "fewer_replicas", 1, 1, "published_benchmark"),
        (0, "newer_device", 1, 1, "published_benchmark"),
    ]
    rows = sizes.candidates(frame, benchmarks, "demand_tokens_per_second")
    # 80 tok/s on the mean, 0.8 − 0.3 J/token less.
    assert rows["saved_watts"].tolist()[1] == pytest.approx(40)


def test_what_is_asked_in_less_than_a_hundredth_of_the_time_is_sized_by_its_most() -> None:
    frame = usage({"demand_tokens_per_second_p99": 0.0, "demand_tokens_per_second_max": 170.0})
    assert proposed(frame) == [(0, "fewer_replicas", 3, 1, "requests_within_slo")]


def test_shared_devices_have_no_smaller_size() -> None:
    assert proposed(usage({"gpus_per_replica": 0.5, "gpus": 2.0})) == []


# --- sleep ------------------------------------------------------------------------------------------------------------


def week(idle: set[int], weeks: int = 4, missed: set[int] | None = None) -> pd.DataFrame:
    """Hours of deployment 0: those of `idle` idle in every week, the others in none; of `missed` one week less."""
    rows = [
        {
            "usage": 0,
            "slot": slot,
            "weeks": weeks - (slot in (missed or set())),
            "idle_weeks": (weeks - (slot in (missed or set()))) * (slot in idle),
        }
        for slot in range(168)
    ]
    return pd.DataFrame(rows)


NIGHTS = {day * 24 + hour for day in range(7) for hour in (0, 1, 2, 3, 4, 5)}


def test_runs_of_idle_hours_go_round_the_week() -> None:
    idle = np.zeros(168, bool)
    idle[[0, 1, 30, 166, 167]] = True
    assert sorted(sleep.idle_runs(idle)) == [(30, 1), (166, 4)]
    assert sleep.idle_runs(np.ones(168, bool)) == [(0, 168)]
    assert sleep.idle_runs(np.zeros(168, bool)) == []


def test_nights_that_were_idle_in_every_week_are_slept_through() -> None:
    """Saved: 100 − 55 = 45 W per GPU; loading: 0.3 × 400 W × 300 s = 36 kJ, paid back after 800 s. Seven windows of six
    hours: 42 × 3600 − 7 × 300 = 149,100 s × 45 W − 7 × 36 kJ = 6,457,500 J per GPU and week, × 4 GPUs / 604,800 s."""
    frame = usage({})
    asleep = sleep.sleepers(frame)
    assert asleep["break_even_seconds"].tolist() == [800]
    found = sleep.windows(asleep, week(NIGHTS), "weeks", "idle_weeks")
    assert set(found["slot"]) == NIGHTS
    saved = sleep.saved_watts(asleep, found)
    assert saved["idle_hours_per_week"].tolist() == [42]
    assert saved["saved_watts"].tolist() == pytest.approx([4 * 6_457_500 / 604_800])


def test_a_coincidence_a_busy_week_and_a_start_that_takes_longer_are_no_windows() -> None:
    asleep = sleep.sleepers(usage({}))
    # Every second hour idle by chance, four weeks: 0.5^8 × 84 = 0.33 of such weeks show two idle hours in a row.
    chance = week({slot for slot in range(168) if slot % 24 in (3, 4)})
    chance.loc[chance["idle_weeks"] == 0, "idle_weeks"] = 2
    assert sleep.windows(asleep, chance, "weeks", "idle_weeks").empty
    busy = week(NIGHTS)
    busy.loc[busy["slot"] == 2, "idle_weeks"] = 3
    assert not set(sleep.windows(asleep, busy, "weeks", "idle_weeks")["slot"]) & {2}
    slow = sleep.sleepers(usage({"cold_start_seconds": 7200.0}))  # breaks even after 5.3 h more
    assert sleep.windows(slow, week(NIGHTS), "weeks", "idle_weeks").empty
    # One week: two hours a night may be chance, 1/12 of all hours; six hours a night are not.
    assert sleep.windows(asleep, week({s for s in NIGHTS if s % 24 < 2}, 1), "weeks", "idle_weeks").empty
    assert set(sleep.windows(asleep, week(NIGHTS, weeks=1), "weeks", "idle_weeks")["slot"]) == NIGHTS


def test_an_hour_that_was_not_seen_in_one_week_is_assessed_by_the_others() -> None:
    asleep = sleep.sleepers(usage({}))
    assert set(sleep.windows(asleep, week(NIGHTS, missed={2}), "weeks", "idle_weeks")["slot"]) == NIGHTS
    once = week(NIGHTS)
    once.loc[once["slot"] == 2, ["weeks", "idle_weeks"]] = 1
    assert not set(sleep.windows(asleep, once, "weeks", "idle_weeks")["slot"]) & {2}


def test_who_works_a_few_hours_of_the_week_sleeps_all_the_others() -> None:
    """Two hours on each of four mornings: 160 of 168 hours idle in every week, in windows of 22 and of 94 hours. As
    often idle at random, an hour here and there: no window."""
    asleep = sleep.sleepers(usage({}))
    works = {day * 24 + hour for day in range(4) for hour in (9, 10)}
    found = sleep.windows(asleep, week(set(range(168)) - works), "weeks", "idle_weeks")
    assert set(found["slot"]) == set(range(168)) - works
    assert sleep.saved_watts(asleep, found)["idle_hours_per_week"].tolist() == [160]
    # On each of the four weeks it works in eight other hours.
    chance = week(set(range(168)))
    chance.loc[chance["slot"] % 21 < 4, "idle_weeks"] = 3
    assert sleep.windows(asleep, chance, "weeks", "idle_weeks").empty


def test_who_must_answer_at_night_or_saves_nothing_does_not_sleep() -> None:
    frame = usage(
        {"min_replicas": 2},
        {"idle_watts_bare": np.nan},
        {"parked_watts_per_gpu": 50.0},
        {"busy_intervals": 0},
    )
    assert sleep.sleepers(frame).empty
