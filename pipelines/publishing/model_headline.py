"""The first table of `make run`: what a token of each model took, and what the fleet drew, emitted and cost.

Add a column here when a newcomer should see it first. Keep out formulas: ratios here are sums over sums of columns that
the marts already hold. Joules per token are those at the meter; kWh, CO2e and dollars are the facility's.
"""

from __future__ import annotations

from typing import Any

import duckdb

from pipelines.fleet.cost_rates import seeded_rate
from pipelines.fleet.fleet_file import Fleet
from pipelines.publishing.text_tables import RATIO, TEXT, explained, table

# Of a model's joules, the share that has tokens beside it: below this, J/token speaks for too little of them.
WELL_MATCHED = 0.9
UNMATCHED = (
    "* less than 90 % of this model's energy was measured while its tokens were counted (matched_ratio): its J/token is"
    " that of the rest"
)
AT_LEAST = (
    "≥ a price or a grid factor is missing for a part of it (is_cost_complete, is_carbon_complete): at least this"
)
PARTLY_PRICED = (
    "+ less than 90 % of this model's tokens were generated while every part had a price (cost_coverage_ratio): its"
    " USD/Mtok is that of the rest"
)
FLEET = "fleet"

# Joules of a board and of a whole node are two quantities. Tokens without power (scope none) join what their model has.
OF_SCOPES = """
scoped as (
    select *, coalesce(
        nullif(meter_scope, 'none'), min(nullif(meter_scope, 'none')) over (partition by model), 'none') as scope
    from marts.model_daily
),
by_scope as (
    select model, scope,
        -- Idle days count: they have joules and no tokens.
        sum(matched_joules) / nullif(sum(matched_total_tokens), 0) as joules_per_total_token,
        sum(matched_joules) / nullif(sum(matched_output_tokens), 0) as joules_per_output_token,
        sum(idle_joules) / nullif(sum(productive_joules + idle_joules), 0) as idle_energy_ratio,
        1 - sum(active_seconds) / nullif(sum(known_seconds), 0) as idle_time_ratio,
        sum(facility_energy_kwh) as facility_energy_kwh,
        sum(location_gco2e) / 1000 as location_kgco2e,
        sum(allocation_cost_usd) as allocation_cost_usd,
        sum(fully_loaded_cost_usd) as fully_loaded_cost_usd,
        sum(matched_fully_loaded_cost_usd) * 1e6 / nullif(sum(priced_output_tokens), 0)
            as fully_loaded_cost_usd_per_output_mtok,
        sum(energy_joules) as energy_joules,
        sum(matched_joules) / nullif(sum(energy_joules), 0) as matched_ratio,
        sum(priced_output_tokens) / nullif(sum(matched_output_tokens), 0) as cost_coverage_ratio,
        coalesce(sum(unpriced_gpu_seconds), 0) = 0 as is_cost_complete,
        coalesce(sum(carbon_unknown_joules), 0) = 0 as is_carbon_complete
    from scoped
    group by model, scope
)
"""
_SHOWN = """model, joules_per_total_token, joules_per_output_token, idle_energy_ratio, idle_time_ratio,
    facility_energy_kwh, location_kgco2e, allocation_cost_usd, fully_loaded_cost_usd,
    fully_loaded_cost_usd_per_output_mtok, matched_ratio, cost_coverage_ratio, is_cost_complete, is_carbon_complete"""
_MODELS = f"""
with {OF_SCOPES},
named as (
    select * replace (case when (select count(distinct scope) from by_scope where energy_joules > 0) > 1
        then format('{{}} ({{}})', model, scope) else model end as model),
        starts_with(model, '__') as is_nobodys
    from by_scope
)
select {_SHOWN} from named order by is_nobodys, energy_joules desc nulls last, model
"""
_FLEET = f"""
with {OF_SCOPES}
select null, null, null, null, sum(facility_energy_kwh), sum(location_kgco2e), sum(allocation_cost_usd),
    sum(fully_loaded_cost_usd), null, null, null, bool_and(is_cost_complete), bool_and(is_carbon_complete)
from by_scope
"""
# Device types with a metered energy cost and a rate, and the last date of it.
_PRICED_TWICE = """
select device_type, max(date)
from marts.model_daily
where energy_cost_usd is not null and capacity_cost_usd is not null
group by device_type order by device_type
"""

_COLUMNS = {
    "model": TEXT,
    "J/total token": 4,
    "J/output token": 4,
    "idle energy": RATIO,
    "idle time": RATIO,
    "kWh": 1,
    "kgCO2e": 1,
    "USD own": 2,
    "USD fully loaded": 2,
    "USD/Mtok output": 2,
}
_MEANINGS = {
    "J/total token": "joules of the accelerators alone (where the row says node, of a server), idle ones included,"
    " per input or output token",
    "J/output token": "the same joules per output token",
    "idle energy": "share of those joules drawn while nothing ran, or by the idle floor under what ran",
    "idle time": "share of the time in which nothing ran, of the time whose use is known",
    "kWh, kgCO2e": "of the facility: accelerators and their hosts × PUE, and what the grid emitted for it",
    "USD own": "price of the accelerators' hours that the row claimed, and of its electricity",
    "USD fully loaded": "USD own and, by GPU-hours, a share of what nobody held; both add up to the same total",
    "USD/Mtok output": "USD fully loaded per million output tokens",
}


def models(connection: duckdb.DuckDBPyConnection, fleet: Fleet) -> str:
    """The table with its total, what its marks and headings mean, and whose rates it stands on; empty without rows."""
    rows = connection.execute(_MODELS).fetchall()
    if not rows:
        return ""
    (total,) = connection.execute(_FLEET).fetchall()
    shown = [*rows, (FLEET, *total)]
    marks = [_marks(*row[-4:]) for row in shown]
    # A mark on an empty cell explains nothing.
    seen = {
        mark[name]
        for row, mark in zip(shown, marks, strict=True)
        for name, value in zip(_COLUMNS, row, strict=False)
        if name in mark and value is not None
    }
    notes = [note for note, mark in ((UNMATCHED, "{}*"), (AT_LEAST, "≥ {}"), (PARTLY_PRICED, "{}+")) if mark in seen]
    told = table(_COLUMNS, [row[: len(_COLUMNS)] for row in shown], marks)
    return "\n".join([told, *notes, explained(_MEANINGS), *filter(None, [seeded_rates(connection, fleet)])])


def _marks(
    matched_ratio: Any, cost_coverage_ratio: Any, is_cost_complete: bool, is_carbon_complete: bool
) -> dict[str, str]:
    marks: dict[str, str] = {}
    if matched_ratio is not None and matched_ratio < WELL_MATCHED:
        marks |= dict.fromkeys(("J/total token", "J/output token"), "{}*")
    if cost_coverage_ratio is not None and cost_coverage_ratio < WELL_MATCHED:
        marks["USD/Mtok output"] = "{}+"
    if not is_cost_complete:
        marks |= dict.fromkeys(("USD own", "USD fully loaded"), "≥ {}")
    if not is_carbon_complete:
        marks["kgCO2e"] = "≥ {}"
    return marks


def seeded_rates(connection: duckdb.DuckDBPyConnection, fleet: Fleet) -> str | None:
    """The line that says where a seeded rate, which includes electricity, stands in for a tariff of the fleet file."""
    stated = {rate.device_type for rate in fleet.cost_rates}
    stated |= {device_type for file in fleet.cost_rate_files for device_type in file.device_types.values()}
    named = []
    for device_type, last in connection.execute(_PRICED_TWICE).fetchall():
        rate = None if device_type in stated else seeded_rate(device_type, last)
        if rate is not None and rate.includes_energy:
            named.append(f"{device_type} ({rate.usd_per_gpu_hour:.2f} USD per GPU-hour)")
    if not named:
        return None
    return (
        f"USD: the rate of {', '.join(named)} is from the seed cost_rates and includes electricity, so the tariff is"
        " not charged beside it; your own rates go under cost_rates in the fleet file"
    )
