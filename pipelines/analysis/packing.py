"""Which engines can share accelerators: a plan of fewer GPUs and nodes, its distance from the best, and its proof.

Engines of one size (GPUs each) at one site, on one device type, share a group of that many GPUs whole: a sharded engine
waits for its slowest GPU, so each of them carries every engine of the group. The fewest groups are sought first
(`shared_groups`), then the fewest moves, then the fewest nodes. Keep out watts and money, and what may not be moved.
"""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from pipelines.analysis import gathering, shared_groups

LOAD_UNITS = 10_000  # loads are integers from here on; rounded up, so that what fits in them fits
MIB = 1024  # of a GiB
THREADS = 2


@dataclass(frozen=True)
class Rules:
    """What engines that share GPUs keep to: a load (tokens per second per GPU over SLO capacity) of at most
    `target_ratio` in sum, bucket by bucket, but for the busiest `allowed_ratio` of the buckets of all engines that
    could share; and at most `memory_ratio` of a GPU's memory. Sizing usually asks for a target of 0.70 to 0.85."""

    target_ratio: float = 0.8
    allowed_ratio: float = 0.01
    memory_ratio: float = 0.9


RULES = Rules()

ENGINE_COLUMNS = (
    "engine",  # unique
    "site",
    "device_type",
    "deployment",  # a key: engines of one are replicas of each other
    "model",
    "gpus",
    "memory_gib",  # that it needs of each of them; NaN: not known
    "gpu_memory_gib",  # that each of them has
    "node",
    "gpu_group",  # the GPUs that it is on, as a name
    "keep_apart",  # label; "": none
    "min_replicas",
    "is_fixed",  # neither moves nor takes in others
)


@dataclass(frozen=True)
class Plan:
    """Where every engine would be. `engines` are those given, with `target_group`, `target_node` and `obstacle`: why
    one stays by itself (`fixed`, `memory_unknown`, `memory_full`, `load_unknown`, `load_above_target`,
    `shares_too_much`; "" for none).

    The GPUs are those of the engines without an obstacle; `gpus_bound` is a number that no plan can go below.
    """

    engines: pd.DataFrame
    gpus_before: int
    gpus_after: int
    gpus_bound: int

    @property
    def gap_ratio(self) -> float:
        """How far above the bound the plan is, as a share of the plan; 0: it is optimal."""
        return (self.gpus_after - self.gpus_bound) / self.gpus_after if self.gpus_after else 0.0


def plan(engines: pd.DataFrame, loads: pd.DataFrame, rules: Rules = RULES) -> Plan:
    """Pack engines into groups of GPUs that they have now.

    `engines` has ENGINE_COLUMNS. `loads` has a row per deployment and a column per time bucket: tokens per second per
    GPU over its SLO capacity per GPU; no NaN, and no row where it is not known. The same input gives the same plan.
    """
    engines = engines.sort_values("engine", ignore_index=True)
    engines["obstacle"] = np.where(engines["is_fixed"], "fixed", "")
    # Who is on GPUs that stay as they are stays too.
    held = set(engines.loc[engines["is_fixed"], "gpu_group"])
    engines.loc[engines["gpu_group"].isin(held), "obstacle"] = "fixed"
    sizes = engines["memory_gib"]
    engines.loc[(engines["obstacle"] == "") & sizes.isna(), "obstacle"] = "memory_unknown"
    full = sizes >= engines["gpu_memory_gib"] * rules.memory_ratio * (1 - 1e-9)
    engines.loc[(engines["obstacle"] == "") & full, "obstacle"] = "memory_full"
    engines.loc[(engines["obstacle"] == "") & ~engines["deployment"].isin(loads.index), "obstacle"] = "load_unknown"

    row_of = {deployment: row for row, deployment in enumerate(loads.index)}
    units = np.ceil(loads.to_numpy(dtype=np.float64) * LOAD_UNITS - 1e-6).astype(np.int32)
    free = engines[engines["obstacle"] == ""]
    pools = [pool for _, pool in free.groupby(["site", "device_type", "gpus"], sort=True)]

    def packed(pool: pd.DataFrame) -> _Packed:
        return _pack(pool, units[[row_of[name] for name in sorted(set(pool["deployment"]))]], rules)

    with ThreadPoolExecutor(THREADS) as threads:
        parts = list(threads.map(packed, pools))
    for part in parts:
        engines.loc[part.too_busy, "obstacle"] = "load_above_target"
        engines.loc[part.crowded, "obstacle"] = "shares_too_much"
    groups = [group for part in parts for group in part.groups]
    targets = gathering.target_groups(engines, groups)
    node_of = dict(zip(engines["gpu_group"], engines["node"], strict=True))
    engines["target_group"], engines["target_node"] = engines["gpu_group"], engines["node"]
    moves = {row: target for group, target in zip(groups, targets, strict=True) if target is not None for row in group}
    engines.loc[list(moves), "target_group"] = list(moves.values())
    engines.loc[list(moves), "target_node"] = [node_of[home] for home in moves.values()]
    free = engines[engines["obstacle"] == ""]
    return Plan(
        engines,
        gpus_before=_gpus(free, "gpu_group"),
        gpus_after=_gpus(free, "target_group"),
        gpus_bound=sum(part.bound for part in parts),
    )


@dataclass(frozen=True)
class _Packed:
    groups: list[list[int]]  # rows of engines
    bound: int  # GPUs
    too_busy: list[int]
    crowded: list[int]


def _pack(pool: pd.DataFrame, load: np.ndarray, rules: Rules) -> _Packed:
    """Groups of the engines of one site, device type and size; `load` has a row per deployment, in their order."""
    limit = int(np.floor(rules.target_ratio * LOAD_UNITS + 1e-6))
    deployments = pool.groupby("deployment", sort=True).agg(
        memory=("memory_gib", "max"), copies=("engine", "size"), apart=("keep_apart", "first")
    )
    kept = load.shape[1] - int(np.floor(rules.allowed_ratio * load.shape[1] + 1e-9))
    total = deployments["copies"].to_numpy() @ load
    counted = np.sort(np.argsort(total, kind="stable")[:kept])
    is_quiet = load[:, counted].max(axis=1, initial=0) <= limit
    labels = {label: code for code, label in enumerate(sorted(set(deployments["apart"]) - {""}))}
    kinds = shared_groups.Kinds(
        memory=np.ceil(deployments["memory"].to_numpy() * MIB - 1e-6).astype(np.int64),
        load=np.ascontiguousarray(load[:, counted]),
        copies=deployments["copies"].to_numpy(dtype=np.int64),
        apart=np.array([labels.get(label, -1) for label in deployments["apart"]], dtype=np.int64),
        memory_limit=int(np.floor(pool["gpu_memory_gib"].min() * rules.memory_ratio * MIB)),
        load_limit=limit,
    )
    names = {name: kind for kind, name in enumerate(deployments.index)}
    rows, together = defaultdict(list), defaultdict(list)
    for row, name, group in zip(pool.index, pool["deployment"], pool["gpu_group"], strict=True):
        rows[names[name]].append(row)
        together[group].append(names[name])
    present = {group: tuple(sorted(now)) for group, now in together.items()}
    too_busy = pool["deployment"].isin(deployments.index[~is_quiet])
    crowds = [group for group, now in present.items() if len(now) > 1 and not kinds.fits(now)]
    crowded = pool["gpu_group"].isin(crowds) & ~too_busy
    if (too_busy | crowded).any():
        # What cannot be part of a plan is left out, and the rest looked at by itself.
        rest = pool[~(too_busy | crowded)]
        chosen = [names[name] for name in sorted(set(rest["deployment"]))]
        part = _pack(rest, load[chosen], rules) if len(rest) else _Packed([], 0, [], [])
        return replace(
            part,
            too_busy=[*pool.index[too_busy], *part.too_busy],
            crowded=[*pool.index[crowded], *part.crowded],
        )
    fillings, bound = shared_groups.share(kinds, present.values())
    return _Packed(_by_node(fillings, rows, pool["node"]), bound * int(pool["gpus"].iloc[0]), [], [])


def _by_node(fillings: list[shared_groups.Filling], rows: dict[int, list[int]], nodes: pd.Series) -> list[list[int]]:
    """Rows of engines for kinds of engines: those of one node together where a choice is left."""
    left: dict[int, dict[str, list[int]]] = {kind: defaultdict(list) for kind in rows}
    for kind, found in rows.items():
        for row in found:
            left[kind][nodes[row]].append(row)
    groups = []
    for filling in sorted(fillings, key=lambda f: (-len(f), f)):
        near: dict[str, int] = defaultdict(int)
        for kind in filling:
            for node, found in left[kind].items():
                near[node] += bool(found)
        order = sorted(near, key=lambda node: (-near[node], node))
        groups.append([next(left[kind][n].pop(0) for n in order if left[kind].get(n)) for kind in filling])
    return groups


def violations(made: Plan, loads: pd.DataFrame, rules: Rules = RULES) -> list[str]:
    """What a plan breaks, in words, from the engines and the whole series of loads alone; nothing of the solver's."""
    rows = made.engines.to_dict("records")
    found = [
        f"{row['engine']}: it may not move, and would"
        for row in rows
        if row["obstacle"] and row["target_group"] != row["gpu_group"]
    ]
    home = {row["gpu_group"]: row for row in rows}
    there = defaultdict(list)
    for row in rows:
        there[row["target_group"]].append(row)
    series = dict(zip(loads.index, loads.to_numpy(dtype=np.float64), strict=True))
    for group, several in there.items():
        if all(row["gpu_group"] == group for row in several):
            continue
        place = home[group]
        together = sum(series[row["deployment"]] for row in several)
        over = float(np.mean(together > rules.target_ratio * (1 + 1e-9)))
        memory = sum(row["memory_gib"] for row in several)
        usable = min(row["gpu_memory_gib"] for row in several) * rules.memory_ratio
        kept = {
            "not all of its engines are of its site, device type and size": all(
                row[key] == place[key] for row in several for key in ("site", "device_type", "gpus")
            ),
            f"its node is {place['node']}": all(row["target_node"] == place["node"] for row in several),
            "an engine that may not share is there": not any(row["obstacle"] for row in several),
            "two replicas of one deployment": len({row["deployment"] for row in several}) == len(several),
            f"{memory:.1f} GiB on each GPU, of {usable:.1f}": memory <= usable * (1 + 1e-9),
            f"above its target in {over:.4f} of the time": over <= rules.allowed_ratio,
        }
        found += [f"{group}: {rule}" for rule, holds in kept.items() if not holds]
    rivals: dict[str, dict[tuple[str, str], set[str]]] = {when: defaultdict(set) for when in ("node", "target_node")}
    replicas = defaultdict(list)
    for row in rows:
        replicas[row["deployment"]].append(row)
        for when, models in rivals.items():
            if row["keep_apart"]:
                models[row["keep_apart"], row[when]].add(row["model"])
    for (label, node), apart in rivals["target_node"].items():
        if len(apart) > max(1, len(rivals["node"][label, node])):
            found.append(f"{node}: {len(apart)} models that are to be kept apart ({label})")
    for deployment, several in replicas.items():
        now, then = ({row[when] for row in several} for when in ("node", "target_node"))
        needed = min(max(row["min_replicas"] for row in several), len(now))
        if len(then) < needed:
            found.append(f"{deployment}: replicas on {len(then)} nodes, {needed} needed")
    return found


def _gpus(engines: pd.DataFrame, group: str) -> int:
    return int(engines.drop_duplicates(group)["gpus"].sum())
