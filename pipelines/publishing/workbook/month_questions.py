"""The workbook's questions about months: each reads schema finance alone.

Add here a question that finance asks every month. Keep out formulas: an amount is a column of schema finance, and a
ratio is one sum over another.
"""

from __future__ import annotations

from pipelines.publishing.bridge_steps import STEPS
from pipelines.publishing.workbook.columns import REASONS, Column, Question, percent, ratio, summed, text

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
            sum(facility_energy_kwh), sum(location_kgco2e), {REASONS}
        from finance.months group by month, site, status order by month desc, site
        """,
        (
            *text("month", "site", "status"),
            summed("booked hours", 0),
            summed("hours of the month", 0),
            *_AMOUNTS,
            Column("at its end (USD)", 2),
            summed("kWh at the facility", 1),
            summed("CO2e by location (kg)", 1),
            percent("booked", 3, 4),
            percent("idle share of the cost", 8, 7),
            *text("in doubt"),
        ),
        "Charged: what a closed month was closed with, and what is booked so far of an open one.",
    ),
    Question(
        "Cost",
        "Whose cost is it?",
        "finance.cost",
        f"""
        select month, team, model, {_AMOUNT_SUMS}, sum(allocation_cost_usd), sum(usage_cost_usd), sum(variable_cost_usd)
        from finance.cost group by month, team, model
        order by month desc, sum(known_cost_usd) desc nulls last, team, model
        """,
        (
            *text("month", "team", "model"),
            *_AMOUNTS,
            summed("without a share of free accelerators (USD)"),
            summed("for what was used (USD)"),
            summed("electricity of the work (USD)"),
            percent("idle share of the cost", 6, 5),
        ),
        "Each column adds up by itself: choose one.",
    ),
    Question(
        "Changes",
        "Why did a month cost more or less than the one before?",
        "finance.bridge",
        f"""
        select month, compared_month, site, is_of_whole_months, max(days), sum(before_usd),
            {", ".join(f"sum({step})" for step in STEPS)}, sum(after_usd)
        from finance.bridge group by month, compared_month, site, is_of_whole_months order by month desc, site
        """,
        (
            *text("month", "month before", "site", "whole months"),
            Column("days compared", 0),
            Column("before (USD)", 2),
            *(Column(f"{word} (USD)", 2) for word in STEPS.values()),
            Column("after (USD)", 2),
        ),
        "A row adds up from before to after. A month that is not booked whole is compared by its booked days.",
        if_empty="No two months in a row are booked that have days to compare.",
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
        f"""
        select month, payer, tenant, sum(requests), sum(output_tokens) / 1e6, sum(energy_kwh), sum(location_kgco2e),
            sum(closed_cost_usd), sum(adjustment_usd), sum(known_cost_usd), sum(usage_cost_usd), {REASONS}
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
            *text("in doubt"),
        ),
    ),
    Question(
        "Output tokens",
        "What does a million output tokens cost, all parts of the cost?",
        "finance.chargeback",
        f"""
        select month, model, sum(output_tokens) / 1e6, sum(known_cost_usd), sum(usage_cost_usd), {REASONS}
        from finance.chargeback group by month, model having sum(output_tokens) > 0
        order by month desc, sum(known_cost_usd) desc nulls last, model
        """,
        (
            *text("month", "model"),
            summed("output tokens (million)", 3),
            summed("known now (USD)"),
            summed("for what was used (USD)"),
            ratio("USD per million output tokens, all parts", 3, 2),
            ratio("USD per million, for what was used", 4, 2),
            *text("in doubt"),
        ),
        "Models that generated no token are not here: Cost has them.",
    ),
    Question(
        "Currency",
        "What is charged, in the reporting currency?",
        "finance.chargeback",
        """
        select month, currency, usd_per_unit, payer, model, sum(closed_cost_usd), sum(closed_cost_in_currency),
            sum(adjustment_in_currency), sum(known_cost_in_currency)
        from finance.chargeback where currency is not null group by all
        order by month desc, sum(closed_cost_usd) desc nulls last, payer, model
        """,
        (
            *text("month", "currency"),
            Column("USD per unit", 4),
            *text("payer", "model"),
            summed("charged (USD)"),
            summed("charged (in currency)"),
            summed("of it adjustments (in currency)"),
            summed("known now (in currency)"),
        ),
        "One rate per month, as the fleet file states it.",
        only_if="select count(*) > 0 from finance.chargeback where currency is not null",
    ),
    Question(
        "Kinds of tokens",
        "What does a million tokens of each kind cost, beside the list price?",
        "finance.unit_cost",
        f"""
        select month, model, token_kind, sum(tokens) / 1e6, sum(known_cost_usd),
            sum(list_cost_usd) / sum(tokens) filter (list_cost_usd is not null) * 1e6, {REASONS}
        from finance.unit_cost group by month, model, token_kind order by month desc, model, token_kind
        """,
        (
            *text("month", "model", "kind of tokens"),
            summed("tokens (million)", 3),
            summed("known now (USD)"),
            Column("list price (USD per million)", 3),
            ratio("USD per million tokens", 4, 3, 3),
            *text("in doubt"),
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
        select month, site, device_type, committed_gpu_hours, used_gpu_hours, committed_cost_usd, unused_cost_usd,
            offer_gpus, offer_usd_per_gpu_hour, offer_saving_usd_per_month, offer_provider
        from finance.commitments order by month desc, site, device_type
        """,
        (
            *text("month", "site", "accelerator"),
            summed("committed GPU-hours", 0),
            summed("used GPU-hours", 0),
            summed("committed (USD)"),
            summed("unused (USD)"),
            Column("GPUs to commit by the offer", 0),
            Column("offer (USD per GPU-hour)", 4),
            summed("that saves (USD per month)"),
            *text("provider"),
            percent("used", 4, 3),
        ),
        "Offers are those of the fleet file (commitment_offers) that are below the rate.",
        if_empty="No rate of the fleet file is a commitment.",
    ),
    Question(
        "What to do",
        "What is there to do, and what does it save in a month?",
        "finance.savings",
        """
        select deployment, model, advice, reason, freed_accelerators, avoidable_now_usd_per_month,
            energy_saving_usd_per_month, avoidable_later_usd_per_month, avoidable_from, not_avoidable_usd_per_month,
            saving_kwh_per_month, saving_kwh_per_month_low, saving_kwh_per_month_high, saving_kgco2e_per_month,
            confidence
        from finance.savings
        order by saving_now_usd_per_month desc nulls last, avoidable_later_usd_per_month desc nulls last,
            saving_kwh_per_month desc nulls last, deployment
        """,
        (
            *text("deployment", "model", "what to do", "reason"),
            summed("freed accelerators", 0),
            summed("accelerators, now (USD)"),
            summed("electricity, now (USD)"),
            Column("accelerators, at a date (USD)", 2),
            *text("all of it from"),
            Column("accelerators, never (USD)", 2),
            summed("kWh at the facility", 1),
            Column("at least (kWh)", 1),
            Column("at most (kWh)", 1),
            summed("CO2e by location (kg)", 1),
            *text("confidence"),
        ),
        "A month is 730 hours. At least and at most are a 95 % interval. What a commitment pays for is saved once it"
        " ends; what is owned, or beside accelerators in use, is paid on. try_it is an experiment without an amount."
        " docs/recommendations explains each kind and when not to rely on it.",
    ),
    Question(
        "Carbon",
        "How much electricity, CO2 and water did each month take?",
        "finance.carbon",
        """
        select month, team, model, sum(facility_energy_kwh), sum(location_kgco2e), sum(idle_location_kgco2e),
            case when count(market_kgco2e) = count(facility_energy_kwh) then sum(market_kgco2e) end,
            sum(market_grid_average_ratio * facility_energy_kwh), sum(embodied_kgco2e), sum(water_litres)
        from finance.carbon group by month, team, model
        order by month desc, sum(location_kgco2e) desc nulls last, team, model
        """,
        (
            *text("month", "team", "model"),
            summed("kWh at the facility", 1),
            summed("CO2e by location (kg)", 1),
            summed("of it idle (kg)", 1),
            summed("CO2e by market (kg)", 1),
            summed("kWh of it at the grid's average: no residual mix known", 1),
            summed("CO2e of manufacture (kg)", 1),
            summed("water (litres)", 0),
            percent("idle share of the CO2e", 5, 4),
        ),
    ),
)
