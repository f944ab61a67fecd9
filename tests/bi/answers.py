"""What each chart and panel should return, in SQL that the tests wrote for the snapshot: title -> query.

First come the names that a chart groups by, then its figures. `{dates}` is the date filter, `{months}` that of the
month. Add a row with each new chart. Keep out SQL that is copied from the dashboards: these queries take another way
where there is one.
"""

from __future__ import annotations

from pipelines.named_figures.dictionary import HeadlineFigure

JOULES = "marts.model_daily where meter_scope = 'board' and {dates}"
STEPS = ("calendar", "coverage", "price", "volume", "efficiency", "idle", "new", "gone", "adjustments")
MONTH = "strftime(month, '%Y-%m')"
MONTH_COSTS = "(select *, billing_month as month from marts.cost_daily where basis = 'fully_loaded')"
# One reason at most is planted; a row with neither joules nor tokens was not assessed.
IN_DOUBT = (
    "if(bool_or(doubt_reasons is not null), coalesce(replace(max(nullif(doubt_reasons, '')), ',', ', '), 'none'), null)"
)

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
        f" sum(known_seconds - active_seconds) / sum(known_seconds), {IN_DOUBT} from {JOULES} group by model"
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
    "What may be tried: size or limit, and for how many days (no saving is counted yet)": (
        "select site, deployment, current_replicas, current_gpus_per_replica, trial_replicas, trial_gpus_per_replica,"
        " trial_precision, current_power_limit_watts, trial_power_limit_watts, trial_days, reason_code, move_to_node"
        " from published.right_sizing where kind = 'try_it' and is_preferred"
    ),
    "What is in doubt: why, how much, and what to do": (
        "select date, reason, entity, figure, direction,"
        " case figure when 'energy' then doubted_joules when 'money' then doubted_usd"
        " else ifnull(doubted_tokens, unbooked_tokens) end,"
        " case figure when 'energy' then 'J' when 'money' then 'USD'"
        " else concat('tokens', if(doubted_tokens is null, ', not booked', '')) end,"
        " evidence, remedy from marts.doubts where {dates}"
    ),
    "Held-back dates: what fails, and what to do": (
        "select date, table_name, invariant, found, unit, expected, remedy from marts.held_back_dates where {dates}"
    ),
}
FINANCE = {
    "Cost, as charged, USD": "select sum(closed_cost_usd) from finance.months where {months}",
    "Cost at the end of the month, USD": (
        "select sum(forecast_usd) from (select *, billing_month as month from marts.cost_forecast)"
        " where scope = 'site' and basis = 'allocation' and {months}"
    ),
    "Cost, as known now, USD": f"select sum(cost_usd) from {MONTH_COSTS} where {{months}}",
    "Idle cost, USD": f"select sum(idle_cost_usd) from {MONTH_COSTS} where {{months}}",
    "Idle share of the cost, %": "select sum(idle_cost_usd) / sum(known_cost_usd) from finance.months where {months}",
    "USD per million output tokens, all parts": (
        "select 1e6 * sum(usd) / sum(tokens) from (select sum(known_cost_usd) as usd, sum(tokens) filter"
        " (token_kind = 'output') as tokens from finance.unit_cost where {months} group by month, model)"
        " where tokens > 0"
    ),
    "Months: booked share in %, cost in USD (all months)": (
        f"select {MONTH}, site, status, booked_hours / month_hours, closed_cost_usd, adjustment_usd,"
        " known_cost_usd, idle_cost_usd, forecast_usd, is_cost_complete,"
        " ifnull(nullif(replace(doubt_reasons, ',', ', '), ''), if(doubt_reasons is null, null, 'none'))"
        " from finance.months"
    ),
    "Cost by part, USD": (
        # No month is closed, so what is charged is what is known.
        f"select part, sum(cost_usd), sum(cost_usd), sum(idle_cost_usd), sum(billed_cost_usd) from {MONTH_COSTS}"
        " where {months} group by part"
    ),
    "Cost by date and part, as known now, USD": (
        f"select date, part, sum(cost_usd) from {MONTH_COSTS} where {{months}} and {{dates}} group by all"
    ),
    "Teams and models: cost in USD, idle share in %": (
        "select team, model, sum(closed_cost_usd), sum(known_cost_usd), sum(allocation_cost_usd), sum(usage_cost_usd),"
        " sum(idle_cost_usd), sum(idle_cost_usd) / nullif(sum(known_cost_usd), 0)"
        " from finance.cost where {months} group by team, model"
    ),
    "Who pays: payers and tenants, USD": (
        "select payer, tenant, sum(closed_cost_usd), sum(known_cost_usd), sum(output_tokens) / 1e6,"
        " 1e6 * sum(known_cost_usd) filter (output_tokens > 0) / nullif(sum(output_tokens), 0),"
        f" {IN_DOUBT} from finance.chargeback where {{months}} group by all"
    ),
    "What changed against the month before, by part, USD": (
        "select strftime(compared_month, '%Y-%m'), part,"
        f" {', '.join(f'sum({step}_usd)' for step in ('before', *STEPS, 'after'))}"
        " from finance.bridge where {months} group by all"
    ),
    "Kinds of tokens: cost in USD, USD per million, list price": (
        "select model, token_kind, sum(known_cost_usd), sum(tokens) / 1e6, 1e6 * sum(known_cost_usd) / sum(tokens),"
        " 1e6 * sum(list_cost_usd) / sum(tokens) filter (list_cost_usd is not null),"
        f" {IN_DOUBT} from finance.unit_cost where {{months}} group by all"
    ),
    "Budgets of the month, USD": (
        f"select {MONTH}, budget, scope, scope_name, basis, budget_usd, spent_usd, spent_usd / budget_usd,"
        " forecast_usd, forecast_low_usd, forecast_high_usd, expected_overrun_usd"
        " from (select *, billing_month as month from marts.budget_monthly) where {months}"
    ),
    "Invoices against the book, USD": (
        f"select {MONTH}, site, kind, billed_usd, computed_cost_usd, difference_usd,"
        " difference_usd / computed_cost_usd, billed_hours, booked_hours, is_booked_whole"
        " from (select *, billing_month as month from marts.cost_reconciliation_monthly) where {months}"
    ),
    "Commitments: utilisation and coverage in %, USD": (
        f"select {MONTH}, site, device_type, committed_gpu_hours, used_gpu_hours,"
        " used_gpu_hours / committed_gpu_hours, coverage_ratio, committed_cost_usd, unused_cost_usd"
        " from finance.commitments where {months}"
    ),
    "What to save, USD per month of 730 hours (as of the newest date)": (
        "select site, deployment, advice, freed_accelerators, accelerator_saving_usd_per_month,"
        " energy_saving_usd_per_month, saving_kwh_per_month, saving_kgco2e_per_month, confidence, reason, as_of_date"
        " from finance.savings"
    ),
    "Unusual costs by date, USD (without a share of free accelerators)": (
        "select date, scope, model, part, cost_usd, usual_usd, difference_usd"
        " from (select *, date_trunc('month', date)::date as month from marts.cost_anomalies_daily)"
        " where is_anomaly and {months}"
    ),
    "What was restated, in the unit of the figure (all months)": (
        f"select {MONTH}, figure, unit, reason, count(distinct date), sum(before), sum(after), sum(change)"
        " from published.restated_figures group by all"
    ),
}
# They have rows of every month, whatever month is chosen.
OF_ALL_MONTHS = {title for title in FINANCE if "{months}" not in FINANCE[title]}
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
        f" 1e6 * sum(matched_location_gco2e) / nullif(sum(carbon_known_output_tokens), 0), {IN_DOUBT}"
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


def headed(figure: HeadlineFigure) -> str:
    """What a chart, a column or a metric that shows a headline figure is called: its title, with the unit."""
    units = {"USD": ", USD", "ratio": ", %", "USD per million tokens": ""}  # which the title has
    return figure.title + units.get(figure.unit, f", {figure.unit}")
