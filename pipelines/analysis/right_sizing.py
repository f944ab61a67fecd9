"""Which change of size is recommended, on what evidence, and whether it would have held.

A row per deployment and change that the evidence allows; where it allows none, a row that has the reason. Add here
what is assessed or estimated. Keep out the sizes themselves (`sizes`), what they save (`savings`), what both tables of
recommendations share (`preference`), how telemetry is read (the marts) and which models share hardware
(`consolidation`).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from pipelines.analysis import power_caps, preference, savings, sizes, sleep, trials
from pipelines.analysis.capacities import SLO_BASES, own_most
from pipelines.analysis.lookback import LEAST_DAYS, SHORT_LOOKBACK
from pipelines.analysis.sizes import KEYS

GROUP = ["site", "deployment", "model", "role"]  # of which one recommendation can be followed
ALLOWED_SHORT_RATIO = 0.01  # share of intervals in which a recommended size may have been short
PRESSURE_RATIO = 0.01  # share of time with queues, preemptions or a full cache from which nothing is cut
LEAST_COVERAGE_RATIO = 0.9
IN_DOUBT = "figures_in_doubt"  # forbids sleep as well
CUTS = ("fewer_replicas", "fewer_gpus", "newer_device", "smaller_device", "power_cap")
SMALLER_ENGINES = ("fewer_gpus", "smaller_device")  # each has less than an engine of today
CHANGES = (*CUTS, "spin_down", "sleep_outside_hours")


def refusals(usage: pd.DataFrame) -> pd.Series:
    """Why a deployment cannot be assessed, by row of `usage`; None where it can."""
    reasons = [
        (usage["last_seen_date"] < usage["as_of_date"], "not_seen_lately"),
        (usage["meter_scope"] == "none", "power_not_metered"),
        (usage["intervals"].isna(), "no_token_telemetry"),
        ((usage["days"] < LEAST_DAYS) | (usage["span_days"] < LEAST_DAYS), SHORT_LOOKBACK),
        (~(usage["coverage_ratio"] >= LEAST_COVERAGE_RATIO), "low_coverage"),
        (~(usage["gpus"] > 0) | ~(usage["replicas"] > 0), "size_not_known"),
    ]
    return _first_of(usage, reasons)


def vetoes(usage: pd.DataFrame) -> pd.Series:
    """What forbids a cut, by row of `usage`: figures in doubt, pressure, or an SLO that even the lowest load broke.
    None where nothing does, or no source reports it."""
    reasons = [
        (is_in_doubt(usage), IN_DOUBT),
        (_share(usage["queued_intervals"], usage["pressure_intervals"]) > PRESSURE_RATIO, "queueing"),
        (_share(usage["preempted_hours"], usage["hours"]) > PRESSURE_RATIO, "preemptions"),
        (_share(usage["full_cache_hours"], usage["hours"]) > PRESSURE_RATIO, "kv_cache_pressure"),
        (usage["capacity_basis"].isin(SLO_BASES) & usage["capacity_tokens_per_second"].isna(), "slo_missed"),
    ]
    return _first_of(usage, reasons)


def is_in_doubt(usage: pd.DataFrame) -> pd.Series:
    """Whether a hundredth or more of a deployment's joules or tokens of the lookback is in doubt."""
    return usage["doubt_reasons"].fillna("") != ""


def shortfalls(candidates: pd.DataFrame, demand: pd.DataFrame) -> pd.DataFrame:
    """For how many intervals of the lookback (`demand`: `usage`, `is_held`, `tokens_per_second`, `is_pressed`), and of
    the days held back, each candidate would have been too small; those of a deployment without any are left out.

    A smaller engine is too small, too, in an interval in which the engines of today had not enough (`is_pressed`). What
    is only to be tried has a capacity that is not known, and no row.
    """
    names = ["tokens_per_second", "is_held", "is_pressed"]
    asked = {number: [own[name].to_numpy() for name in names] for number, own in demand.groupby("usage")}
    columns = ["candidate", "usage", "kind", "recommended_capacity_tokens_per_second"]
    known = candidates[candidates["recommended_capacity_tokens_per_second"].notna()]
    found = []
    for candidate, number, kind, capacity in known[columns].itertuples(index=False):
        if number in asked:
            tokens, is_held, is_pressed = asked[number]
            is_short = (tokens > float(capacity)) | (is_pressed.astype(bool) & (kind in SMALLER_ENGINES))
            is_held = is_held.astype(bool)
            found.append((candidate, len(tokens), is_short.sum(), is_held.sum(), (is_short & is_held).sum()))
    columns = ["candidate", "intervals", "short_intervals", "held_intervals", "held_short_intervals"]
    return pd.DataFrame(found, columns=columns).astype(int)


def backtest(
    usage: pd.DataFrame, candidates: pd.DataFrame, shortfalls: pd.DataFrame, hours: pd.DataFrame
) -> pd.DataFrame:
    """What the earlier days alone would have recommended, replayed on the days held back: one row per deployment, kind.

    `candidates` were proposed from the earlier days' demand; `shortfalls` per candidate: `held_intervals`,
    `held_short_intervals`. What is only to be tried has no test. Of a deployment without a token on the
    earlier days every interval with tokens is short; of hours that were a habit on the earlier days, those with tokens.
    A power cap must have saved something, too (`held_saved_watts`); where the days held back do not know both limits it
    has no test. Columns: `usage`, `kind`, `backtest_recommended_gpus`, `backtest_short_ratio`, `backtest_held`.
    """
    assessable = usage[refusals(usage).isna()]
    is_allowed = candidates["usage"].isin(assessable.index[vetoes(assessable).isna()])
    sized = candidates[is_allowed & (candidates["kind"] != sizes.TRY_IT)].merge(shortfalls, on="candidate")
    sized["backtest_recommended_gpus"] = sized["recommended_replicas"] * sized["recommended_gpus_per_replica"]
    sized["backtest_short_ratio"] = _share(sized["held_short_intervals"], sized["held_intervals"])
    sized = sized.reindex(columns=[*sized.columns.difference(power_caps.COLUMNS), *power_caps.COLUMNS])
    sized = sized[(sized["kind"] != "power_cap") | sized["held_saved_watts"].notna()]
    silent = assessable[is_silent(assessable, "train_busy_intervals")]
    down = pd.DataFrame(
        {
            "usage": silent.index,
            "kind": "spin_down",
            "backtest_recommended_gpus": 0.0,
            "backtest_short_ratio": _share(silent["held_busy_intervals"], silent["held_intervals"]),
        }
    )
    asleep = sleep.sleepers(assessable[assessable["train_busy_intervals"] > 0])
    slots = sleep.windows(asleep, hours, "train_weeks", "train_idle_weeks").merge(hours, on=["usage", "slot"])
    slept = slots.groupby("usage")[["held_busy_intervals", "held_intervals"]].sum()
    at_night = pd.DataFrame(
        {
            "usage": slept.index,
            "kind": "sleep_outside_hours",
            "backtest_recommended_gpus": usage["gpus"].reindex(slept.index),
            "backtest_short_ratio": _share(slept["held_busy_intervals"], slept["held_intervals"]),
        }
    )
    columns = ["usage", "kind", "backtest_recommended_gpus", "backtest_short_ratio"]
    tests = pd.concat([sized[[*columns, "held_saved_watts"]], down, at_night], ignore_index=True)
    tests = tests.dropna(subset="backtest_short_ratio")
    tests["usage"] = tests["usage"].astype(int)
    saved_nothing = tests["held_saved_watts"].astype(float) <= 0
    tests["backtest_held"] = (tests["backtest_short_ratio"] <= ALLOWED_SHORT_RATIO) & ~saved_nothing
    return tests[[*columns, "backtest_held"]].drop_duplicates(["usage", "kind"], ignore_index=True)


def hit_ratio(backtests: pd.DataFrame) -> str:
    """How many of the earlier days' recommendations held on the days held back, in words."""
    by_kind = backtests.groupby("kind")["backtest_held"].agg(["sum", "count"])
    listed = "; ".join(f"{kind} {row['sum']} of {row['count']}" for kind, row in by_kind.iterrows())
    held = int(backtests["backtest_held"].sum())
    return f"{held} of {len(backtests)} recommendations of the earlier days held on the days held back" + (
        f" ({listed})" if listed else ""
    )


def recommend(
    usage: pd.DataFrame,
    candidates: pd.DataFrame,
    shortfalls: pd.DataFrame,
    *,
    hours: pd.DataFrame,
    days: pd.DataFrame,
    backtests: pd.DataFrame,
    experiments: pd.DataFrame = trials.NO_LIMITS,
) -> pd.DataFrame:
    """Rows of published.right_sizing: per deployment what the evidence allows, else `keep` or `insufficient_data`.

    `usage` has one row per deployment (its index numbers them: column `usage` of the others); `candidates` as of
    `sizes.candidates` and `power_caps.candidates`; `shortfalls` per candidate: `intervals`, `short_intervals`; `hours`
    as for `sleep.windows`: `weeks`, `idle_weeks`; `days` per date: `joules`, `gpu_seconds`, `parked_joules`,
    `parked_gpu_seconds`, `tokens`, `seconds`; `backtests` as of `backtest`: what did not hold there is not recommended.
    `experiments` as of `variants.candidates` (where the weights do not fit in less), then `trials.lower_limits`: beside
    another row, the first one of a deployment for which no other experiment and no stop is proposed.
    """
    usage = usage.assign(refusal=refusals(usage), veto=vetoes(usage))
    assessable = usage[usage["refusal"].isna()]
    assessed = candidates.merge(shortfalls, on="candidate", how="left")
    is_trial = assessed["kind"] == sizes.TRY_IT
    assessed["risk_ratio"] = _share(assessed["short_intervals"], assessed["intervals"]).mask(is_trial)
    is_allowed = assessed["usage"].isin(assessable.index[assessable["veto"].isna()])
    cuts = assessed[is_allowed & (assessed["risk_ratio"] <= ALLOWED_SHORT_RATIO)]
    is_published, is_cap = cuts["evidence_basis"] == "published_benchmark", cuts["kind"] == "power_cap"
    reasons = np.select([is_published, is_cap], ["published_benchmark", "seen_at_lower_limit"], "demand_fits")
    cuts = cuts.assign(reason_code=reasons)
    to_try = assessed[is_allowed & is_trial]
    found = pd.concat(
        [
            _spin_downs(assessable[assessable["veto"].isna()]),
            _sleeps(assessable[assessable["veto"] != IN_DOUBT], hours),
            cuts,
            to_try,
        ],
        ignore_index=True,
    )
    found = found.reindex(columns=[*found.columns.difference(power_caps.COLUMNS), *power_caps.COLUMNS])
    found = found.merge(backtests, on=["usage", "kind"], how="left")
    broke = found["backtest_held"].eq(False).fillna(False).astype(bool)
    others = usage[~usage.index.isin(found.loc[~broke, "usage"])]
    kept = pd.DataFrame({"usage": others.index, "reason_code": others["refusal"].fillna(_why_kept(others, assessed))})
    kept["kind"] = np.where(others["refusal"].isna(), "keep", "insufficient_data")
    kept.loc[kept["usage"].isin(found.loc[broke, "usage"]), "reason_code"] = "backtest_failed"
    found = found[~broke]
    allowed = assessable.index[assessable["veto"].isna()]
    rows = pd.concat([found, kept, _beside(experiments, found, kept, allowed)], ignore_index=True)
    rows = rows.merge(usage.rename_axis("usage").reset_index(), on="usage", validate="many_to_one")
    rows = savings.with_savings(_freed(_sized(rows)), days)
    rows["confidence"] = preference.confidence(rows, rows["evidence_basis"], rows["kind"].isin(CUTS))
    rows["exclusive_group_id"] = joined(rows, GROUP)
    records = rows.to_dict("records")
    rows["recommendation_id"] = [
        identity(row["as_of_date"], row["kind"], *(row[key] for key in KEYS), row["recommended_device_type"])
        for row in records
    ]
    rows["evidence"] = [evidence(row, SHOWN) for row in records]
    rows["is_preferred"] = preference.preferred(rows.assign(table="right_sizing", colocation_id=None))
    rows = rows.assign(saved=-rows["saving_kwh_month"].fillna(-math.inf))
    return rows.sort_values(["exclusive_group_id", "saved", "kind", *KEYS], ignore_index=True)


def _beside(experiments: pd.DataFrame, found: pd.DataFrame, kept: pd.DataFrame, allowed: pd.Index) -> pd.DataFrame:
    """The experiment that each deployment has beside its other rows."""
    number = experiments["usage"]
    too_large = kept.loc[kept["reason_code"] == "weights_do_not_fit", "usage"]
    taken = found.loc[found["kind"].isin((sizes.TRY_IT, "spin_down")), "usage"]
    is_needed = experiments["trial_power_limit_watts"].notna() | number.isin(too_large)
    return experiments[is_needed & number.isin(allowed) & ~number.isin(taken)].drop_duplicates("usage")


def is_silent(assessable: pd.DataFrame, busy_intervals: str) -> pd.Series:
    """Whether no token of any class moved; on the whole lookback no request ran, either (an answer may fail)."""
    is_at_rest = (assessable["active_time_ratio"] == 0) | (busy_intervals != "busy_intervals")
    return (assessable[busy_intervals] == 0) & is_at_rest & ~(assessable["min_replicas"] > 1)


def _spin_downs(assessable: pd.DataFrame) -> pd.DataFrame:
    silent = assessable[is_silent(assessable, "busy_intervals")]
    return pd.DataFrame(
        {
            "usage": silent.index,
            "kind": "spin_down",
            "reason_code": "no_tokens_served",
            "recommended_replicas": 0.0,
            "evidence_basis": "no_demand",
            "recommended_capacity_tokens_per_second": 0.0,
            "risk_ratio": 0.0,
        }
    )


def _sleeps(assessable: pd.DataFrame, hours: pd.DataFrame) -> pd.DataFrame:
    """Sleep in hours of the local week that were idle in every week, where that is a habit and pays for waking up."""
    asleep = sleep.sleepers(assessable)
    saved = sleep.saved_watts(asleep, sleep.windows(asleep, hours, "weeks", "idle_weeks"))
    one = asleep.loc[saved.index]
    return pd.DataFrame(
        {
            "usage": saved.index,
            "kind": "sleep_outside_hours",
            "reason_code": "idle_hours",
            "recommended_device_type": one["device_type"],
            "recommended_replicas": one["replicas"],
            "recommended_gpus_per_replica": one["gpus_per_replica"],
            "evidence_basis": "idle_hours",
            "recommended_capacity_tokens_per_second": one["capacity_tokens_per_second"],
            "risk_ratio": 0.0,
            "saved_watts": saved["saved_watts"],
            "idle_hours_per_week": saved["idle_hours_per_week"],
            "break_even_seconds": one["break_even_seconds"],
        }
    )


def _why_kept(usage: pd.DataFrame, assessed: pd.DataFrame) -> pd.Series:
    """Why a deployment stays as it is, the first that holds."""
    replicas, gpus = usage["replicas"].to_numpy(float), usage["gpus_per_replica"].to_numpy(float)
    least = np.maximum(usage["min_replicas"].fillna(1).to_numpy(float), 1)
    usable = sizes.USABLE_MEMORY_RATIO * usage["memory_gib"].to_numpy(float)
    half = np.maximum(np.floor(gpus / 2), 1)
    weights_fit = usage["weights_gib"].to_numpy(float) / half <= usable
    has_room = sizes.fits(usage, half, replicas)
    is_last = replicas <= least
    is_excluded = usage["demand_tokens_per_second_p99"].to_numpy(float) > own_most(usage) * replicas
    reasons = [
        (gpus % 1 != 0, "shared_devices"),
        ((usage["busy_intervals"] == 0) & (least > 1), "min_replicas"),
        (is_last & (gpus <= 1) & (least > 1), "min_replicas"),
        (is_last & (gpus <= 1), "smallest_size"),
        (usage.index.isin(assessed["usage"]), "would_be_short"),
        (is_last & usage["weights_gib"].isna(), "model_size_not_known"),
        (is_last & ~weights_fit, "weights_do_not_fit"),
        (is_last & usage["running_requests_max"].isna(), "concurrency_not_known"),
        (is_last & ~has_room, "kv_cache_does_not_fit"),
        (usage["is_capacity_lower_bound"].eq(False) | is_excluded, "demand_needs_it"),
        (np.ones(len(usage), bool), "capacity_not_observed"),
    ]
    return usage["veto"].fillna(_first_of(usage, reasons))


def _sized(rows: pd.DataFrame) -> pd.DataFrame:
    """Current and recommended sizes; what stays recommends itself, what is not known recommends nothing."""
    rows = rows.rename(columns={part: f"current_{part}" for part in ("gpus", "replicas", "gpus_per_replica")}).copy()
    rows["recommended_gpus"] = rows["recommended_replicas"] * rows["recommended_gpus_per_replica"]
    rows["recommended_gpus"] = rows["recommended_gpus"].where(rows["kind"] != "spin_down", 0.0)
    stays = rows["kind"] == "keep"
    for part in ("gpus", "replicas", "gpus_per_replica"):
        rows[f"recommended_{part}"] = rows[f"recommended_{part}"].where(~stays, rows[f"current_{part}"])
    rows["recommended_device_type"] = rows["recommended_device_type"].where(~stays, rows["device_type"])
    return rows


def _freed(rows: pd.DataFrame) -> pd.DataFrame:
    """How many GPUs hold no pod then, and how many of them with whole nodes: those of a deployment that is spun down
    and holds all boards of its nodes. Which boards a smaller size leaves is not known."""
    is_removal = rows["kind"].isin(savings.FREEING)
    freed = (rows["current_gpus"] - rows["recommended_gpus"]).where(is_removal, 0.0)
    has_own_nodes = (rows["kind"] == "spin_down") & (rows["allocation_ratio"].astype(float) >= 1)
    return rows.assign(
        is_change=rows["kind"].isin(CHANGES),
        freed_gpus=freed,
        freed_gpus_on_empty_nodes=freed.where(has_own_nodes, 0.0),
    )


def joined(rows: pd.DataFrame, names: Sequence[str]) -> pd.Series:
    """These columns as one text, `/` between them."""
    values = zip(*(rows[name] for name in names), strict=True)
    return pd.Series(["/".join(parts) for parts in values], index=rows.index, dtype=object)


def identity(*names: Any) -> str:
    """The same names, the same id."""
    return hashlib.blake2b("\x1f".join(map(str, names)).encode(), digest_size=8).hexdigest()


SHOWN = (
    "doubt_reasons", "coverage_ratio", "days", "gpu_activity_ratio",
    "demand_tokens_per_second_mean", "demand_tokens_per_second_p99", "demand_tokens_per_second_max",
    "capacity_tokens_per_second_per_gpu", "capacity_tokens_per_second",
    "capacity_basis", "is_capacity_lower_bound",
    "recommended_capacity_tokens_per_second", "intervals", "short_intervals", "published_model",
    "precision", "weights_gib", "active_weights_gib", "weights_basis", "kv_bytes_per_token", "kv_basis",
    "context_tokens", "memory_gib", "memory_bandwidth_gb_per_second", "max_tensor_parallel", "running_requests_max",
    "kv_cache_usage_ratio_max", "request_tokens_per_second", "busiest_request_tokens_per_second", "tpot_slo_seconds",
    "has_queue_telemetry", "pressure_intervals",
    "queued_intervals", "hours", "preempted_hours", "full_cache_hours", "min_replicas", "mean_watts",
    "parked_watts_per_gpu", "parked_watts_basis", "idle_watts_bare", "break_even_seconds", "allocation_ratio", "pue",
    "facility_per_device_ratio", "usd_per_kwh", "gco2e_per_kwh", "usd_per_gpu_hour", "power_limit_watts", "limit_dates",
    "limit_token_ratio", "trial_deciding_intervals", "limited_token_ratio",
)  # fmt: skip


def evidence(row: dict[str, Any], names: Sequence[str]) -> str:
    """The evidence of a row, as JSON: these inputs by their columns' names, to six digits; the unknown is left out."""
    shown = {name: _plain(row.get(name)) for name in names}
    return json.dumps({name: value for name, value in shown.items() if value is not None}, sort_keys=True)


def _plain(value: Any) -> Any:
    if value is None or value is pd.NA or value == "" or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if isinstance(value, bool | np.bool_):
        return bool(value)
    return float(f"{float(value):.6g}") if isinstance(value, float | int | np.number) else str(value)


def _share(part: pd.Series, whole: pd.Series) -> pd.Series:
    return part.astype(float) / whole.astype(float).where(whole.astype(float) > 0)


def _first_of(usage: pd.DataFrame, reasons: list[tuple[pd.Series | np.ndarray, str]]) -> pd.Series:
    """Per row of `usage` the name of the first condition that is known to hold; None where none does."""
    holds = [pd.Series(condition, usage.index).fillna(False).to_numpy(bool) for condition, _ in reasons]
    names = np.select(holds, [name for _, name in reasons], default="")
    return pd.Series(names, index=usage.index, dtype=object).where(names != "", None)
