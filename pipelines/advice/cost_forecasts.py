"""marts/cost_forecast and marts/budget_monthly: what a month will cost, per site, team and model, beside its budgets.

Add here what carries costs from the marts to a forecast and back. Keep out how a month is carried forward
(`analysis.month_end`) and which costs follow the load: that is SQL (int_advised_cost_days, int_advised_months).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg
import duckdb
import numpy as np
import pandas as pd

from pipelines.advice import advised
from pipelines.analysis import month_end
from pipelines.fleet.fleet_file import Fleet
from pipelines.warehouse import database
from pipelines.warehouse.asset_keys import asset_key
from pipelines.warehouse.computed_tables import write_table

READ = ("budgets", "cost_days", "load_prices", "months")
KEYS = ("scope", "scope_name", "basis")
FORECAST_COMMENT = (
    "One row per billing month in progress, scope (site, team or model), its name and basis of the cost. What the month"
    " will have cost at its end. Contracts, hosting, operations, licences and the demand charge of the peak so far run"
    " on as on the newest date; what follows the load is expected by its level, weekdays, growth and breaks of the last"
    " 56 days, at the prices of the dates to come. [topic: cost]"
)
BUDGET_COMMENT = (
    "One row per billing month and budget of the fleet file. What was spent beside the budget and, of a month in"
    " progress, what it will have cost at its end. A site's cost is all that it pays, a team's or model's is what the"
    " basis gives to it. [topic: cost]"
)
_FEW = " NULL: of fewer than 14 days the cost is known at one of its sites."
_UNPRICED = " NULL: no part of it has a price."
_SCOPE = {
    "scope": ("varchar", "`site`, `team` (of the deployment) or `model`."),
    "scope_name": ("varchar", "Name of the site, team or model."),
    "basis": ("varchar", "Basis of the cost, as in cost_daily."),
}
_FORECAST = {
    "forecast_usd": ("double", "USD at the month's end: spent_usd, and what the rest is expected to cost."),
    "forecast_low_usd": (
        "double",
        "10th percentile of it: of the load to come, and of the error of all the month's meters.",
    ),
    "forecast_high_usd": ("double", "90th percentile of it."),
}
_COMMON = {
    "booked_ratio": (
        "double",
        "Booked hours over hours of the month, of the sites at which it has a cost: what was spent is of these.",
    ),
    "is_cost_complete": ("boolean", "Whether the price of all that was spent was known."),
}
FORECAST_COLUMNS = {
    "as_of_date": ("date", "Newest booked UTC date: the forecast is made on its evening."),
    "billing_month": ("date", "First day of the month, in the time zone of the site."),
    **_SCOPE,
    "spent_usd": ("double", f"USD of the booked hours of the month.{_UNPRICED}"),
    "contract_rest_usd": ("double", f"USD of the rest that are paid whatever runs.{_UNPRICED}"),
    "energy_rest_usd": (
        "double",
        f"USD expected for what follows the load: energy, cooling, overhead, carbon price.{_FEW}",
    ),
    **{name: (kind, comment + _FEW) for name, (kind, comment) in _FORECAST.items()},
    "history_days": ("integer", "Known days of the last 56, of which the forecast is made."),
    "horizon_days": ("integer", "Days from as_of_date to the last date that is to come."),
    "coverage_ratio": (
        "double",
        "Share of coverage_weeks whose actual cost was between the 10th and 90th percentile, each forecast from the 56"
        " days before it for the same days ahead as energy_rest_usd: 0.8 is right. NULL: there is none.",
    ),
    "coverage_weeks": (
        "integer",
        "Evenings of the last 26 weeks, a week apart, from which as many days ahead could be forecast and are over by"
        " now. Those of a long horizon have days in common.",
    ),
    **_COMMON,
}
BUDGET_COLUMNS = {
    "as_of_date": ("date", "As in cost_forecast."),
    "billing_month": ("date", "As in cost_forecast."),
    "budget": ("varchar", "Name of the budget."),
    **_SCOPE,
    "budget_usd": ("double", "USD of the month."),
    "spent_usd": ("double", f"USD of the booked hours of the month; 0 where it has no cost.{_UNPRICED}"),
    "remaining_usd": ("double", "budget_usd less spent_usd; negative once it is exceeded. NULL as spent_usd."),
    "spent_ratio": ("double", "spent_usd / budget_usd. NULL as spent_usd."),
    **{
        name: (kind, f"{comment} Of a month that is over, spent_usd.{_FEW}")
        for name, (kind, comment) in _FORECAST.items()
    },
    "expected_overrun_usd": ("double", "forecast_usd less budget_usd; 0 where the budget holds. NULL as there."),
    "is_in_progress": ("boolean", "Whether hours of the month are not booked yet."),
    **_COMMON,
}


def write_forecasts(connection: duckdb.DuckDBPyConnection) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Replace marts.cost_forecast and marts.budget_monthly; returns their rows."""
    months = advised.read(connection, "months")
    forecasts = _forecasts(connection, months[months["is_in_progress"]])
    write_table(connection, "marts.cost_forecast", FORECAST_COMMENT, FORECAST_COLUMNS, forecasts)
    budgets = _budgets(advised.read(connection, "budgets"), months, forecasts)
    write_table(connection, "marts.budget_monthly", BUDGET_COMMENT, BUDGET_COLUMNS, budgets)
    return forecasts[list(FORECAST_COLUMNS)], budgets[list(BUDGET_COLUMNS)]


def _forecasts(connection: duckdb.DuckDBPyConnection, months: pd.DataFrame) -> pd.DataFrame:
    names = ", ".join(KEYS)
    days = connection.execute(
        f"select {names}, site, date, sum(load_usd) as usd from intermediate.int_advised_cost_days"
        f" where date > (select max(date) from intermediate.int_advised_cost_days) - {7 * month_end.HISTORY_WEEKS}"
        f" group by {names}, site, date order by all"
    ).df()
    booked = connection.execute("select distinct site, date from marts.site_power_hourly order by all").df()
    rests = advised.read(connection, "load_prices").dropna(subset="rest_ratio")
    rests["weight"] = rests["rest_ratio"] * rests["price_ratio"]
    days["unit"] = pd.MultiIndex.from_frame(days[list(KEYS)]).factorize(sort=True)[0]
    units = days[["unit", *KEYS]].drop_duplicates("unit")
    found = [
        month_end.forecast(days, booked, rests[rests["billing_month"] == month], of["as_of_date"].iloc[0])
        .merge(units, on="unit")
        .assign(billing_month=month)
        for month, of in months.groupby("billing_month")
    ]
    if not found:
        return months.reindex(columns=list(FORECAST_COLUMNS))
    rows = months.merge(pd.concat(found), how="left", on=["billing_month", *KEYS])
    rows["energy_rest_usd"] = rows["rest_usd"]
    rows["forecast_usd"] = rows["spent_usd"] + rows["contract_rest_usd"] + rows["rest_usd"]
    meters = month_end.QUANTILE * rows["energy_error_ratio"] * (rows["spent_energy_usd"] + rows["rest_usd"]).abs()
    below, above = rows["rest_usd"] - rows["rest_low_usd"], rows["rest_high_usd"] - rows["rest_usd"]
    rows["forecast_low_usd"] = rows["forecast_usd"] - np.hypot(below, meters)
    rows["forecast_high_usd"] = rows["forecast_usd"] + np.hypot(above, meters)
    return rows


def _budgets(budgets: pd.DataFrame, months: pd.DataFrame, forecasts: pd.DataFrame) -> pd.DataFrame:
    """Each budget of each month, beside what was spent and is expected."""
    keys = ["billing_month", *KEYS]
    ends = list(_FORECAST)
    rows = budgets.merge(months, how="left", on=keys).merge(forecasts[[*keys, *ends]], how="left", on=keys)
    # A budget of what has no cost this month: nothing is spent, and nothing is known of its end. What has a cost and no
    # price has spent an unknown amount.
    rows["as_of_date"] = rows["as_of_date"].fillna(months["as_of_date"].max()) if len(months) else rows["as_of_date"]
    rows["spent_usd"] = rows["spent_usd"].mask(rows["is_in_progress"].isna(), 0.0)
    is_over = rows["is_in_progress"].eq(False)
    for end in ends:
        rows[end] = rows[end].where(~is_over, rows["spent_usd"])
    rows["remaining_usd"] = rows["budget_usd"] - rows["spent_usd"]
    rows["spent_ratio"] = rows["spent_usd"] / rows["budget_usd"]
    rows["expected_overrun_usd"] = (rows["forecast_usd"] - rows["budget_usd"]).clip(lower=0)
    return rows.sort_values(["billing_month", "budget"])


def cost_forecast_assets(fleet: Fleet, manifest: Mapping[str, Any], pool: str) -> dg.AssetsDefinition:
    """marts/cost_forecast and marts/budget_monthly, after the costs that they are made of."""
    read = [asset_key(fleet, *table) for table in advised.tables_read(manifest, READ)]
    descriptions = {
        "cost_forecast": "What the month in progress will have cost at its end, per site, team and model.",
        "budget_monthly": "What was spent of each budget, and whether the month will exceed it.",
    }
    keys = {name: asset_key(fleet, "marts", name) for name in descriptions}

    @dg.multi_asset(
        name="cost_forecasts",
        specs=[
            dg.AssetSpec(
                keys[name], deps=read, description=text, group_name="cost", owners=["team:finance"], kinds={"duckdb"}
            )
            for name, text in descriptions.items()
        ],
        pool=pool,
    )
    def cost_forecasts() -> Iterator[dg.MaterializeResult[None]]:
        with database.writing(fleet.warehouse, "cost_forecasts"), database.connect(fleet.warehouse) as held:
            forecasts, budgets = write_forecasts(held)
        exceeded = budgets.loc[budgets["expected_overrun_usd"] > 0, "budget"]
        yield dg.MaterializeResult(
            asset_key=keys["cost_forecast"],
            metadata={
                "dagster/row_count": len(forecasts),
                "without_history": int(forecasts["forecast_usd"].isna().sum()),
            },
        )
        yield dg.MaterializeResult(
            asset_key=keys["budget_monthly"],
            metadata={"dagster/row_count": len(budgets), "exceeded_at_the_months_end": sorted(set(exceeded))},
        )

    return cost_forecasts
