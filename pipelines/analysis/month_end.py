"""What the rest of a month will cost where the cost follows the load, and how often such forecasts have been right.

Add here how daily costs are carried forward. Keep out which costs these are and what is paid whatever runs: SQL
(int_advised_cost_days, int_advised_months); and the forms that days take (`coming_days`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np
import pandas as pd

from pipelines.analysis import coming_days
from pipelines.analysis.coming_days import LEAST_DAYS

# Days that a forecast is made of, and days on which earlier forecasts are tried.
TRAINING_DAYS, HISTORY_WEEKS = 56, 26
# The interval: 10th to 90th percentile, in standard uncertainties of what is normally distributed.
CONFIDENCE = 0.8
QUANTILE = 1.2815515655446004
# Costs of demand may grow as well as not: four weeks are too few to show 2 % a week.
GROWTH_PENALTY = 0.0


@dataclass(frozen=True)
class _Table:
    """Daily costs as an array of series × days, which ends with the newest date; NaN: not known.

    A series is a unit at a site. `unit` and `site` number them.
    """

    usd: np.ndarray
    unit: np.ndarray
    site: np.ndarray
    units: int

    def by_unit(self, values: np.ndarray) -> np.ndarray:
        """Sums of an array's series over each unit."""
        summed = np.zeros((self.units, *values.shape[1:]))
        np.add.at(summed, self.unit, values)
        return summed

    def until(self, back: int) -> np.ndarray:
        """The TRAINING_DAYS that end `back` days before the newest date."""
        end = self.usd.shape[1] - back
        return self.usd[:, max(end - TRAINING_DAYS, 0) : end]


def forecast(days: pd.DataFrame, booked: pd.DataFrame, rests: pd.DataFrame, as_of: date) -> pd.DataFrame:
    """The cost of the rest of a month in USD, per unit.

    `days` has unit, site, date, usd; `booked` site and date of what is known: a unit without a row there cost 0 once it
    has started. `rests` has site, date and weight: the share of that date which is to come, times what is paid then for
    what costs 1 USD in `days`. `as_of` is the newest date.

    The dates to come are expected by level, weekday, growth and breaks of the last TRAINING_DAYS (`coming_days`); a
    missing date before `as_of` is, too. The interval is CONFIDENCE; sites of a unit are taken to miss it together. All
    is NaN where a site of the unit has fewer than LEAST_DAYS known days.
    `coverage_ratio` is the share of `coverage_weeks` earlier weeks on whose evening such a rest, of as many days from
    that weekday on, would have been forecast with the actual cost within its interval.

    Returns unit, rest_usd, rest_low_usd, rest_high_usd, history_days, horizon_days, coverage_ratio, coverage_weeks.
    """
    units = pd.Index(days["unit"].unique()).sort_values()
    sites = pd.Index(booked["site"].unique()).sort_values()
    table = _table(days, booked, units, sites, as_of)
    ahead, shares = _ahead(rests, sites, as_of)
    expected, low, high = _forecast(table, table.until(0), ahead, shares)
    history_days = (table.by_unit((~np.isnan(table.until(0))).astype(float)) > 0).sum(axis=1)
    hits, weeks = _past_weeks(table, ahead, shares)
    return pd.DataFrame(
        {
            "unit": units,
            "rest_usd": expected,
            "rest_low_usd": low,
            "rest_high_usd": high,
            "history_days": history_days,
            "horizon_days": max(int(ahead.max(initial=0)), 0),
            "coverage_ratio": np.where(weeks > 0, hits / np.maximum(weeks, 1), np.nan),
            "coverage_weeks": weeks,
        }
    )


def _table(days: pd.DataFrame, booked: pd.DataFrame, units: pd.Index, sites: pd.Index, as_of: date) -> _Table:
    length = 7 * HISTORY_WEEKS
    series = days[["unit", "site"]].drop_duplicates().sort_values(["unit", "site"])
    unit, site = units.get_indexer(series["unit"]), sites.get_indexer(series["site"])
    usd = np.full((len(series), length), np.nan)

    is_booked = np.zeros((len(sites), length), dtype=bool)
    at = _days_from(booked["date"], as_of) + length - 1
    within = (at >= 0) & (at < length)
    is_booked[sites.get_indexer(booked["site"])[within], at[within]] = True

    numbers = pd.MultiIndex.from_frame(series).get_indexer(pd.MultiIndex.from_frame(days[["unit", "site"]]))
    at = _days_from(days["date"], as_of) + length - 1
    first = np.full(len(units), length)
    np.minimum.at(first, unit[numbers], np.maximum(at, 0))
    has_started = np.arange(length) >= first[unit][:, None]
    usd[is_booked[site] & has_started] = 0.0
    within = (at >= 0) & (at < length)
    usd[numbers[within], at[within]] = days["usd"].to_numpy(float)[within]
    return _Table(usd, unit, site, len(units))


def _days_from(dates: Sequence[object] | pd.Series, as_of: date) -> np.ndarray:
    found: np.ndarray = (pd.to_datetime(pd.Series(dates)) - pd.Timestamp(as_of)).dt.days.to_numpy()
    return found


def _ahead(rests: pd.DataFrame, sites: pd.Index, as_of: date) -> tuple[np.ndarray, np.ndarray]:
    """Days to come, numbered from 1 on (a missing earlier date: 0 and less), and the weight of each by site."""
    ahead, day = np.unique(_days_from(rests["date"], as_of), return_inverse=True)
    shares = np.zeros((len(sites), len(ahead)))
    np.add.at(shares, (sites.get_indexer(rests["site"]), day), rests["weight"].to_numpy(float))
    return ahead, shares


def _forecast(
    table: _Table, usd: np.ndarray, ahead: np.ndarray, shares: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Expected cost, its low and high end of each unit, from the days `usd` (series × days)."""
    is_known = ~np.isnan(usd)
    ends = np.full((3, len(usd)), np.nan)
    days = np.arange(1 - usd.shape[1], 1)
    # Series of one site with the same known days share all that follows from the days.
    patterns = np.unique(np.column_stack([table.site[:, None], is_known]), axis=0, return_inverse=True)[1].ravel()
    for pattern in range(patterns.max(initial=-1) + 1):
        rows = np.flatnonzero(patterns == pattern)
        known, weights = is_known[rows[0]], shares[table.site[rows[0]]]
        if not weights.any():
            ends[:, rows] = 0.0
        elif known.sum() >= LEAST_DAYS:
            is_due = weights > 0
            found = coming_days.outlook(
                usd[rows][:, known], days[known], ahead[is_due], weights[is_due], GROWTH_PENALTY, weeks_differ=True
            )
            ends[:, rows] = found.mean, *found.interval(CONFIDENCE)
    expected, low, high = (table.by_unit(end) for end in ends)
    return np.maximum(expected, 0.0), np.maximum(low, 0.0), np.maximum(high, 0.0)


def _past_weeks(table: _Table, ahead: np.ndarray, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many earlier rests of each unit were within their interval, and how many could be tried: a week apart, so
    that each begins on the weekday on which this one does."""
    hits, weeks = np.zeros(table.units), np.zeros(table.units, dtype=int)
    is_due = ahead > 0
    if not is_due.any():
        return hits, weeks
    ahead, shares = ahead[is_due], shares[:, is_due]
    length = table.usd.shape[1]
    longest = int(ahead.max())
    for back in range(7 * -(-longest // 7), length - LEAST_DAYS + 1, 7):
        trained = table.until(back)
        if (~np.isnan(trained)).sum(axis=1).max(initial=0) < LEAST_DAYS:
            break
        weights = shares[table.site]
        held = table.usd[:, length - back - 1 + ahead]
        is_held = ~np.isnan(held) | (weights == 0)
        expected, low, high = _forecast(table, trained, ahead, shares)
        actual = table.by_unit((np.nan_to_num(held) * weights).sum(axis=1))
        is_whole = (table.by_unit((~is_held).astype(float)) == 0).all(axis=1) & ~np.isnan(expected)
        slack = 1e-6 * np.abs(actual)
        weeks += is_whole
        hits += is_whole & (actual >= low - slack) & (actual <= high + slack)
    return hits, weeks
