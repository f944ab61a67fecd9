"""The rest of a month, from daily costs that were worked out by hand. 28 October 2026 is a Wednesday."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta

import numpy as np
import pandas as pd
import pytest

from pipelines.analysis import month_end

AS_OF = date(2026, 10, 28)
# Thursday to Saturday, and the first 7 hours of Sunday: a month of Los Angeles.
RESTS = pd.DataFrame(
    {
        "site": "west",
        "date": [AS_OF + timedelta(days=n) for n in (1, 2, 3, 4)],
        "rest_ratio": [1.0, 1.0, 1.0, 7 / 24],
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
    # Thursdays, from the newest: 22 October without a cost, then 10, 10 and, on the first, 10 USD.
    without = costs(weekend_dip).query("date != @missing", local_dict={"missing": date(2026, 10, 22)})
    known = booked()
    assert row(without, known)["rest_usd"] == pytest.approx(25 + 1 / 6 - 2.5)
    unknown = known[known["date"] != date(2026, 10, 22)]
    found = row(without, unknown)
    assert found["rest_usd"] == pytest.approx(25 + 1 / 6)
    assert found["history_days"] == 27


def test_a_missing_date_of_the_month_is_forecast_as_its_weekday() -> None:
    gap = pd.DataFrame({"site": ["west"], "date": [date(2026, 10, 24)], "rest_ratio": [1.0]})  # a Saturday
    known = booked()
    known = known[known["date"] != date(2026, 10, 24)]
    days = costs(weekend_dip).query("date != @missing", local_dict={"missing": date(2026, 10, 24)})
    assert row(days, known, pd.concat([gap, RESTS]))["rest_usd"] == pytest.approx(29 + 1 / 6)


def test_sites_of_one_unit_are_added_and_the_rest_of_each_is_its_own() -> None:
    days = pd.concat([costs(weekend_dip), costs(lambda on: 1.0, site="east")])
    known = pd.concat([booked(), booked(site="east")])
    rests = pd.concat([RESTS, RESTS.head(2).assign(site="east")])
    assert row(days, known, rests)["rest_usd"] == pytest.approx(27 + 1 / 6)


def test_the_interval_widens_with_the_weeks_scatter_and_is_the_same_every_time() -> None:
    # Whole weeks of 90 and 110 USD a day in turns: 100 is the mean, 327 USD the expectation of the 3.29 days.
    turns = costs(lambda on: 110.0 if (AS_OF - on).days // 7 % 2 else 90.0)
    found = row(turns, booked())
    assert found["rest_usd"] == pytest.approx(100 * (3 + 7 / 24))
    assert found["rest_low_usd"] < 90 * (3 + 7 / 24)
    assert found["rest_high_usd"] > 110 * (3 + 7 / 24)
    assert found == row(turns.sample(frac=1, random_state=3), booked())
    twins = pd.concat([turns, turns.assign(unit="b")])
    both = month_end.forecast(twins, booked(), RESTS, AS_OF).drop(columns="unit")
    assert both.iloc[0].to_dict() == both.iloc[1].to_dict() == {key: found[key] for key in both}


@pytest.mark.parametrize("weekly_scatter", [0.0, 5.0])
def test_four_of_five_held_back_weeks_are_within_the_interval(weekly_scatter: float) -> None:
    """Days that deviate each by itself, and weeks that deviate as a whole: 200 series of 26 weeks each."""
    chance = np.random.default_rng(15)
    units, days = 200, 182
    scatter = np.repeat(chance.normal(size=(units, 26)) * weekly_scatter, 7, axis=1).ravel()
    made = pd.DataFrame(
        {
            "unit": np.repeat(np.arange(units), days),
            "site": "west",
            "date": dates(days) * units,
            "usd": 100 + chance.normal(size=units * days) * 4 + scatter,
        }
    )
    found = month_end.forecast(made, booked(days), RESTS, AS_OF)
    assert set(found["coverage_weeks"]) == {24}
    assert 0.77 <= found["coverage_ratio"].mean() <= 0.85
