"""Copies in fewer bits that half of the GPUs hold: bytes and loads worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from pipelines.analysis import trials, variants
from tests.advice.test_right_sizing import kinds, rows_of
from tests.advice.test_sizes import usage

# 32 × 2^30 parameters in 16 bits, 64 GiB, on two GPUs of 48 GiB, of which 0.9 are usable: 43.2 each. Beside the weights
# 2 × (43.2 − 32) = 22.4 GiB are left for the cache, 1 MiB a token: 22,937.6 tokens.
DENSE = {
    "replicas": 1, "gpus": 2.0, "gpus_per_replica": 2.0, "memory_gib": 48.0, "weights_gib": 64.0,
    "parameters": 32.0 * 2**30, "kv_bytes_per_token": 2.0**20, "kv_heads": 16, "max_tensor_parallel": 32,
    "context_tokens": np.nan, "running_requests_max": 20.0, "kv_cache_usage_ratio_max": np.nan,
    "kv_bytes_per_element": 2.0, "int8_bytes_per_parameter": 1.0, "int4_bytes_per_parameter": 0.5,
    "demand_tokens_per_second_p99": 100.0, "capacity_tokens_per_second": 160.0,
}  # fmt: skip


def tried(**changes: Any) -> list[tuple[Any, ...]]:
    """Precision, GPUs of an engine, GiB of weights, bytes of the cache per token."""
    rows = variants.candidates(usage(DENSE | changes))
    columns = ["trial_precision", "trial_gpus_per_replica", "trial_weights_gib", "trial_kv_bytes_per_token"]
    return list(rows[columns].itertuples(index=False, name=None))


def test_the_most_bits_that_hold_the_weights_and_the_cache_of_today_are_tried() -> None:
    """8 bits: 32 GiB leave 11.2 of 43.2, 11,468.8 tokens; with a cache of 8 bits as many as today: 22,937.6. Half of
    the GPUs read half of the bytes: 160 tokens a second, of which 100 are asked."""
    assert tried() == [("int8", 1, 32, 2**19)]


def test_less_cache_is_enough_where_less_was_used() -> None:
    """Half of the cache was filled; or one request of 8,192 tokens ran at once."""
    assert tried(kv_cache_usage_ratio_max=0.5) == [("int8", 1, 32, 2**20)]
    assert tried(running_requests_max=1.0, context_tokens=8192.0) == [("int8", 1, 32, 2**20)]


def test_four_bits_are_tried_where_eight_do_not_hold_the_cache_or_are_too_slow() -> None:
    """A cache whose elements are not known stays as it is: 4 bits leave 43.2 − 16 = 27.2 GiB, more than 22.4. And 8
    bits do 160, of which 0.8 are 128: of 129 tokens a second 4 bits do twice as many."""
    assert tried(kv_bytes_per_element=np.nan) == [("int4", 1, 16, 2**20)]
    assert tried(demand_tokens_per_second_p99=128.0) == [("int8", 1, 32, 2**19)]
    assert tried(demand_tokens_per_second_p99=129.0) == [("int4", 1, 16, 2**20)]
    assert tried(demand_tokens_per_second_p99=257.0) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"weights_gib": 17.0},  # in 4 bits already, and 8 would be more
        {"parameters": np.nan},  # how many parameters is not known
        {"gpus": 0.0, "gpus_per_replica": 0.0},  # no board of it is known
        {"parameters": 0.0},
        {"kv_bytes_per_token": 0.0},
        {"running_requests_max": np.nan, "kv_bytes_per_token": np.nan},  # what the cache takes is not known
        {"capacity_tokens_per_second": np.nan},
        {"gpus_per_replica": 1.0},  # no half
        {"gpus_per_replica": 6.0, "max_tensor_parallel": 32},  # 3 do not divide its heads
        {"demand_tokens_per_second_p99": 0.0},  # idle
        {"weights_gib": 640.0, "parameters": 320.0 * 2**30},  # nor do 4 bits of it fit
    ],
    ids=[
        "quantised",
        "parameters",
        "no_board",
        "no_parameter",
        "no_cache",
        "cache",
        "capacity",
        "one_gpu",
        "heads",
        "idle",
        "too_large",
    ],
)
def test_nothing_is_tried_without_need_or_knowledge(changes: dict[str, Any]) -> None:
    assert tried(**changes) == []


def test_the_copy_is_tried_where_the_weights_do_not_fit_and_saves_nothing() -> None:
    """Its twin in 4 bits keeps its reason alone. A limit to try waits: one experiment at a time."""
    frame = usage(DENSE, DENSE | {"weights_gib": 17.0, "kv_bytes_per_token": 2.0**18, "running_requests_max": 500.0})
    demand = pd.DataFrame({"usage": 0, "date": np.arange(600) // 300, "tokens_per_second": 1.0})
    copies = trials.planned(variants.candidates(frame), demand)
    limit = {"usage": [0], "kind": "try_it", "reason_code": "one_power_limit", "trial_power_limit_watts": 320.0}
    to_try = pd.concat([copies, pd.DataFrame(limit)], ignore_index=True)
    rows = rows_of(frame, experiments=to_try)
    first = rows[rows["deployment"] == "d0"]
    assert kinds(first) == [("keep", "weights_do_not_fit"), ("try_it", "fewer_bits_fit")]
    assert first["is_preferred"].tolist() == [False, True]
    copy = first.iloc[1]
    assert copy[["saving_kwh_month", "saving_usd_month_if_released", "freed_gpus", "risk_ratio"]].isna().all()
    # 300 intervals a day decide, as all have requests: a week is the least.
    assert (copy["trial_days"], copy["trial_deciding_intervals"], copy["recommended_gpus"]) == (7, 600, 2)
    assert kinds(rows[rows["deployment"] == "d1"]) == [("keep", "kv_cache_does_not_fit")]


def test_a_copy_is_not_tried_where_something_else_keeps_the_size() -> None:
    frame = usage(DENSE | {"queued_intervals": 800.0})
    demand = pd.DataFrame({"usage": [0], "date": [0], "tokens_per_second": [1.0]})
    copies = trials.planned(variants.candidates(frame), demand).assign(trial_power_limit_watts=np.nan)
    assert len(copies) == 1
    assert kinds(rows_of(frame, experiments=copies)) == [("keep", "queueing")]
