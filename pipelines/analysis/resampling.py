"""How sure a mean of days is: resampling whole days, since what happens within a day hangs together.

Add here a way to resample that more than one recommendation needs. Keep out what is resampled and what it means.
"""

from __future__ import annotations

import hashlib

import numpy as np
from scipy.special import stdtrit

CONFIDENCE = 0.95
RESAMPLES = 1000
LEAST_BOOTSTRAP_DAYS = 14


def ratio_interval(numerators: np.ndarray, denominators: np.ndarray, identity: str) -> tuple[float, float, str]:
    """CONFIDENCE interval of sum(numerators) / sum(denominators), one value of each per day, and its basis.

    From LEAST_BOOTSTRAP_DAYS days on by a bootstrap of whole days (`day_bootstrap`), below by Student's t over what the
    days miss the ratio by (`student_t`); of a single day nothing is known: NaN, `one_day`. The same `identity` and days
    give the same interval, bit for bit.
    """
    is_known = denominators > 0
    numerators, denominators = numerators[is_known].astype(float), denominators[is_known].astype(float)
    n = len(numerators)
    if n < 2:
        return np.nan, np.nan, "one_day"
    ratio = numerators.sum() / denominators.sum()
    student = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2))
    if n < LEAST_BOOTSTRAP_DAYS:
        misses = numerators - ratio * denominators
        reach = student * np.sqrt(n / (n - 1) * (misses**2).sum()) / denominators.sum()
        return ratio - reach, ratio + reach, "student_t"
    chance = chance_of(identity)
    drawn = chance.integers(n, size=(RESAMPLES, n))
    ratios = numerators[drawn].sum(axis=1) / denominators[drawn].sum(axis=1)
    low, high = np.quantile(ratios, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    # Resampled days scatter as the days do around their own mean, with the tails of a normal law: both are too narrow.
    widened = np.sqrt(n / (n - 1)) * student / 1.959964
    return ratio - (ratio - low) * widened, ratio + (high - ratio) * widened, "day_bootstrap"


def difference_interval(
    more: tuple[np.ndarray, np.ndarray], less: tuple[np.ndarray, np.ndarray], weights: np.ndarray, identity: str
) -> tuple[float, float, str]:
    """CONFIDENCE interval of sum(weights × (ratios of `more` − ratios of `less`)), and its basis.

    Each side has numerators and denominators, days × levels; a ratio is that of a level's sums over days. From
    LEAST_BOOTSTRAP_DAYS days of each side on whole days are drawn again, each side by itself; below, Student's t with
    Welch's degrees of freedom over what the days miss the ratios by. Two days of a side at least.
    """
    values, variances, days = [], [], []
    for numerators, denominators in (more, less):
        ratios = numerators.sum(axis=0) / denominators.sum(axis=0)
        misses = (numerators - ratios * denominators) / denominators.sum(axis=0) @ weights
        n = len(misses)
        values.append(float(ratios @ weights))
        variances.append(n / (n - 1) * float(misses @ misses))
        days.append(n)
    value, variance = values[0] - values[1], sum(variances)
    freedom = variance**2 / sum(v**2 / (n - 1) for v, n in zip(variances, days, strict=True)) if variance else 1.0
    student = float(stdtrit(freedom, (1 + CONFIDENCE) / 2))
    if min(days) < LEAST_BOOTSTRAP_DAYS:
        reach = student * np.sqrt(variance)
        return value - reach, value + reach, "student_t"
    chance = chance_of(identity)
    drawn = [_drawn_sums(*side, weights, chance) for side in (more, less)]
    low, high = np.quantile(drawn[0] - drawn[1], [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    widened = np.sqrt(min(days) / (min(days) - 1)) * student / 1.959964
    return value - (value - low) * widened, value + (high - value) * widened, "day_bootstrap"


def _drawn_sums(
    numerators: np.ndarray, denominators: np.ndarray, weights: np.ndarray, chance: np.random.Generator
) -> np.ndarray:
    """Weighted sums of ratios over RESAMPLES draws of the days; a level that a draw did not meet keeps its ratio."""
    drawn = chance.integers(len(numerators), size=(RESAMPLES, len(numerators)))
    tops, bottoms = numerators[drawn].sum(axis=1), denominators[drawn].sum(axis=1)
    whole = numerators.sum(axis=0) / denominators.sum(axis=0)
    sums: np.ndarray = np.where(bottoms > 0, tops / np.where(bottoms > 0, bottoms, 1.0), whole) @ weights
    return sums


def chance_of(identity: str) -> np.random.Generator:
    """Random numbers that are the same for the same `identity`."""
    return np.random.default_rng(int.from_bytes(hashlib.blake2b(identity.encode(), digest_size=8).digest()))
