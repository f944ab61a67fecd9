"""Which models can share accelerators, sleep or be spun down: the plan of `packing` and idle time, with reasons.

One row per deployment. Add here what is assessed or estimated of a whole fleet's placement. Keep out the packing itself
(`packing`), what is saved (`savings`), what both tables of recommendations share (`preference`), how telemetry is
read (the marts) and what a deployment's own size should be (`right_sizing`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from pipelines.analysis import moves, packing, preference, right_sizing, savings, sizes, sleep
from pipelines.analysis.right_sizing import GROUP, joined
from pipelines.analysis.sizes import KEYS

RUNTIME_GIB = 2.0  # of each GPU, that an engine's runtime and activations take beside weights and cache
HIGH_ALLOCATION_RATIO = 0.5  # of the accelerators of the nodes that a deployment runs on
HIGH_USAGE_RATIO = 0.4  # of its SLO capacity, on average


class InfeasiblePlan(Exception):
    """The plan breaks a rule that it must keep; the message names each. Nothing of it may be published."""


@dataclass(frozen=True)
class Fleet:
    """What a plan is made of. Column or row `usage` is the index of frame `usage`.

    `usage`: a row per deployment (KEYS) with the columns of marts.deployment_usage, model_footprints, pressure and
    device_types that `right_sizing.recommend` has, and `keep_apart`. `engines`: `usage`, `engine`, `nodes` (their
    names), `node` (the first of them), `gpu_group`, `gpus`, `is_overlapping` (another group has some of its boards) on
    the newest date. `boards` as int_advised_boards. `unknown_nodes` have boards whose power has no known claimant, or
    is not metered.
    `load` (usage × interval): tokens per second per GPU over SLO capacity, NaN where either is not known; `idle`: 1
    without any token, 0 with some, -1 where it is unknown. `days` as for `savings.with_savings`. `tokens` (usage ×
    interval) and `finished_requests` (usage × hour): as sleep.Asked.
    """

    usage: pd.DataFrame
    engines: pd.DataFrame
    boards: pd.DataFrame
    unknown_nodes: frozenset[str]
    load: np.ndarray
    idle: np.ndarray
    interval_seconds: int
    days: pd.DataFrame
    tokens: np.ndarray
    finished_requests: np.ndarray


@dataclass(frozen=True)
class Consolidation:
    """`rows` of published.consolidation, the `plan` behind them, and GPUs by node and model before and after it (a GPU
    that engines share counts in parts): `node`, `model`, `gpus_before`, `gpus_after`."""

    rows: pd.DataFrame
    plan: packing.Plan
    nodes: pd.DataFrame


def consolidate(fleet: Fleet) -> Consolidation:
    """What to do with each deployment of the fleet. InfeasiblePlan if the plan does not hold."""
    usage = fleet.usage.assign(
        refusal=right_sizing.refusals(fleet.usage),
        veto=right_sizing.vetoes(fleet.usage),
        needed_gib=memory_gib(fleet.usage),
        busy_intervals=(fleet.idle == 0).sum(axis=1),
    )
    silent = (fleet.idle == 1).any(axis=1) & (usage["busy_intervals"] == 0)
    down = right_sizing.is_silent(usage, "busy_intervals") & silent & usage["refusal"].isna() & usage["veto"].isna()
    placed = _placed(usage, fleet.engines, down)
    loads = _loads(usage, fleet.load, placed)
    plan = packing.plan(placed, loads)
    broken = packing.violations(plan, loads)
    if broken:
        raise InfeasiblePlan(f"the consolidation plan breaks {len(broken)} rules: {'; '.join(broken[:5])}")
    moved = plan.engines[plan.engines["target_group"] != plan.engines["gpu_group"]]
    sharing = set(moved["target_group"])
    hosts = plan.engines[plan.engines["target_group"].isin(sharing)]

    rows = usage.copy()
    rows["kind"] = np.select(
        [usage["refusal"].notna(), down, usage.index.isin(hosts["usage"])],
        ["insufficient_data", "spin_down", "colocate"],
        default="keep",
    )
    kept = rows["kind"] == "keep"
    rows["reason_code"] = usage["refusal"].fillna(_why_kept(usage, plan, silent))
    rows.loc[rows["kind"] == "spin_down", "reason_code"] = "no_tokens_served"
    rows.loc[rows["kind"] == "colocate", "reason_code"] = "coincident_load_fits"
    may_change = usage["veto"].isna()
    rows = rows.join(_moves(rows[kept & may_change], fleet, down))
    rows.loc[rows["move_to_node"].notna(), ["kind", "reason_code"]] = ["move", "frees_larger_node"]
    rows = sleep.with_break_even(rows)
    # A deployment that has requests and never answers with a token has no known idle time.
    may_sleep = (rows["kind"] == "keep") & may_change & ~(usage["min_replicas"] > 1) & (usage["busy_intervals"] > 0)
    gaps = _sleep(rows[may_sleep], fleet)
    rows = rows.join(gaps)
    most_waiting = rows["most_waiting_ratio"].astype(float).fillna(sleep.MOST_WAITING_RATIO)
    sleepers = rows["most_asked_ratio"] <= most_waiting
    rows.loc[sleepers, ["kind", "reason_code"]] = ["sleep_when_idle", "idle_gaps"]
    rows.loc[rows["asleep_seconds"].notna() & ~sleepers, "reason_code"] = "requests_would_wait"
    rows = _with_places(rows, fleet, plan, moved, hosts)
    rows["colocation_id"] = _colocations(rows, hosts)
    rows = savings.with_savings(_sized(rows), fleet.days)
    rows["risk_ratio"] = _risk(rows, plan, loads, sharing)
    rows = _with_quadrants(rows, silent)
    rows["confidence"] = _confidence(rows)
    rows["gap_ratio"] = plan.gap_ratio
    placements = plan.engines[["engine", "gpu_group", "target_group"]].to_csv(index=False)
    rows["plan_id"] = right_sizing.identity(rows["as_of_date"].max(), placements)
    rows["exclusive_group_id"] = joined(rows, GROUP)
    records = rows.to_dict("records")
    rows["recommendation_id"] = [
        right_sizing.identity("consolidation", row["as_of_date"], row["kind"], *(row[key] for key in KEYS))
        for row in records
    ]
    rows["evidence"] = [right_sizing.evidence(row, SHOWN) for row in records]
    rows["is_preferred"] = preference.preferred(rows.assign(table="consolidation"))
    rows = rows.sort_values(["exclusive_group_id", *KEYS], ignore_index=True)
    return Consolidation(rows, plan, _by_node(fleet, plan))


def _by_node(fleet: Fleet, plan: packing.Plan) -> pd.DataFrame:
    before = fleet.engines.assign(model=fleet.engines["usage"].map(fleet.usage["model"]))
    parts = []
    for engines, group, node, name in (
        (before, "gpu_group", "node", "gpus_before"),
        (plan.engines, "target_group", "target_node", "gpus_after"),
    ):
        share = engines["gpus"] / engines.groupby(group)["engine"].transform("size")
        parts.append(share.groupby([engines[node].rename("node"), engines["model"]]).sum().rename(name))
    return pd.concat(parts, axis=1).fillna(0.0).reset_index().sort_values(["node", "model"], ignore_index=True)


def memory_gib(usage: pd.DataFrame) -> pd.Series:
    """GiB that an engine needs of each of its GPUs: weights, the KV cache that it filled, its runtime; NaN: not known.

    The cache is the most that ran at once, each request at the longest context, or the share of its cache that the
    engine reported as the most used, whichever is less. Tensor parallelism shares it among its heads and no further.
    """
    gpus = usage["gpus_per_replica"].astype(float)
    heads = np.minimum(gpus, usage["kv_heads"].fillna(1).astype(float))
    context = usage["context_tokens"].fillna(sizes.CONTEXT_TOKENS).astype(float)
    token_gib = usage["kv_bytes_per_token"].astype(float) / 2**30
    by_requests = np.maximum(usage["running_requests_max"].astype(float), 1) * context * token_gib / heads
    weights = usage["weights_gib"].astype(float) / gpus
    usable = sizes.USABLE_MEMORY_RATIO * usage["memory_gib"].astype(float)
    by_cache = usage["kv_cache_usage_ratio_max"].astype(float) * (usable - weights).clip(lower=0)
    # One request at the longest context has to fit, however little was asked; and no more than there is, as it runs.
    cache = np.maximum(np.fmin(by_requests, by_cache), context * token_gib / heads)
    return np.minimum(weights + cache + RUNTIME_GIB, usable)


def _placed(usage: pd.DataFrame, engines: pd.DataFrame, down: pd.Series) -> pd.DataFrame:
    """The engines that stay up, as `packing` reads them. What is vetoed, unsure or spread over nodes stays put."""
    found = engines[~engines["usage"].isin(usage.index[down])].join(
        usage.assign(key=joined(usage, KEYS)).drop(columns="gpus"), on="usage"
    )
    groups = engines.groupby("gpu_group")["usage"].agg(lambda there: there.isin(usage.index[down]).any())
    is_odd = (found["nodes"].map(len) != 1) | (found["node"] == "") | (found["meter_scope"] != "board")
    is_odd |= ~(found["gpus"] == found["gpus_per_replica"])  # it shares already, or is changing hands
    is_fixed = found["refusal"].notna() | found["veto"].notna() | is_odd | found["is_overlapping"]
    return found[["usage", "engine", "site", "device_type", "model", "node", "gpu_group"]].assign(
        deployment=found["key"],
        gpus=found["gpus"].astype(int),
        memory_gib=found["needed_gib"].astype(float),
        gpu_memory_gib=found["memory_gib"].astype(float),
        keep_apart=found["keep_apart"].fillna(""),
        min_replicas=found["min_replicas"].fillna(1).astype(int),
        # What is spun down leaves its GPUs: no engine is moved because of it.
        is_fixed=is_fixed | found["gpu_group"].map(groups).fillna(False).astype(bool),
    )


def _loads(usage: pd.DataFrame, load: np.ndarray, placed: pd.DataFrame) -> pd.DataFrame:
    """Loads of the engines that may move, by their key; an interval without data counts as the highest one seen."""
    wanted = placed.loc[~placed["is_fixed"], ["usage", "deployment"]].drop_duplicates()
    chosen = load[wanted["usage"].to_numpy(int)]
    is_known = ~np.isnan(chosen).all(axis=1) if chosen.size else np.zeros(len(wanted), dtype=bool)
    chosen = chosen[is_known]
    highest = np.nanmax(chosen, axis=1, keepdims=True) if len(chosen) else chosen
    return pd.DataFrame(np.where(np.isnan(chosen), highest, chosen), index=wanted["deployment"].to_numpy()[is_known])


def _why_kept(usage: pd.DataFrame, plan: packing.Plan, silent: np.ndarray) -> pd.Series:
    obstacle = plan.engines.groupby("usage")["obstacle"].first().reindex(usage.index).fillna("")
    # Its load is then a share of the highest load ever seen, so it was "full" at its own peak, whatever it can carry.
    is_unseen = (obstacle == "load_above_target") & ~_has_capacity(usage)
    obstacle = obstacle.mask(is_unseen, "capacity_not_observed")
    return pd.Series(
        np.select(
            [usage["veto"].notna(), silent & (usage["min_replicas"] > 1), obstacle == "fixed", obstacle != ""],
            [usage["veto"].fillna(""), "min_replicas", "spans_nodes_or_shared", obstacle],
            default="no_better_place",
        ),
        index=usage.index,
    )


def _has_capacity(usage: pd.DataFrame) -> pd.Series:
    """Whether some load was seen to be too much. Else a capacity is the highest load ever seen, and the true one may be
    many times that."""
    return usage["is_capacity_lower_bound"].eq(False).fillna(False).astype(bool)


def _sleep(rows: pd.DataFrame, fleet: Fleet) -> pd.DataFrame:
    """What sleeping after `break_even_seconds` of idleness would have saved, where it is worth it, and who would have
    waited: how long a gap gets need not be known in advance. Columns `asleep_seconds`, `wakes`, `sleep_saving_watts` of
    all GPUs, `most_asked_ratio` (the share that decides) and those of sleep.WAITING."""
    found = {}
    for number, row in rows[rows["break_even_seconds"].notna()].iterrows():
        gaps = sleep.gaps(fleet.idle[number])[0] * float(fleet.interval_seconds)
        seconds = np.count_nonzero(fleet.idle[number] >= 0) * float(fleet.interval_seconds)
        gaps = gaps[gaps > row["break_even_seconds"]]
        asleep = float((gaps - row["break_even_seconds"]).sum())
        joules = asleep * row["parking_watts_per_gpu"] - len(gaps) * row["loading_joules_per_gpu"]
        worth_ratio = joules / (row["mean_watts"] / row["gpus"] * seconds) if seconds else 0.0
        if worth_ratio >= sleep.LEAST_SAVING_RATIO:
            asked = sleep.Asked(fleet.tokens[number], fleet.finished_requests[number])
            times = fleet.interval_seconds, row["break_even_seconds"], row["cold_start_seconds"]
            waiting = sleep.waiting(fleet.idle[number], asked, *times)
            found[number] = (asleep, len(gaps), joules / seconds * row["gpus"], waiting.most, *waiting)
    columns = ["asleep_seconds", "wakes", "sleep_saving_watts", "most_asked_ratio", *sleep.WAITING]
    return pd.DataFrame.from_dict(found, orient="index", columns=columns, dtype=float)


def _moves(kept: pd.DataFrame, fleet: Fleet, down: pd.Series) -> pd.DataFrame:
    """Where those move that stay as they are, and free a larger node by it: columns of `moves`."""
    holders = joined(fleet.usage, KEYS)
    movers = kept.assign(holder=holders.reindex(kept.index), gpus_then=kept["gpus"].astype(float), rank=0)
    return moves.found(movers, set(holders[down]), fleet.boards)


def _with_places(
    rows: pd.DataFrame, fleet: Fleet, plan: packing.Plan, moved: pd.DataFrame, hosts: pd.DataFrame
) -> pd.DataFrame:
    """Where each deployment is and would be, how many GPUs it frees, and how many of them with whole nodes."""
    is_down = rows["kind"] == "spin_down"
    up = plan.engines[~plan.engines["usage"].isin(rows.index[is_down])]
    used = set(up["target_node"]) | fleet.unknown_nodes
    stay = set(up["engine"]) - set(moved["engine"])
    used |= {node for names in fleet.engines.loc[fleet.engines["engine"].isin(stay), "nodes"] for node in names}
    used = used - set(rows["move_frees_node"].dropna()) | set(rows["move_to_node"].dropna())
    there = fleet.engines.groupby("usage")
    nodes = there["nodes"].agg(lambda lists: sorted({node for names in lists for node in names})).reindex(rows.index)
    left = set(plan.engines["target_group"])
    leavers = moved[~moved["gpu_group"].isin(left)]
    shared = leavers.groupby("gpu_group")["usage"].transform("size")
    released = (leavers["gpus"] / shared).groupby(leavers["usage"]).sum()
    emptied = (leavers["gpus"] / shared)[~leavers["node"].isin(used)].groupby(leavers["usage"]).sum()
    alone = nodes.map(lambda names: not used & set(names), na_action="ignore").fillna(False).astype(bool)
    together = hosts.groupby("target_group")["deployment"].agg(lambda names: sorted(set(names)))
    partners = (
        hosts.assign(mates=hosts["target_group"].map(together))
        .groupby("usage")["mates"]
        .agg(lambda lists: sorted({name for names in lists for name in names}))
    )
    own = joined(rows, KEYS)
    mates = partners.reindex(rows.index)
    targets = hosts.groupby("usage")
    gpus = rows["gpus"].astype(float)
    return rows.assign(
        nodes=nodes.map(", ".join, na_action="ignore"),
        released_gpus=np.where(is_down, gpus, released.reindex(rows.index).fillna(0.0)),
        emptied_gpus=np.where(is_down & alone, gpus, emptied.reindex(rows.index).fillna(0.0)),
        moves=moved.groupby("usage").size().reindex(rows.index).fillna(0).astype(int)
        + rows["replicas"].where(rows["kind"] == "move", 0).fillna(0).astype(int),
        shares_with=[
            ", ".join(name for name in found if name != mine) if isinstance(found, list) else None
            for found, mine in zip(mates, own, strict=True)
        ],
        target_node=targets["target_node"].agg(lambda n: ", ".join(sorted(set(n)))).reindex(rows.index),
        target_gpu_group=targets["target_group"].agg(lambda n: "; ".join(sorted(set(n)))).reindex(rows.index),
    )


def _colocations(rows: pd.DataFrame, hosts: pd.DataFrame) -> pd.Series:
    """One id for all deployments that share accelerators, directly or through others; None: it shares with none."""
    there = hosts[hosts["usage"].isin(rows.index[rows["kind"] == "colocate"])]
    deployment, numbers = pd.factorize(there["usage"])
    group, _ = pd.factorize(there["target_group"])
    size = len(numbers)
    pairs = coo_array((np.ones(len(there)), (deployment, size + group)), shape=(size + len(there),) * 2)
    _, part = connected_components(pairs, directed=False)
    found = pd.DataFrame({"part": part[:size], "name": joined(rows.loc[numbers], KEYS).to_numpy()}, index=numbers)
    ids = (
        found.sort_values("name")
        .groupby("part")["name"]
        .agg(lambda names: right_sizing.identity("colocation", rows["as_of_date"].max(), *names))
    )
    return found["part"].map(ids).astype(object).reindex(rows.index)


def _sized(rows: pd.DataFrame) -> pd.DataFrame:
    """Sizes now and in the plan, and the GPUs that hold no pod then."""
    gpus = rows["gpus"].astype(float)
    is_change = ~rows["kind"].isin(preference.NO_CHANGE)
    freed = rows["released_gpus"].where(rows["kind"].isin(savings.FREEING), 0.0)
    return rows.assign(
        usage=rows.index,
        is_change=is_change,
        current_gpus=gpus,
        current_replicas=rows["replicas"],
        current_watts=rows["mean_watts"].astype(float),
        recommended_gpus=(gpus - freed).where(rows["kind"] != "insufficient_data"),
        freed_gpus=freed,
        freed_gpus_on_empty_nodes=np.minimum(rows["emptied_gpus"], freed),
        # Of one that stays up, as too many requests would wait, it is no saving and only shown.
        saved_watts=rows["sleep_saving_watts"],
    )


def _risk(rows: pd.DataFrame, plan: packing.Plan, loads: pd.DataFrame, sharing: set[str]) -> pd.Series:
    """Share of the lookback in which the demand on a group would have exceeded its SLO capacity, the worst of a
    deployment's groups; of a model that sleeps, the share of requests that would have waited for it, at most."""
    risk: dict[int, float] = {}
    for _, there in plan.engines[plan.engines["target_group"].isin(sharing)].groupby("target_group"):
        over = float((loads.loc[there["deployment"]].to_numpy(np.float64).sum(axis=0) > 1).mean())
        for number in there["usage"]:
            risk[number] = max(risk.get(number, 0.0), over)
    waiting = rows["most_asked_ratio"].where(rows["kind"] == "sleep_when_idle").astype(float)
    found = waiting.fillna(pd.Series(risk, dtype=float).reindex(rows.index))
    return found.mask(rows["kind"].isin(("spin_down", "move")), 0.0)


def _with_quadrants(rows: pd.DataFrame, silent: pd.Series) -> pd.DataFrame:
    """High or low allocation (of the nodes it runs on) by high or low usage (of its capacity). Where the capacity is
    only the highest load ever seen the true share is not known, and at most the share of that load: it may be low, and
    is never high."""
    most = rows["demand_tokens_per_second_mean"].astype(float) / rows["capacity_tokens_per_second"].astype(float)
    most = most.where(~silent, 0.0).where(rows["refusal"].isna())
    usage = most.where(silent | _has_capacity(rows))
    allocated = np.where(rows["allocation_ratio"] >= HIGH_ALLOCATION_RATIO, "high", "low")
    used = np.where(most >= HIGH_USAGE_RATIO, "high", "low")
    words = pd.Series([f"{a}_allocation_{u}_usage" for a, u in zip(allocated, used, strict=True)], index=rows.index)
    is_known = usage.notna() | (most < HIGH_USAGE_RATIO)
    return rows.assign(usage_ratio=usage, quadrant=words.where(is_known & rows["allocation_ratio"].notna()))


def _confidence(rows: pd.DataFrame) -> pd.Series:
    """Evidence of sharing: the capacities of all that share; of sleep: idle time, as far as requests are counted, as
    tokens do not show who waits; of a spin-down: no demand at all."""
    is_sharing = rows["kind"] == "colocate"
    asleep = rows["waiting_requests_ratio_high"].map(lambda ratio: "idle_tokens" if np.isnan(ratio) else "idle_hours")
    basis = rows["capacity_basis"].where(is_sharing, "no_demand").mask(rows["kind"] == "sleep_when_idle", asleep)
    words = preference.confidence(rows, basis, is_sharing)
    together = words[is_sharing].groupby(rows.loc[is_sharing, "colocation_id"]).transform(preference.least_sure)
    return words.where(~is_sharing, together)


SHOWN = (
    *("doubt_reasons", "coverage_ratio", "days", "gpu_activity_ratio", "nodes"),
    *("demand_tokens_per_second_mean", "capacity_tokens_per_second"),
    *("capacity_basis", "needed_gib", "weights_gib", "weights_basis", "memory_gib", "running_requests_max"),
    *("kv_cache_usage_ratio_max", "has_queue_telemetry", "queued_intervals", "pressure_intervals", "min_replicas"),
    *("mean_watts", "parked_watts_per_gpu", "parked_watts_basis", "idle_watts_bare", "power_limit_watts"),
    *("loading_joules_per_gpu", "cold_start_seconds", "cold_start_basis", "asleep_seconds", "wakes"),
    *("sleep_saving_watts", "most_waiting_ratio"),
    *("is_capacity_lower_bound", "pue", "facility_per_device_ratio", "usd_per_kwh", "gco2e_per_kwh"),
    *("usd_per_gpu_hour",),
)
