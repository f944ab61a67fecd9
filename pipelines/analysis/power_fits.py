"""Watts against load: which simple form describes what a curve has seen, how well, and how sure its numbers are.

Judged on watts, never on J/token: J/token is watts over load, so any form of watts "explains" nearly all of it. Add a
form here when measured curves need one; keep out what is observed (marts.efficiency_curve) and every extrapolation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

LEAST_LEVELS = 5
LEAST_RANGE = 2.0  # highest over lowest load
CONFIDENCE = 0.95
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
    """One form on one curve: its watts at the levels, its root mean square leave-one-out error, its numbers."""

    loo_error_watts: float
    watts: np.ndarray
    numbers: dict[str, float]


def fit_power(levels: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """One row per curve: the form of watts that predicts a left-out load level best, or why there is none.

    `levels` has one row per curve (`keys`) and load level: `tokens_per_second_per_gpu` and `watts_per_gpu`; each level
    counts once, however long it lasted. A curve of fewer than LEAST_LEVELS levels, or whose highest load is less than
    LEAST_RANGE times its lowest, is refused by `reason_code`. Forms, with x the load:

        constant    W = intercept
        linear      W = intercept + slope x
        saturating  W = intercept + (limit - intercept) x / (x + half_load)

    A parameter `p` comes with `p_low` and `p_high`, CONFIDENCE by Student's t on the levels' residuals; NULL where the
    chosen form has none. The intercept is where the line meets no load, not the power of an idle device. The fit holds
    from `lowest_` to `highest_tokens_per_second_per_gpu` and says nothing beyond.
    """
    rows = [
        {**dict(zip(keys, key, strict=True)), **_fitted(curve[LOAD].to_numpy(float), curve[WATTS].to_numpy(float))}
        for key, curve in levels.sort_values([*keys, LOAD]).groupby(list(keys), sort=True)
    ]
    return pd.DataFrame(rows, columns=[*keys, *COLUMNS])


def fitted_watts(fit: Mapping[str, Any], load: np.ndarray) -> np.ndarray:
    """Watts of one accelerator by a row of `fit_power` at loads inside its observed range; NaN outside of it."""
    watts = np.full_like(load, fit["intercept_watts_per_gpu"], dtype=float)
    if fit["form"] == "linear":
        watts += fit["slope_joules_per_token"] * load
    elif fit["form"] == "saturating":
        rise = fit["limit_watts_per_gpu"] - fit["intercept_watts_per_gpu"]
        watts += rise * load / (load + fit["half_load_tokens_per_second_per_gpu"])
    lowest, highest = fit["lowest_tokens_per_second_per_gpu"], fit["highest_tokens_per_second_per_gpu"]
    return np.where((load >= lowest) & (load <= highest), watts, np.nan)


COLUMNS = (
    "levels",
    "lowest_tokens_per_second_per_gpu",
    "highest_tokens_per_second_per_gpu",
    "form",
    *(f"{parameter}{end}" for parameter in PARAMETERS for end in ("", "_low", "_high")),
    "watts_per_gpu_at_highest_load",
    "loo_error_watts",
    "loo_error_ratio",
    *(f"{form}_loo_error_watts" for form in FORMS),
    "reason_code",
)


def _fitted(load: np.ndarray, watts: np.ndarray) -> dict[str, Any]:
    seen = {
        "levels": len(load),
        "lowest_tokens_per_second_per_gpu": load[0],
        "highest_tokens_per_second_per_gpu": load[-1],
    }
    if len(load) < LEAST_LEVELS:
        return {**seen, "reason_code": "too_few_load_levels"}
    if load[-1] < LEAST_RANGE * load[0]:
        return {**seen, "reason_code": "load_range_too_narrow"}
    fits = {"constant": _constant(watts), "linear": _linear(load, watts), "saturating": _saturating(load, watts)}
    form = min(FORMS, key=lambda name: fits[name].loo_error_watts)
    chosen = fits[form]
    return {
        **seen,
        "form": form,
        **chosen.numbers,
        "watts_per_gpu_at_highest_load": chosen.watts[-1],
        "loo_error_watts": chosen.loo_error_watts,
        "loo_error_ratio": chosen.loo_error_watts / watts.mean(),
        **{f"{name}_loo_error_watts": fit.loo_error_watts for name, fit in fits.items()},
        "reason_code": "ok",
    }


def _constant(watts: np.ndarray) -> _Fit:
    design = np.ones((len(watts), 1))
    weights, errors, covariance = _least_squares(design, watts)
    numbers = _interval("intercept_watts_per_gpu", weights[0], covariance[0, 0], len(watts) - 1)
    return _Fit(_root_mean_square(errors), design @ weights, numbers)


def _linear(load: np.ndarray, watts: np.ndarray) -> _Fit:
    design = np.column_stack([np.ones_like(load), load])
    weights, errors, covariance = _least_squares(design, watts)
    freedom = len(load) - 2
    return _Fit(
        _root_mean_square(errors),
        design @ weights,
        {
            **_interval("intercept_watts_per_gpu", weights[0], covariance[0, 0], freedom),
            **_interval("slope_joules_per_token", weights[1], covariance[1, 1], freedom),
        },
    )


def _saturating(load: np.ndarray, watts: np.ndarray) -> _Fit:
    """For a given half load the form is a straight line in x / (x + half load), so only the half load is searched."""
    halves = np.geomspace(load[0] / 8, load[-1] * 8, 161)
    squares, residuals, leverages = _lines(load, watts, halves)
    # Each level is left out of the choice of the half load, too.
    without = squares[:, None] - residuals**2 / (1 - leverages)
    levels = np.arange(len(load))
    left_out = without.argmin(axis=0)
    errors = residuals[left_out, levels] / (1 - leverages[left_out, levels])

    half = halves[squares.argmin()]
    step = halves[1] / halves[0]
    for _ in range(3):
        near = np.geomspace(half / step, half * step, 33)
        half = near[_lines(load, watts, near)[0].argmin()]
        step = near[1] / near[0]
    share = load / (load + half)
    rise = np.polyfit(share, watts, 1)[0]
    # In intercept, rise and the logarithm of the half load, which cannot be negative.
    tangent = np.column_stack([np.ones_like(load), share, -rise * share * (1 - share)])
    line = np.column_stack([np.ones_like(load), share])
    weights, _, _ = _least_squares(line, watts)
    freedom = len(load) - 3
    residual = watts - line @ weights
    covariance = np.linalg.pinv(tangent.T @ tangent) * (residual @ residual / freedom)
    limit_variance = covariance[0, 0] + covariance[1, 1] + 2 * covariance[0, 1]
    spread = np.exp(np.minimum(_reach(covariance[2, 2], freedom), 700.0))
    name = "half_load_tokens_per_second_per_gpu"
    return _Fit(
        _root_mean_square(errors),
        line @ weights,
        {
            **_interval("intercept_watts_per_gpu", weights[0], covariance[0, 0], freedom),
            **_interval("limit_watts_per_gpu", weights[0] + weights[1], limit_variance, freedom),
            **{name: half, f"{name}_low": half / spread, f"{name}_high": half * spread},
        },
    )


def _least_squares(design: np.ndarray, watts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights, leave-one-out errors (residual over 1 - leverage, which is exact for a linear form), covariance."""
    inverse = np.linalg.pinv(design.T @ design)
    weights = inverse @ design.T @ watts
    residual = watts - design @ weights
    leverage = np.einsum("ij,jk,ik->i", design, inverse, design)
    covariance = inverse * (residual @ residual / (len(watts) - design.shape[1]))
    return weights, residual / (1 - leverage), covariance


def _lines(load: np.ndarray, watts: np.ndarray, halves: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Straight lines in x / (x + half), one per half: sums of squares; residuals and leverages, half by level."""
    share = load / (load + halves[:, None])
    centred = share - share.mean(axis=1, keepdims=True)
    square = (centred**2).sum(axis=1, keepdims=True)
    slope = (centred * (watts - watts.mean())).sum(axis=1, keepdims=True) / square
    residuals = watts - watts.mean() - slope * centred
    return (residuals**2).sum(axis=1), residuals, 1 / len(load) + centred**2 / square


def _interval(name: str, value: float, variance: float, freedom: int) -> dict[str, float]:
    reach = _reach(variance, freedom)
    return {name: value, f"{name}_low": value - reach, f"{name}_high": value + reach}


def _reach(variance: float, freedom: int) -> float:
    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2) * np.sqrt(max(variance, 0.0)))


def _root_mean_square(errors: np.ndarray) -> float:
    return float(np.sqrt(np.mean(errors**2)))
