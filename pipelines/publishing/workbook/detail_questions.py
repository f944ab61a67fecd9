"""The workbook's questions about the detail behind a month: by date, model and meter.

Add here a question of which the answer is in the marts. Keep out formulas of energy and money: a query adds columns,
and a ratio is one sum over another.
"""

from __future__ import annotations

from pipelines.publishing.workbook.columns import REASONS, Column, Question, percent, ratio, summed, text

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
        ratio("USD per million output tokens, compute, where metered", first + 7, first + 8),
    )


# What was published otherwise before, and the detail behind a month, by date and meter.
DETAILS = (
    Question(
        "Restated",
        "Which published figures changed later, and why?",
        "finance.restatements",
        """
        select cast(restated_at as date), month, figure, unit, reason, count(distinct date), sum(before), sum(after),
            sum(change)
        from finance.restatements group by all order by all desc
        """,
        (
            *text("restated on", "month", "figure", "unit", "why"),
            Column("dates", 0),
            Column("before", 2),
            Column("after", 2),
            Column("change", 2),
        ),
        "Figures of a month to date are no restatements.",
        if_empty="No published figure of a complete date or month changed.",
    ),
    Question(
        "Models",
        "What does a token cost per model, in joules, CO2 and dollars?",
        "marts.model_daily",
        f"""
        select model, meter_scope, {_SUMS}, {REASONS} from marts.model_daily
        group by model, meter_scope order by sum(compute_cost_usd) desc nulls last, model, meter_scope
        """,
        (*text("model", "meter"), *_TOKENS, *_token_ratios(2), *text("in doubt on some date")),
        "Joules are of the meter in the row (board: the accelerator; node: the whole server), idle joules included.",
        scope=1,
    ),
    Question(
        "Dates",
        "What did each date cost?",
        "marts.fleet_daily",
        f"""
        select date, meter_scope, {_SUMS}, {REASONS} from marts.fleet_daily
        group by date, meter_scope order by date desc, meter_scope
        """,
        (*text("date (UTC)", "meter"), *_TOKENS, *_token_ratios(2), *text("in doubt")),
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
