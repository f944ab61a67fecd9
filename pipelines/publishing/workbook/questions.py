"""The questions of the workbook: for each a sheet, a query on the published tables, and columns with their units.

Add here a question that readers ask again and again, with its page in docs/. Keep out formulas of energy and money: a
query adds columns of the marts, and a ratio is one sum over another.
"""

from __future__ import annotations

from pipelines.publishing.workbook.columns import Column, Question, percent, ratio, summed, text

_TOKENS = (
    summed("kWh at the facility", 3),
    summed("CO2e by location (kg)", 3),
    summed("compute cost (USD)"),
    summed("output tokens (million)", 3),
    summed("joules with tokens known (J)", 0, is_scoped=True),
    summed("output tokens with joules known", 0, is_scoped=True),
    summed("all tokens with joules known", 0, is_scoped=True),
    summed("cost of priced tokens (USD)"),
    summed("priced output tokens (million)", 3),
)
_SUMS = """
    sum(facility_energy_kwh), sum(location_gco2e) / 1000, sum(compute_cost_usd), sum(output_tokens) / 1e6,
    sum(matched_joules), sum(matched_output_tokens), sum(matched_total_tokens),
    sum(matched_compute_cost_usd), sum(priced_output_tokens) / 1e6
"""


def _token_ratios(first: int) -> tuple[Column, ...]:
    """The headline's ratios of the columns _TOKENS, of which the first is at `first`."""
    return (
        ratio("J per output token", first + 4, first + 5, 4),
        ratio("J per token", first + 4, first + 6, 4),
        ratio("USD per million output tokens", first + 7, first + 8),
    )


# Amounts of a month: what each column of schema finance adds up to is in docs/finance.md.
_AMOUNTS = (
    summed("charged (USD)"),
    summed("of it adjustments (USD)"),
    summed("known now (USD)"),
    summed("of it idle (USD)"),
)
_AMOUNT_SUMS = "sum(closed_cost_usd), sum(adjustment_usd), sum(known_cost_usd), sum(idle_cost_usd)"

# The month, of schema finance alone.
MONTHS = (
    Question(
        "Months",
        "What did each month cost, and how much of it was idle?",
        "finance.months",
        f"""
        select month, site, status, sum(booked_hours), sum(month_hours), {_AMOUNT_SUMS}, sum(forecast_usd),
            sum(facility_energy_kwh), sum(location_kgco2e)
        from finance.months group by month, site, status order by month desc, site
        """,
        (
            *text("month", "site", "status"),
            summed("booked hours", 0),
            summed("hours of the month", 0),
            *_AMOUNTS,
            Column("forecast (USD)", 2),
            summed("kWh at the facility", 1),
            summed("CO2e by location (kg)", 1),
            percent("booked", 3, 4),
            percent("idle", 8, 7),
        ),
        "Charged: what a closed month was closed with, and what is booked so far of an open one.",
    ),
    Question(
        "Cost",
        "Whose cost is it?",
        "finance.cost",
        f"""
        select month, team, model, {_AMOUNT_SUMS}, sum(allocation_cost_usd), sum(usage_cost_usd), sum(marginal_cost_usd)
        from finance.cost group by month, team, model
        order by month desc, sum(known_cost_usd) desc nulls last, team, model
        """,
        (
            *text("month", "team", "model"),
            *_AMOUNTS,
            summed("without a share of free accelerators (USD)"),
            summed("for what was used (USD)"),
            summed("electricity of the work (USD)"),
            percent("idle", 6, 5),
        ),
        "Each column adds up by itself: choose one.",
    ),
    Question(
        "Parts",
        "What is the cost made of?",
        "finance.cost",
        f"""
        select month, part, is_cash, {_AMOUNT_SUMS}, sum(billed_cost_usd)
        from finance.cost group by month, part, is_cash order by month desc, sum(known_cost_usd) desc nulls last, part
        """,
        (
            *text("month", "part", "on an invoice"),
            *_AMOUNTS,
            summed("at the bill's price (USD)"),
            percent("share of all", 5),
        ),
    ),
    Question(
        "Who pays",
        "Who pays?",
        "finance.chargeback",
        """
        select month, payer, tenant, sum(requests), sum(output_tokens) / 1e6, sum(energy_kwh), sum(location_kgco2e),
            sum(closed_cost_usd), sum(adjustment_usd), sum(known_cost_usd), sum(usage_cost_usd)
        from finance.chargeback group by month, payer, tenant
        order by month desc, sum(known_cost_usd) desc nulls last, payer, tenant
        """,
        (
            *text("month", "payer", "tenant"),
            summed("requests", 0),
            summed("output tokens (million)", 3),
            summed("kWh of accelerators", 1),
            summed("CO2e by location (kg)", 1),
            summed("charged (USD)"),
            summed("of it adjustments (USD)"),
            summed("known now (USD)"),
            summed("for what was used (USD)"),
            percent("share of what is charged", 7),
        ),
    ),
    Question(
        "Output tokens",
        "What does a million output tokens cost, all parts of the cost?",
        "finance.chargeback",
        """
        select month, model, sum(output_tokens) / 1e6, sum(known_cost_usd), sum(usage_cost_usd)
        from finance.chargeback group by month, model having sum(output_tokens) > 0
        order by month desc, sum(known_cost_usd) desc nulls last, model
        """,
        (
            *text("month", "model"),
            summed("output tokens (million)", 3),
            summed("known now (USD)"),
            summed("for what was used (USD)"),
            ratio("USD per million output tokens", 3, 2),
            ratio("USD per million, for what was used", 4, 2),
        ),
        "Models that generated no token are not here: Cost has them.",
    ),
    Question(
        "Kinds of tokens",
        "What does a million tokens of each kind cost, beside the list price?",
        "finance.unit_cost",
        """
        select month, model, token_kind, sum(tokens) / 1e6, sum(known_cost_usd),
            sum(list_cost_usd) / sum(tokens) filter (list_cost_usd is not null) * 1e6
        from finance.unit_cost group by month, model, token_kind order by month desc, model, token_kind
        """,
        (
            *text("month", "model", "kind of tokens"),
            summed("tokens (million)", 3),
            summed("known now (USD)"),
            Column("list price (USD per million)", 3),
            ratio("USD per million tokens", 4, 3, 3),
        ),
    ),
    Question(
        "Budgets",
        "Does the budget hold?",
        "finance.budgets",
        """
        select month, budget, scope, name, is_in_progress, budget_usd, spent_usd, forecast_usd, forecast_low_usd,
            forecast_high_usd
        from finance.budgets order by month desc, budget
        """,
        (
            *text("month", "budget", "of", "name", "in progress"),
            Column("budget (USD)", 2),
            Column("spent (USD)", 2),
            Column("forecast (USD)", 2),
            Column("forecast, low (USD)", 2),
            Column("forecast, high (USD)", 2),
            percent("spent of the budget", 6, 5),
            percent("forecast of the budget", 7, 5),
        ),
        "Budgets may contain each other, so they have no total.",
    ),
    Question(
        "Invoices",
        "Does it add up to the invoice?",
        "finance.invoices",
        """
        select month, site, kind, is_booked_whole,
            case when difference_usd is not null then billed_usd end,
            case when difference_usd is not null then computed_usd end,
            case when difference_usd is null then billed_usd end,
            case when difference_usd is null then computed_usd end
        from finance.invoices order by month desc, site, kind
        """,
        (
            *text("month", "site", "kind of bill", "booked whole"),
            summed("billed (USD)"),
            summed("computed (USD)"),
            summed("billed, of other hours (USD)"),
            summed("computed, of other hours (USD)"),
            Column("billed less computed (USD)", 2, of=4, by=5, is_difference=True),
            percent("of the computed", 8, 5),
        ),
        "Amounts of other hours are not compared: more or fewer hours are billed than booked.",
    ),
    Question(
        "Commitments",
        "Are the accelerators used that are paid for anyway?",
        "finance.commitments",
        """
        select month, site, device_type, committed_gpu_hours, used_gpu_hours, committed_cost_usd, unused_cost_usd
        from finance.commitments order by month desc, site, device_type
        """,
        (
            *text("month", "site", "accelerator"),
            summed("committed GPU-hours", 0),
            summed("used GPU-hours", 0),
            summed("committed (USD)"),
            summed("unused (USD)"),
            percent("used", 4, 3),
        ),
    ),
    Question(
        "What to do",
        "What is there to do, and what does it save in a month?",
        "finance.savings",
        """
        select deployment, model, advice, reason, freed_accelerators, accelerator_saving_usd_per_month,
            energy_saving_usd_per_month, saving_kwh_per_month, saving_kgco2e_per_month, confidence
        from finance.savings
        order by accelerator_saving_usd_per_month desc nulls last, saving_kwh_per_month desc nulls last, deployment
        """,
        (
            *text("deployment", "model", "what to do", "reason"),
            summed("freed accelerators", 0),
            summed("accelerators, if released (USD)"),
            summed("electricity (USD)"),
            summed("kWh at the facility", 1),
            summed("CO2e by location (kg)", 1),
            *text("confidence"),
        ),
        "A month is 730 hours. docs/recommendations explains each kind and when not to rely on it.",
    ),
    Question(
        "Carbon",
        "How much electricity, CO2 and water did each month take?",
        "finance.carbon",
        """
        select month, team, model, sum(facility_energy_kwh), sum(location_kgco2e), sum(idle_location_kgco2e),
            sum(embodied_kgco2e), sum(water_litres)
        from finance.carbon group by month, team, model
        order by month desc, sum(location_kgco2e) desc nulls last, team, model
        """,
        (
            *text("month", "team", "model"),
            summed("kWh at the facility", 1),
            summed("CO2e by location (kg)", 1),
            summed("of it idle (kg)", 1),
            summed("CO2e of manufacture (kg)", 1),
            summed("water (litres)", 0),
            percent("idle", 5, 4),
        ),
    ),
)

# The detail behind it, by date and meter.
DETAILS = (
    Question(
        "Models",
        "What does a token cost per model, in joules, CO2 and dollars?",
        "marts.model_daily",
        f"""
        select model, meter_scope, {_SUMS} from marts.model_daily
        group by model, meter_scope order by sum(compute_cost_usd) desc nulls last, model, meter_scope
        """,
        (*text("model", "meter"), *_TOKENS, *_token_ratios(2)),
        "Joules are of the meter in the row (board: the accelerator; node: the whole server), idle joules included.",
        scope=1,
    ),
    Question(
        "Dates",
        "What did each date cost?",
        "marts.fleet_daily",
        f"""
        select date, meter_scope, {_SUMS} from marts.fleet_daily
        group by date, meter_scope order by date desc, meter_scope
        """,
        (*text("date (UTC)", "meter"), *_TOKENS, *_token_ratios(2)),
        scope=1,
    ),
    Question(
        "Idle",
        "What do idle accelerators and their electricity cost, and why are they idle?",
        "marts.idle_power",
        """
        select model, account, meter_scope, sum(idle_gpu_seconds) / 3600, sum(idle_facility_kwh),
            sum(idle_location_gco2e) / 1000, sum(idle_energy_cost_usd), sum(idle_capacity_cost_usd)
        from marts.idle_power group by model, account, meter_scope
        order by sum(idle_capacity_cost_usd) desc nulls last, model, account, meter_scope
        """,
        (
            *text("model", "account", "meter"),
            summed("idle GPU-hours", 1),
            summed("idle kWh at the facility", 3),
            summed("idle CO2e by location (kg)", 3),
            summed("idle electricity (USD)"),
            summed("idle capacity (USD)"),
            percent("share of the idle capacity", 7),
        ),
    ),
    Question(
        "SCI",
        "What is the carbon intensity of a token (SCI)?",
        "marts.sci_daily",
        """
        select model, sci_basis, sum(scope2_location_gco2e) / 1000, sum(scope3_embodied_gco2e) / 1000,
            sum(sci_gco2e) filter (output_tokens is not null), sum(output_tokens) filter (sci_gco2e is not null) / 1e6
        from marts.sci_daily group by model, sci_basis order by sum(sci_gco2e) desc nulls last, model, sci_basis
        """,
        (
            *text("model", "basis"),
            summed("scope 2 by location (kgCO2e)", 3),
            summed("embodied (kgCO2e)", 3),
            summed("SCI (gCO2e)", 1),
            summed("output tokens (million)", 3),
            ratio("gCO2e per million output tokens", 4, 5),
        ),
        "docs/carbon.md names the standards.",
    ),
    Question(
        "Meters",
        "Does each meter add up to what is booked?",
        "marts.reconciliation_daily",
        """
        select meter, site, meter_scope, source, sum(metered_joules) / 3.6e6, sum(booked_joules) / 3.6e6,
            sum(rejected_samples)
        from marts.reconciliation_daily group by all
        order by abs(sum(difference_joules)) desc nulls last, meter, site, source
        """,
        (
            *text("meter", "site", "scope", "source"),
            summed("metered (kWh)", 6, is_scoped=True),
            summed("booked (kWh)", 6, is_scoped=True),
            summed("rejected samples", 0),
            Column("metered less booked (kWh)", 6, of=4, by=5, is_difference=True, is_scoped=True),
        ),
        scope=2,
    ),
)

QUESTIONS = (*MONTHS, *DETAILS)
