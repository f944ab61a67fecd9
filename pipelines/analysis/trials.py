"""How long a size that only data sheets allow has to be tried, and by which intervals it is assessed.

Add here what an experiment needs. Keep out which size is tried (`sizes`) and its words (`pipelines.report`).
"""

from __future__ import annotations

import numpy as np
import pandas as pd

# If none of so many intervals was short, at most a hundredth of all are (0.95 of 300 such samples would show one: the
# rule of three, Hanley and Lippman-Hand, JAMA 1983).
DECIDING_INTERVALS = 300
LEAST_DAYS, MOST_DAYS = 7, 28  # each weekday once; a lookback


def planned(candidates: pd.DataFrame, demand: pd.DataFrame) -> pd.DataFrame:
    """`candidates` (of `sizes.candidates`) with the plan of those to try; NaN for all others.

    An interval decides if its demand is above what the engine's own best shows that the size serves
    (`capacity_low_tokens_per_second`; above 0 where that is not known). `trial_deciding_intervals`: how many the
    lookback had (`demand`: `usage`, `date`, `tokens_per_second`, a row per interval). `trial_days`: how many days it
    takes to see DECIDING_INTERVALS of them, within LEAST_DAYS and MOST_DAYS.
    """
    by_usage = dict(list(demand.groupby("usage")))
    found = []
    for number, gpus, low in candidates[
        ["usage", "trial_gpus_per_replica", "capacity_low_tokens_per_second"]
    ].itertuples(index=False):
        if np.isnan(gpus) or number not in by_usage:
            found.append((np.nan, np.nan))
            continue
        own = by_usage[number]
        deciding = int((own["tokens_per_second"] > (0.0 if np.isnan(low) else low)).sum())
        days = np.ceil(DECIDING_INTERVALS * own["date"].nunique() / deciding) if deciding else MOST_DAYS
        found.append((deciding, float(np.clip(days, LEAST_DAYS, MOST_DAYS))))
    plan = pd.DataFrame(found, columns=["trial_deciding_intervals", "trial_days"], index=candidates.index, dtype=float)
    return pd.concat([candidates, plan], axis=1)
