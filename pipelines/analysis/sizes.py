"""Smaller sizes that would do: which replicas, GPUs or other devices can serve a demand, as far as there is evidence.

Add a kind of size here with the evidence that it needs. Keep out what a replica serves (`capacities`), whether a size
is recommended and what it saves (`right_sizing`), and which models share hardware (`consolidation`).
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from pipelines.analysis import capacities

KEYS = ["site", "deployment", "model", "device_type", "meter_scope", "role"]
TARGET_UTILISATION = 0.8  # of a capacity that demand may take at its 99th percentile
FULL_CACHE_RATIO = 0.9
USABLE_MEMORY_RATIO = 0.9  # of an accelerator's memory, for weights and KV cache
CONTEXT_TOKENS = 32_768  # of each running request, where the fleet file does not state it
TRY_IT = "try_it"  # a size that no evidence shows to be enough
ON_PAPER = "data_sheet_only"  # data sheets allow it: that reason of TRY_IT
NOT_TESTED = "no_load_was_too_much"  # nor was any load seen that is: one replica less is tried for a day
NOTHING_MEASURED = pd.DataFrame(columns=capacities.MEASURED_COLUMNS)


def candidates(
    usage: pd.DataFrame, benchmarks: pd.DataFrame, demand: str, measured: pd.DataFrame = NOTHING_MEASURED
) -> pd.DataFrame:
    """One row per smaller size that would have served a demand with room to spare: its 99th percentile or, where that
    is 0, its maximum (`usage[demand_p99]` and `_max`, in tokens per second); and, where no evidence shows that any
    would, one row of TRY_IT: for the largest size of which only the pace of a request is in doubt, or else for the
    least that the data sheets allow and the engine's own rates do not exclude, or else for one replica less, where no
    load was seen to be too much.

    `usage` has one row per deployment, numbered by its index; `benchmarks` one per `model`, `device_type` (since
    `device_since`) and `accelerators`: `tokens_per_second_per_gpu`, `joules_per_output_token`, within the model's
    inter-token latency; `measured` one per `model`, `device_type`, `role` and `accelerators` of an engine:
    `tokens_per_second`. Columns: `candidate`, `usage`, `kind`, `recommended_device_type`, `recommended_replicas`,
    `recommended_gpus_per_replica`, `recommended_capacity_tokens_per_second`, `capacity_low_tokens_per_second`,
    `capacity_high_tokens_per_second` (of all replicas), `evidence_basis`, `saved_watts` (of the devices; NaN where it
    follows from the GPUs removed), `reason_code`, `trial_replicas`, `trial_gpus_per_replica` (of TRY_IT; what is
    recommended is then today's size, of a capacity that is NaN).
    """
    most = usage[f"{demand}_p99"].where(usage[f"{demand}_p99"] > 0, usage[f"{demand}_max"])
    is_whole = (usage["gpus_per_replica"] >= 1) & (usage["gpus_per_replica"] % 1 == 0)
    whole = usage.assign(demand=most)[(most > 0) & is_whole]
    replicas, replicas_to_try = _fewer_replicas(whole, benchmarks)
    gpus, gpus_to_try = _fewer_gpus(whole, benchmarks, measured)
    trials = pd.concat([gpus_to_try, replicas_to_try], ignore_index=True)
    trials = trials[~trials["usage"].isin([*replicas["usage"], *gpus["usage"]])]
    size, is_on_paper = trials["trial_replicas"] * trials["trial_gpus_per_replica"], trials["reason_code"] == ON_PAPER
    rank = is_on_paper + 2 * (trials["reason_code"] == NOT_TESTED)
    trials = trials.assign(rank=rank, size=size.where(is_on_paper, -size))
    order = ["rank", "size"]
    trials = trials.sort_values(["usage", *order], kind="stable").drop_duplicates("usage").drop(columns=order)
    rows = pd.concat([replicas, gpus, _other_devices(whole, benchmarks), trials], ignore_index=True)
    return rows.rename_axis("candidate").reset_index()


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


def _fewer_replicas(usage: pd.DataFrame, benchmarks: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Fewer replicas of today's size: those that evidence shows to be enough, and those to try."""
    gpus = usage["gpus_per_replica"].to_numpy(float)
    found = capacities.unchanged(usage, benchmarks)
    demand, now = usage["demand"].to_numpy(float), usage["replicas"].to_numpy(float)
    least = np.maximum(usage["min_replicas"].fillna(1).to_numpy(float), 1)

    def are_less(replicas: np.ndarray) -> np.ndarray:
        # A cache that is known to be half full may not become more than full.
        fuller = usage["kv_cache_usage_ratio_max"].to_numpy(float) * now / replicas
        is_less: np.ndarray = (replicas < now) & ~(fuller > FULL_CACHE_RATIO)
        return is_less

    replicas = np.maximum(np.ceil(demand / (TARGET_UTILISATION * found.low)), least)
    rows = _rows(usage, "fewer_replicas", replicas, gpus=gpus, found=found)[are_less(replicas)]
    possible = np.nan_to_num(np.ceil(demand / capacities.own_most(usage)), nan=1.0)
    replicas = np.maximum.reduce([np.ceil(demand / (TARGET_UTILISATION * found.on_paper)), possible, least])
    on_paper = _trials(usage, replicas, gpus=gpus, found=found)[are_less(replicas)]
    # Replicas that share a load evenly all stay below what one serves, so their loads never show that fewer would do.
    replicas = np.maximum.reduce([now - 1, possible, least])
    is_open = are_less(replicas) & usage["is_capacity_lower_bound"].eq(True).fillna(False).to_numpy(bool)
    one_less = _trials(usage, replicas, gpus=gpus, found=found)[is_open & (found.basis != "unknown")]
    one_less = one_less.assign(evidence_basis=found.basis[one_less.index], reason_code=NOT_TESTED)
    return rows, pd.concat([on_paper, one_less], ignore_index=True)


def _fewer_gpus(
    usage: pd.DataFrame, benchmarks: pd.DataFrame, measured: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """As many replicas of a smaller tensor-parallel size: the least that evidence shows to be enough, and those to
    try."""
    replicas, demand = usage["replicas"].to_numpy(float), usage["demand"].to_numpy(float)
    rows, trials = [], []
    taken = np.zeros(len(usage), bool)
    for gpus in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0):
        sized = np.full(len(usage), gpus)
        found = capacities.smaller(usage, benchmarks, measured, sized)
        is_less = gpus < usage["gpus_per_replica"].to_numpy(float)
        divides_heads = usage["max_tensor_parallel"].to_numpy(float) % gpus == 0
        is_possible = is_less & divides_heads & fits(usage, sized, replicas)
        doubts = capacities.pace_doubts(usage, found.basis, sized)
        is_enough = is_possible & (demand <= TARGET_UTILISATION * found.low * replicas)
        chosen = is_enough & (doubts == "") & ~taken
        taken |= chosen
        rows.append(_rows(usage, "fewer_gpus", replicas, gpus=sized, found=found)[chosen])
        is_slow = is_enough & (doubts != "")
        slow = _trials(usage, replicas, gpus=sized, found=found)
        trials.append(slow.assign(evidence_basis=found.basis, reason_code=doubts)[is_slow])
        is_on_paper = demand <= TARGET_UTILISATION * found.on_paper * replicas
        to_try = is_possible & is_on_paper & ~(demand > found.high * replicas) & ~is_enough
        trials.append(_trials(usage, replicas, gpus=sized, found=found)[to_try])
    return pd.concat(rows), pd.concat(trials)


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
    each = (capacities.BENCHMARK_SHARE * pairs["tokens_per_second_per_gpu"] * pairs["accelerators"]).to_numpy(float)
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
            "capacity_low_tokens_per_second": each * replicas,
            "capacity_high_tokens_per_second": each * replicas / capacities.BENCHMARK_SHARE,
            "evidence_basis": "published_benchmark",
            "saved_watts": np.minimum(saved.to_numpy(float), left),
        }
    )
    made = made[~(made["saved_watts"] <= 0)]
    made = made.sort_values(["usage", "saved_watts", "recommended_device_type"], ascending=[True, False, True])
    return made.drop_duplicates(["usage", "kind"])


def _rows(
    usage: pd.DataFrame, kind: str, replicas: np.ndarray, *, gpus: np.ndarray, found: capacities.Capacity
) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "usage": usage.index.to_numpy(int),
            "kind": kind,
            "recommended_device_type": usage["device_type"].to_numpy(object),
            "recommended_replicas": replicas,
            "recommended_gpus_per_replica": gpus,
            "recommended_capacity_tokens_per_second": found.low * replicas,
            "capacity_low_tokens_per_second": found.low * replicas,
            "capacity_high_tokens_per_second": found.high * replicas,
            "evidence_basis": found.basis,
            "saved_watts": np.nan,
            "reason_code": None,
            "trial_replicas": np.nan,
            "trial_gpus_per_replica": np.nan,
        }
    )


def _trials(usage: pd.DataFrame, replicas: np.ndarray, *, gpus: np.ndarray, found: capacities.Capacity) -> pd.DataFrame:
    """Sizes to try: what is recommended meanwhile is today's."""
    return _rows(usage, TRY_IT, replicas, gpus=gpus, found=found).assign(
        recommended_replicas=usage["replicas"].to_numpy(float),
        recommended_gpus_per_replica=usage["gpus_per_replica"].to_numpy(float),
        recommended_capacity_tokens_per_second=np.nan,
        evidence_basis="bandwidth_floor",
        reason_code=ON_PAPER,
        trial_replicas=replicas,
        trial_gpus_per_replica=gpus,
    )
