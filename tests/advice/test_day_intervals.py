"""Intervals of days that resemble each other: expectations worked out by hand, and the coming month."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.analysis import coming_days
from pipelines.analysis.day_intervals import (
    coming_ratio_interval,
    day_correlation,
    difference_interval,
    effective_days,
)

DAYS = np.arange(28)


def test_effective_days_by_hand() -> None:
    """Four days at 0.5: 4 / (1 + 2 (3/4 × 1/2 + 2/4 × 1/4 + 1/4 × 1/8)) = 4 / 2.0625."""
    assert effective_days(4, 0.5) == pytest.approx(4 / 2.0625)
    assert effective_days(28, 0.0) == 28
    # Many days approach n (1 − r) / (1 + r): a third of them at 0.5.
    assert effective_days(3000, 0.5) == pytest.approx(1000, rel=2e-3)


def test_the_correlation_of_few_days_is_raised_by_what_their_own_mean_takes() -> None:
    """Misses 2, 1, 0, −1, −2, −1, 1 of seven days: products of neighbours 2 + 0 + 0 + 2 + 2 − 1 = 5 over 6 pairs,
    squares 12 over 7: 0.486111; (7 × 0.486111 + 1) / (7 − 3) = 1.1007, at most 0.95."""
    misses = np.array([2.0, 1, 0, -1, -2, -1, 1])
    assert day_correlation([(misses, np.arange(7))]) == 0.95
    # Twice as long: 12 neighbours that sum to 10, squares 24 over 14, two means: (14 × 0.486111 + 2) / (14 − 6).
    both = [(misses, np.arange(7)), (misses, np.arange(10, 17))]
    assert day_correlation(both) == pytest.approx(0.95)
    turns = np.array([1.0, -1] * 5)
    assert day_correlation([(turns, np.arange(10))]) == 0.0
    assert day_correlation([(turns[:6], np.arange(6))]) is None
    assert day_correlation([(turns, 2 * np.arange(10))]) is None  # no day follows another


def test_the_interval_of_a_difference_of_few_days_is_students() -> None:
    """10 ± 1 and 6 ± 1 of two days each: variance of each mean 1; Welch's freedom 2, t 4.30265 × sqrt 2 = 6.08487."""
    one, days = np.ones((2, 1)), np.arange(2)
    low, high, basis = difference_interval(
        (np.array([[9.0], [11]]), one, days), (np.array([[5.0], [7]]), one, days), np.ones(1)
    )
    assert (low, high) == pytest.approx((4 - 6.08487, 4 + 6.08487), abs=1e-5)
    assert basis == "student_t"


def test_days_that_resemble_each_other_widen_a_difference() -> None:
    wave = 10 + np.sin(np.arange(14) / 3)[:, None]
    turns = np.random.default_rng(1).permutation(wave)
    one, less = np.ones((14, 1)), (np.ones((14, 1)), np.ones((14, 1)), np.arange(20, 34))
    smooth = difference_interval((wave, one, np.arange(14)), less, np.ones(1))
    mixed = difference_interval((turns, one, np.arange(14)), less, np.ones(1))
    assert mixed[2] == "effective_days"
    assert smooth[2] == "too_few_days" or smooth[1] - smooth[0] > 2 * (mixed[1] - mixed[0])


def test_too_few_days_have_no_interval_of_the_coming_month() -> None:
    mean, low, high, basis = coming_ratio_interval(np.ones(14), np.array([1.0] * 13 + [0]), np.arange(14))
    assert np.isnan([mean, low, high]).all() and basis == "too_few_days"
    with pytest.raises(ValueError, match="13 known days"):
        coming_days.outlook(np.ones(13), np.arange(13), np.array([14]), np.ones(1))


def test_days_that_agree_leave_nothing_unsure() -> None:
    assert coming_ratio_interval(np.full(28, 3.0), np.full(28, 2.0), DAYS)[:3] == pytest.approx((1.5, 1.5, 1.5))


def test_what_is_exactly_a_form_goes_on_as_it_does() -> None:
    """A weekday's dip, a growth of 2 a day, and a step down at day 14: ten more days, each by hand."""
    dip = np.where(DAYS % 7 >= 5, 4.0, 10.0)
    ahead, one = np.arange(28, 38), np.ones(10)
    assert coming_days.outlook(dip, DAYS, ahead, one).mean == pytest.approx([8 * 10 + 2 * 4])
    assert coming_days.outlook(2.0 * DAYS, DAYS, ahead, one).mean == pytest.approx([2 * sum(range(28, 38))])
    step = np.where(DAYS < 14, 10.0, 7.0)
    found = coming_days.outlook(step, DAYS, ahead, one)
    assert found.mean == pytest.approx([70])
    assert np.array(found.interval(0.95)).ravel() == pytest.approx([70, 70])


def test_the_coming_month_is_less_sure_than_the_mean_of_the_days() -> None:
    """White noise of 10 about 100: the mean of 28 days is 3.9 off at most, 95 times in a hundred, that of the next 30
    from them 5.4."""
    figures = np.random.default_rng(1).normal(100, 10, 28)
    mean, low, high, basis = coming_ratio_interval(figures, np.ones(28), DAYS)
    assert low < mean < high and basis == "coming_days"
    assert high - low > 2 * 5.4


@given(
    st.lists(st.floats(50, 150), min_size=14, max_size=28),
    st.floats(-1e3, 1e3),
    st.sampled_from([0.001, 0.5, 1000.0]),
    st.integers(0, 6),
)
def test_an_outlook_follows_its_unit_and_its_level(figures: list[float], shift: float, scale: float, late: int) -> None:
    days = np.arange(len(figures))
    ahead, weights = np.arange(days[-1] + 1, days[-1] + 8), np.linspace(0.1, 1, 7)
    first = coming_days.outlook(np.array(figures), days, ahead, weights)
    moved = coming_days.outlook(np.array(figures) * scale + shift, days + late, ahead + late, weights)
    slack = 1e-4 * scale * max(np.ptp(figures), 1e-3) + 1e-6 * (abs(shift) + scale * 150)
    assert moved.mean[0] == pytest.approx(first.mean[0] * scale + shift * weights.sum(), abs=slack)
    ends = np.array(first.interval(0.8)) * scale + shift * weights.sum()
    assert np.array(moved.interval(0.8)) == pytest.approx(ends, abs=10 * slack)
