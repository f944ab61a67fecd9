"""The first table of `wattledger run`: joules per token of each model, and the fleet's electricity, CO2e and dollars.

Add a column here when a newcomer should see it first. Keep out formulas: ratios here are sums over sums of columns of
the marts. Joules per token are measured at the meter; kWh, CO2e and dollars are those of the facility.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any

import duckdb

from pipelines.command_line.text_tables import RATIO, TEXT, explained, narrowed, table
from pipelines.fleet.fleet_file import Fleet
from pipelines.fleet.money.cost_rates import seeded_rate
from pipelines.named_figures import figures_in_doubt, unplaced_hosts

# The share of a model's joules in intervals with tokens. Below this, J/token covers too few of its joules.
WELL_MATCHED = 0.9
# Of a model's joules: a scope with less has no row of its own.
LEAST_SHARE = 0.001
UNMATCHED = (
    "* tokens were counted during less than 90 % of this model's energy (matched_ratio): J/token covers that part only"
)
AT_LEAST = (
    "≥ at least this: a price or a grid factor is missing for a part of it (is_cost_complete, is_carbon_complete)"
)
PARTLY_PRICED = (
    "+ less than 90 % of this model's tokens have a price for all their parts (cost_coverage_ratio): USD/Mtok covers"
    " those only"
)
FLEET = "fleet"

# A board's joules and a whole node's are two quantities. Tokens without power (scope none) join the model's own scope.
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
        sum(compute_cost_usd) as compute_cost_usd,
        sum(matched_compute_cost_usd) * 1e6 / nullif(sum(priced_output_tokens), 0) as compute_cost_usd_per_output_mtok,
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
    facility_energy_kwh, location_kgco2e, compute_cost_usd, compute_cost_usd_per_output_mtok, matched_ratio,
    cost_coverage_ratio, is_cost_complete, is_carbon_complete, model_name"""
_MODELS = f"""
with {OF_SCOPES},
-- The seconds of a model that a node's meter has instead of its boards are in the fleet's sum alone.
shown as (
    from by_scope
    qualify energy_joules is null or energy_joules >= {LEAST_SHARE} * sum(energy_joules) over (partition by model)
),
named as (
    select * replace (case when (select count(distinct scope) from shown where energy_joules > 0) > 1
        then format('{{}} ({{}})', model, scope) else model end as model),
        model as model_name,
        starts_with(model, '__') as is_reserved_name
    from shown
)
select {_SHOWN} from named order by is_reserved_name, energy_joules desc nulls last, model
"""
_FLEET = f"""
with {OF_SCOPES}
select null, null, null, null, sum(facility_energy_kwh), sum(location_kgco2e), sum(compute_cost_usd), null, null, null,
    bool_and(is_cost_complete), bool_and(is_carbon_complete), '__fleet__'
from by_scope
"""
# All parts of the cost of the same dates; those that the table leaves out, each with its USD.
_ALL_PARTS = """
select case deployment when '__unused_commitment__' then 'unused commitment' when '__unmetered__' then
        'unmetered accelerators' else replace(part, '_', ' ') end as what, sum(cost_usd) as usd,
    deployment not in ('__unused_commitment__', '__unmetered__')
        and part in ('capacity', 'energy', 'cooling', 'overhead') as is_in_table,
    bool_and(is_cost_complete) as is_cost_complete
from marts.cost_daily
where basis = 'fully_loaded'
group by what, is_in_table
having sum(cost_usd) <> 0
order by usd desc, what
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
    "USD compute": 2,
    "USD compute/Mtok": 2,
}
_MEANINGS = {
    "J/total token": "joules of the accelerators alone (in a row marked node: of the whole server), idle joules"
    " included, per input or output token",
    "J/output token": "the same joules per output token",
    "idle energy": "share of those joules drawn while nothing ran, or by the idle floor while something ran",
    "idle time": "share of the known time in which nothing ran",
    "kWh, kgCO2e": "electricity of the accelerators and their hosts, × PUE, and the grid's emissions for it",
    "USD compute": "price of the accelerator hours that the model claimed, and of its electricity",
    "USD compute/Mtok": "USD compute per million output tokens (Mtok)",
}
_RESERVED_NAMES = {
    "__unallocated__": "accelerators that no model claimed",
    "__unknown__": "accelerators whose model is unknown",
}
# Of the first page; the table by its name has all.
FIRST = ("model", "J/output token", "idle energy", "kWh", "kgCO2e", "USD compute", "USD compute/Mtok")
SHOWN_NAMES = 4  # GPU types or sites in a line of the legend


def models(connection: duckdb.DuckDBPyConnection, fleet: Fleet, headings: Sequence[str] = tuple(_COLUMNS)) -> str:
    """The table with its total, the meaning of its marks and headings, and its inputs; empty without rows."""
    rows = connection.execute(_MODELS).fetchall()
    if not rows:
        return ""
    (total,) = connection.execute(_FLEET).fetchall()
    shown = [*rows, (FLEET, *total)]
    marks = [_marks(*row[len(_COLUMNS) : -1]) for row in shown]
    in_doubt = figures_in_doubt.of_models(connection)
    of_all = in_doubt | figures_in_doubt.of_models(
        connection, "(select *, '__fleet__' as model from marts.fleet_daily)"
    )
    marks = [
        figures_in_doubt.marks(of_all.get(row[-1]), _COLUMNS, mark) for row, mark in zip(shown, marks, strict=True)
    ]
    # A mark on an empty cell explains nothing.
    seen = {
        mark[name]
        for row, mark in zip(shown, marks, strict=True)
        for name, value in zip(_COLUMNS, row, strict=False)
        if name in mark and name in headings and value is not None
    }
    notes = [note for note, sign in ((UNMATCHED, "*"), (AT_LEAST, "≥"), (PARTLY_PRICED, "+")) if sign in "".join(seen)]
    if in_doubt:
        notes.append(f"? {figures_in_doubt.note(in_doubt)}")
    lines = table(*narrowed(_COLUMNS, shown, headings), marks)
    names = [str(row[0]).partition(" ")[0] for row in rows]
    reserved = {name: meaning for name, meaning in _RESERVED_NAMES.items() if name in names}
    meanings = {name: meaning for name, meaning in _MEANINGS.items() if {*name.split(", ")} <= {*headings}}
    if "J/total token" not in headings:
        meanings["J/output token"] = f"{_MEANINGS['J/total token'].partition(', per')[0]}, per output token"
    legend = explained({**meanings, **_all_parts(connection), **reserved, **_inputs(connection, fleet)})
    return "\n".join([lines, *notes, legend, *filter(None, [seeded_rates(connection, fleet), unplaced(connection)])])


def unplaced(connection: duckdb.DuckDBPyConnection) -> str | None:
    """What wall meters read that are in no figure of the table, and the lines of the fleet file that place them; None
    where there are none."""
    listed = unplaced_hosts.meters(connection)
    if not listed:
        return None
    kwh = f"{sum(one.joules for one in listed) / 3.6e6:,.1f} kWh"
    return "\n".join([unplaced_hosts.sentence(listed, kwh), *unplaced_hosts.block(listed)])


def _all_parts(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """What the fleet cost with the parts that the table leaves out; nothing where there are none."""
    parts = connection.execute(_ALL_PARTS).fetchall()
    others = [f"{what} {usd:,.2f}" for what, usd, is_in_table, _ in parts if not is_in_table]
    if not others:
        return {}
    least = "" if all(is_cost_complete for *_, is_cost_complete in parts) else "≥ "
    total = sum(usd for _, usd, *_ in parts)
    compute = sum(usd for _, usd, is_in_table, _ in parts if is_in_table)
    added = ", ".join([f"USD compute {compute:,.2f}", *others])
    return {"all parts": f"{least}{total:,.2f} USD, as in the table of months: {added}"}


def _inputs(connection: duckdb.DuckDBPyConnection, fleet: Fleet) -> dict[str, str]:
    """The figures that are not measured: the rate of each GPU type with its source, and the PUE of each site."""
    types = connection.execute(
        "select device_type, max(date) from marts.model_daily where device_type not in ('none', '__unknown__')"
        " group by device_type order by device_type"
    ).fetchall()
    found = {
        "GPU types": [f"{device_type} ({_rate(fleet, device_type, last)})" for device_type, last in types],
        "PUE": [f"{site.pue:g} at {site.name}" for site in fleet.sites],
    }
    return {name: ", ".join(_first(texts)) for name, texts in found.items() if texts}


def _rate(fleet: Fleet, device_type: str, on: date) -> str:
    stated = [rate for rate in fleet.cost_rates if rate.device_type == device_type and rate.valid_from <= on]
    if stated:
        return f"{max(stated, key=lambda rate: rate.valid_from).price}, fleet file"
    listed = [file.source for file in fleet.cost_rate_files if device_type in file.device_types.values()]
    if listed:
        return f"price list {listed[0]}"
    if device_type in _exported(fleet):
        return "FOCUS export"
    seeded = seeded_rate(device_type, on)
    return "no price" if seeded is None else f"{seeded.price}, seed cost_rates"


def _exported(fleet: Fleet) -> set[str]:
    """The device types whose rate is from a FOCUS export."""
    exports = [export for export in fleet.focus_exports if "rates" in export.reads]
    return {sku.device_type for export in exports for sku in export.skus.values()}


def _first(texts: Sequence[str]) -> Iterator[str]:
    yield from texts[:SHOWN_NAMES]
    if len(texts) > SHOWN_NAMES:
        yield f"… and {len(texts) - SHOWN_NAMES} more"


def _marks(
    matched_ratio: Any,
    cost_coverage_ratio: Any,
    is_cost_complete: bool,
    is_carbon_complete: bool,
) -> dict[str, str]:
    marks: dict[str, str] = {}
    if matched_ratio is not None and matched_ratio < WELL_MATCHED:
        marks |= dict.fromkeys(("J/total token", "J/output token"), "{}*")
    if cost_coverage_ratio is not None and cost_coverage_ratio < WELL_MATCHED:
        marks["USD compute/Mtok"] = "{}+"
    if not is_cost_complete:
        marks["USD compute"] = "≥ {}"
    if not is_carbon_complete:
        marks["kgCO2e"] = "≥ {}"
    return marks


def seeded_rates(connection: duckdb.DuckDBPyConnection, fleet: Fleet) -> str | None:
    """The line that names the seeded rates: they include electricity, so the fleet file's tariff is not added."""
    stated = {rate.device_type for rate in fleet.cost_rates}
    stated |= {device_type for file in fleet.cost_rate_files for device_type in file.device_types.values()}
    stated |= _exported(fleet)
    named = []
    for device_type, last in connection.execute(_PRICED_TWICE).fetchall():
        rate = None if device_type in stated else seeded_rate(device_type, last)
        if rate is not None and "energy" in rate.all_included:
            named.append(f"{device_type} ({rate.usd_per_gpu_hour:.2f} USD per GPU-hour)")
    if not named:
        return None
    return (
        f"USD: the rate of {', '.join(named)} is from the seed cost_rates and includes electricity, so the tariff is"
        " not charged beside it; your own rates go under cost_rates in the fleet file"
    )
