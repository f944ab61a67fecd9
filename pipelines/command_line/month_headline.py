"""The months of the page that `make run` prints: what each cost and will have cost, and whether the budgets hold.

Add here what a reader asks about a month. Keep out the page itself (`headline`) and formulas: the figures are those of
schema finance.
"""

from __future__ import annotations

import duckdb

from pipelines.command_line.text_tables import RATIO, TEXT, explained, table

SHOWN_MONTHS = 3
_MONTHS = f"""
select strftime(month, '%Y-%m'), string_agg(distinct status, ', ' order by status),
    sum(booked_hours) / sum(month_hours), sum(closed_cost_usd),
    nullif(sum(adjustment_usd), 0), sum(known_cost_usd), sum(idle_cost_usd) / sum(known_cost_usd), sum(forecast_usd),
    bool_and(is_cost_complete)
from finance.months group by month having sum(closed_cost_usd) is not null order by month desc limit {SHOWN_MONTHS}
"""
_COLUMNS = {
    "month": TEXT,
    "status": TEXT,
    "booked": RATIO,
    "USD charged": 2,
    "of it adjusted": 2,
    "USD known": 2,
    "idle": RATIO,
    "USD at its end": 2,
}
_MEANINGS = {
    "USD charged": "all parts of the cost: what a closed month was closed with; of an open one what is booked so far",
    "of it adjusted": "changes of closed months that this month got",
    "USD known": "all parts of the cost, as known now",
    "idle": "share of it that paid for idle accelerators",
    "USD at its end": "what the month will have cost; – with less than 14 days of history",
}
_BUDGETS = """
select strftime(month, '%Y-%m'), budget, scope || ' ' || name, budget_usd, spent_usd, spent_usd / budget_usd,
    forecast_usd, nullif(expected_overrun_usd, 0)
from finance.budgets where month = (select max(month) from finance.budgets)
order by expected_overrun_usd desc nulls last, budget
"""
_BUDGET_COLUMNS = {
    "month": TEXT,
    "budget": TEXT,
    "of": TEXT,
    "USD budget": 2,
    "USD spent": 2,
    "spent": RATIO,
    "USD at its end": 2,
    "too much": 2,
}


def months(connection: duckdb.DuckDBPyConnection) -> str:
    """The newest months, the newest first; empty where nothing has a price."""
    if not _has_finance(connection):
        return ""
    rows = connection.execute(_MONTHS).fetchall()
    marks = [{} if row[-1] else dict.fromkeys(("USD charged", "USD known"), "≥ {}") for row in rows]
    printed = table(_COLUMNS, [row[:-1] for row in rows], marks)
    return "\n".join([printed, explained(_MEANINGS)]) if rows else ""


def budgets(connection: duckdb.DuckDBPyConnection) -> str:
    """The budgets of the newest month; empty without any."""
    return table(_BUDGET_COLUMNS, connection.execute(_BUDGETS).fetchall()) if _has_finance(connection) else ""


def _has_finance(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether the publication has schema finance: one of an older version has not."""
    found = connection.execute("select count(*) from duckdb_tables() where schema_name = 'finance'").fetchall()
    return bool(found[0][0] > 0)
