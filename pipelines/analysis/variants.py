"""Copies of a model in fewer bits that half of its GPUs would hold: experiments where its own weights do not fit.

What fits follows from bytes; how fast it is, from the engine's own best; whether its answers are good enough is in no
telemetry. Add here a kind of copy with the bytes that it takes. Keep out sizes of the model as it is (`sizes`) and
which row is followed (`right_sizing`).
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from pipelines.analysis import sizes

PRECISIONS = ("int8", "int4")  # the more bits, the nearer its answers are: these are looked at first
CACHE_BITS = (16, 8)
LEAST_LESS = 0.9  # of today's bytes, at most, that a copy in fewer bits takes: else it has these bits already
TYPES: dict[str, type] = {
    "usage": int,
    **dict.fromkeys(("kind", "reason_code", "recommended_device_type", "trial_precision"), object),
    **dict.fromkeys(("recommended_replicas", "recommended_gpus_per_replica", "trial_replicas"), float),
    **dict.fromkeys(("trial_gpus_per_replica", "trial_weights_gib", "trial_kv_bytes_per_token"), float),
    "capacity_low_tokens_per_second": float,
}


def candidates(usage: pd.DataFrame) -> pd.DataFrame:
    """The first copy per deployment that half of its GPUs hold: a row of TRY_IT with the columns TYPES.

    `usage` has the columns of `sizes.candidates`, `parameters`, the bytes of a parameter in each of PRECISIONS
    (`int8_bytes_per_parameter`) and `kv_bytes_per_element` (NaN: not known; then the KV cache stays as it is). The KV
    cache has to hold what the deployment is known to need: no more than it has today, what it used of that, and the
    most requests that ran at once. The engine's own best, in proportion to the memory bandwidth and the bytes that a
    token reads, has to be enough.
    """
    found = []
    for number, one in usage.iterrows():
        gpus = float(one["gpus_per_replica"])
        half = gpus / 2
        # An engine may hold no known GPU at all, and a fleet file may state 0 of anything.
        is_known = gpus >= 2 and min(one["parameters"], one["kv_bytes_per_token"]) > 0
        if not is_known or gpus % 2 or one["max_tensor_parallel"] % half or not one["demand_tokens_per_second_p99"] > 0:
            continue
        needed, usable = _needed_tokens(one), sizes.USABLE_MEMORY_RATIO * one["memory_gib"]
        for precision, bits in product(PRECISIONS, CACHE_BITS):
            weights = one["parameters"] * one[f"{precision}_bytes_per_parameter"] / 2**30
            cache_bytes = one["kv_bytes_per_token"] * (1.0 if bits == CACHE_BITS[0] else bits / 16)
            is_fewer = weights <= LEAST_LESS * one["weights_gib"]
            is_halved = bits == CACHE_BITS[0] or one["kv_bytes_per_element"] == 2
            own_best = one["capacity_tokens_per_second"] * half / gpus * one["weights_gib"] / weights
            is_enough = one["demand_tokens_per_second_p99"] <= sizes.TARGET_UTILISATION * own_best
            holds = _cache_tokens(one, half, weights, usable, cache_bytes) >= needed > 0
            if is_fewer and is_halved and is_enough and holds:
                copy = {"trial_weights_gib": weights, "trial_kv_bytes_per_token": cache_bytes}
                found.append(_row(number, one) | copy | {"trial_precision": precision})
                break
    return pd.DataFrame(found, columns=list(TYPES)).astype(TYPES)


def _row(number: Any, one: pd.Series) -> dict[str, Any]:
    return {
        "usage": number,
        "kind": sizes.TRY_IT,
        "reason_code": "fewer_bits_fit",
        "recommended_device_type": one["device_type"],
        "recommended_replicas": one["replicas"],
        "recommended_gpus_per_replica": one["gpus_per_replica"],
        "trial_replicas": one["replicas"],
        "trial_gpus_per_replica": one["gpus_per_replica"] / 2,
        "capacity_low_tokens_per_second": np.nan,
    }


def _needed_tokens(one: pd.Series) -> float:
    """Tokens of context that the KV cache of an engine has to hold; NaN where that is not known."""
    usable = sizes.USABLE_MEMORY_RATIO * one["memory_gib"]
    now = _cache_tokens(one, one["gpus_per_replica"], one["weights_gib"], usable, one["kv_bytes_per_token"])
    context = sizes.CONTEXT_TOKENS if np.isnan(one["context_tokens"]) else one["context_tokens"]
    by_requests = max(one["running_requests_max"], 1.0) * context
    return float(np.fmin(np.fmin(now, by_requests), now * one["kv_cache_usage_ratio_max"]))


def _cache_tokens(one: pd.Series, gpus: float, weights: float, usable: float, cache_bytes: float) -> float:
    """Tokens that the memory beside the weights holds; tensor parallelism shares the cache among its heads."""
    shares = min(gpus, 1.0 if np.isnan(one["kv_heads"]) else one["kv_heads"])
    return float((usable - weights / gpus) * shares * 2**30 / cache_bytes)
