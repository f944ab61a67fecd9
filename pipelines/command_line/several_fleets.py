"""The fleets of a folder of fleet files (`$WATTLEDGER_FLEETS`) together: their publications as tables with a column
`fleet`, and the page that `table --all` prints.

Add here what one asks of several fleets. Keep out formulas: a figure of all fleets is a sum, or a sum over a sum, of
what each has published.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb

from pipelines.alarming import alarm_memory
from pipelines.command_line.month_headline import BUDGET_COLUMNS
from pipelines.command_line.text_tables import RATIO, TEXT, explained, table
from pipelines.fleet.fleet_file import Fleet, FleetError, load_fleet
from pipelines.publishing import published_tables
from pipelines.warehouse import database
from pipelines.warehouse.refusals import QuestionError

VARIABLE = "WATTLEDGER_FLEETS"
ALL = "all"

_LEDGER = f"""
with summed as (
    select fleet, meter_scope, grouping(fleet) as is_total, min(date) as first_date, max(date) as last_date,
        sum(matched_joules) / nullif(sum(matched_output_tokens), 0) as joules_per_output_token,
        sum(idle_joules) / nullif(sum(productive_joules + idle_joules), 0) as idle_energy_ratio,
        1 - sum(active_seconds) / nullif(sum(known_seconds), 0) as idle_time_ratio,
        sum(facility_energy_kwh) as kwh, sum(location_gco2e) / 1000 as kgco2e, sum(compute_cost_usd) as usd,
        sum(matched_compute_cost_usd) * 1e6 / nullif(sum(priced_output_tokens), 0) as usd_per_mtok,
        coalesce(bool_and(is_cost_complete), false) as is_cost_complete,
        count(facility_energy_kwh) = count(*) as is_kwh_complete,
        coalesce(bool_and(is_carbon_complete), false) as is_carbon_complete,
        -- Joules of boards and of whole nodes are two quantities.
        count(distinct meter_scope) over () > 1 as has_scopes
    from marts.fleet_daily
    group by grouping sets ((fleet, meter_scope), (meter_scope))
)
select coalesce(fleet, '{ALL}') || case when has_scopes then format(' ({{}})', meter_scope) else '' end,
    format('{{}} to {{}}', first_date, last_date), joules_per_output_token, idle_energy_ratio, idle_time_ratio, kwh,
    kgco2e, usd, usd_per_mtok, is_cost_complete, is_kwh_complete, is_carbon_complete
from summed order by is_total, fleet, meter_scope
"""
_LEDGER_COLUMNS = {
    "fleet": TEXT,
    "dates": TEXT,
    "J/output token": 4,
    "idle energy": RATIO,
    "idle time": RATIO,
    "kWh": 1,
    "kgCO2e": 1,
    "USD compute": 2,
    "USD compute/Mtok": 2,
}
# The newest month of each fleet, and the sum of the newest month of all.
_MONTHS = f"""
with newest as (
    select months.* from finance.months as months
    join (select fleet, max(month) as month from finance.months group by fleet) as last using (fleet, month)
),
summed as (
    select fleet, month, grouping(fleet) as is_total, count(distinct fleet) as fleets,
        sum(booked_hours) / sum(month_hours) as booked_ratio, sum(closed_cost_usd) as charged_usd,
        sum(known_cost_usd) as known_usd, sum(idle_cost_usd) / nullif(sum(known_cost_usd), 0) as idle_ratio,
        -- Of a sum each part has to be known.
        case when count(forecast_usd) = count(*) then sum(forecast_usd) end as forecast_usd,
        sum(facility_energy_kwh) as kwh, sum(location_kgco2e) as kgco2e, bool_and(is_cost_complete) as is_cost_complete,
        count(facility_energy_kwh) = count(*) as is_kwh_complete,
        count(location_kgco2e) = count(*) as is_carbon_complete
    from newest group by grouping sets ((fleet, month), (month))
)
select coalesce(fleet, '{ALL}'), strftime(month, '%Y-%m'), booked_ratio, charged_usd, known_usd, idle_ratio,
    forecast_usd, kwh, kgco2e, is_cost_complete, is_kwh_complete, is_carbon_complete
from summed where is_total = 0 or fleets > 1 order by is_total, month desc, fleet
"""
_MONTH_COLUMNS = {
    "fleet": TEXT,
    "month": TEXT,
    "booked": RATIO,
    "USD charged": 2,
    "USD known": 2,
    "idle cost": RATIO,
    "USD at its end": 2,
    "kWh": 1,
    "kgCO2e": 1,
}
_BUDGETS = """
select budgets.fleet, strftime(budgets.month, '%Y-%m'), budget, scope || ' ' || name, budget_usd, spent_usd,
    spent_usd / nullif(budget_usd, 0), forecast_usd, nullif(expected_overrun_usd, 0)
from finance.budgets as budgets
join (select fleet, max(month) as month from finance.budgets group by fleet) as last using (fleet, month)
order by expected_overrun_usd desc nulls last, budgets.fleet, budget
"""
_BUDGET_COLUMNS = {"fleet": TEXT, **BUDGET_COLUMNS}
_MEANINGS = {
    "J/output token": "joules of the accelerators, idle joules included, per output token of all dates",
    "kWh, kgCO2e": "electricity of the accelerators and their hosts, × PUE, and the grid's emissions for it",
    "USD compute": "price of the accelerator hours, and of their electricity",
    "USD charged": "all parts of the month's cost: of a closed month what it was closed with",
    "USD at its end": "what the month will have cost; – where a fleet has less than 14 days of history, or no price",
    "≥": "at least this: a price or a grid factor is missing for a part of it",
}


def fleets_of_folder() -> tuple[list[Fleet], list[str]]:
    """The fleets of the folder, by name, and a line per file that is none. QuestionError without such a folder."""
    named = os.environ.get(VARIABLE)
    if not named:
        raise QuestionError(f"--all: {VARIABLE} is not set; it must name a folder of fleet files")
    folder = Path(named).expanduser().absolute()
    files = sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]) if folder.is_dir() else []
    if not files:
        raise QuestionError(f"--all: {VARIABLE}={folder} has no fleet file (*.yaml, *.yml)")
    fleets: dict[str, Fleet] = {}
    wrong = []
    for file in files:
        try:
            fleet = load_fleet(file)
        except FleetError as mistake:
            wrong.append(str(mistake))
            continue
        first = fleets.setdefault(fleet.fleet, fleet)
        if first is not fleet:
            wrong.append(f"{file}: {first.path} is named {fleet.fleet!r}, too. Change `fleet:` in one of them")
    return [fleets[name] for name in sorted(fleets)], wrong


def opened(fleets: Sequence[Fleet]) -> duckdb.DuckDBPyConnection:
    """Every published table of these fleets as one, with a column `fleet`; QuestionError where none has published."""
    published = [fleet for fleet in fleets if fleet.snapshot.exists()]
    if not published:
        names = ", ".join(fleet.fleet for fleet in fleets)
        raise QuestionError(f"nothing is published for the fleets {names} yet: run `wattledger run` first")
    connection = database.connect(":memory:")
    held: dict[str, list[str]] = {}
    for place, fleet in enumerate(published):
        alias = f"fleet_{place}"
        connection.execute(f"attach {database.literal(fleet.snapshot)} as {alias} (read_only)")
        for schema in published_tables.SCHEMAS:
            for name in database.tables(connection, schema, alias):
                rest = "* exclude (fleet)" if _has_fleet(connection, alias, schema, name) else "*"
                query = f'select {database.literal(fleet.fleet)} as fleet, {rest} from {alias}.{schema}."{name}"'
                held.setdefault(f'{schema}."{name}"', []).append(query)
    for schema in published_tables.SCHEMAS:
        connection.execute(f"create schema {schema}")
    for name, queries in sorted(held.items()):
        connection.execute(f"create view {name} as {' union all by name '.join(queries)}")
    return connection


def print_table() -> int:
    """Print the page of all fleets; returns the exit status: 1 where a file is no fleet, or a fleet has nothing."""
    fleets, wrong = fleets_of_folder()
    unpublished = [fleet.fleet for fleet in fleets if not fleet.snapshot.exists()]
    with opened(fleets) as connection:
        print("\n\n".join(filter(None, [_months(connection), _ledger(connection), _budgets(connection)])))
    print(f"\n{explained(_MEANINGS)}")
    synthetic = [fleet.fleet for fleet in fleets if fleet.synthetic and fleet.fleet not in unpublished]
    if synthetic:
        print(f"\nSYNTHETIC telemetry, nothing was measured: {', '.join(synthetic)}")
    for line in _alarms(fleets):
        print(line)
    for name in unpublished:
        print(f"fleet {name}: nothing is published yet", file=sys.stderr)
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong or unpublished else 0


def _ledger(connection: duckdb.DuckDBPyConnection) -> str:
    rows = connection.execute(_LEDGER).fetchall()
    return table(_LEDGER_COLUMNS, [row[:9] for row in rows], _marks(rows, ("USD compute",)))


def _months(connection: duckdb.DuckDBPyConnection) -> str:
    if not _has(connection, "finance", "months"):
        return ""
    rows = connection.execute(_MONTHS).fetchall()
    return table(_MONTH_COLUMNS, [row[:9] for row in rows], _marks(rows, ("USD charged", "USD known")))


def _marks(rows: Sequence[Sequence[Any]], costs: Sequence[str]) -> list[dict[str, str]]:
    """The marks of sums of which a part is not known; the last three cells of a row are whether cost, electricity and
    CO2e are complete."""
    return [
        dict.fromkeys(
            [
                name
                for names, is_complete in zip((costs, ("kWh",), ("kgCO2e",)), row[-3:], strict=True)
                if not is_complete
                for name in names
            ],
            "≥ {}",
        )
        for row in rows
    ]


def _budgets(connection: duckdb.DuckDBPyConnection) -> str:
    if not _has(connection, "finance", "budgets"):
        return ""
    return table(_BUDGET_COLUMNS, connection.execute(_BUDGETS).fetchall())


def _alarms(fleets: Sequence[Fleet]) -> list[str]:
    """A line per fleet whose newest run left alarms."""
    lines = []
    for fleet in fleets:
        try:
            lasting = alarm_memory.read(fleet.root / alarm_memory.FILE).lasting
        except ValueError:
            continue  # `wattledger alarms` has the reason
        if lasting:
            more = f", and {len(lasting) - 1:,} more" if len(lasting) > 1 else ""
            lines.append(f"alarm of {fleet.fleet}: {lasting[0].severity}: {lasting[0].what}{more}")
    return lines


def _has(connection: duckdb.DuckDBPyConnection, schema: str, name: str) -> bool:
    query = "select count(*) > 0 from duckdb_views() where schema_name = ? and view_name = ?"
    return connection.execute(query, [schema, name]).fetchall() == [(True,)]


def _has_fleet(connection: duckdb.DuckDBPyConnection, alias: str, schema: str, name: str) -> bool:
    found = connection.execute(
        "select count(*) > 0 from duckdb_columns()"
        " where database_name = ? and schema_name = ? and table_name = ? and column_name = 'fleet'",
        [alias, schema, name],
    )
    return found.fetchall() == [(True,)]
