"""Watts against load: which simple form describes what a curve has seen, how well, and how sure its numbers are.

Compared by watts, never by J/token: J/token is watts over load, so any form of watts "explains" nearly all of it. Add a
form here when measured curves need one; keep out what is observed (marts.efficiency_curve) and every extrapolation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from pipelines.analysis.day_intervals import LEAST_EFFECTIVE_DAYS, day_correlation, effective_days, student

LEAST_LEVELS = 5
LEAST_RANGE = 2.0  # highest over lowest load
LEAST_DATES = 7  # of more than one: fewer do not show how far a date resembles the one before
FORMS = ("constant", "linear", "saturating")  # of equals the first wins
LOAD, WATTS = "tokens_per_second_per_gpu", "watts_per_gpu"
PARAMETERS = (
    "intercept_watts_per_gpu",
    "slope_joules_per_token",
    "limit_watts_per_gpu",
    "half_load_tokens_per_second_per_gpu",
)


@dataclass(frozen=True)
class _Fit:
    """One form on one curve: its parameters (the half load as its logarithm, as it is above 0) and what it misses each
    level by when that level is left out."""

    values: np.ndarray
    left_out_errors: np.ndarray

    @property
    def loo_error_watts(self) -> float:
        return float(np.sqrt(np.mean(self.left_out_errors**2)))


def fit_power(levels: pd.DataFrame, keys: Sequence[str], days: pd.DataFrame | None = None) -> pd.DataFrame:
    """One row per curve: the form of watts that predicts a left-out load level best, or why there is none.

    `levels` has one row per curve (`keys`) and load level: `tokens_per_second_per_gpu` and `watts_per_gpu`; each level
    counts once, however long it lasted. A curve of fewer than LEAST_LEVELS levels, or whose highest load is less than
    LEAST_RANGE times its lowest, is refused by `reason_code`. Forms, with x the load:

        constant    W = intercept
        linear      W = intercept + slope x
        saturating  W = intercept + (limit - intercept) x / (x + half_load)

    A parameter `p` comes with `p_low` and `p_high`, 95 % by Student's t; NULL where the chosen form has none. Their
    width comes from the levels' scatter about the form or, where wider, from the dates': what a date does to all its
    levels at once (other prompts, a warm room) is not in the former. `days` has `load_bin` (as then `levels` has),
    `date`, `tokens`, `gpu_seconds` and `joules` of each curve, level and date. Dates are left out one by one
    (jackknife), and count for as many as are independent (`day_intervals`). `interval_basis` is `dates` then; `levels`
    without `days`; `one_date` where there is one, for which alone they hold; `too_few_dates` without an interval, with
    fewer than LEAST_DATES or less than LEAST_EFFECTIVE_DAYS independent ones.

    The intercept is where the line meets no load, not the power of an idle device. The fit holds from `lowest_` to
    `highest_tokens_per_second_per_gpu` and not beyond.
    """
    by_curve = dict(list(days.groupby(list(keys)))) if days is not None else {}
    rows = []
    for key, curve in levels.sort_values([*keys, LOAD]).groupby(list(keys), sort=True):
        without = _without_days(curve, by_curve[key]) if key in by_curve else None
        fit = _fitted(curve[LOAD].to_numpy(float), curve[WATTS].to_numpy(float), without)
        rows.append({**dict(zip(keys, key, strict=True)), **fit})
    return pd.DataFrame(rows, columns=[*keys, *COLUMNS])


def fitted_watts(fit: Mapping[str, Any], load: np.ndarray) -> np.ndarray:
    """Watts of one accelerator by a row of `fit_power` at loads inside its observed range; NaN outside of it."""
    names = _NAMES[FORMS.index(fit["form"]) + 1]
    watts = _watts(np.array([np.log(fit[name]) if name == HALF_LOAD else fit[name] for name in names]), load)
    lowest, highest = fit["lowest_tokens_per_second_per_gpu"], fit["highest_tokens_per_second_per_gpu"]
    return np.where((load >= lowest) & (load <= highest), watts, np.nan)


COLUMNS = (
    "levels",
    "lowest_tokens_per_second_per_gpu",
    "highest_tokens_per_second_per_gpu",
    "form",
    *(f"{parameter}{end}" for parameter in PARAMETERS for end in ("", "_low", "_high")),
    "interval_basis",
    "watts_per_gpu_at_highest_load",
    "loo_error_watts",
    "loo_error_ratio",
    *(f"{form}_loo_error_watts" for form in FORMS),
    "reason_code",
)


def _fitted(load: np.ndarray, watts: np.ndarray, without: _WithoutDates | None) -> dict[str, Any]:
    seen = {
        "levels": len(load),
        "lowest_tokens_per_second_per_gpu": load[0],
        "highest_tokens_per_second_per_gpu": load[-1],
    }
    if len(load) < LEAST_LEVELS:
        return {**seen, "reason_code": "too_few_load_levels"}
    if load[-1] < LEAST_RANGE * load[0]:
        return {**seen, "reason_code": "load_range_too_narrow"}
    fits = {"constant": _constant(load, watts), "linear": _linear(load, watts), "saturating": _saturating(load, watts)}
    form = min(FORMS, key=lambda name: fits[name].loo_error_watts)
    chosen = fits[form]
    return {
        **seen,
        "form": form,
        **_intervals(chosen.values, load, watts, without),
        "watts_per_gpu_at_highest_load": _watts(chosen.values, load)[-1],
        "loo_error_watts": chosen.loo_error_watts,
        "loo_error_ratio": chosen.loo_error_watts / watts.mean(),
        **{f"{name}_loo_error_watts": fit.loo_error_watts for name, fit in fits.items()},
        "reason_code": "ok",
    }


@dataclass(frozen=True)
class _WithoutDates:
    """Loads and watts of the levels (columns), each date left out (rows, numbered by `days`)."""

    days: np.ndarray
    loads: np.ndarray
    watts: np.ndarray


def _without_days(curve: pd.DataFrame, days: pd.DataFrame) -> _WithoutDates:
    """A level that is all of one date's stays as it is."""
    bins = curve["load_bin"].to_numpy()
    days = days[days["load_bin"].isin(bins)]
    dates, date = np.unique(days["date"].to_numpy(), return_inverse=True)
    level = np.searchsorted(bins, days["load_bin"].to_numpy())
    left = {}
    for name in ("tokens", "gpu_seconds", "joules"):
        daily = np.zeros((len(dates), len(bins)))
        np.add.at(daily, (date, level), days[name].to_numpy(float))
        left[name] = daily.sum(axis=0) - daily
    is_left = left["gpu_seconds"] >= 1
    seconds = np.where(is_left, left["gpu_seconds"], 1.0)
    return _WithoutDates(
        dates if dates.dtype.kind == "i" else pd.to_datetime(dates).to_numpy().astype("datetime64[D]").astype(int),
        np.where(is_left, left["tokens"] / seconds, curve[LOAD].to_numpy(float)),
        np.where(is_left, left["joules"] / seconds, curve[WATTS].to_numpy(float)),
    )


def _intervals(
    values: np.ndarray, load: np.ndarray, watts: np.ndarray, without: _WithoutDates | None
) -> dict[str, float | str]:
    freedom = len(load) - len(values)
    slopes = np.linalg.pinv(_tangent(values, load))
    scatter = ((watts - _watts(values, load)) ** 2).sum() / freedom
    reach = student(freedom) * np.sqrt((slopes**2).sum(axis=1) * scatter)
    basis = "levels" if without is None else "one_date"
    if without is not None and len(without.days) > 1:
        reach, basis = np.maximum(reach, _reach_of_dates(values, without)), "dates"
        if np.isnan(reach).any():
            reach, basis = np.full(len(values), np.nan), "too_few_dates"
    numbers: dict[str, float | str] = {"interval_basis": basis}
    for name, value, one in zip(_NAMES[len(values)], values, reach, strict=True):
        ends = {"": value, "_low": value - one, "_high": value + one}
        # Of a curve that does not bend at all the half load may be anything; its end is then a large number.
        numbers |= {f"{name}{end}": float(np.exp(min(x, 700.0)) if name == HALF_LOAD else x) for end, x in ends.items()}
    return numbers


def _reach_of_dates(values: np.ndarray, without: _WithoutDates) -> np.ndarray:
    """Half the interval of each parameter from what it changes by as dates are left out; NaN with too few of them.

    One step leads from the whole curve's parameters to those without a date: exact for the straight forms.
    """
    n = len(without.days)
    if n < LEAST_DATES:
        return np.full(len(values), np.nan)
    inverse = np.linalg.pinv(_tangent(values, without.loads))
    steps = np.einsum("dpn,dn->dp", inverse, without.watts - _watts(values, without.loads))
    misses = (n - 1) * (steps - steps.mean(axis=0))
    reaches = []
    for miss in misses.T:
        effective = effective_days(n, day_correlation([(miss, without.days)]) or 0.0)
        is_known = effective >= LEAST_EFFECTIVE_DAYS
        reach = student(effective - 1) * np.sqrt(miss @ miss / n / (effective - 1)) if is_known else np.nan
        reaches.append(reach)
    return np.array(reaches)


# A form is known by the number of its parameters: 1 constant, 2 linear, 3 saturating.
INTERCEPT, SLOPE, LIMIT, HALF_LOAD = PARAMETERS
_NAMES = {1: (INTERCEPT,), 2: (INTERCEPT, SLOPE), 3: (INTERCEPT, LIMIT, HALF_LOAD)}


def _watts(values: np.ndarray, load: np.ndarray) -> np.ndarray:
    if len(values) < 3:
        straight: np.ndarray = np.polynomial.polynomial.polyval(load, values) + np.zeros_like(load)
        return straight
    intercept, limit, half = values
    bent: np.ndarray = intercept + (limit - intercept) * load / (load + np.exp(half))
    return bent


def _tangent(values: np.ndarray, load: np.ndarray) -> np.ndarray:
    """By what watts change with each parameter: one more axis at the end."""
    if len(values) < 3:
        return np.stack([load**power for power in range(len(values))], axis=-1)
    intercept, limit, half = values
    share = load / (load + np.exp(half))
    return np.stack([1 - share, share, -(limit - intercept) * share * (1 - share)], axis=-1)


def _constant(load: np.ndarray, watts: np.ndarray) -> _Fit:
    n = len(load)
    return _Fit(np.array([watts.mean()]), (watts - watts.mean()) * n / (n - 1))


def _linear(load: np.ndarray, watts: np.ndarray) -> _Fit:
    start, slope, residuals, leverages = _lines(load[None, :], watts)
    return _Fit(np.array([start[0], slope[0]]), (residuals / (1 - leverages))[0])


def _saturating(load: np.ndarray, watts: np.ndarray) -> _Fit:
    """For a given half load the form is a straight line in x / (x + half load), so only the half load is searched."""
    halves = np.geomspace(load[0] / 8, load[-1] * 8, 97)
    _, _, residuals, leverages = _lines(load / (load + halves[:, None]), watts)
    squares = (residuals**2).sum(axis=1)
    # Each level is left out of the choice of the half load, too.
    chosen = (squares[:, None] - residuals**2 / (1 - leverages)).argmin(axis=0)
    level = np.arange(len(load))
    errors = residuals[chosen, level] / (1 - leverages[chosen, level])

    half, step = halves[squares.argmin()], halves[1] / halves[0]
    for _ in range(3):
        near = np.geomspace(half / step, half * step, 17)
        starts, slopes, residuals, _ = _lines(load / (load + near[:, None]), watts)
        best = (residuals**2).sum(axis=1).argmin()
        half, step = near[best], near[1] / near[0]
    return _Fit(np.array([starts[best], starts[best] + slopes[best], np.log(half)]), errors)


def _lines(x: np.ndarray, watts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A least-squares line of watts over each row of x: its start and slope; residuals and leverages, row by level. A
    left-out error of a line is its residual over 1 - leverage."""
    centre = x.mean(axis=1, keepdims=True)
    square = ((x - centre) ** 2).sum(axis=1, keepdims=True)
    slope = ((x - centre) * (watts - watts.mean())).sum(axis=1, keepdims=True) / square
    residuals = watts - watts.mean() - slope * (x - centre)
    return (watts.mean() - slope * centre)[:, 0], slope[:, 0], residuals, 1 / x.shape[1] + (x - centre) ** 2 / square
