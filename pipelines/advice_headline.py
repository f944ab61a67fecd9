"""The second and third table of `make run`: what to do about each deployment, and the accelerators that nobody holds.

Add a column here when an operator acts on it. Keep out formulas, and which row is to be followed (`advice`).
"""

from __future__ import annotations

import duckdb

from pipelines.text_tables import RATIO, TEXT, explained, table

# The rows to follow, biggest saving first; the rest by name.
_ADVICE = """
with advice as (
    select deployment, kind, reason_code, null as shares_with, current_gpus, recommended_gpus, saving_kwh_month,
        saving_kgco2e_month, saving_energy_usd_month, saving_usd_month_if_released, risk_ratio, confidence
    from published.right_sizing where is_preferred
    union all
    select deployment, kind, reason_code, shares_with, current_gpus, recommended_gpus, saving_kwh_month,
        saving_kgco2e_month, saving_energy_usd_month, saving_usd_month_if_released, risk_ratio, confidence
    from published.consolidation where is_preferred
)
select deployment,
    case
        when kind in ('keep', 'insufficient_data') then format('{} ({})', kind, reason_code)
        when shares_with is not null then format('{} with {}', kind, shares_with)
        else kind
    end,
    * exclude (deployment, kind, reason_code, shares_with)
from advice
order by saving_kwh_month desc nulls last, deployment, kind
"""
_FREE = """
select format('{} at {}', device_type, site), gpus_now, strftime(timezone('UTC', all_free_since_at), '%Y-%m-%d %H:%M'),
    watts_per_gpu, cost_usd_month,
    case when is_spare then 'spare: kept on purpose' else coalesce(fitting_deployment, 'none') end,
    saving_kwh_month_if_switched_off, saving_usd_month_if_released
from marts.free_boards
where gpus_now > 0
order by cost_usd_month desc nulls last, device_type, site, is_spare
"""

_ADVICE_COLUMNS = {
    "deployment": TEXT,
    "what to do": TEXT,
    "GPUs": 0,
    "then": 0,
    "kWh/month": 1,
    "kgCO2e": 1,
    "USD": 2,
    "USD if released": 2,
    "time short": RATIO,
    "confidence": TEXT,
}
_ADVICE_MEANINGS = {
    "what to do": "the one change to follow, of those that the last weeks support; keep and why, where there is none",
    "GPUs, then": "accelerators that the deployment holds now, and would hold then",
    "kWh/month, kgCO2e, USD": "what that alone saves in a month of 730 hours, at the facility: nodes and hosts stay on",
    "USD if released": "the month's price of the freed accelerators, once they are handed back or needed elsewhere",
    "time short": "share of the last weeks in which this would have been too little, or late",
    "confidence": "how well the last weeks support it (docs/recommendations.md)",
}
_FREE_COLUMNS = {
    "nobody holds": TEXT,
    "GPUs": 0,
    "all free since (UTC)": TEXT,
    "W each": 1,
    "USD/month": 2,
    "fits on them": TEXT,
    "kWh if off": 1,
    "USD if released": 2,
}
_FREE_MEANINGS = {
    "W each": "mean watts of one of them since it is free",
    "USD/month": "what they cost as they are: their hours and their electricity",
    "fits on them": "a deployment that could have one more engine there",
    "kWh if off": "what a month saves if they are switched off, at the facility",
    "USD if released": "what a month saves if they are handed back",
}


def advice(connection: duckdb.DuckDBPyConnection) -> str:
    """What to do about each deployment; empty without any."""
    return _told(connection, _ADVICE, _ADVICE_COLUMNS, _ADVICE_MEANINGS)


def free_boards(connection: duckdb.DuckDBPyConnection) -> str:
    """Accelerators that nobody holds now; empty without any."""
    return _told(connection, _FREE, _FREE_COLUMNS, _FREE_MEANINGS)


def _told(connection: duckdb.DuckDBPyConnection, query: str, columns: dict[str, int], meanings: dict[str, str]) -> str:
    rows = connection.execute(query).fetchall()
    return "\n".join([table(columns, rows), explained(meanings)]) if rows else ""
