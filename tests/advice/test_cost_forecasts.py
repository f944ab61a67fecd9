"""Budgets of a month beside what was spent: an unknown amount where there is no price, none where nothing ran.

Add here what becomes of a forecast's rows. Keep out how the rest of a month is carried forward (`test_month_end`).
"""

from __future__ import annotations

from datetime import date

import pandas as pd

from pipelines.advice import cost_forecasts

MONTH = date(2026, 11, 1)
KEY = {"billing_month": MONTH, "scope": "model", "basis": "allocation"}


def test_a_budget_of_what_has_no_price_has_spent_an_unknown_amount() -> None:
    """Of 100 USD each: gpt spent 40 and is over; bare ran without a price; ghost did not run, so it spent nothing."""
    names = ("bare", "ghost", "gpt")
    budgets = pd.DataFrame([{**KEY, "scope_name": name, "budget": name, "budget_usd": 100.0} for name in names])
    ran = {**KEY, "as_of_date": MONTH, "booked_ratio": 1.0, "is_in_progress": False}
    months = pd.DataFrame(
        [
            {**ran, "scope_name": "gpt", "spent_usd": 40.0, "is_cost_complete": True},
            {**ran, "scope_name": "bare", "spent_usd": None, "is_cost_complete": False},
        ]
    )
    forecasts = pd.DataFrame(columns=["billing_month", *cost_forecasts.KEYS, *cost_forecasts._FORECAST], dtype=float)
    found = cost_forecasts._budgets(budgets, months, forecasts.astype({"billing_month": object}).astype(object))
    amounts = ["spent_usd", "remaining_usd", "forecast_usd", "expected_overrun_usd"]
    rows = found.set_index("budget")[amounts].astype(float)
    assert rows.loc["gpt"].tolist() == [40.0, 60.0, 40.0, 0.0]
    assert rows.loc["bare"].isna().all()
    assert rows.loc["ghost", ["spent_usd", "remaining_usd"]].tolist() == [0.0, 100.0]
    assert rows.loc["ghost", ["forecast_usd", "expected_overrun_usd"]].isna().all()
