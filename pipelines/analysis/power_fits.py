"""Watts against load: which simple form describes what a curve has seen, how well, and how sure its numbers are.

Judged on watts, never on J/token: J/token is watts over load, so any form of watts "explains" nearly all of it. Add a
form here when measured curves need one; keep out what is observed (marts.efficiency_curve) and every extrapolation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

LEAST_LEVELS = 5
LEAST_RANGE = 2.0  # highest over lowest load
CONFIDENCE = 0.95
LONGEST_REACH = 600.0  # in watts or in e-folds: nothing is known then, and its ends are still numbers
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
    """One form on one curve: its watts at the levels, its root mean square leave-one-out error, its parameters, and
    their variances by how the levels scatter about the form. The half load is its logarithm, as it is above 0."""

    loo_error_watts: float
    watts: np.ndarray
    values: np.ndarray
    variances: np.ndarray

    @property
    def freedom(self) -> int:
        return len(self.watts) - len(self.values)


def fit_power(levels: pd.DataFrame, keys: Sequence[str], days: pd.DataFrame | None = None) -> pd.DataFrame:
    """One row per curve: the form of watts that predicts a left-out load level best, or why there is none.

    `levels` has one row per curve (`keys`) and load level: `tokens_per_second_per_gpu` and `watts_per_gpu`; each level
    counts once, however long it lasted. A curve of fewer than LEAST_LEVELS levels, or whose highest load is less than
    LEAST_RANGE times its lowest, is refused by `reason_code`. Forms, with x the load:

        constant    W = intercept
        linear      W = intercept + slope x
        saturating  W = intercept + (limit - intercept) x / (x + half_load)

    A parameter `p` comes with `p_low` and `p_high`, CONFIDENCE by Student's t; NULL where the chosen form has none.
    They are as wide as the levels' scatter about the form asks for or, where wider, the days': what a day does to all
    its levels at once (other prompts, a warm room) is not in the former. `days` has `load_bin` (as then `levels` has),
    `date`, `tokens`, `gpu_seconds` and `joules` of each curve, level and date; dates are left out one by one.

    The intercept is where the line meets no load, not the power of an idle device. The fit holds from `lowest_` to
    `highest_tokens_per_second_per_gpu` and says nothing beyond.
    """
    by_curve = dict(list(days.groupby(list(keys)))) if days is not None else {}
    rows = []
    for key, curve in levels.sort_values([*keys, LOAD]).groupby(list(keys), sort=True):
        without = _without_days(curve, by_curve[key]) if key in by_curve else []
        fit = _fitted(curve[LOAD].to_numpy(float), curve[WATTS].to_numpy(float), without)
        rows.append({**dict(zip(keys, key, strict=True)), **fit})
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


Curve = tuple[np.ndarray, np.ndarray]  # loads in order, watts


def _fitted(load: np.ndarray, watts: np.ndarray, without_days: Sequence[Curve]) -> dict[str, Any]:
    seen = {
        "levels": len(load),
        "lowest_tokens_per_second_per_gpu": load[0],
        "highest_tokens_per_second_per_gpu": load[-1],
    }
    if len(load) < LEAST_LEVELS:
        return {**seen, "reason_code": "too_few_load_levels"}
    if load[-1] < LEAST_RANGE * load[0]:
        return {**seen, "reason_code": "load_range_too_narrow"}
    fits = {form: fit(load, watts) for form, (fit, _) in _FORMS.items()}
    form = min(FORMS, key=lambda name: fits[name].loo_error_watts)
    chosen = fits[form]
    fit, names = _FORMS[form]
    return {
        **seen,
        "form": form,
        **_intervals(names, chosen, [fit(*curve).values for curve in without_days]),
        "watts_per_gpu_at_highest_load": chosen.watts[-1],
        "loo_error_watts": chosen.loo_error_watts,
        "loo_error_ratio": chosen.loo_error_watts / watts.mean(),
        **{f"{name}_loo_error_watts": fit.loo_error_watts for name, fit in fits.items()},
        "reason_code": "ok",
    }


def _without_days(curve: pd.DataFrame, days: pd.DataFrame) -> list[Curve]:
    """The curve without each of its days; a level that is all of one day's stays as it is."""
    bins = curve["load_bin"]
    daily = {
        name: days.pivot_table(index="date", columns="load_bin", values=name, aggfunc="sum", fill_value=0.0)
        .reindex(columns=bins, fill_value=0.0)
        .to_numpy(float)
        for name in ("tokens", "gpu_seconds", "joules")
    }
    left = {name: values.sum(axis=0) - values for name, values in daily.items()}
    is_left = left["gpu_seconds"] > 0.5 * 1e-6  # the smallest exact fact
    seconds = np.where(is_left, left["gpu_seconds"], 1.0)
    load = np.where(is_left, left["tokens"] / seconds, curve[LOAD].to_numpy(float))
    watts = np.where(is_left, left["joules"] / seconds, curve[WATTS].to_numpy(float))
    return list(zip(load, watts, strict=True)) if len(load) > 1 else []


def _intervals(names: Sequence[str], fit: _Fit, without_days: Sequence[np.ndarray]) -> dict[str, float]:
    reach = _student(fit.freedom) * np.sqrt(np.maximum(fit.variances, 0.0))
    if without_days:
        left_out = np.array(without_days)
        n = len(left_out)
        jackknife = (n - 1) / n * ((left_out - left_out.mean(axis=0)) ** 2).sum(axis=0)
        reach = np.maximum(reach, _student(n - 1) * np.sqrt(jackknife))
    numbers = {}
    for name, value, one in zip(names, fit.values, np.minimum(reach, LONGEST_REACH), strict=True):
        ends = {"": value, "_low": value - one, "_high": value + one}
        numbers |= {f"{name}{end}": float(np.exp(x) if name == HALF_LOAD else x) for end, x in ends.items()}
    return numbers


def _constant(load: np.ndarray, watts: np.ndarray) -> _Fit:
    return _line(np.ones((len(load), 1)), watts)


def _linear(load: np.ndarray, watts: np.ndarray) -> _Fit:
    return _line(np.column_stack([np.ones_like(load), load]), watts)


def _saturating(load: np.ndarray, watts: np.ndarray) -> _Fit:
    """For a given half load the form is a straight line in x / (x + half load), so only the half load is searched."""
    halves = np.geomspace(load[0] / 8, load[-1] * 8, 97)
    squares, residuals, leverages = _lines(load, watts, halves)
    # Each level is left out of the choice of the half load, too.
    without = squares[:, None] - residuals**2 / (1 - leverages)
    levels = np.arange(len(load))
    left_out = without.argmin(axis=0)
    errors = residuals[left_out, levels] / (1 - leverages[left_out, levels])

    half, step = halves[squares.argmin()], halves[1] / halves[0]
    for _ in range(3):
        near = np.geomspace(half / step, half * step, 17)
        half, step = near[_lines(load, watts, near)[0].argmin()], near[1] / near[0]
    share = load / (load + half)
    line = np.column_stack([np.ones_like(load), share])
    (start, rise), *_ = np.linalg.lstsq(line, watts)
    fitted = start + rise * share
    # W = intercept (1 - share) + limit share; the last column is by the logarithm of the half load.
    tangent = np.column_stack([1 - share, share, -rise * share * (1 - share)])
    scatter = ((watts - fitted) ** 2).sum() / (len(load) - 3)
    variances = np.diag(np.linalg.pinv(tangent.T @ tangent)) * scatter
    return _Fit(_root_mean_square(errors), fitted, np.array([start, start + rise, np.log(half)]), variances)


def _line(design: np.ndarray, watts: np.ndarray) -> _Fit:
    """Least squares. A left-out error is the residual over 1 - leverage, exactly."""
    inverse = np.linalg.inv(design.T @ design)
    values = inverse @ design.T @ watts
    residual = watts - design @ values
    leverage = np.einsum("ij,jk,ik->i", design, inverse, design)
    variances = np.diag(inverse) * (residual @ residual / (len(watts) - len(values)))
    return _Fit(_root_mean_square(residual / (1 - leverage)), design @ values, values, variances)


def _lines(load: np.ndarray, watts: np.ndarray, halves: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Straight lines in x / (x + half), one per half: sums of squares; residuals and leverages, half by level."""
    share = load / (load + halves[:, None])
    centred = share - share.mean(axis=1, keepdims=True)
    square = (centred**2).sum(axis=1, keepdims=True)
    slope = (centred * (watts - watts.mean())).sum(axis=1, keepdims=True) / square
    residuals = watts - watts.mean() - slope * centred
    return (residuals**2).sum(axis=1), residuals, 1 / len(load) + centred**2 / square


def _student(freedom: int) -> float:
    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2))


def _root_mean_square(errors: np.ndarray) -> float:
    return float(np.sqrt(np.mean(errors**2)))


INTERCEPT, SLOPE, LIMIT, HALF_LOAD = PARAMETERS
_FORMS: dict[str, tuple[Callable[[np.ndarray, np.ndarray], _Fit], tuple[str, ...]]] = {
    "constant": (_constant, (INTERCEPT,)),
    "linear": (_linear, (INTERCEPT, SLOPE)),
    "saturating": (_saturating, (INTERCEPT, LIMIT, HALF_LOAD)),
}
