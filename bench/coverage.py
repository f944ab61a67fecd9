"""How often the published intervals hold: `python -m bench.coverage --seed 1 --series 1000` prints a table.

Per estimator, process (`drawn_days`) and number of days: how many of the intervals contain what came, their width
beside an oracle's, and how many are refused. The functions that a run publishes are called, no copies. Add an estimator
here when a run publishes one; keep out timing (`__main__`).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np
import pandas as pd

from bench.drawn_days import LEVEL, NOISE, PROCESSES, Drawn, Process, correlated, draw, oracle_widths
from pipelines.analysis import day_intervals, month_end, power_fits, savings

AS_OF = date(2026, 10, 28)
# An accelerator whose bare watts are 0 saves what it draws parked: the interval of the saving is that of its days.
DEPLOYMENT = {
    "kind": "fewer_replicas", "is_change": True, "current_gpus": 2.0, "current_replicas": 2.0, "freed_gpus": 1.0,
    "freed_gpus_on_empty_nodes": 0.0, "saved_watts": np.nan, "pue": 1.0, "facility_per_device_ratio": 1.0,
    "idle_watts_bare": 0.0, "meter_scope": "board",
    "parked_watts_basis": "intervals_without_tokens", "usd_per_kwh": 0.2,
    "charged_energy_ratio": 1.0, "gco2e_per_kwh": 400.0, "usd_per_gpu_hour": 2.0,
}  # fmt: skip
HORIZONS = (3, 14, 25)  # days that a month in progress has left
CORRELATIONS = (0.0, 0.5, 0.8)
LOADS = np.array([2.0, 4.0, 8.0, 16.0, 32.0, 64.0])  # tokens per second and GPU of the levels of a curve
INTERCEPT_WATTS, SLOPE_JOULES = 100.0, 4.0


@dataclass(frozen=True)
class Result:
    """Intervals of one estimator: NaN where refused. `oracle` is the width of each one's oracle, or of one for all."""

    estimator: str
    process: str
    days: int
    confidence: float
    low: np.ndarray
    high: np.ndarray
    truth: np.ndarray
    oracle: np.ndarray
    growing_oracle: np.ndarray

    @property
    def refused(self) -> float:
        return float(np.isnan(self.low).mean())

    @property
    def coverage(self) -> float:
        known = ~np.isnan(self.low)
        slack = 1e-9 * np.abs(self.truth)
        within = (self.low - slack <= self.truth) & (self.truth <= self.high + slack)
        return float(within[known].mean()) if known.any() else np.nan

    def width_ratio(self, oracle: np.ndarray) -> float:
        return float(np.nanmedian((self.high - self.low) / oracle)) if self.refused < 1 else np.nan

    @property
    def misses(self) -> list[str]:
        """Aims that are out of reach: coverage, width, refusals."""
        least, most = (0.91, 0.98) if self.days < 56 else (0.93, 0.97)
        if self.confidence == month_end.CONFIDENCE:
            least, most = 0.77, 0.92
        found = [] if least <= round(self.coverage, 2) <= most else ["coverage"]
        found += [] if self.width_ratio(self.oracle) <= 2 else ["width"]
        return found + ([] if self.refused <= 0.2 else ["refused"])


def coming_month(drawn: Drawn) -> Result:
    """`savings.with_savings`: a freed accelerator saves what it draws parked, in kWh of the coming 30 days."""
    series, days = drawn.past.shape
    rows = pd.DataFrame([DEPLOYMENT]).loc[np.zeros(series, dtype=int)].reset_index(drop=True)
    watts = drawn.past.mean(axis=1)
    rows = rows.assign(usage=np.arange(series), parked_watts_per_gpu=watts, mean_watts=4 * watts)
    history = pd.DataFrame(
        {
            "usage": np.repeat(np.arange(series), days),
            "date": np.tile(np.arange(days), series),
            "parked_joules": drawn.past.ravel() * 86400,
            "parked_gpu_seconds": 86400.0,
        }
    ).assign(joules=1.0, gpu_seconds=1.0, tokens=1.0, seconds=1.0)
    made = savings.with_savings(rows, history)
    weights = np.full(day_intervals.COMING_DAYS, 1 / day_intervals.COMING_DAYS)
    kwh = savings.HOURS_PER_MONTH / 1000
    low, high = (made[f"saving_{end}"].to_numpy() for end in ("low", "high"))
    widths = [
        kwh * oracle_widths(drawn, weights, day_intervals.CONFIDENCE, learns_growth=known) for known in (False, True)
    ]
    truth = kwh * drawn.coming[:, : len(weights)] @ weights
    return Result("saving of a month", drawn.process.name, days, day_intervals.CONFIDENCE, low, high, truth, *widths)


def rest_of_month(drawn: Drawn, horizon: int) -> Result:
    """`month_end.forecast`: what the next `horizon` days cost."""
    series, days = drawn.past.shape
    past = [AS_OF - timedelta(days=days - 1 - day) for day in range(days)]
    made = pd.DataFrame({"unit": np.repeat(np.arange(series), days), "site": "a", "date": past * series})
    ahead = [AS_OF + timedelta(days=day + 1) for day in range(horizon)]
    found = month_end.forecast(
        made.assign(usd=drawn.past.ravel()),
        pd.DataFrame({"site": "a", "date": past}),
        pd.DataFrame({"site": "a", "date": ahead, "weight": 1.0}),
        AS_OF,
    )
    weights = np.ones(horizon)
    low, high = (found[f"rest_{end}_usd"].to_numpy() for end in ("low", "high"))
    widths = [oracle_widths(drawn, weights, month_end.CONFIDENCE, learns_growth=known) for known in (False, True)]
    truth = drawn.coming[:, :horizon] @ weights
    name = f"month's end, {horizon} days ahead"
    return Result(name, drawn.process.name, days, month_end.CONFIDENCE, low, high, truth, *widths)


def power_cap(correlation: float, series: int, days: int, seed: int) -> Result:
    """`day_intervals.difference_interval`: watts of the first half of the days less those of the second, under a lower
    limit that takes off 20 W."""
    half, drop = days // 2, 20.0
    errors = correlated(np.random.default_rng([seed, days]), (series, days), correlation) * NOISE
    ends = []
    for one in LEVEL + errors:
        sides = [(watts[:, None], np.ones((len(watts), 1)), np.arange(half) + first)
                 for watts, first in ((one[:half], 0), (one[half : 2 * half] - drop, half))]  # fmt: skip
        ends.append(day_intervals.difference_interval(*sides, np.ones(1))[:2])
    low, high = np.array(ends).T
    covariance = correlation ** np.abs(np.arange(2 * half)[:, None] - np.arange(2 * half)).astype(float)
    weights = np.repeat([1 / half, -1 / half], half)
    width = np.array([2 * 1.959964 * NOISE * np.sqrt(weights @ covariance @ weights)])
    name = f"correlated {correlation:g}" if correlation else "independent"
    truth = np.full(series, drop)
    return Result("power cap", name, days, day_intervals.CONFIDENCE, low, high, truth, width, width)


def power_fit(correlation: float, series: int, days: int, seed: int) -> Result:
    """`power_fits.fit_power`: the slope of a line whose dates each have another one, NOISE % of it off."""
    chance = np.random.default_rng([seed, days])
    slopes = SLOPE_JOULES * (1 + correlated(chance, (series, days), correlation) * NOISE / 100)
    watts = INTERCEPT_WATTS + slopes[:, :, None] * LOADS + chance.normal(0, 0.1, (series, days, len(LOADS)))
    shape = watts.shape
    history = pd.DataFrame(
        {
            "model": np.repeat(np.arange(series), days * len(LOADS)),
            "date": np.broadcast_to(np.arange(days)[:, None], shape).ravel(),
            "load_bin": np.broadcast_to(np.arange(len(LOADS)), shape).ravel(),
            "gpu_seconds": 3600.0,
            "tokens": np.broadcast_to(LOADS * 3600, shape).ravel(),
            "joules": watts.ravel() * 3600,
        }
    )
    levels = history.groupby(["model", "load_bin"], as_index=False)[["tokens", "gpu_seconds", "joules"]].sum()
    levels[power_fits.LOAD] = levels["tokens"] / levels["gpu_seconds"]
    levels[power_fits.WATTS] = levels["joules"] / levels["gpu_seconds"]
    fits = power_fits.fit_power(levels, ["model"], history)
    fits = fits[fits["form"] == "linear"]
    low, high = (fits[f"slope_joules_per_token_{end}"].to_numpy(float) for end in ("low", "high"))
    lags = np.abs(np.arange(days)[:, None] - np.arange(days)).astype(float)
    width = np.array([2 * 1.959964 * SLOPE_JOULES * NOISE / 100 * np.sqrt((correlation**lags).mean())])
    name = f"correlated {correlation:g}" if correlation else "independent"
    truth = np.full(len(fits), SLOPE_JOULES)
    return Result("power fit, slope", name, days, day_intervals.CONFIDENCE, low, high, truth, width, width)


def results(series: int, days: int, seed: int, processes: tuple[Process, ...] = PROCESSES) -> Iterator[Result]:
    """Every estimator that is published, on every process."""
    for process in processes:
        drawn = draw(process, series, days, day_intervals.COMING_DAYS, seed)
        yield coming_month(drawn)
        for horizon in HORIZONS:
            yield rest_of_month(drawn, horizon)
    for correlation in CORRELATIONS:
        yield power_cap(correlation, series, days, seed)
        yield power_fit(correlation, series, days, seed)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.coverage", description=__doc__)
    parser.add_argument("--series", type=int, default=500)
    parser.add_argument("--days", type=int, nargs="+", default=[14, 28, 56])
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    print(f"seed {options.seed}, {options.series} series each; noise of a day {NOISE:g} % of its level")
    print(
        "| estimator | process | days | interval | coverage | width / oracle's | where it learns growth | refused |"
        " out of reach |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for days in options.days:
        rows = sorted(results(options.series, days, options.seed), key=lambda one: one.estimator)
        for one in rows:
            ratios = f"{one.width_ratio(one.oracle):.2f} | {one.width_ratio(one.growing_oracle):.2f}"
            print(
                f"| {one.estimator} | {one.process} | {days} | {one.confidence:.0%} | {one.coverage:.1%} | {ratios}"
                f" | {one.refused:.1%} | {', '.join(one.misses) or '–'} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
