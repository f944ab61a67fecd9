"""What the rest of a month will cost where the cost follows the load: weekday means, and how far they have been wrong.

Add here how daily costs are carried forward. Keep out which costs these are and what is paid whatever runs: SQL
(int_advised_cost_days, int_advised_months).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from pipelines.analysis.resampling import RESAMPLES, chance_of

# Weeks of which the means are made, and weeks on which earlier forecasts are tried.
TRAINING_WEEKS, HISTORY_WEEKS = 4, 26
LEAST_DAYS = 14
# The interval: 10th to 90th percentile.
CONFIDENCE = 0.8
_NORMAL_QUANTILE = 1.281552  # of a normal law, at 0.9


@dataclass(frozen=True)
class _Table:
    """Daily costs as an array of series × weeks × days of the week, which ends with the newest date; NaN: not known.

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


def forecast(days: pd.DataFrame, booked: pd.DataFrame, rests: pd.DataFrame, as_of: date) -> pd.DataFrame:
    """The cost of the rest of a month, per unit.

    `days` has unit, site, date, usd; `booked` site and date of what is known: a unit without a row there cost 0 once it
    has started. `rests` has site, date and rest_ratio, the share of that date which is to come. `as_of` is the newest
    date.

    A date is expected to cost the mean of its weekday in the last TRAINING_WEEKS. The interval (10th to 90th
    percentile) is of sums of whole weeks' residuals, drawn again and again, both of the weeks to come and of those that
    the means were made of; it is widened for the few weeks that there are. All is NaN with fewer than LEAST_DAYS known
    days.
    `coverage_ratio` is the share of `coverage_weeks` past weeks that were within the interval that would have been
    forecast the day before each of them.

    Returns unit, rest_usd, rest_low_usd, rest_high_usd, history_days, coverage_ratio, coverage_weeks.
    """
    units = pd.Index(days["unit"].unique()).sort_values()
    sites = pd.Index(booked["site"].unique()).sort_values()
    table = _table(days, booked, units, sites, as_of)
    newest = table.usd[:, -TRAINING_WEEKS:]
    expected, low, high, history_days = _forecast(table, newest, _ahead(rests, sites, as_of), f"month_end {as_of}")
    hits, weeks = _past_weeks(table, as_of)
    return pd.DataFrame(
        {
            "unit": units,
            "rest_usd": expected,
            "rest_low_usd": low,
            "rest_high_usd": high,
            "history_days": history_days,
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
    return _Table(usd.reshape(len(series), HISTORY_WEEKS, 7), unit, site, len(units))


def _days_from(dates: Sequence[object] | pd.Series, as_of: date) -> np.ndarray:
    found: np.ndarray = (pd.to_datetime(pd.Series(dates)) - pd.Timestamp(as_of)).dt.days.to_numpy()
    return found


def _ahead(rests: pd.DataFrame, sites: pd.Index, as_of: date) -> np.ndarray:
    """What is to come, as an array of sites × weeks × days of the week, in the order of _Table."""
    ahead = _days_from(rests["date"], as_of) - 1
    weeks, week = np.unique(ahead // 7, return_inverse=True)
    shares = np.zeros((len(sites), max(len(weeks), 1), 7))
    known = sites.get_indexer(rests["site"])
    np.add.at(shares, (known, week, ahead % 7), rests["rest_ratio"].to_numpy(float))
    return shares


def _forecast(
    table: _Table, usd: np.ndarray, ahead: np.ndarray, identity: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Expected cost, its low and high end, and known days of each unit, from the weeks `usd` (series × weeks × 7)."""
    is_known = ~np.isnan(usd)
    known_days = table.by_unit(is_known.astype(float)) > 0
    days = known_days.sum(axis=(1, 2))
    weekdays = known_days.any(axis=1).sum(axis=1)
    counts = is_known.sum(axis=1)
    overall = np.nansum(usd, axis=(1, 2)) / np.maximum(is_known.sum(axis=(1, 2)), 1)
    means = np.where(counts > 0, np.nansum(usd, axis=1) / np.maximum(counts, 1), overall[:, None])
    shares = ahead[table.site]
    expected = table.by_unit(np.einsum("shd,sd->s", shares, means))

    # Each weekday's mean follows its few days: they miss it by less than the next one will.
    freed = np.sqrt(days / np.maximum(days - weekdays, 1))
    residuals = np.where(is_known, usd - means[:, None], 0.0)
    missed = table.by_unit(np.einsum("shd,swd->shw", shares, residuals)) * freed[:, None, None]
    weeks = np.clip(days // 7, 1, usd.shape[1])
    errors = _drawn(missed, weeks, identity)
    widened = stdtrit(np.maximum(weeks - 1, 1), (1 + CONFIDENCE) / 2) / _NORMAL_QUANTILE
    low, high = (np.quantile(errors, end, axis=1) for end in ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2))

    is_enough = days >= LEAST_DAYS
    found = (expected, np.maximum(expected + low * widened, 0.0), expected + high * widened)
    known = [np.where(is_enough, values, np.nan) for values in found]
    return known[0], known[1], known[2], days


def _drawn(missed: np.ndarray, weeks: np.ndarray, identity: str) -> np.ndarray:
    """What drawn weeks miss, less what the means miss if other weeks had been drawn: units × RESAMPLES.

    `missed` has units × weeks to come × trained weeks. All units draw the same weeks, the newest `weeks` that each has:
    models that move together stay together.
    """
    units, horizon, trained = missed.shape
    chance = chance_of(identity)
    rows = np.arange(units)[:, None]

    def week(fraction: np.ndarray) -> np.ndarray:
        found: np.ndarray = trained - 1 - (fraction[None, :] * weeks[:, None]).astype(int)
        return found

    errors = np.zeros((units, RESAMPLES))
    for n, fraction in enumerate(chance.random((horizon, RESAMPLES))):
        errors += missed[:, n][rows, week(fraction)]
    whole = missed.sum(axis=1)
    mean_errors = np.zeros((units, RESAMPLES))
    for n, fraction in enumerate(chance.random((trained, RESAMPLES))):
        is_trained = n < weeks
        mean_errors += np.where(is_trained[:, None], whole[rows, week(fraction)], 0.0)
    errors -= mean_errors / weeks[:, None]
    return errors


def _past_weeks(table: _Table, as_of: date) -> tuple[np.ndarray, np.ndarray]:
    """How many held-back weeks of each unit were within their interval, and how many there were."""
    hits, weeks = np.zeros(table.units), np.zeros(table.units, dtype=int)
    for back in range(1, HISTORY_WEEKS - 1):
        held = table.usd[:, HISTORY_WEEKS - back]
        trained = table.usd[:, max(HISTORY_WEEKS - back - TRAINING_WEEKS, 0) : HISTORY_WEEKS - back]
        is_held = ~np.isnan(held)
        if not is_held.any():
            break
        sites = np.zeros((table.site.max() + 1, 1, 7))
        np.maximum.at(sites[:, 0], table.site, is_held.astype(float))
        expected, low, high, _ = _forecast(table, trained, sites, f"month_end {as_of} {back} weeks earlier")
        actual = table.by_unit(np.nansum(held, axis=1))
        is_whole = (table.by_unit(is_held.astype(float)) > 0).all(axis=1) & ~np.isnan(expected)
        slack = 1e-9 * np.abs(actual)
        weeks += is_whole
        hits += is_whole & (actual >= low - slack) & (actual <= high + slack)
    return hits, weeks
