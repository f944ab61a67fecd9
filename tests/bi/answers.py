"""What each chart and panel should return, in SQL that the tests wrote for the snapshot: title -> query.

First come the names that a chart groups by, then its figures. `{dates}` is the date filter. Add a row with each new
chart. Keep out SQL that is copied from the dashboards: these queries take another way where there is one.
"""

from __future__ import annotations

JOULES = "marts.model_daily where meter_scope = 'board' and {dates}"
PER_MTOK = "1e6 * sum(cost_usd) filter (basis = '{0}') / nullif(sum(tokens) filter (basis = '{0}'), 0)"


def per_mtok(basis: str) -> str:
    """USD per million tokens of a basis."""
    return PER_MTOK.format(basis)


OPERATOR = {
    "Joules per output token, J/token (board meters)": (
        "select sum(matched_joules) / sum(matched_output_tokens) from marts.model_intervals"
        " where meter_scope = 'board' and {dates}"
    ),
    "Idle energy, % of joules (board meters)": (
        "select 1 - sum(productive_joules) / sum(energy_joules - unknown_joules) from " + JOULES
    ),
    "Covered time, % of claimed GPU-seconds": (
        "select sum(least(gpu_seconds, claimed_gpu_seconds)) / sum(claimed_gpu_seconds)"
        " from marts.fleet_daily where {dates}"
    ),
    "Unknown energy, % of joules (board meters)": (
        "select sum(unknown_joules) / sum(energy_joules) from marts.energy_ledger"
        " where meter_scope = 'board' and {dates}"
    ),
    "Free accelerators now, count": "select sum(gpus_now) from marts.free_boards",
    "Held-back dates, count": "select count(distinct date) from marts.held_back_dates where {dates}",
    "J per output token by date and model, log scale (board meters)": (
        f"select date, model, joules_per_output_token from {JOULES} and matched_output_tokens > 0"
    ),
    "Energy by date and account, kWh (board meters)": (
        "select date, sum(productive_joules) / 3.6e6, sum(idle_floor_joules) / 3.6e6, sum(parked_joules) / 3.6e6,"
        " sum(asleep_joules) / 3.6e6, sum(unallocated_joules) / 3.6e6, sum(unknown_joules) / 3.6e6"
        " from marts.energy_ledger where meter_scope = 'board' and {dates} group by date"
    ),
    "Models: energy in kWh, J/token, idle in % (board meters)": (
        "select model, sum(energy_joules) / 3.6e6, sum(output_tokens) / 1e6,"
        " sum(matched_joules) / nullif(sum(matched_output_tokens), 0),"
        " sum(matched_joules) / nullif(sum(matched_total_tokens), 0),"
        " sum(idle_joules) / sum(energy_joules - unknown_joules),"
        f" sum(known_seconds - active_seconds) / sum(known_seconds) from {JOULES} group by model"
    ),
    "Idle energy by model and account, kWh (facility: hosts, x PUE)": (
        "select if(length(model) > 40, substr(model, 1, 30) || '… ' || substr(md5(model), 1, 6), model) as model_short,"
        " account, sum(idle_facility_kwh) from marts.idle_power where {dates} group by all"
    ),
    "Covered time and unknown energy by date, % (board meters)": (
        "select date, coverage_ratio, unknown_joules / energy_joules from marts.fleet_daily"
        " where meter_scope = 'board' and {dates}"
    ),
    "Free accelerators: cost and what would fit, USD per month (730 h)": (
        "select site, device_type, is_spare, gpus_now, cost_usd_month, fitting_model, fitting_engines,"
        " saving_usd_month_if_released from marts.free_boards where gpus_now > 0"
    ),
    "Alarms: meters whose two sources differ by more than 5 % of the joules": (
        "select date, site, meter, source, cross_check_source, cross_check_ratio, metered_joules"
        " from marts.reconciliation_daily where (cross_check_ratio > 0.05 or cross_check_ratio < -0.05) and {dates}"
    ),
    "Held-back dates: what fails, and what to do": (
        "select date, table_name, invariant, found, unit, expected, remedy from marts.held_back_dates where {dates}"
    ),
}
FINANCE = {
    "Full cost, USD (all parts)": "select sum(cost_usd) from marts.cost_daily where basis = 'fully_loaded' and {dates}",
    "Full cost, USD per million tokens (input and output)": (
        # Of the models, which on this basis carry the whole cost of the fleet.
        "select 1e6 * (select sum(cost_usd) from marts.cost_daily where basis = 'fully_loaded' and {dates})"
        " / (select sum(total_tokens) from marts.model_daily where {dates})"
    ),
    "Full cost, USD per million output tokens": (
        "select 1e6 * (select sum(cost_usd) from marts.cost_daily where basis = 'fully_loaded' and {dates})"
        " / (select sum(output_tokens) from marts.model_daily where {dates})"
    ),
    "Idle accelerators, USD (energy and capacity)": (
        "select sum(idle_energy_cost_usd + idle_capacity_cost_usd) from marts.idle_power where {dates}"
    ),
    "Idle accelerators, % of energy and capacity cost": (
        "select sum(idle_compute_cost_usd) / sum(compute_cost_usd) from marts.model_daily where {dates}"
    ),
    "Dates with an unknown cost, count": (
        "select count(distinct date) from marts.cost_daily where not is_cost_complete and {dates}"
    ),
    "Full cost, USD per million output tokens by date and model, log scale": (
        "select date, model, 1e6 * sum(cost_usd) / sum(tokens) filter (token_class = 'output')"
        " from marts.token_class_cost_daily where basis = 'fully_loaded' and {dates}"
        " group by all having sum(tokens) > 0"
    ),
    "Full cost by date and part, USD": (
        "select date, part, sum(cost_usd) from marts.cost_daily where basis = 'fully_loaded' and {dates} group by all"
    ),
    "Cost by basis and part, USD (each bar is the whole cost)": (
        r"select basis, if(deployment like '\_\_%' escape '\', 'paid by no model', part) as paid_for, sum(cost_usd)"
        " from marts.cost_daily where {dates} group by all"
    ),
    "Models: full cost, and USD per million tokens on each basis": (
        "select model, sum(cost_usd) filter (basis = 'fully_loaded'), sum(tokens) filter (basis = 'usage') / 1e6,"
        f" {per_mtok('marginal')}, {per_mtok('usage')}, {per_mtok('allocation')}, {per_mtok('fully_loaded')}"
        " from marts.token_class_cost_daily where {dates} group by model"
    ),
    "Who pays: teams and tenants, full cost in USD": (
        "select coalesce(request_team, team, 'No team'), tenant, sum(fully_loaded_cost_usd),"
        " (sum(input_tokens) + sum(output_tokens)) / 1e6,"
        " 1e6 * sum(fully_loaded_cost_usd) / (sum(input_tokens) + sum(output_tokens))"
        " from marts.tenant_daily where {dates} group by all"
    ),
    "Unusual costs by date, USD (full cost)": (
        "select date, scope, model, part, cost_usd, usual_usd, difference_usd from marts.cost_anomalies_daily"
        " where is_anomaly and {dates}"
    ),
    "Budgets by billing month, USD": (
        "select billing_month, budget, basis, budget_usd, spent_usd, forecast_usd, forecast_low_usd, forecast_high_usd,"
        " expected_overrun_usd from marts.budget_monthly"
    ),
    "Forecast of the month in progress, USD": (
        "select billing_month, scope, scope_name, basis, spent_usd, forecast_usd, forecast_low_usd, forecast_high_usd"
        " from marts.cost_forecast"
    ),
    "Bills against the book by month, USD": (
        "select billing_month, site, kind, billed_usd, computed_cost_usd, difference_usd, is_booked_whole"
        " from marts.cost_reconciliation_monthly"
    ),
}
SUSTAINABILITY = {
    "Scope 2 by location, kg CO2e": (
        "select sum(scope2_location_gco2e) / 1000 from marts.site_footprint_daily where {dates}"
    ),
    "Scope 2 by market, kg CO2e": (
        "select sum(scope2_market_gco2e) / 1000 from marts.site_footprint_daily where {dates}"
    ),
    "By location, g CO2e per million output tokens": (
        "select 1e6 * sum(matched_location_gco2e) / sum(carbon_known_output_tokens) from marts.fleet_daily"
        " where {dates}"
    ),
    "SCI, g CO2e per million tokens (with manufacture)": (
        "select 1e6 * sum(scope2_location_gco2e + scope3_embodied_gco2e) / sum(total_tokens)"
        " from marts.sci_daily where {dates}"
    ),
    "Facility energy, kWh (hosts, x PUE)": "select sum(facility_energy_kwh) from marts.fleet_daily where {dates}",
    "Energy with a grid factor of its own hour, %": (
        "select sum(hourly_carbon_kwh) / sum(facility_energy_kwh) from marts.fleet_daily where {dates}"
    ),
    "Scope 2 by date, kg CO2e: location and market, never added": (
        "select date, scope2_location_gco2e / 1000, scope2_market_gco2e / 1000 from marts.site_footprint_daily"
        " where {dates}"
    ),
    "By location, g CO2e per million output tokens by date and model, log scale": (
        "select date, model, location_gco2e_per_output_mtok from marts.model_daily"
        " where carbon_known_output_tokens > 0 and {dates}"
    ),
    "Grid intensity by hour and site, g CO2e per kWh (location)": (
        "select hour_start_at, site, location_gco2e_per_kwh from marts.site_carbon_hourly where {dates}"
    ),
    "Scope 2 by hour, kg CO2e: location and market, never added": (
        "select hour_start_at, sum(scope2_location_gco2e) / 1000, sum(scope2_market_gco2e) / 1000"
        " from marts.site_scope2_hourly where {dates} group by all"
    ),
    "By hour of the day (UTC), kg CO2e: location and market": (
        "select hour(hour_start_at), sum(scope2_location_gco2e) / 1000, sum(scope2_market_gco2e) / 1000"
        " from marts.site_scope2_hourly where {dates} group by all"
    ),
    "By hour of the day (UTC), g CO2e per kWh used (location)": (
        "select hour(hour_start_at), sum(location_gco2e) / sum(facility_energy_kwh) from marts.model_hourly"
        " where {dates} group by all"
    ),
    "Models: facility energy in kWh, CO2e in kg and g per million tokens": (
        "select model, sum(facility_energy_kwh), sum(location_gco2e) / 1000, sum(embodied_gco2e) / 1000,"
        " 1e6 * sum(matched_location_gco2e) / nullif(sum(carbon_known_output_tokens), 0)"
        " from marts.model_daily where {dates} group by model"
    ),
    "Sites: facility energy in kWh, CO2e in kg, PUE, WUE, REF": (
        "select site, sum(facility_energy_kwh), sum(scope2_location_gco2e) / 1000, sum(scope2_market_gco2e) / 1000,"
        " sum(scope3_embodied_gco2e) / 1000, sum(facility_energy_kwh) / sum(it_energy_kwh),"
        " sum(site_water_litres) / sum(it_energy_kwh), sum(renewable_matched_kwh) / sum(facility_energy_kwh)"
        " from marts.site_footprint_daily where {dates} group by site"
    ),
}
ANSWERS = {**OPERATOR, **FINANCE, **SUSTAINABILITY}
BOARDS = {"operator": OPERATOR, "finance": FINANCE, "sustainability": SUSTAINABILITY}
