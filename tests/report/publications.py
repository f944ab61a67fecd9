"""Publications that tests write by hand: the tables of the real contracts, with the rows that a test gives.

Add here how a row is written. Keep out what the page should show of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from pipelines.advice import consolidation_table, cost_forecasts, efficiency_fits, right_sizing_table, sleep_table
from pipelines.booking.project import prepared_project
from pipelines.fleet.places import DBT_PROJECT
from pipelines.publishing.publication_manifest import DATABASE
from pipelines.warehouse import database
from pipelines.warehouse.contracts import contracts_of

Rows = Sequence[Mapping[str, Any]]
NEWEST = date(2026, 10, 28)
KEYS = {"site": "west", "meter_scope": "board", "device_type": "a6000", "role": "unified"}
PUBLISHED = {
    "publication_id": "varchar", "published_at": "timestamptz", "start_date": "date", "end_date": "date",
    "fleet": "varchar", "is_synthetic": "boolean", "code_version": "varchar", "previous_publication_id": "varchar",
    "held_back_dates": "varchar", "held_back_reasons": "varchar", "is_forced": "boolean", "forced_reasons": "varchar",
}  # fmt: skip


def columns() -> dict[str, dict[str, str]]:
    """Table -> column -> type, of every table of a publication."""
    manifest = prepared_project().manifest_path
    marts = contracts_of(manifest, DBT_PROJECT).marts
    views = [
        node
        for node in json.loads(manifest.read_text(encoding="utf-8"))["nodes"].values()
        if node["resource_type"] == "model" and node["schema"] == "finance"
    ]
    computed = {
        "marts.efficiency_fit": efficiency_fits.COLUMNS,
        "marts.cost_forecast": cost_forecasts.FORECAST_COLUMNS,
        "marts.budget_monthly": cost_forecasts.BUDGET_COLUMNS,
        "published.right_sizing": right_sizing_table.COLUMNS,
        "published.consolidation": consolidation_table.COLUMNS,
        "published.sleep_after": sleep_table.COLUMNS,
    }
    return {
        **{f"marts.{name}": dict(mart.columns) for name, mart in marts.items()},
        **{
            f"finance.{view['name']}": {column["name"]: column["data_type"] for column in view["columns"].values()}
            for view in views
        },
        **{name: {column: kind for column, (kind, _) in found.items()} for name, found in computed.items()},
        "published.publication": PUBLISHED,
    }


def write(folder: Path, **tables: Rows) -> Path:
    """A published file with `marts_<name>` or `published_<name>` rows; columns that a row leaves out are NULL."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / DATABASE
    made = {"published_publication": [publication()], **tables}
    with closing(duckdb.connect(str(path))) as connection:
        connection.execute("set TimeZone = 'UTC'")
        for table, kinds in columns().items():
            connection.execute(f"create schema if not exists {table.partition('.')[0]}")
            listed = ", ".join(f'"{column}" {kind}' for column, kind in kinds.items())
            connection.execute(f"create table {table} ({listed})")
        for name, rows in made.items():
            if not rows:
                continue
            named = dict.fromkeys(column for row in rows for column in row)
            given = pa.Table.from_pylist([{column: row.get(column) for column in named} for row in rows])
            with database.registered(connection, given=given):
                connection.execute(f"insert into {name.replace('_', '.', 1)} by name select * from given")
    return path


def publication(**changes: Any) -> dict[str, Any]:
    """The row of published.publication."""
    return {
        "publication_id": "20261029T011500000000Z-0a0b0c0d", "published_at": "2026-10-29 01:15:00+00:00",
        "start_date": NEWEST, "end_date": NEWEST + timedelta(days=1), "fleet": "tiny", "is_synthetic": True,
        "code_version": "0.1.0", "is_forced": False, **changes,
    }  # fmt: skip


def fleet_day(on: date, **changes: Any) -> dict[str, Any]:
    """A row of marts.fleet_daily in which everything is known: 1 MJ, half of it idle, 200,000 output tokens."""
    return {
        "date": on, "site": "west", "meter_scope": "board", "models": 1, "gpu_seconds": 86400,
        "claimed_gpu_seconds": 86400, "unpriced_gpu_seconds": 0, "covered_seconds": 86400, "energy_joules": 1e6,
        "productive_joules": 5e5, "idle_joules": 5e5, "unknown_joules": 0, "error_joules": 5e4, "matched_joules": 1e6,
        "matched_output_tokens": 200_000, "output_tokens": 200_000, "facility_energy_kwh": 0.5,
        "hourly_carbon_kwh": 0, "location_gco2e": 100, "carbon_unknown_joules": 0, "is_carbon_complete": True,
        **changes,
    }  # fmt: skip


def model_day(on: date, model: str, **changes: Any) -> dict[str, Any]:
    """The same of one model, as a row of marts.model_daily."""
    return {
        **KEYS, "date": on, "deployment": f"llm/{model}", "model": model, "gpu_seconds": 86400,
        "claimed_gpu_seconds": 86400, "covered_seconds": 86400, "known_seconds": 86400, "active_seconds": 43200,
        "energy_joules": 1e6, "productive_joules": 5e5, "idle_joules": 5e5, "unknown_joules": 0,
        "matched_joules": 1e6, "matched_output_tokens": 200_000, "output_tokens": 200_000,
        "facility_energy_kwh": 0.5, "location_gco2e": 100, **changes,
    }  # fmt: skip


def cost(
    on: date, model: str, usd: float | None, part: str = "capacity", basis: str = "fully_loaded", **changes: Any
) -> dict[str, Any]:
    """A row of marts.cost_daily."""
    return {
        **KEYS, "date": on, "billing_month": on.replace(day=1), "deployment": f"llm/{model}", "model": model,
        "basis": basis, "part": part, "cost_usd": usd, "is_cash": True, "is_cost_complete": usd is not None, **changes,
    }  # fmt: skip


def advice(model: str, kind: str, **changes: Any) -> dict[str, Any]:
    """A row of published.right_sizing that is to be followed."""
    return {
        **KEYS, "recommendation_id": model, "as_of_date": NEWEST, "kind": kind, "deployment": f"llm/{model}",
        "model": model, "current_gpus": 8, "recommended_gpus": 0, "freed_gpus": 8, "is_preferred": True,
        "lookback_start_at": "2026-10-01 00:00:00+00:00", "lookback_end_at": "2026-10-29 00:00:00+00:00", **changes,
    }  # fmt: skip
