"""Smaller sizes that would do: which replicas, GPUs or other devices can serve a demand, as far as there is evidence.

Add a kind of size here with the evidence that it needs. Keep out whether it is recommended and what it saves
(`right_sizing`), and which models share hardware (`consolidation`).
"""

from __future__ import annotations

import numpy as np
import pandas as pd

KEYS = ["site", "deployment", "model", "device_type", "meter_scope", "role"]
TARGET_UTILISATION = 0.8  # of a capacity that demand may take at its 99th percentile
FULL_CACHE_RATIO = 0.9
USABLE_MEMORY_RATIO = 0.9  # of an accelerator's memory, for weights and KV cache
CONTEXT_TOKENS = 32_768  # of each running request, where the fleet file does not state it
BANDWIDTH_SHARE = 0.1  # of the memory bandwidth's bound on a batch of one, as a floor of what a replica serves
BENCHMARK_SHARE = 0.5  # of a published benchmark's throughput, as what production reaches
SLO_BASES = ("requests_within_slo", "histogram_within_slo")


def candidates(usage: pd.DataFrame, benchmarks: pd.DataFrame, demand: str) -> pd.DataFrame:
    """One row per smaller size that would have served a demand with room to spare: its 99th percentile or, where that
    is 0, its maximum (`usage[demand_p99]` and `_max`, in tokens per second).

    `usage` has one row per deployment, numbered by its index; `benchmarks` one per `model`, `device_type` (since
    `device_since`) and `accelerators`: `tokens_per_second_per_gpu`, `joules_per_output_token`, within the model's
    inter-token latency. Columns: `candidate`, `usage`, `kind`, `recommended_device_type`, `recommended_replicas`,
    `recommended_gpus_per_replica`, `recommended_capacity_tokens_per_second` (of all replicas), `evidence_basis`,
    `saved_watts` (of the devices; NaN where it follows from the GPUs removed).
    """
    most = usage[f"{demand}_p99"].where(usage[f"{demand}_p99"] > 0, usage[f"{demand}_max"])
    is_whole = (usage["gpus_per_replica"] >= 1) & (usage["gpus_per_replica"] % 1 == 0)
    whole = usage.assign(demand=most)[(most > 0) & is_whole]
    rows = pd.concat(
        [
            _fewer_replicas(whole, benchmarks),
            _fewer_gpus(whole, benchmarks),
            _other_devices(whole, benchmarks),
        ],
        ignore_index=True,
    )
    return rows.rename_axis("candidate").reset_index()


def capacity(usage: pd.DataFrame, benchmarks: pd.DataFrame, gpus: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tokens per second of one replica of `gpus` accelerators, by row of `usage`, and the basis of the number.

    A capacity under the model's SLO is used alone. What was merely seen is a lower bound: a published benchmark of the
    model (× BENCHMARK_SHARE) or the memory bandwidth over the weights that a step reads (× BANDWIDTH_SHARE) may be
    a higher one. NaN and "unknown" where there is none.
    """
    observed = usage["capacity_tokens_per_second_per_gpu"].to_numpy(float) * gpus
    names = np.where(observed > 0, usage["capacity_basis"].fillna("unknown").to_numpy(object), "unknown")
    best = np.nan_to_num(observed)
    is_under_slo = np.isin(names, SLO_BASES)
    published = _published_capacity(usage, benchmarks, gpus)
    bound = usage["memory_bandwidth_gb_per_second"].to_numpy(float) * 1e9 * gpus
    floor = BANDWIDTH_SHARE * bound / (usage["active_weights_gib"].to_numpy(float) * 2**30)
    for other, name in ((published, "published_benchmark"), (np.nan_to_num(floor), "bandwidth_floor")):
        is_better = (other > best) & ~is_under_slo
        best, names = np.where(is_better, other, best), np.where(is_better, name, names)
    return np.where(best > 0, best, np.nan), names


def fits(usage: pd.DataFrame, gpus: np.ndarray, replicas: np.ndarray) -> np.ndarray:
    """Whether weights and the KV cache of what ran at once fit in USABLE_MEMORY_RATIO of `gpus` accelerators.

    What ran at once is the most that one engine ever reported, each request at the longest context; with fewer replicas
    each runs more. Tensor parallelism shares the KV cache among its heads and no further. False where unknown.
    """
    usable = USABLE_MEMORY_RATIO * usage["memory_gib"].to_numpy(float)
    running = usage["running_requests_max"].to_numpy(float) * usage["replicas"].to_numpy(float) / replicas
    context = usage["context_tokens"].fillna(CONTEXT_TOKENS).to_numpy(float)
    cache = np.maximum(running, 1) * context * usage["kv_bytes_per_token"].to_numpy(float) / 2**30
    shares = np.minimum(gpus, usage["kv_heads"].fillna(1).to_numpy(float))
    is_fitting: np.ndarray = usage["weights_gib"].to_numpy(float) / gpus + cache / shares <= usable
    return is_fitting


def _fewer_replicas(usage: pd.DataFrame, benchmarks: pd.DataFrame) -> pd.DataFrame:
    gpus = usage["gpus_per_replica"].to_numpy(float)
    each, basis = capacity(usage, benchmarks, gpus)
    needed = np.ceil(usage["demand"].to_numpy(float) / (TARGET_UTILISATION * each))
    replicas = np.maximum(needed, np.maximum(usage["min_replicas"].fillna(1).to_numpy(float), 1))
    # A cache that is known to be half full may not become more than full.
    fuller = usage["kv_cache_usage_ratio_max"].to_numpy(float) * usage["replicas"].to_numpy(float) / replicas
    is_less = (replicas < usage["replicas"].to_numpy(float)) & ~(fuller > FULL_CACHE_RATIO)
    return _rows(usage, "fewer_replicas", replicas, gpus=gpus, each=each, basis=basis)[is_less]


def _fewer_gpus(usage: pd.DataFrame, benchmarks: pd.DataFrame) -> pd.DataFrame:
    replicas = usage["replicas"].to_numpy(float)
    found, taken = [], np.zeros(len(usage), bool)
    for gpus in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0):
        sized = np.full(len(usage), gpus)
        each, basis = capacity(usage, benchmarks, sized)
        is_enough = usage["demand"].to_numpy(float) <= TARGET_UTILISATION * each * replicas
        is_less = gpus < usage["gpus_per_replica"].to_numpy(float)
        divides_heads = usage["max_tensor_parallel"].to_numpy(float) % gpus == 0
        chosen = is_less & is_enough & divides_heads & fits(usage, sized, replicas) & ~taken
        taken |= chosen
        found.append(_rows(usage, "fewer_gpus", replicas, gpus=sized, each=each, basis=basis)[chosen])
    return pd.concat(found)


def _other_devices(usage: pd.DataFrame, benchmarks: pd.DataFrame) -> pd.DataFrame:
    """Only where benchmarks of the same model are published for both accelerators, and the other took a tenth less."""
    generating = usage[usage["role"] != "prefill"].reset_index(names="usage")
    own = benchmarks.groupby(["model", "device_type"]).agg(
        own_joules=("joules_per_output_token", "min"), own_since=("device_since", "min")
    )
    pairs = generating.merge(own.reset_index(), on=["model", "device_type"]).merge(
        benchmarks, on="model", suffixes=("", "_other")
    )
    pairs = pairs[
        (pairs["device_type_other"] != pairs["device_type"])
        & (pairs["joules_per_output_token"] <= 0.9 * pairs["own_joules"])
    ]
    each = (BENCHMARK_SHARE * pairs["tokens_per_second_per_gpu"] * pairs["accelerators"]).to_numpy(float)
    replicas = np.maximum(
        np.ceil(pairs["demand"].to_numpy(float) / (TARGET_UTILISATION * each)),
        np.maximum(pairs["min_replicas"].fillna(1).to_numpy(float), 1),
    )
    # The published difference, but never more than is left of the watts now when the old accelerators stay on without
    # a model and the new ones do the work.
    mean = pairs["demand_tokens_per_second_mean"]
    saved = (pairs["own_joules"] - pairs["joules_per_output_token"]) * mean
    bare = pairs["idle_watts_bare"].astype(float).where(pairs["meter_scope"] == "board") * pairs["gpus"]
    left = (pairs["mean_watts"] - bare - pairs["joules_per_output_token"] * mean).to_numpy(float)
    made = pd.DataFrame(
        {
            "usage": pairs["usage"].to_numpy(int),
            "kind": np.where(pairs["device_since"] > pairs["own_since"], "newer_device", "smaller_device"),
            "recommended_device_type": pairs["device_type_other"].to_numpy(object),
            "recommended_replicas": replicas,
            "recommended_gpus_per_replica": pairs["accelerators"].to_numpy(float),
            "recommended_capacity_tokens_per_second": each * replicas,
            "evidence_basis": "published_benchmark",
            "saved_watts": np.minimum(saved.to_numpy(float), left),
        }
    )
    made = made[~(made["saved_watts"] <= 0)]
    made = made.sort_values(["usage", "saved_watts", "recommended_device_type"], ascending=[True, False, True])
    return made.drop_duplicates(["usage", "kind"])


def _rows(
    usage: pd.DataFrame, kind: str, replicas: np.ndarray, *, gpus: np.ndarray, each: np.ndarray, basis: np.ndarray
) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "usage": usage.index.to_numpy(int),
            "kind": kind,
            "recommended_device_type": usage["device_type"].to_numpy(object),
            "recommended_replicas": replicas,
            "recommended_gpus_per_replica": gpus,
            "recommended_capacity_tokens_per_second": each * replicas,
            "evidence_basis": basis,
            "saved_watts": np.nan,
        }
    )


def _published_capacity(usage: pd.DataFrame, benchmarks: pd.DataFrame, gpus: np.ndarray) -> np.ndarray:
    pairs = usage[["model", "device_type", "role"]].assign(gpus=gpus, row=np.arange(len(usage)))
    pairs = pairs[pairs["role"] != "prefill"].merge(benchmarks, on=["model", "device_type"])
    pairs = pairs[pairs["accelerators"] <= pairs["gpus"]]
    each = BENCHMARK_SHARE * pairs["tokens_per_second_per_gpu"] * pairs["accelerators"]
    best: np.ndarray = each.groupby(pairs["row"]).max().reindex(range(len(usage)), fill_value=0.0).to_numpy(float)
    return best
