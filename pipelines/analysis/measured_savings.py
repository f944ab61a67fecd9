"""What a change saved, by the deployment's own meters: option B of the IPMVP (EVO 10000-1:2022, chapter 4).

The hours before the change show what an hour draws, by hour of the day, weekend and tokens; what the hours after it
would have drawn is expected by that, for what they served, and what they drew is subtracted. Add here how that is
estimated. Keep out which hours are of a change (int_advised_change_hours) and whose advice it was.

An hour resembles the next, so hours of a date count as one (standard errors by date: Liang & Zeger 1986, Biometrika 73,
13-22), and a date resembles the one before, so dates count for fewer (`day_intervals`). What the dates after it miss
their expectation by is not averaged away either.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from pipelines.analysis import day_intervals

LEAST_DAYS = 7  # of each side
LEAST_WEEKEND_DAYS = 2  # on weekends, and as many on other days, from which weekends have a level of their own
HOURS_PER_DAY = 24


class Saving(NamedTuple):
    """Mean watts saved, the 95 % interval (NaN: too few dates) and what they are adjusted for."""

    watts: float
    low: float
    high: float
    adjusted_for: str


NOT_MEASURED = Saving(np.nan, np.nan, np.nan, "")


def measured(hours: pd.DataFrame) -> Saving:
    """The saving of one change.

    `hours`: `is_after`, `hour_start_at` (UTC), `joules` of its accelerators, `gpu_seconds`, `tokens` (NaN: not known),
    `free_joules` of those that it left and nothing holds, `unclaimed_joules` and `unclaimed_gpu_seconds` of those of
    which it is not known who holds them, `reused_gpu_seconds` of those that another deployment holds. An accelerator
    that another one took over saves nothing: it counts as it drew before, and so at most does one of an unknown holder.
    NOT_MEASURED with fewer than LEAST_DAYS on a side.
    """
    is_after = hours["is_after"].to_numpy(bool)
    day = hours["hour_start_at"].dt.tz_localize(None).dt.floor("D")
    if min(day[is_after].nunique(), day[~is_after].nunique()) < LEAST_DAYS:
        return NOT_MEASURED
    before = hours[~is_after]
    held = float(before["gpu_seconds"].sum())
    each = float(before["joules"].sum()) / held if held > 0 else 0.0
    left = np.minimum(hours["unclaimed_joules"], hours["unclaimed_gpu_seconds"] * each)
    left += hours["free_joules"] + hours["reused_gpu_seconds"] * each
    watts = (hours["joules"] + left).to_numpy(float) / 3600
    design, adjusted_for = _design(hours, is_after)
    past, coming = design[~is_after], design[is_after]
    coefficients, *_ = np.linalg.lstsq(past, watts[~is_after], rcond=None)
    saved = float((coming @ coefficients - watts[is_after]).mean())
    low, high = _reach(past, watts[~is_after] - past @ coefficients, coming, day[~is_after], day[is_after].nunique())
    return Saving(saved, saved + low, saved + high, adjusted_for)


def _design(hours: pd.DataFrame, is_after: np.ndarray) -> tuple[np.ndarray, str]:
    """Columns by which an hour's watts are expected, and what they are."""
    at = hours["hour_start_at"].dt
    parts, names = [pd.get_dummies(at.hour).to_numpy(float)], ["hour"]
    # One level for weekends, and not one for each weekday: six more are not to be had from two weeks of dates.
    is_weekend = (at.weekday >= 5).to_numpy()
    dates = at.floor("D")
    if min(dates[~is_after & (is_weekend == there)].nunique() for there in (True, False)) >= LEAST_WEEKEND_DAYS:
        parts.append(is_weekend[:, None].astype(float))
        names.append("weekend")
    # Of what is off nothing is served, and nothing reports it.
    tokens = hours["tokens"].where(hours["gpu_seconds"] > 0, 0.0).to_numpy(float)
    if np.isfinite(tokens).all() and np.ptp(tokens[~is_after]) > 0:
        parts.append(tokens[:, None] / tokens[~is_after].max())
        names.append("tokens")
    return np.hstack(parts), ", ".join(names)


def _reach(
    past: np.ndarray, missed: np.ndarray, coming: np.ndarray, day: pd.Series, days_after: int
) -> tuple[float, float]:
    """How far below and above what was saved the ends of its interval are."""
    dates, index = np.unique(day.to_numpy(), return_inverse=True)
    n = len(dates)
    by_day = np.zeros((n, past.shape[1]))
    np.add.at(by_day, index, past * missed[:, None])
    means = np.bincount(index, missed) / np.bincount(index)
    numbers = dates.astype("datetime64[D]").astype(int)
    # Of the columns, hours of the day are the same on each date: a level, weekends and tokens differ between dates.
    taken = 1 + max(past.shape[1] - HOURS_PER_DAY, 0)
    correlation = day_intervals.day_correlation([(means - means.mean(), numbers)], taken) or 0.0
    effective = day_intervals.effective_days(n, correlation)
    # What the columns leave of the dates counts for fewer, as the dates do.
    freedom = (n - taken) * effective / n
    inverse = np.linalg.pinv(past.T @ past)
    at = coming.mean(axis=0) @ inverse
    of_expectation = float(((by_day @ at) ** 2).sum()) * n / effective * n / max(n - taken, 1)
    scatter = float((means**2).sum()) / max(n - taken, 1)
    of_dates = scatter / day_intervals.effective_days(days_after, correlation)
    reach = float(stdtrit(freedom, (1 + day_intervals.CONFIDENCE) / 2)) * float(np.sqrt(of_expectation + of_dates))
    return -reach, reach
