"""Lower power limits that would do: what the fleet's own dates under a lower limit drew and carried at the same load.

Add here what is assessed from history under several limits. Keep out what a device could do (no source
reports it) and what is recommended in the end (`right_sizing`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pipelines.analysis.capacities import SLO_BASES
from pipelines.analysis.day_intervals import difference_interval

# Deployments that are evidence for each other: the watts of one GPU at a load are those of the same model, cut alike.
POOL = ["model", "device_type", "meter_scope", "role", "gpus_per_replica"]
LEVEL = ["pool", "limit_percent"]
LEAST_DATES = 2  # under each of the two limits
LEAST_INTERVALS = 12  # an hour of a 300 s grid; run windows do not matter here
LEAST_TOKEN_RATIO = 0.9  # of a deployment's tokens, at loads that were seen under both limits
# What a candidate has beside those of `sizes.candidates`.
COLUMNS = [
    "current_power_limit_watts", "recommended_power_limit_watts", "saved_watts_low", "saved_watts_high",
    "saved_watts_interval_basis", "limit_dates", "limit_token_ratio", "held_saved_watts",
]  # fmt: skip


@dataclass(frozen=True)
class Evidence:
    """History under several limits; `usage` numbers deployments.

    `dates`: as of `limited_dates`. `now`: those of them with a deployment's limit of today, by `usage`. `levels`: per
    `usage`, `date`, `is_held` and `load_bin` of all dates `intervals`, `gpu_seconds`, `tokens`, `joules`. `held_gpus`:
    per `usage` and `date` `is_held` and all `gpu_seconds`, those without a token too. `highest`: per LEVEL the load per
    GPU that LEAST_INTERVALS intervals reached, `seen` and on the earlier dates `train_seen`. `assessed`: per LEVEL,
    `is_held` and `load_bin` the `requests`, of them `good_requests` for certain, and the SLO's `attainment`.
    """

    dates: pd.DataFrame
    now: pd.DataFrame
    levels: pd.DataFrame
    held_gpus: pd.DataFrame
    highest: pd.DataFrame
    assessed: pd.DataFrame

    def part(self, *, is_held: bool) -> Evidence:
        """Of the dates held back, or of the earlier ones alone."""
        parts = {name: getattr(self, name) for name in ("dates", "levels", "held_gpus", "assessed")}
        cut = {name: frame[frame["is_held"] == is_held] for name, frame in parts.items()}
        return replace(self, **cut, highest=self.highest.assign(seen=self.highest["train_seen"]))


def evidence(usage: pd.DataFrame, days: pd.DataFrame, loads: pd.DataFrame, demand: pd.DataFrame) -> Evidence | None:
    """What a lower limit did; None where no deployment worked under two. Per `usage`, `date` and `is_held`: `days` with
    `limit_watts` and `gpu_seconds`, `loads` with `load_bin` and the facts of `levels` and of `assessed`, `demand` with
    `tokens_per_second_per_gpu` of each interval."""
    columns = ["usage", "date", "is_held", "limit_watts"]
    dates = limited_dates(usage, days.dropna(subset="limit_watts")[columns])
    if dates.empty:
        return None
    limited = dates[["usage", "date", *LEVEL]]
    now = dates[dates["is_newest"]].set_index("usage")
    assessed = loads.dropna(subset="requests").merge(limited, on=["usage", "date"])
    seen = demand.merge(limited, on=["usage", "date"]).set_index(LEVEL)
    each = seen["tokens_per_second_per_gpu"]
    highest = pd.DataFrame({"seen": _highest(each), "train_seen": _highest(each[~seen["is_held"]])}).reset_index()
    held_gpus = days.dropna(subset="seconds")[["usage", "date", "is_held", "gpu_seconds"]]
    return Evidence(dates, now, loads.dropna(subset="intervals"), held_gpus, highest, assessed)


def _highest(loads: pd.Series) -> pd.Series:
    """Per LEVEL (the index) the load that LEAST_INTERVALS intervals reached; none where there are fewer."""
    ranks = loads.groupby(level=LEVEL).rank(method="first", ascending=False)
    return loads[ranks == LEAST_INTERVALS]


def limited_dates(usage: pd.DataFrame, limits: pd.DataFrame) -> pd.DataFrame:
    """Dates under one known limit of the deployments that some of their pool worked under less than today: `limits`
    (`usage`, `date`, `is_held`, `limit_watts` of a GPU) with `pool` and `limit_percent` of the device type's limit, and
    `is_newest` on the last date that a deployment was seen. Boards that are shared in parts have a limit of their own.
    """
    whole = usage[(usage["gpus_per_replica"] >= 1) & (usage["gpus_per_replica"] % 1 == 0)]
    named = whole[[*POOL, "power_limit_watts", "last_seen_date"]].rename_axis("usage").reset_index()
    dates = limits.merge(named, on="usage")
    dates["limit_percent"] = (100 * dates["limit_watts"] / dates["power_limit_watts"]).round()
    dates = dates.dropna(subset="limit_percent")
    dates["pool"] = dates.groupby(POOL).ngroup()
    dates["is_newest"] = pd.to_datetime(dates["date"]) == pd.to_datetime(dates["last_seen_date"])
    now = dates["limit_percent"].where(dates["is_newest"]).groupby(dates["pool"]).transform("max")
    lowest = dates.groupby("pool")["limit_percent"].transform("min")
    columns = ["usage", "date", "is_held", "limit_watts", "limit_percent", "pool", "is_newest"]
    return dates.loc[lowest < now, columns].reset_index(drop=True)


def candidates(usage: pd.DataFrame, evidence: Evidence | None, demand: str) -> pd.DataFrame:
    """One row per deployment that a lower limit would have served (`usage[demand_p99]`, as in `sizes.candidates`), the
    one that saves most, and more than chance; columns as there, and COLUMNS."""
    if evidence is None:
        return pd.DataFrame()
    most = usage[f"{demand}_p99"].where(usage[f"{demand}_p99"] > 0, usage[f"{demand}_max"])
    pools, own, capacities = _of_pools(evidence), _own(evidence), _capacities(evidence)
    limits = evidence.dates.groupby(LEVEL)["limit_watts"].max()
    rows = []
    for number, now in evidence.now.iterrows():
        one, pool = usage.loc[number], pools.get(now["pool"], {})
        if number not in own or now["limit_percent"] not in pool or not most[number] > 0:
            continue
        needs_slo = one["capacity_basis"] in SLO_BASES
        found: list[dict[str, Any]] = []
        for percent in sorted(limit for limit in pool if limit < now["limit_percent"]):
            level = (now["pool"], percent)
            each, basis = capacities.get(level, (0.0, "unknown"))
            is_enough = each * one["gpus"] >= most[number] and (basis == "lower_limit_within_slo" or not needs_slo)
            compared = _compared(pool[now["limit_percent"]], pool[percent], *own[number]) if is_enough else None
            if compared is None:
                continue
            here, there = compared["tables"]
            ends = difference_interval(here, there, compared["shares"])
            # Dates of one limit differ by chance, too: half of all limits that change nothing would seem to save.
            if ends[0] > 0:
                capacity = {"recommended_capacity_tokens_per_second": each * one["gpus"], "evidence_basis": basis}
                limit = {"limit_percent": percent, "recommended_power_limit_watts": limits[level]}
                found.append(compared | capacity | limit | {"ends": ends})
        if found:
            rows.append(_row(number, one, now, max(found, key=lambda row: row["saved"])))
    return pd.DataFrame(rows)


def held_savings(usage: pd.DataFrame, evidence: Evidence | None, earlier: pd.DataFrame) -> pd.Series:
    """What each power cap of the earlier dates saved on the dates held back, in watts, by its row in `earlier`; NaN
    where they do not hold an hour of each limit at a load that the deployment had."""
    caps = earlier[earlier["kind"] == "power_cap"]
    if evidence is None or caps.empty:
        return pd.Series(dtype=float)
    held = evidence.part(is_held=True)
    pools, own = _of_pools(held), _own(held)
    found = {}
    for place, row in caps.iterrows():
        number, then = row["usage"], row["limit_percent"]
        now, pool = evidence.now.loc[number, "limit_percent"], pools.get(evidence.now.loc[number, "pool"], {})
        found[place] = np.nan
        if number in own and now in pool and then in pool:
            compared = _compared(pool[now], pool[then], *own[number], least_dates=1, least_ratio=0)
            found[place] = compared["saved"] * usage.loc[number, "gpus"] if compared else np.nan
    return pd.Series(found, dtype=float)


class _Table(NamedTuple):
    """Facts of dates (rows, numbered by `days`) and load bins (columns, in order)."""

    loads: np.ndarray
    days: np.ndarray
    intervals: np.ndarray
    gpu_seconds: np.ndarray
    tokens: np.ndarray
    joules: np.ndarray

    @classmethod
    def of(cls, levels: pd.DataFrame) -> _Table:
        loads, column = np.unique(levels["load_bin"].to_numpy(int), return_inverse=True)
        dates, row = np.unique(levels["date"].to_numpy(), return_inverse=True)
        made = []
        for fact in ("intervals", "gpu_seconds", "tokens", "joules"):
            made.append(np.zeros((len(dates), len(loads))))
            np.add.at(made[-1], (row, column), levels[fact].to_numpy(float))
        numbers = (
            dates if dates.dtype.kind == "i" else pd.to_datetime(dates).to_numpy().astype("datetime64[D]").astype(int)
        )
        return cls(loads, numbers, *made)

    def at(self, loads: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Joules and GPU-seconds at these loads, of the dates that had any of them, and the numbers of these."""
        columns = np.searchsorted(self.loads, loads)
        rows = self.gpu_seconds[:, columns].sum(axis=1) > 0
        return self.joules[rows][:, columns], self.gpu_seconds[rows][:, columns], self.days[rows]


def _of_pools(evidence: Evidence) -> dict[int, dict[float, _Table]]:
    """What is known per pool and limit."""
    limited = evidence.levels.merge(evidence.dates[["usage", "date", *LEVEL]], on=["usage", "date"])
    found: dict[int, dict[float, _Table]] = {}
    for (pool, percent), levels in limited.groupby(LEVEL):
        found.setdefault(pool, {})[percent] = _Table.of(levels)
    return found


def _own(evidence: Evidence) -> dict[int, tuple[_Table, float]]:
    """Loads of each deployment under whatever limit, and its GPU-seconds, those without a token too."""
    seconds = evidence.held_gpus.groupby("usage")["gpu_seconds"].sum()
    levels = evidence.levels[evidence.levels["usage"].isin(evidence.now.index)]
    return {number: (_Table.of(own), float(seconds[number])) for number, own in levels.groupby("usage")}


def _capacities(evidence: Evidence) -> dict[tuple[int, float], tuple[float, str]]:
    """Per LEVEL the tokens per second that a GPU carried, and the evidence: the highest load seen or, where an SLO was
    assessed, no load from the lowest level on that broke it; none where it was broken over all of it."""
    highest = evidence.highest.set_index(LEVEL)["seen"].fillna(0.0).astype(float)
    found = {level: (float(seen), "lower_limit_seen") for level, seen in highest.items()}
    counts = evidence.assessed.groupby([*LEVEL, "load_bin"], as_index=False).agg(
        requests=("requests", "sum"), good_requests=("good_requests", "sum"), attainment=("attainment", "max")
    )
    # As in slo_capacity: where one bad request would decide, nothing is assessed.
    counts = counts[counts["requests"] * (1 - counts["attainment"]) >= 1 - 1e-9]
    for level, bins in counts.groupby(LEVEL):
        if level not in found:
            continue
        broke = bins.loc[bins["good_requests"] / bins["requests"] < bins["attainment"], "load_bin"]
        is_kept = bins["good_requests"].sum() / bins["requests"].sum() >= bins["attainment"].max()
        bound = 2 ** (broke.min() / 2) if len(broke) else np.inf
        found[level] = (min(found[level][0], bound) if is_kept else 0.0, "lower_limit_within_slo")
    return found


def _compared(
    now: _Table,
    then: _Table,
    own: _Table,
    all_gpu_seconds: float,
    *,
    least_dates: int = LEAST_DATES,
    least_ratio: float = LEAST_TOKEN_RATIO,
) -> dict[str, Any] | None:
    """Watts per GPU under the limit `now` less those under `then`, at a deployment's own loads; None without enough of
    both. At loads that were not seen under both, and without a token, nothing is saved."""
    known = [side.loads[side.intervals.sum(axis=0) >= LEAST_INTERVALS] for side in (now, then)]
    is_known = np.isin(own.loads, known[0]) & np.isin(own.loads, known[1])
    tokens = own.tokens.sum(axis=0)
    tables = [side.at(own.loads[is_known]) for side in (now, then)]
    dates = [len(days) for *_, days in tables]
    token_ratio = float(tokens[is_known].sum() / tokens.sum())
    if not is_known.any() or token_ratio < least_ratio or min(dates) < least_dates:
        return None
    shares = own.gpu_seconds.sum(axis=0)[is_known] / all_gpu_seconds
    watts = [joules.sum(axis=0) / gpu_seconds.sum(axis=0) for joules, gpu_seconds, _ in tables]
    saved = float((watts[0] - watts[1]) @ shares)
    return {"saved": saved, "shares": shares, "tables": tables, "limit_dates": dates[1], "token_ratio": token_ratio}


def _row(number: int, one: pd.Series, now: pd.Series, best: dict[str, Any]) -> dict[str, Any]:
    low, high, basis = best["ends"]
    return {
        "usage": number,
        "kind": "power_cap",
        "recommended_device_type": one["device_type"],
        "recommended_replicas": one["replicas"],
        "recommended_gpus_per_replica": one["gpus_per_replica"],
        "recommended_capacity_tokens_per_second": best["recommended_capacity_tokens_per_second"],
        "evidence_basis": best["evidence_basis"],
        "saved_watts": best["saved"] * one["gpus"],
        "saved_watts_low": low * one["gpus"],
        "saved_watts_high": high * one["gpus"],
        "saved_watts_interval_basis": basis,
        "current_power_limit_watts": now["limit_watts"],
        "recommended_power_limit_watts": best["recommended_power_limit_watts"],
        "limit_percent": best["limit_percent"],
        "limit_dates": best["limit_dates"],
        "limit_token_ratio": best["token_ratio"],
    }
