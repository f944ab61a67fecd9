"""What days to come will sum up to, from days that were: level, weekdays, growth or a break, and errors that last.

Add here a form that daily figures take. Keep out which figures these are (`savings`, `month_end`).

The days are a regression with errors that last in one of two ways. In an AR(1) process a day's error is `correlation`
times that of the day before, and something new. Or whole weeks differ, where a caller has enough of them: the days of a
week share an error, beside one of their own, and the next week has another. Its forms are of FORMS; each has a level
and, from LEAST_WEEKDAY_DAYS of a weekday on, what that weekday differs by. What comes is predicted by generalised least
squares (Goldberger 1962), with Student's t for the scatter. Neither the errors nor the form are known, so each possible
one counts by how likely it makes the days: errors by the restricted likelihood (Patterson & Thompson 1971; Harville
1974), which does not take those of few days for less correlated than they are; forms by Akaike weights (Burnham &
Anderson 2002, chapter 2).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import gammaln, stdtr

LEAST_DAYS = 14
LEAST_WEEKDAY_DAYS = 2
LEAST_DAYS_BESIDE_BREAK = 7
MOST_BREAKS = 16  # dates at which a break is tried, as evenly spread as they may be
FORMS = ("level", "growth", "break")
# -0.41 to 0.98, closer together near 1, where they differ most in what they lead to expect: spaced by the arc sine, as
# the reference prior of an AR(1) process is (Berger & Yang 1994, Econometric Theory 10, 461-482).
CORRELATIONS = np.sin(np.radians(np.arange(-24, 81, 8)))
# What the days of a week share of the variance where whole weeks differ. On which weekday they begin is not known, and
# that they do is as likely beforehand as that errors are of an AR(1) process.
WEEK_SHARE = 0.6
# By what a form with one more parameter has to raise the logarithm of the likelihood: Akaike's 1. A break has a date as
# well, which is two parameters, and is one of many.
GROWTH_PENALTY, BREAK_PENALTY = 1.0, 2.0
# Of days that follow their form exactly nothing is left: the scatter is then this share of the greatest day.
LEAST_SCATTER_RATIO = 1e-9


@dataclass(frozen=True)
class Outlook:
    """A sum of days to come, per series: Student's t distributions (rows: correlations of all forms), each with its
    share of what is expected. Units are those of the days' figures."""

    means: np.ndarray
    scales: np.ndarray
    freedoms: np.ndarray
    shares: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """What is expected, per series."""
        expected: np.ndarray = (self.shares * self.means).sum(axis=0)
        return expected

    def interval(self, confidence: float) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper end: as much is expected below the one as above the other."""
        return self._quantile((1 - confidence) / 2), self._quantile((1 + confidence) / 2)

    def _quantile(self, ratio: float) -> np.ndarray:
        """By Newton's steps, halving where one would leave what is known to hold the quantile."""
        low, high = ((self.means + sign * 200 * self.scales) for sign in (-1, 1))
        low, high = low.min(axis=0), high.max(axis=0)
        found = self.mean
        height = np.exp(gammaln((self.freedoms + 1) / 2) - gammaln(self.freedoms / 2)) / np.sqrt(np.pi * self.freedoms)
        for _ in range(60):
            away = (found - self.means) / self.scales
            missed = (self.shares * stdtr(self.freedoms, away)).sum(axis=0) - ratio
            if np.abs(missed).max() < 1e-9:
                break
            density = height * (1 + away**2 / self.freedoms) ** (-(self.freedoms + 1) / 2) / self.scales
            low, high = np.where(missed < 0, found, low), np.where(missed < 0, high, found)
            step = found - missed / np.maximum((self.shares * density).sum(axis=0), np.finfo(float).tiny)
            found = np.where((step > low) & (step < high), step, (low + high) / 2)
        return found


def outlook(
    figures: np.ndarray,
    days: np.ndarray,
    ahead: np.ndarray,
    weights: np.ndarray,
    growth_penalty: float = GROWTH_PENALTY,
    *,
    weeks_differ: bool = False,
) -> Outlook:
    """What `weights` × the days `ahead` will sum up to, of each series.

    `figures` is series × known days, in any unit. `days` numbers the known days, growing, and `ahead` those to come.
    They are whole numbers; those that differ by 7 are the same weekday. With a `growth_penalty` of 0 days that show
    nothing of growth may grow as well as not. With `weeks_differ` the days of a week may share an error. ValueError
    with fewer than LEAST_DAYS known days.
    """
    if len(days) < LEAST_DAYS:
        raise ValueError(f"{len(days)} known days: {LEAST_DAYS} are needed to predict those to come")
    figures = np.atleast_2d(np.asarray(figures, dtype=float))
    level = figures.mean(axis=1, keepdims=True)
    left = figures - level  # the numbers stay small beside the level
    parts = _parts(tuple(map(int, days)), tuple(map(int, ahead)), tuple(map(float, weights)), weeks_differ)
    least = len(days) * (LEAST_SCATTER_RATIO * np.abs(figures).max(axis=1)) ** 2
    least = np.maximum(least, np.finfo(float).tiny)
    squares = np.maximum(np.einsum("kij,si,sj->ks", parts.residuals, left, left, optimize=True), least)
    freedom = parts.freedoms[:, None]
    scales = np.sqrt(squares / freedom * parts.variances[:, None])
    restricted = parts.restricted[:, None] - freedom / 2 * np.log(squares)
    likely = parts.likely[:, None] - len(days) / 2 * np.log(squares)
    shares = np.zeros_like(scales)
    of_forms = []
    for form in range(parts.form.max() + 1):
        rows = parts.form == form
        shares[rows] = _shares(restricted[rows])
        most = likely[rows].max(axis=0)
        penalty = parts.penalties[form] + growth_penalty * (form == FORMS.index("growth"))
        of_forms.append(most + np.log(np.exp(likely[rows] - most).sum(axis=0)) - penalty)
    shares *= _shares(np.array(of_forms))[parts.form]
    means = np.einsum("kd,sd->ks", parts.predictors, left) + parts.sum_of_weights * level[:, 0]
    return Outlook(means, scales, parts.tails[:, None], shares)


def _shares(logarithms: np.ndarray) -> np.ndarray:
    weights = np.exp(logarithms - logarithms.max(axis=0))
    shares: np.ndarray = weights / weights.sum(axis=0)
    return shares


@dataclass(frozen=True)
class _Parts:
    """What follows from the days alone, row by form and error: the sum of squares is days' × residuals × days."""

    form: np.ndarray
    freedoms: np.ndarray
    tails: np.ndarray  # Student's: fewer than `freedoms` where the scatter is between few weeks
    residuals: np.ndarray
    predictors: np.ndarray
    variances: np.ndarray
    restricted: np.ndarray
    likely: np.ndarray
    penalties: np.ndarray  # one per form
    sum_of_weights: float


@lru_cache(maxsize=64)
def _parts(days: tuple[int, ...], ahead: tuple[int, ...], weights: tuple[float, ...], weeks_differ: bool) -> _Parts:
    known, coming, weight = np.array(days), np.array(ahead), np.array(weights)
    everything = np.concatenate([known, coming])
    n = len(known)
    designs, penalties = _designs(known, everything)
    errors = _days_alike(everything) + (_weeks_alike(everything) if weeks_differ else [])
    inverses = [np.linalg.inv(covariance[:n, :n]) for covariance, _, _ in errors]
    determinants = [-np.linalg.slogdet(covariance[:n, :n])[1] / 2 for covariance, _, _ in errors]
    rows = []
    for form, design in enumerate(designs):
        past = design[:n]
        own = np.linalg.slogdet(past.T @ past)[1] / 2
        for (covariance, prior, groups), inverse, determinant in zip(errors, inverses, determinants, strict=True):
            information = past.T @ inverse @ past
            coefficients = np.linalg.solve(information, past.T @ inverse)
            residual = np.eye(n) - past @ coefficients
            # What the last errors carry over, and what the coefficients do.
            carried = weight @ covariance[n:, :n] @ inverse
            direct = weight @ design[n:]
            rest = direct - carried @ past
            variance = weight @ covariance[n:, n:] @ weight - carried @ covariance[:n, n:] @ weight
            variance += rest @ np.linalg.solve(information, rest)
            restricted = determinant - np.linalg.slogdet(information)[1] / 2 + own
            freedom = n - past.shape[1]
            # Beside the level a form has one more parameter, which weeks have to show.
            tail = min(freedom, max(len(np.unique(groups[:n])) - 1 - (form > 0), 1))
            rows.append(
                (form, freedom, tail, inverse @ residual, direct @ coefficients + carried @ residual,
                 max(variance, 0.0), restricted + prior, determinant + prior)
            )  # fmt: skip
    form_of, freedoms, tails, residuals, predictors, variances, restricted_of, likely = map(
        np.array, zip(*rows, strict=True)
    )
    return _Parts(
        form_of,
        freedoms,
        tails,
        residuals,
        predictors,
        variances,
        restricted_of,
        likely,
        penalties,
        float(weight.sum()),
    )


# A kind of error: its covariance, the logarithm of how likely it is beforehand, and which days share one.
_Error = tuple[np.ndarray, float, np.ndarray]


def _days_alike(days: np.ndarray) -> list[_Error]:
    """AR(1) errors, by correlation: each day has its own."""
    lags = np.abs(days[:, None] - days)
    prior = -np.log(len(CORRELATIONS))
    return [(np.where(lags == 0, 1.0, np.sign(one) ** lags * np.abs(one) ** lags), prior, days) for one in CORRELATIONS]


def _weeks_alike(days: np.ndarray) -> list[_Error]:
    """Errors of whole weeks, by the weekday on which they begin."""
    found = []
    for first in range(7):
        weeks = (days + first) // 7
        shared = WEEK_SHARE * (weeks[:, None] == weeks) + (1 - WEEK_SHARE) * np.eye(len(days))
        found.append((shared, -np.log(7), weeks))
    return found


def _designs(known: np.ndarray, everything: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """Columns of each form at all days, and by what its likelihood has to exceed that of the level alone, growth
    aside. One form of the third kind per date of a break."""
    found, counts = np.unique(known % 7, return_counts=True)
    found = found[counts >= LEAST_WEEKDAY_DAYS]
    # Each but one against that one; a weekday that is not known costs what they do in the mean.
    weekdays = [(everything % 7 == day) * 1.0 - (everything % 7 == found[-1]) for day in found[:-1]]
    level = np.stack([np.ones(len(everything)), *weekdays], axis=1)
    growth = (everything - known.mean()) / (known[-1] - known[0])
    places = np.arange(LEAST_DAYS_BESIDE_BREAK, len(known) - LEAST_DAYS_BESIDE_BREAK + 1)
    if len(places) > MOST_BREAKS:
        places = places[np.linspace(0, len(places) - 1, MOST_BREAKS).round().astype(int)]
    breaks = [(everything < known[place]) * 1.0 for place in places]
    designs = [level, *(np.column_stack([level, column]) for column in (growth, *breaks))]
    # The date of a break is one of many: each has its share alone.
    of_break = BREAK_PENALTY + np.log(max(len(breaks), 1))
    return designs, np.array([0.0, 0.0, *[of_break] * len(breaks)])
