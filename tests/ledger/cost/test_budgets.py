"""Budgets and the month's end, at a site in Los Angeles from 15 October to 3 November 2026, UTC.

One A100 draws 360 W all the time, a second one 180 W from 25 October on: 0.432 and 0.216 kW at the facility's meter,
0.10 USD per kWh. A board costs 2 USD an hour, from 21 November on 3; November has 721 hours, of which 65 are booked,
and costs 1,000 USD for operations, 200 for hosting and 6.48 as a demand charge.

A third one, at the site south in UTC, draws 360 W: 8.64 kWh a day at 0.1, from 29 October on 0.2 and
from 14 November on 0.4 USD.
"""

from __future__ import annotations

import math
from datetime import date, timedelta
from decimal import Decimal

import pytest

from tests.books import Book
from tests.planted import ENERGY, HOURS, OUTPUT, board, moment, plant, pod, vllm

DAYS, LATE = 20, 10
BUDGETS = [
    {"budget": "west", "site": "west", "usd_per_month": 4000},
    {"budget": "llm", "team": "platform", "usd_per_month": 10},
    {
        "budget": "llm",
        "team": "platform",
        "usd_per_month": 5000,
        "basis": "fully_loaded",
        "valid_from": "2026-11-01",
    },
    {"budget": "ghost", "model": "ghost", "usd_per_month": 10},
    {"budget": "ended", "site": "west", "usd_per_month": 1, "valid_to": "2026-11-01"},
]
NOVEMBER = "billing_month = date '2026-11-01'"


def hourly(per_hour: float, first: int) -> list[tuple[float, float]]:
    """A counter from the day `first` on, read every hour."""
    hours = range(first * 24, DAYS * 24 + 1)
    return [(moment(hour * HOURS), 1e9 + per_hour * (hour - first * 24)) for hour in hours]


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    made = plant(
        tmp_path_factory.mktemp("budgets"),
        [
            (ENERGY, board("GPU-a", "n-a", **pod("a-0")), hourly(360_000 * 3600, 0)),
            (ENERGY, board("GPU-b", "n-b", **pod("b-0")), hourly(180_000 * 3600, LATE)),
            (ENERGY, board("GPU-c", "n-c", **pod("c-0", "south")), hourly(360_000 * 3600, 0)),
            (OUTPUT, vllm("a-0", "steady"), hourly(3_600, 0)),
            (OUTPUT, vllm("b-0", "late"), hourly(7_200, LATE)),
        ],
        days=DAYS,
        sites=[
            {
                "name": "west",
                "zone": "unknown",
                "time_zone": "America/Los_Angeles",
                "pue": 1.2,
                "tariff": [{"usd_per_kwh": 0.1}],
                "operations": [{"usd_per_month": 1_000.0}],
                "hosting": [{"usd_per_kw_month": 10.0, "provisioned_kw": 20.0}],
                "demand_charges": [{"usd_per_kw_month": 10.0}],
            },
            {
                "name": "south",
                "zone": "unknown",
                "time_zone": "UTC",
                "pue": 1.0,
                "tariff": [
                    {"usd_per_kwh": 0.1, "valid_to": "2026-10-29"},
                    {"usd_per_kwh": 0.2, "valid_from": "2026-10-29", "valid_to": "2026-11-14"},
                    {"usd_per_kwh": 0.4, "valid_from": "2026-11-14"},
                ],
            },
        ],
        nodes=[
            {"name": f"n-{name}", "site": site, "host_watts": 0}
            for name, site in {"a": "west", "b": "west", "c": "south"}.items()
        ],
        cost_rates=[
            {"device_type": "a100-sxm4-80gb", "usd_per_gpu_hour": usd, "valid_from": since, "source": "contract"}
            for since, usd in (("2026-01-01", 2.0), ("2026-11-21", 3.0))
        ],
        teams={"llm": "platform"},
        models=[{"name": "ghost"}],
        budgets=[{**budget, "valid_from": budget.get("valid_from", "2026-10-01")} for budget in BUDGETS],
    )
    made.run()
    return made


def test_contracts_run_on_and_energy_costs_what_it_has_since_a_break(book: Book) -> None:
    (found,) = book.query(
        "select billing_month, spent_usd, contract_rest_usd, energy_rest_usd, forecast_usd, forecast_low_usd,"
        " forecast_high_usd, history_days, coverage_ratio, coverage_weeks, booked_ratio, is_cost_complete"
        " from marts.cost_forecast where scope_name = 'west' and basis = 'fully_loaded'"
    )
    spent = 65 * (1_200 / 721 + 4 + 6.48 / 721 + 0.0648)
    contracts = 656 * (1_200 / 721 + 4 + 6.48 / 721) + 240 * 2
    # A day costs 1.0368 USD before 25 October and 1.5552 since then, weekends too: it goes on as since the break. To
    # come are 27 dates and 8 hours of 1 December.
    energy = (27 + 8 / 24) * 1.5552
    assert energy == pytest.approx(42.5088)
    assert found[0] == date(2026, 11, 1)
    assert found[1:5] == pytest.approx((spent, contracts, energy, 4617.2008), abs=1e-5)
    # The boards' meters and the PUE err by 5 % at most each, in 80 of 100 cases by 1.28155 of the standard uncertainty:
    # of what all of the month's energy costs, 65 hours at 0.0648 USD and the rest.
    error = 1.28155 * math.sqrt((0.05**2 + 0.05**2) / 3) * (65 * 0.0648 + 42.5088)
    assert found[5:7] == pytest.approx((4617.2008 - error, 4617.2008 + error), abs=1e-3)
    # No evening of these 20 days has both 14 days before it and 28 after it.
    assert found[7:] == (20, None, 0, pytest.approx(65 / 721), True)


def test_energy_to_come_costs_what_the_tariff_is_on_its_dates(book: Book) -> None:
    """Of November three dates are booked, 10 more cost 1.728 USD each, and 17 cost 3.456; a board costs 2 USD an hour,
    on the last ten days 3."""
    assert book.query(
        "select round(spent_usd, 6), round(energy_rest_usd, 6), round(forecast_usd, 6), history_days"
        " from marts.cost_forecast where scope_name = 'south' and basis = 'allocation'"
    ) == [(5.184 + 144, 76.032, 5.184 + 720 * 2 + 240 + 76.032, 20)]


def test_a_budget_has_what_was_spent_and_by_how_much_the_month_will_exceed_it(book: Book) -> None:
    found = book.query(
        "select budget, scope, scope_name, basis, budget_usd, round(remaining_usd + spent_usd, 6),"
        " round(expected_overrun_usd, 4), is_in_progress"
        f" from marts.budget_monthly where {NOVEMBER} order by budget"
    )
    assert found == [
        ("ghost", "model", "ghost", "fully_loaded", 10.0, 10.0, None, None),
        # All of the site's cost is carried by the team's models.
        ("llm", "team", "platform", "fully_loaded", 5000.0, 5000.0, 0.0, True),
        ("west", "site", "west", "fully_loaded", 4000.0, 4000.0, 617.2008, True),
    ]
    assert book.query(
        "select budget, budget_usd, forecast_usd = spent_usd, is_in_progress from marts.budget_monthly"
        " where billing_month = '2026-10-01' and budget <> 'ghost' order by budget"
    ) == [("ended", 1.0, True, False), ("llm", 10.0, True, False), ("west", 4000.0, True, False)]


@pytest.mark.parametrize(("compared_with", "days"), [("day_before", 1), ("week_before", 7)])
def test_the_effects_of_a_date_add_up_to_the_change_of_the_fleet_to_the_last_digit(
    book: Book, compared_with: str, days: int
) -> None:
    costs = dict(book.query("select date, sum(cost_usd) from marts.cost_daily where basis = 'allocation' group by 1"))
    changes = book.query(
        "select date, sum(change_usd),"
        " sum(price_effect_usd + efficiency_effect_usd + volume_effect_usd + idle_effect_usd)"
        f" from marts.cost_change_daily where compared_with = '{compared_with}' group by date order by date"
    )
    before = timedelta(days=days)
    expected = [(on, costs[on] - costs[on - before]) for on in sorted(costs) if on - before in costs]
    assert [(on, change) for on, change, _ in changes] == expected
    assert [(on, effects) for on, _, effects in changes] == expected
    assert len(expected) == DAYS - days
    assert all(isinstance(change, Decimal) for _, change in expected)


def test_a_model_that_starts_is_volume_and_no_anomaly_but_what_moved_the_fleet(book: Book) -> None:
    on = f"date '{date(2026, 10, 15) + timedelta(days=LATE)}'"
    late = book.query(
        "select sum(change_usd) > 48, sum(volume_effect_usd - change_usd), sum(price_effect_usd),"
        " sum(efficiency_effect_usd), sum(idle_effect_usd) from marts.cost_change_daily"
        f" where compared_with = 'day_before' and model = 'late' and date = {on}"
    )
    assert late == [(True, 0, 0, 0, 0)]
    # Operations and hosting are shared with it: steady pays less for the same work.
    steady = book.query(
        "select round(sum(change_usd), 6) = round(sum(price_effect_usd), 6), sum(price_effect_usd) < -10"
        " from marts.cost_change_daily where compared_with = 'day_before' and model = 'steady'"
        f" and part in ('operations', 'hosting') and date = {on}"
    )
    assert steady == [(True, True)]
    # 14 dates to compare with are there from 29 October on. Eight of them were 24 USD from the median of their weekday,
    # which was seen once without and once with the new model: 48 USD more are within 3.5 spreads of 1.4826 × 24 × √2.
    found = book.query(
        "select date, is_anomaly, moved_model, moved_part from marts.cost_anomalies_daily where scope = 'fleet'"
        f" and date in ({on}, date '2026-10-29')"
    )
    assert sorted(found) == [
        (date(2026, 10, 25), None, "late", "capacity"),
        (date(2026, 10, 29), False, "late", "capacity"),
    ]
    assert book.query("select count(*) from marts.cost_anomalies_daily where model = 'late' and is_anomaly") == [(0,)]


def test_a_date_that_is_booked_again_changes_nothing(book: Book) -> None:
    def tables() -> list[list[tuple]]:
        names = ("cost_change_daily", "cost_anomalies_daily", "cost_forecast", "budget_monthly")
        return [book.query(f"from marts.{name} order by all") for name in names]

    first = tables()
    book.write(date(2026, 10, 20), date(2026, 10, 21))
    assert tables() == first
