"""Days with a known truth: series of a known process, what they go on as, and what an oracle expects of them.

Add here a process that daily figures of a fleet may follow. Keep out the estimators and what is printed (`coverage`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

LEVEL, NOISE = 100.0, 5.0  # noise: standard deviation of a day, whatever its correlation


@dataclass(frozen=True)
class Process:
    """Days about LEVEL: `correlation` of a day's error with that of the day before, growth per week, what weekends are
    less, a drop at one date, what a
    calendar week has in common (standard deviation), and NOISE times `noise`."""

    name: str
    correlation: float = 0.0
    weekly_growth_ratio: float = 0.0
    weekend_drop: float = 0.0
    drop: float = 0.0
    weekly_noise: float = 0.0
    noise: float = 1.0


PROCESSES = (
    Process("independent"),
    Process("correlated 0.5", 0.5),
    Process("correlated 0.8", 0.8),
    Process("growing 2 %/week", weekly_growth_ratio=0.02),
    Process("growing, twice the noise", weekly_growth_ratio=0.02, noise=2.0),
    Process("growing, correlated 0.5", 0.5, weekly_growth_ratio=0.02),
    Process("weekends 20 % less", weekend_drop=20.0),
    Process("weekends, correlated 0.5", 0.5, weekend_drop=20.0),
    Process("a break of 20 %", drop=20.0),
    Process("a break, correlated 0.5", 0.5, drop=20.0),
    Process("whole weeks differ", weekly_noise=5.0),
)


@dataclass(frozen=True)
class Drawn:
    """Series × days that were, and series × days that came; `break_day` per series, the length of the past without."""

    process: Process
    past: np.ndarray
    coming: np.ndarray
    break_day: np.ndarray


def draw(process: Process, series: int, days: int, coming: int, seed: int) -> Drawn:
    """Series of a process; the same seed gives the same series."""
    chance = np.random.default_rng([seed, days])
    day = np.arange(-days, coming)
    errors = correlated(chance, (series, days + coming), process.correlation) * NOISE * process.noise
    level = np.full((series, days + coming), LEVEL) * (1 + process.weekly_growth_ratio) ** (day / 7)
    level -= process.weekend_drop * (day % 7 >= 5)
    break_day = np.full(series, 0)
    if process.drop:
        break_day = chance.integers(days // 4, 3 * days // 4 + 1, size=series)
        level -= process.drop * (np.arange(days + coming) >= break_day[:, None])
    week = day // 7 - day[0] // 7
    # Drawn where it is asked for alone: the other processes keep their series.
    if process.weekly_noise:
        level += process.weekly_noise * chance.normal(size=(series, week[-1] + 1))[:, week]
    figures = level + errors
    return Drawn(process, figures[:, :days], figures[:, days:], break_day)


def correlated(chance: np.random.Generator, shape: tuple[int, ...], correlation: float) -> np.ndarray:
    """Errors of variance 1 along the last axis, each `correlation` times the one before and something new."""
    errors = chance.normal(size=shape)
    for day in range(1, shape[-1]):
        errors[..., day] = correlation * errors[..., day - 1] + np.sqrt(1 - correlation**2) * errors[..., day]
    return errors


def oracle_widths(drawn: Drawn, weights: np.ndarray, confidence: float, *, learns_growth: bool = False) -> np.ndarray:
    """Width of the interval of `weights` × the coming days, per series, of one who knows the process: its form, growth,
    weekdays, the date of its break, its noise and correlation. Only the level is estimated, from the days since the
    break (with `learns_growth` what it grows by, too): generalised least squares, and the normal law."""
    days, coming = drawn.past.shape[1], len(weights)
    noise = NOISE * drawn.process.noise
    widths = {}
    for first in np.unique(drawn.break_day):
        n = days - int(first)
        day = np.arange(n + coming)
        covariance = drawn.process.correlation ** np.abs(day[:, None] - day).astype(float)
        week = (day - n) // 7
        covariance += (drawn.process.weekly_noise / noise) ** 2 * (week[:, None] == week)
        design = np.stack([np.ones(n + coming), day / n], axis=1)[:, : 1 + learns_growth]
        inverse = np.linalg.inv(covariance[:n, :n])
        information = design[:n].T @ inverse @ design[:n]
        carried = weights @ covariance[n:, :n] @ inverse
        rest = weights @ design[n:] - carried @ design[:n]
        variance = weights @ covariance[n:, n:] @ weights - carried @ covariance[:n, n:] @ weights
        variance += rest @ np.linalg.solve(information, rest)
        widths[first] = 2 * ndtri((1 + confidence) / 2) * noise * np.sqrt(variance)
    return np.array([widths[first] for first in drawn.break_day])
