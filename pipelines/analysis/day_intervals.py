"""How sure a figure of days is, where one day resembles the next: of the coming month, and of a difference of dates.

Add here an interval that more than one recommendation needs. Keep out what its days are and what it means.

Days that resemble the day before count for fewer. Of n days with a lag-1 correlation r, the mean is as sure as that of
n / (1 + 2 Σ (1 − k/n) r^k) independent ones, k = 1 … n − 1 (Zwiers & von Storch 1995, Journal of Climate 8, 336–351).
The correlation of few days about their own mean comes out too low by (1 + 3 r) / n (Marriott & Pope 1954, Biometrika
41, 390–402; Kendall 1954, the same volume, 403–404), which is added.
"""

from __future__ import annotations

import numpy as np
from scipy.special import stdtrit

from pipelines.analysis import coming_days

CONFIDENCE = 0.95
COMING_DAYS = 30
LEAST_CORRELATED_DAYS = 7  # of fewer a correlation is not known
MOST_CORRELATION = 0.95
LEAST_EFFECTIVE_DAYS = 1.5  # with fewer, half a degree of freedom is left at most: no interval is shown


def coming_ratio_interval(
    numerators: np.ndarray, denominators: np.ndarray, days: np.ndarray
) -> tuple[float, float, float, str]:
    """Expectation, CONFIDENCE interval and basis of sum(numerators) / sum(denominators) in the COMING_DAYS after the
    last of `days`, from one value of each per day.

    `days` numbers the dates. A day counts by what it adds to the ratio of the sums, so a day of a small denominator
    moves it little; what these will be like is `coming_days.outlook`. Basis `coming_days`; NaN and `too_few_days` where
    fewer than coming_days.LEAST_DAYS have a denominator.
    """
    is_known = denominators > 0
    numerators, denominators, days = (values[is_known] for values in (numerators, denominators, days))
    if len(days) < coming_days.LEAST_DAYS:
        return np.nan, np.nan, np.nan, "too_few_days"
    order = np.argsort(days)
    ratio = numerators.sum() / denominators.sum()
    figures = ratio + (numerators - ratio * denominators) / denominators.mean()
    ahead = np.arange(1, COMING_DAYS + 1)
    weights = np.full(COMING_DAYS, 1 / COMING_DAYS)
    numbered = days[order].astype(int) - int(days.max())
    outlook = coming_days.outlook(figures[order], numbered, ahead, weights)
    low, high = outlook.interval(CONFIDENCE)
    return float(outlook.mean[0]), float(low[0]), float(high[0]), "coming_days"


def difference_interval(
    more: tuple[np.ndarray, np.ndarray, np.ndarray],
    less: tuple[np.ndarray, np.ndarray, np.ndarray],
    weights: np.ndarray,
) -> tuple[float, float, str]:
    """CONFIDENCE interval of sum(weights × (ratios of `more` − ratios of `less`)), and its basis.

    Each side has numerators and denominators, days × levels, and the numbers of its days; a ratio is that of a level's
    sums over days. Student's t with Welch's degrees of freedom over what the days miss the ratios by, each side with as
    many days as it has independent ones; the correlation is that of both sides together. Two days of a side at least.
    Basis `effective_days`; `student_t` with fewer than LEAST_CORRELATED_DAYS in all, each of which counts; NaN and
    `too_few_days` where a side has fewer than LEAST_EFFECTIVE_DAYS.
    """
    values, missed = [], []
    for numerators, denominators, _ in (more, less):
        ratios = numerators.sum(axis=0) / denominators.sum(axis=0)
        missed.append((numerators - ratios * denominators) / denominators.sum(axis=0) @ weights * len(numerators))
        values.append(float(ratios @ weights))
    value = values[0] - values[1]
    sides = list(zip(missed, (more[2], less[2]), strict=True))
    correlation = day_correlation(sides)
    effective = [effective_days(len(days), correlation or 0.0) for _, days in sides]
    if min(effective) < LEAST_EFFECTIVE_DAYS:
        return np.nan, np.nan, "too_few_days"
    variances = [
        float(misses @ misses) / len(misses) / (n - 1) for misses, n in zip(missed, effective, strict=True)
    ]  # of the mean
    variance = sum(variances)
    freedom = variance**2 / sum(v**2 / (n - 1) for v, n in zip(variances, effective, strict=True)) if variance else 1.0
    reach = student(freedom) * float(np.sqrt(variance))
    return value - reach, value + reach, "student_t" if correlation is None else "effective_days"


def day_correlation(sides: list[tuple[np.ndarray, np.ndarray]], taken: int | None = None) -> float | None:
    """Lag-1 correlation of days, 0 to MOST_CORRELATION, without the bias of few days; None with fewer than
    LEAST_CORRELATED_DAYS or no two that follow each other.

    Each side has what its days miss their own mean by and their numbers, growing; the sides share one correlation.
    `taken`: how many columns were fitted to them, where that is more than a mean of each side: each hides as much of
    the correlation as a mean does.
    """
    n = sum(len(misses) for misses, _ in sides)
    pairs = [(misses[:-1] * misses[1:])[np.diff(days) == 1] for misses, days in sides]
    followed = sum(len(products) for products in pairs)
    squares = sum(float(misses @ misses) for misses, _ in sides)
    if n < LEAST_CORRELATED_DAYS or n <= 3 * len(sides) or not followed:
        return None
    if squares == 0:
        return 0.0
    seen = sum(float(products.sum()) for products in pairs) / followed / (squares / n)
    return float(np.clip((n * seen + (taken or len(sides))) / (n - 3 * len(sides)), 0.0, MOST_CORRELATION))


def effective_days(n: int, correlation: float) -> float:
    """How many independent days have a mean that is as sure as that of `n` days with this lag-1 correlation."""
    lags = np.arange(1, n)
    return float(n / (1 + 2 * ((1 - lags / n) * correlation**lags).sum()))


def student(freedom: float) -> float:
    """Student's t that CONFIDENCE is within, either way."""
    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2))
