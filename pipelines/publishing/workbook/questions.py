"""The questions of the workbook: for each a sheet, a query on the published tables, and columns with their units.

Add here a question that readers ask again and again, with its page in docs/. Keep out formulas of energy and money: a
query adds columns of the marts, and a ratio is one sum over another.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """A column of a sheet. With `of` it has a formula and no column in the query: of the column `of` and, unless it is
    a share of that column's total, the column `by` (both are places in the sheet, from 0)."""

    heading: str
    digits: int | None = None  # None: a text, a date, or yes and no
    is_summed: bool = False
    is_scoped: bool = False  # joules of boards and of whole nodes are never added
    of: int | None = None
    by: int | None = None
    factor: float = 1
    is_difference: bool = False
    is_percent: bool = False

    @property
    def is_computed(self) -> bool:
        """Whether a formula makes it."""
        return self.of is not None

    @property
    def number_format(self) -> str:
        """How Excel shows its numbers."""
        if self.is_percent:
            return "0.0%"
        return "#,##0" + ("." + "0" * self.digits if self.digits else "")

    def is_added(self, is_one_scope: bool) -> bool:
        """Whether its rows have a sum."""
        return (self.is_summed or self.is_difference) and (is_one_scope or not self.is_scoped)

    def formula(self, of: str, by: str) -> str:
        """Its formula for two cells, or two sums of cells."""
        if self.is_difference:
            return f"{of}-{by}"
        return f"{of}/{by}" if self.factor == 1 else f"{of}/{by}*{self.factor:g}"

    def computed(self, of: float | None, by: float | None) -> float | None:
        """What its formula gives."""
        if of is None or (by is None and self.by is not None):
            return None
        if self.by is None and by is None:
            by = of  # the total's own share
        if self.is_difference:
            return float(of) - float(by or 0)
        return float(of) / float(by) * self.factor if by else None


@dataclass(frozen=True)
class Question:
    """A sheet. `scope` is the place of the meter's scope in the query, where joules depend on it."""

    sheet: str
    asks: str
    tables: str
    query: str
    columns: tuple[Column, ...]
    note: str = ""
    scope: int | None = None


def _text(*headings: str) -> tuple[Column, ...]:
    return tuple(Column(heading) for heading in headings)


def _sum(heading: str, digits: int = 2, *, is_scoped: bool = False) -> Column:
    return Column(heading, digits, is_summed=True, is_scoped=is_scoped)


def _ratio(heading: str, of: int, by: int, digits: int = 2, factor: float = 1) -> Column:
    return Column(heading, digits, of=of, by=by, factor=factor)


def _percent(heading: str, of: int, by: int | None = None) -> Column:
    return Column(heading, 1, of=of, by=by, is_percent=True)


_TOKENS = (
    _sum("kWh at the facility", 3),
    _sum("CO2e by location (kg)", 3),
    _sum("compute cost (USD)"),
    _sum("output tokens (million)", 3),
    _sum("joules with tokens known (J)", 0, is_scoped=True),
    _sum("output tokens with joules known", 0, is_scoped=True),
    _sum("all tokens with joules known", 0, is_scoped=True),
    _sum("cost of priced tokens (USD)"),
    _sum("priced output tokens (million)", 3),
)
_SUMS = """
    sum(facility_energy_kwh), sum(location_gco2e) / 1000, sum(compute_cost_usd), sum(output_tokens) / 1e6,
    sum(matched_joules), sum(matched_output_tokens), sum(matched_total_tokens),
    sum(matched_compute_cost_usd), sum(priced_output_tokens) / 1e6
"""


def _token_ratios(first: int) -> tuple[Column, ...]:
    """The headline's ratios of the columns _TOKENS, of which the first is at `first`."""
    return (
        _ratio("J per output token", first + 4, first + 5, 4),
        _ratio("J per token", first + 4, first + 6, 4),
        _ratio("USD per million output tokens", first + 7, first + 8),
    )


QUESTIONS = (
    Question(
        "Models",
        "What does a token cost per model, in joules, CO2 and dollars?",
        "marts.model_daily",
        f"""
        select model, meter_scope, {_SUMS} from marts.model_daily
        group by model, meter_scope order by sum(compute_cost_usd) desc nulls last, model, meter_scope
        """,
        (*_text("model", "meter"), *_TOKENS, *_token_ratios(2)),
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
        (*_text("date (UTC)", "meter"), *_TOKENS, *_token_ratios(2)),
        scope=1,
    ),
    Question(
        "Bases",
        "What does a million output tokens cost, on each basis?",
        "marts.cost_daily, marts.model_daily",
        """
        with costs as (select model, basis, sum(cost_usd) as cost_usd from marts.cost_daily group by model, basis),
        tokens as (select model, sum(output_tokens) / 1e6 as mtok from marts.model_daily group by model)
        select model, any_value(mtok), sum(cost_usd) filter (basis = 'marginal'),
            sum(cost_usd) filter (basis = 'usage'), sum(cost_usd) filter (basis = 'allocation'),
            sum(cost_usd) filter (basis = 'fully_loaded')
        from costs left join tokens using (model) group by model
        order by sum(cost_usd) filter (basis = 'fully_loaded') desc nulls last, model
        """,
        (
            *_text("model"),
            _sum("output tokens (million)", 3),
            _sum("marginal (USD)"),
            _sum("usage (USD)"),
            _sum("allocation (USD)"),
            _sum("fully loaded (USD)"),
            _ratio("marginal (USD per million)", 2, 1, 3),
            _ratio("usage (USD per million)", 3, 1),
            _ratio("allocation (USD per million)", 4, 1),
            _ratio("fully loaded (USD per million)", 5, 1),
        ),
        "Choose one basis: sums over several mean nothing. docs/finance.md explains them.",
    ),
    Question(
        "Parts",
        "What is the cost made of?",
        "marts.cost_daily",
        """
        select part, is_cash, sum(cost_usd) from marts.cost_daily where basis = 'fully_loaded'
        group by part, is_cash order by sum(cost_usd) desc nulls last, part
        """,
        (*_text("part", "is cash"), _sum("cost, fully loaded (USD)"), _percent("share of the cost", 2)),
    ),
    Question(
        "Bills",
        "Does it add up to the invoice?",
        "marts.cost_reconciliation_monthly",
        """
        select billing_month, site, kind, is_booked_whole,
            case when difference_usd is not null then billed_usd end,
            case when difference_usd is not null then computed_cost_usd end,
            case when difference_usd is null then billed_usd end,
            case when difference_usd is null then computed_cost_usd end
        from marts.cost_reconciliation_monthly order by billing_month desc, site, kind
        """,
        (
            *_text("billing month", "site", "kind of bill", "month is complete"),
            _sum("billed (USD)"),
            _sum("computed (USD)"),
            _sum("billed, of other hours (USD)"),
            _sum("computed, of other hours (USD)"),
            Column("billed less computed (USD)", 2, of=4, by=5, is_difference=True),
            _percent("of the computed", 8, 5),
        ),
        "Amounts of other hours are not compared: more or fewer hours are billed than booked.",
    ),
    Question(
        "Idle",
        "What do idle accelerators cost, and whose are they?",
        "marts.idle_power",
        """
        select model, account, meter_scope, sum(idle_gpu_seconds) / 3600, sum(idle_facility_kwh),
            sum(idle_location_gco2e) / 1000, sum(idle_energy_cost_usd), sum(idle_capacity_cost_usd)
        from marts.idle_power group by model, account, meter_scope
        order by sum(idle_capacity_cost_usd) desc nulls last, model, account, meter_scope
        """,
        (
            *_text("model", "account", "meter"),
            _sum("idle GPU-hours", 1),
            _sum("idle kWh at the facility", 3),
            _sum("idle CO2e by location (kg)", 3),
            _sum("idle electricity (USD)"),
            _sum("idle capacity (USD)"),
            _percent("share of the idle capacity", 7),
        ),
    ),
    Question(
        "Electricity",
        "What do electricity, cooling and the demand charge add?",
        "marts.cost_daily",
        """
        select billing_month, sum(cost_usd) filter (part = 'energy'), sum(cost_usd) filter (part = 'cooling'),
            sum(cost_usd) filter (part = 'overhead'), sum(cost_usd) filter (part = 'demand_charge'), sum(cost_usd)
        from marts.cost_daily where basis = 'allocation' group by billing_month order by billing_month desc
        """,
        (
            *_text("billing month"),
            _sum("energy (USD)"),
            _sum("cooling (USD)"),
            _sum("overhead (USD)"),
            _sum("demand charge (USD)"),
            _sum("all parts (USD)"),
            _percent("energy of all", 1, 5),
            _percent("cooling of all", 2, 5),
            _percent("overhead of all", 3, 5),
            _percent("demand charge of all", 4, 5),
        ),
    ),
    Question(
        "Token classes",
        "What does a million tokens of each class cost?",
        "marts.token_class_cost_daily",
        """
        select model, token_class, string_agg(distinct price_method, ', ' order by price_method), sum(tokens) / 1e6,
            sum(cost_usd)
        from marts.token_class_cost_daily where basis = 'fully_loaded'
        group by model, token_class order by model, token_class
        """,
        (
            *_text("model", "class of tokens", "method"),
            _sum("tokens (million)", 3),
            _sum("cost, fully loaded (USD)"),
            _ratio("USD per million tokens", 4, 3, 3),
        ),
        "The method by which a cost is shared among classes: docs/finance.md.",
    ),
    Question(
        "Who pays",
        "Who pays?",
        "marts.tenant_daily",
        """
        select coalesce(request_team, team), namespace, tenant, sum(requests), sum(output_tokens) / 1e6,
            sum(location_gco2e) / 1000, sum(usage_cost_usd), sum(allocation_cost_usd), sum(fully_loaded_cost_usd)
        from marts.tenant_daily group by all order by sum(fully_loaded_cost_usd) desc nulls last, 1, 2, 3
        """,
        (
            *_text("team", "namespace", "tenant"),
            _sum("requests", 0),
            _sum("output tokens (million)", 3),
            _sum("CO2e by location (kg)", 3),
            _sum("usage (USD)"),
            _sum("allocation (USD)"),
            _sum("fully loaded (USD)"),
            _percent("share of the fully loaded cost", 8),
        ),
    ),
    Question(
        "Budgets",
        "Does the budget hold?",
        "marts.budget_monthly",
        """
        select billing_month, budget, scope, scope_name, is_in_progress, budget_usd, spent_usd, forecast_usd,
            forecast_low_usd, forecast_high_usd
        from marts.budget_monthly order by billing_month desc, budget
        """,
        (
            *_text("billing month", "budget", "of", "name", "month is in progress"),
            Column("budget (USD)", 2),
            Column("spent (USD)", 2),
            Column("forecast (USD)", 2),
            Column("forecast, low (USD)", 2),
            Column("forecast, high (USD)", 2),
            _percent("spent of the budget", 6, 5),
            _percent("forecast of the budget", 7, 5),
        ),
        "Budgets may contain each other, so they have no total.",
    ),
    Question(
        "What to do",
        "Which deployments need fewer accelerators, and what does that save in a month?",
        "published.right_sizing, published.consolidation",
        """
        select deployment, kind, reason_code, current_gpus, recommended_gpus, saving_kwh_month, saving_kgco2e_month,
            saving_energy_usd_month, saving_usd_month_if_released, risk_ratio, confidence
        from published.right_sizing where is_preferred
        union all
        select deployment, kind, reason_code, current_gpus, recommended_gpus, saving_kwh_month, saving_kgco2e_month,
            saving_energy_usd_month, saving_usd_month_if_released, risk_ratio, confidence
        from published.consolidation where is_preferred
        order by saving_usd_month_if_released desc nulls last, saving_kwh_month desc nulls last, deployment
        """,
        (
            *_text("deployment", "what to do", "reason"),
            _sum("GPUs", 0),
            _sum("GPUs then", 0),
            _sum("kWh a month", 1),
            _sum("kgCO2e a month", 1),
            _sum("USD for kWh a month"),
            _sum("USD a month if released"),
            Column("time short", 1, is_percent=True),
            *_text("confidence"),
        ),
        "A month is 730 hours. docs/recommendations explains each kind and when not to rely on it.",
    ),
    Question(
        "Carbon",
        "What is the carbon intensity of a token (SCI)?",
        "marts.sci_daily",
        """
        select model, sci_basis, sum(scope2_location_gco2e) / 1000, sum(scope3_embodied_gco2e) / 1000,
            sum(sci_gco2e) filter (output_tokens is not null), sum(output_tokens) filter (sci_gco2e is not null) / 1e6
        from marts.sci_daily group by model, sci_basis order by sum(sci_gco2e) desc nulls last, model, sci_basis
        """,
        (
            *_text("model", "basis"),
            _sum("scope 2 by location (kgCO2e)", 3),
            _sum("embodied (kgCO2e)", 3),
            _sum("SCI (gCO2e)", 1),
            _sum("output tokens (million)", 3),
            _ratio("gCO2e per million output tokens", 4, 5),
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
            *_text("meter", "site", "scope", "source"),
            _sum("metered (kWh)", 6, is_scoped=True),
            _sum("booked (kWh)", 6, is_scoped=True),
            _sum("rejected samples", 0),
            Column("metered less booked (kWh)", 6, of=4, by=5, is_difference=True, is_scoped=True),
        ),
        scope=2,
    ),
)
