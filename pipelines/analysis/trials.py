"""What is tried: how long a size that is not known to be enough, and by which intervals it is assessed; and a power
limit that the fleet never had.

Add here what an experiment needs. Keep out which size is tried (`sizes`), what a limit saved that the fleet had
(`power_caps`) and the words of a trial (`pipelines.report`).
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from pipelines.analysis import power_caps
from pipelines.analysis.sizes import NOT_TESTED, ON_PAPER, TRY_IT

# If none of so many intervals was short, at most a hundredth of all are (0.95 of 300 such samples would show one: the
# rule of three, Hanley and Lippman-Hand, JAMA 1983).
DECIDING_INTERVALS = 300
LEAST_DAYS, MOST_DAYS = 7, 28  # each weekday once; a lookback
NOT_TESTED_DAYS = 1  # of one replica less: each hour of the day once, and nothing is started or handed back for it
# Column -> type of a power limit to try.
LIMIT_TYPES: dict[str, type] = {
    "usage": int,
    **dict.fromkeys(("kind", "reason_code", "recommended_device_type"), object),
    **dict.fromkeys(("recommended_replicas", "recommended_gpus_per_replica", "current_power_limit_watts"), float),
    **dict.fromkeys(("trial_power_limit_watts", "trial_days", "trial_deciding_intervals"), float),
    "limited_token_ratio": float,
}
NO_LIMITS = pd.DataFrame(columns=list(LIMIT_TYPES)).astype(LIMIT_TYPES)
# Of the limit of today, what is tried: a first step, well within what boards can be set to. No source reports the
# lowest limit that a board takes.
TRIAL_LIMIT_RATIO = 0.8


def planned(candidates: pd.DataFrame, demand: pd.DataFrame) -> pd.DataFrame:
    """`candidates` (of `sizes.candidates`) with the plan of those to try; NaN for all others.

    An interval decides if its demand is above what the engine's own best shows that the size serves
    (`capacity_low_tokens_per_second`); above 0 where that is not known or only the pace of a request is in doubt.
    `trial_deciding_intervals`: how many the lookback had (`demand`: `usage`, `date`, `tokens_per_second`, a row per
    interval). `trial_days`: how many days it takes to see DECIDING_INTERVALS of them, within LEAST_DAYS and MOST_DAYS;
    NOT_TESTED_DAYS for one replica less.
    """
    by_usage = dict(list(demand.groupby("usage")))
    found = []
    for number, gpus, low, reason in candidates[
        ["usage", "trial_gpus_per_replica", "capacity_low_tokens_per_second", "reason_code"]
    ].itertuples(index=False):
        if np.isnan(gpus) or number not in by_usage:
            found.append((np.nan, np.nan))
            continue
        own = by_usage[number]
        least = low if reason == ON_PAPER and not np.isnan(low) else 0.0
        deciding = int((own["tokens_per_second"] > least).sum())
        if reason == NOT_TESTED:
            found.append((deciding, float(NOT_TESTED_DAYS)))
            continue
        days = np.ceil(DECIDING_INTERVALS * own["date"].nunique() / deciding) if deciding else MOST_DAYS
        found.append((deciding, float(np.clip(days, LEAST_DAYS, MOST_DAYS))))
    plan = pd.DataFrame(found, columns=["trial_deciding_intervals", "trial_days"], index=candidates.index, dtype=float)
    return pd.concat([candidates, plan], axis=1)


def lower_limits(usage: pd.DataFrame, days: pd.DataFrame, loads: pd.DataFrame) -> pd.DataFrame:
    """A row of TRY_IT for each deployment that works at its boards' highest limit, if the lower one would be felt.

    `days` and `loads` as for `power_caps.evidence`. Its pool (`power_caps.POOL`) never had another limit in the
    lookback, or there is evidence. The limit would be felt at a load (LEAST_INTERVALS of it) whose mean watts are above
    it: elsewhere it changes nothing. What decides are the intervals at the loads that have LEAST_TOKEN_RATIO of its
    tokens; `trial_days` is until each of these loads was likely seen for LEAST_INTERVALS, within LEAST_DAYS and
    MOST_DAYS. What is recommended meanwhile is what there is.
    """
    limits = _only_limits(usage, days)
    found = []
    for number, own in loads.dropna(subset="intervals").groupby("usage"):
        if number not in limits.index:
            continue
        limit, one = TRIAL_LIMIT_RATIO * limits[number], usage.loc[number]
        levels = own.groupby("load_bin")[["intervals", "tokens", "joules", "gpu_seconds"]].sum()
        is_seen = levels["intervals"] >= power_caps.LEAST_INTERVALS
        is_felt = is_seen & (levels["joules"] > limit * levels["gpu_seconds"])
        tokens = levels["tokens"].sum()
        if not is_felt.any() or not tokens > 0:
            continue
        levels = levels.sort_values("tokens", ascending=False)
        before = levels["tokens"].cumsum() - levels["tokens"]
        deciding = levels.loc[before < power_caps.LEAST_TOKEN_RATIO * tokens, "intervals"]
        needed = np.ceil(power_caps.LEAST_INTERVALS * own["date"].nunique() / deciding.min())
        found.append(
            {
                "usage": number,
                "kind": TRY_IT,
                "reason_code": "one_power_limit",
                "recommended_device_type": one["device_type"],
                "recommended_replicas": float(one["replicas"]),
                "recommended_gpus_per_replica": float(one["gpus_per_replica"]),
                "current_power_limit_watts": limits[number],
                "trial_power_limit_watts": limit,
                "trial_days": float(np.clip(needed, LEAST_DAYS, MOST_DAYS)),
                "trial_deciding_intervals": float(deciding.sum()),
                "limited_token_ratio": float(levels.loc[is_felt[is_felt].index, "tokens"].sum() / tokens),
            }
        )
    return pd.DataFrame(found, columns=list(LIMIT_TYPES)).astype(LIMIT_TYPES)


def _only_limits(usage: pd.DataFrame, days: pd.DataFrame) -> pd.Series:
    """Watts per GPU that all dates of a deployment and of its pool were limited to, where that is the device type's
    own limit or more; by `usage`."""
    whole = usage[(usage["gpus_per_replica"] >= 1) & (usage["gpus_per_replica"] % 1 == 0)]
    named = whole[[*power_caps.POOL, "power_limit_watts"]].rename_axis("usage").reset_index()
    dates = days.dropna(subset="limit_watts")[["usage", "limit_watts"]].merge(named, on="usage")
    percent = (100 * dates["limit_watts"] / dates["power_limit_watts"]).round()
    ends = percent.groupby([dates[key] for key in power_caps.POOL]).transform
    return dates[(ends("min") >= 100) & (ends("min") == ends("max"))].groupby("usage")["limit_watts"].max()
