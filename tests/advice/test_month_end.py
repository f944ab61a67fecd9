"""The rest of a month, from daily costs that were worked out by hand. 28 October 2026 is a Wednesday."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta

import numpy as np
import pandas as pd
import pytest

from bench.drawn_days import correlated
from pipelines.analysis import month_end

AS_OF = date(2026, 10, 28)
# Thursday to Saturday, and the first 7 hours of Sunday: a month of Los Angeles.
RESTS = pd.DataFrame(
    {
        "site": "west",
        "date": [AS_OF + timedelta(days=n) for n in (1, 2, 3, 4)],
        "weight": [1.0, 1.0, 1.0, 7 / 24],
    }
)


def dates(days: int) -> list[date]:
    """The dates up to AS_OF, in order."""
    return [AS_OF - timedelta(days=n) for n in reversed(range(days))]


def costs(usd: Callable[[date], float], days: int = 28, unit: str = "a", site: str = "west") -> pd.DataFrame:
    on = dates(days)
    return pd.DataFrame({"unit": unit, "site": site, "date": on, "usd": [usd(day) for day in on]})


def booked(days: int = 28, site: str = "west") -> pd.DataFrame:
    return pd.DataFrame({"site": site, "date": dates(days)})


def weekend_dip(on: date) -> float:
    return 10.0 if on.weekday() < 5 else 4.0


def row(days: pd.DataFrame, known: pd.DataFrame, rests: pd.DataFrame = RESTS) -> dict[str, float]:
    """The forecast of the only unit."""
    (found,) = month_end.forecast(days, known, rests, AS_OF).to_dict("records")
    return found


def test_each_day_to_come_costs_the_mean_of_its_weekday() -> None:
    found = row(costs(weekend_dip), booked())
    # 10 + 10 + 4 USD, and 7/24 of a Sunday of 4; nothing ever deviated from its weekday.
    assert found["rest_usd"] == pytest.approx(25 + 1 / 6)
    assert (found["rest_low_usd"], found["rest_high_usd"]) == pytest.approx((25 + 1 / 6, 25 + 1 / 6))
    # Two weeks had 14 days before them, and both came as they were forecast.
    assert (found["history_days"], found["coverage_ratio"], found["coverage_weeks"]) == (28, 1.0, 2)


def test_under_14_days_nothing_is_forecast() -> None:
    few, enough = row(costs(weekend_dip, 13), booked()), row(costs(weekend_dip, 14), booked())
    assert np.isnan([few["rest_usd"], few["rest_low_usd"], few["rest_high_usd"], few["coverage_ratio"]]).all()
    assert (few["history_days"], few["coverage_weeks"]) == (13, 0)
    assert enough["rest_usd"] == pytest.approx(25 + 1 / 6)


def test_a_booked_day_without_a_cost_is_0_and_one_that_is_not_booked_is_unknown() -> None:
    # No Thursday has a cost: the first day to come costs nothing. Where they are not booked, a Thursday is unknown and
    # costs what the six other weekdays do in the mean: (4 × 10 + 2 × 4) / 6 = 8.
    without = costs(weekend_dip)
    without = without[without["date"].map(lambda on: on.weekday() != 3)]
    known = booked()
    assert row(without, known)["rest_usd"] == pytest.approx(15 + 1 / 6)
    found = row(without, known[known["date"].map(lambda on: on.weekday() != 3)])
    assert found["rest_usd"] == pytest.approx(8 + 15 + 1 / 6)
    assert found["history_days"] == 24


def test_a_missing_date_of_the_month_is_forecast_as_its_weekday() -> None:
    gap = pd.DataFrame({"site": ["west"], "date": [date(2026, 10, 24)], "weight": [1.0]})  # a Saturday
    known = booked()
    known = known[known["date"] != date(2026, 10, 24)]
    days = costs(weekend_dip).query("date != @missing", local_dict={"missing": date(2026, 10, 24)})
    assert row(days, known, pd.concat([gap, RESTS]))["rest_usd"] == pytest.approx(29 + 1 / 6)


def test_sites_of_one_unit_are_added_and_the_rest_of_each_is_its_own() -> None:
    days = pd.concat([costs(weekend_dip), costs(lambda on: 1.0, site="east")])
    known = pd.concat([booked(), booked(site="east")])
    rests = pd.concat([RESTS, RESTS.head(2).assign(site="east")])
    assert row(days, known, rests)["rest_usd"] == pytest.approx(27 + 1 / 6)


def test_a_break_and_a_growth_go_on() -> None:
    # From 15 October on 6 USD a day less on weekdays; and 1 USD more every day: 29 + 30 + 31 and 7/24 of 32.
    step = row(costs(lambda on: 10.0 if on < date(2026, 10, 15) else 4.0), booked())
    assert step["rest_usd"] == pytest.approx(4 * (3 + 7 / 24))
    grown = row(costs(lambda on: 28.0 - (AS_OF - on).days), booked())
    assert grown["rest_usd"] == pytest.approx(29 + 30 + 31 + 32 * 7 / 24)
    assert grown["horizon_days"] == 4


def test_the_interval_contains_what_is_expected_and_is_the_same_every_time() -> None:
    turns = costs(lambda on: 110.0 if (AS_OF - on).days // 7 % 2 else 90.0)
    found = row(turns, booked())
    assert found["rest_low_usd"] < found["rest_usd"] < found["rest_high_usd"]
    assert found == row(turns.sample(frac=1, random_state=3), booked())
    twins = pd.concat([turns, turns.assign(unit="b")])
    both = month_end.forecast(twins, booked(), RESTS, AS_OF).drop(columns="unit")
    assert both.iloc[0].to_dict() == both.iloc[1].to_dict() == pytest.approx({key: found[key] for key in both})


def test_the_back_test_is_of_as_many_days_as_are_to_come() -> None:
    """22 days to come: four weeks before the newest date is the first evening whose 22 days are over, and 14 days have
    to be known before it. From 42 days on there is one such evening, from 49 on two."""
    rests = pd.DataFrame({"site": "west", "date": [AS_OF + timedelta(days=n) for n in range(1, 23)], "weight": 1.0})
    tried = [row(costs(weekend_dip, n), booked(n), rests)["coverage_weeks"] for n in (41, 42, 48, 49)]
    assert tried == [0, 1, 1, 2]


@pytest.mark.parametrize(
    ("series", "least", "most"), [(40, 0.75, 0.87), pytest.param(200, 0.77, 0.85, marks=pytest.mark.rest)]
)
@pytest.mark.parametrize(
    ("correlation", "weekly_scatter"), [(0.0, 0.0), (0.5, 0.0), (0.0, 5.0)], ids=["independent", "correlated", "weeks"]
)
def test_four_of_five_held_back_weeks_are_within_the_interval(
    correlation: float, weekly_scatter: float, series: int, least: float, most: float
) -> None:
    """Days that deviate each by itself, days that resemble the day before, and weeks that deviate as a whole: series of
    26 weeks each. Of few series the share varies more: an interval of 75 % or 85 % is still found."""
    chance = np.random.default_rng(15)
    days = 182
    scatter = np.repeat(chance.normal(size=(series, 26)) * weekly_scatter, 7, axis=1).ravel()
    made = pd.DataFrame(
        {
            "unit": np.repeat(np.arange(series), days),
            "site": "west",
            "date": dates(days) * series,
            "usd": 100 + 4 * correlated(chance, (series, days), correlation).ravel() + scatter,
        }
    )
    found = month_end.forecast(made, booked(days), RESTS, AS_OF)
    assert set(found["coverage_weeks"]) == {24}
    assert least <= found["coverage_ratio"].mean() <= most
