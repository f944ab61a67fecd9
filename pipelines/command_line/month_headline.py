"""The months of the page that `wattledger run` prints: what each cost and will have cost, and whether the budgets hold.

Add here what a reader asks about a month. Keep out the page itself (`headline`) and formulas: the figures are those of
schema finance.
"""

from __future__ import annotations

import duckdb

from pipelines.command_line.text_tables import RATIO, TEXT, explained, table
from pipelines.named_figures import figures_in_doubt
from pipelines.named_figures.intervals import ALL
from pipelines.publishing.bridge_steps import STEPS
from pipelines.warehouse import database

SHOWN_MONTHS = 3
_MONTHS = f"""
select strftime(month, '%Y-%m'), string_agg(distinct status, ', ' order by status),
    sum(booked_hours) / sum(month_hours), sum(closed_cost_usd),
    nullif(sum(adjustment_usd), 0), sum(known_cost_usd), sum(idle_cost_usd) / nullif(sum(known_cost_usd), 0),
    case when count(forecast_usd) = count(known_cost_usd) then sum(forecast_usd) end,
    bool_and(is_cost_complete), any_value(currency), sum(closed_cost_in_currency)
from finance.months group by month having sum(closed_cost_usd) is not null order by month desc limit {SHOWN_MONTHS}
"""
_COLUMNS = {
    "month": TEXT,
    "status": TEXT,
    "booked": RATIO,
    "USD charged": 2,
    "of it adjusted": 2,
    "USD known": 2,
    "idle cost": RATIO,
    "USD at its end": 2,
}
_MEANINGS = {
    "USD charged": "all parts of the cost: what a closed month was closed with; of an open one what is booked so far",
    "of it adjusted": "changes of closed months that this month got",
    "USD known": "all parts of the cost, as known now",
    "idle cost": "share of it that paid for idle accelerators",
    "USD at its end": "what the month will have cost; – with less than 14 days of history, or without a price",
}
# Intervals of the newest month, the whole fleet's; joules of the scope with the most of them.
_INTERVALS = f"""
with intervals as (
    select figure, meter_scope, value, value_low, value_high, metered_ratio
    from marts.figure_intervals
    where month = (select max(month) from marts.figure_intervals) and site = '{ALL}' and model = '{ALL}'
)
select figure, value_low, value_high, metered_ratio
from intervals
where figure in ('known_cost_usd', 'facility_energy_kwh', 'location_kgco2e', 'joules_per_output_token')
    and value_low < value_high
qualify row_number() over (
    partition by figure
    order by (
        select joules.value from intervals as joules
        where joules.figure = 'energy_joules' and joules.meter_scope = intervals.meter_scope
    ) desc nulls last
) = 1
"""
# Name of a figure in the tables, and digits.
_SURE = {
    "known_cost_usd": ("USD known", 2),
    "facility_energy_kwh": ("kWh", 1),
    "location_kgco2e": ("kgCO2e", 1),
    "joules_per_output_token": ("J/output token", 4),
}
_OF_MONTH = f"""
(select * replace ('{ALL}' as model) from marts.model_monthly
where month = (select max(month) from marts.model_monthly))
"""
_BUDGETS = """
select strftime(month, '%Y-%m'), budget, scope || ' ' || name, budget_usd, spent_usd, spent_usd / nullif(budget_usd, 0),
    forecast_usd, nullif(expected_overrun_usd, 0)
from finance.budgets where month = (select max(month) from finance.budgets)
order by expected_overrun_usd desc nulls last, budget
"""
BUDGET_COLUMNS = {
    "month": TEXT,
    "budget": TEXT,
    "of": TEXT,
    "USD budget": 2,
    "USD spent": 2,
    "spent": RATIO,
    "USD at its end": 2,
    "too much": 2,
}


# What the newest month that can be compared changed by, its largest steps first.
_CHANGES = f"""
with newest as (
    select * from finance.bridge where month = (select max(month) from finance.bridge)
),
steps as (
    unpivot newest on {", ".join(STEPS)} into name step value usd
)
select strftime(any_value(month), '%Y-%m'), strftime(any_value(compared_month), '%Y-%m'), bool_and(is_of_whole_months),
    step, sum(usd)
from steps group by step having abs(sum(usd)) >= 0.005 order by abs(sum(usd)) desc, step
"""


def changes(connection: duckdb.DuckDBPyConnection) -> str:
    """One line: why the newest month cost more or less than the one before; empty where none can be compared."""
    if "bridge" not in database.tables(connection, "finance"):
        return ""
    rows = connection.execute(_CHANGES).fetchall()
    if not rows:
        return ""
    month, before, is_whole, *_ = rows[0]
    total = sum(usd for *_, usd in rows)
    of = "" if is_whole else " (the same booked days)"
    steps = ", ".join(f"{STEPS[step]} {usd:+,.2f}" for *_, step, usd in rows)
    return f"{month} against {before}{of}: {total:+,.2f} USD: {steps}"


def months(connection: duckdb.DuckDBPyConnection) -> str:
    """The newest months, the newest first; empty where nothing has a price."""
    if not _has_finance(connection):
        return ""
    rows = connection.execute(_MONTHS).fetchall()
    marks = [{} if row[8] else dict.fromkeys(("USD charged", "USD known"), "≥ {}") for row in rows]
    columns, meanings, shown = dict(_COLUMNS), dict(_MEANINGS), [row[:8] for row in rows]
    currencies = sorted({row[9] for row in rows if row[9] is not None})
    if currencies:
        heading = f"{currencies[0]} charged"
        columns[heading], meanings[heading] = 2, "USD charged at the rate of the month"
        shown = [(*row[:8], row[10]) for row in rows]
    if sure := _sure(connection):
        meanings["how sure"] = sure
    printed = table(columns, shown, marks)
    return "\n".join([printed, explained(meanings)]) if rows else ""


def _sure(connection: duckdb.DuckDBPyConnection) -> str:
    """The 95 % intervals of the newest month, and which part of its electricity is metered; empty without any."""
    if "figure_intervals" not in database.tables(connection, "marts"):
        return ""
    found = {figure: rest for figure, *rest in connection.execute(_INTERVALS).fetchall()}
    doubt = figures_in_doubt.of_models(connection, _OF_MONTH).get(ALL)
    written = []
    for figure, (name, digits) in _SURE.items():
        if figure in found:
            low, high, metered_ratio = found[figure]
            metered = f" ({metered_ratio:.1%} of it metered)" if figure == "facility_energy_kwh" else ""
            mark = "?" if doubt and doubt.concerns(name) else ""
            written.append(f"{name}{mark} {low:,.{digits}f} to {high:,.{digits}f}{metered}")
    return f"95 % intervals of the newest month: {', '.join(written)} (docs/uncertainty.md)" if written else ""


def budgets(connection: duckdb.DuckDBPyConnection) -> str:
    """The budgets of the newest month; empty without any."""
    return table(BUDGET_COLUMNS, connection.execute(_BUDGETS).fetchall()) if _has_finance(connection) else ""


def _has_finance(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether the publication has schema finance: one of an older version has not."""
    found = connection.execute("select count(*) from duckdb_tables() where schema_name = 'finance'").fetchall()
    return bool(found[0][0] > 0)
