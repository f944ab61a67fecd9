"""The book of a date that receipts are priced from, written into the marts: what an engine used, without its telemetry.

Add here what receipts read. Keep out what is asked of them (`receipt_truth`, `receipt_speed`).
"""

from __future__ import annotations

import shutil
import time
from datetime import date, timedelta
from pathlib import Path

import duckdb

from pipelines.booking.dbt_run import run_dbt
from pipelines.warehouse import database
from tests.books import empty_warehouse

ON = date(2026, 10, 1)
MODELS = ("stg_run_dates", "int_requests", "path:models/receipts")
IDLE_JOULES, CO2_GRAMS, USD = 1e6, 1e3, 100.0  # of the date: what a sum needs to be checked with
ERROR_RATIO = 0.05  # of a board's meter


def warehouse(folder: Path) -> duckdb.DuckDBPyConnection:
    """A warehouse without rows."""
    path = folder / "warehouse.duckdb"
    shutil.copyfile(empty_warehouse(), path)
    return database.connect(path)


def book(
    connection: duckdb.DuckDBPyConnection,
    intervals: str,
    cached: float,
    model: str = "chat",
    concurrency: float | None = None,
) -> None:
    """What receipts read, of a date on which one engine served a model, with so many requests at once, and used what
    the table `intervals` has: joules, computed and output tokens by interval_start_at."""
    engine = f"date '{ON}' as date, 'llm/{model}-0' as engine"
    connection.execute(f"insert into intermediate.int_claims by name select {engine}, '{model}' as model")
    connection.execute(
        f"insert into intermediate.int_token_weights by name select {engine}, $1 as concurrency", [concurrency]
    )
    place = (
        f"date '{ON}' as date, 'west' as site, 'd' as deployment, '{model}' as model, 'h100' as device_type,"
        " 'board' as meter_scope, 'unified' as role"
    )
    facts = f"""
        sum(joules) as productive_joules, {IDLE_JOULES} as idle_joules, sum(joules) + {IDLE_JOULES} as energy_joules,
        0 as unknown_joules, 0 as carbon_unknown_joules, (sum(joules) + {IDLE_JOULES}) * {ERROR_RATIO} as error_joules,
        {CO2_GRAMS} as location_gco2e, {USD} as compute_cost_usd, {USD / 10} as idle_compute_cost_usd,
        0 as unknown_cost_usd, true as is_cost_complete, sum(computed) as computed_input_tokens,
        {cached} as cached_input_tokens, sum(computed) + {cached} as input_tokens, sum(output) as output_tokens,
        sum(computed) + {cached} + sum(output) as total_tokens
    """
    connection.execute(f"""
        insert into marts.model_intervals by name
        select interval_start_at, {place}, joules as matched_productive_joules,
            computed as matched_computed_input_tokens, output as matched_output_tokens,
            computed + output + {cached} / (select count(*) from {intervals}) as matched_total_tokens
        from {intervals}
    """)
    connection.execute(f"insert into marts.model_daily by name select {place}, {facts} from {intervals}")
    connection.execute(f"""
        insert into marts.model_hourly by name
        select hours.hour_at as hour_start_at, date_trunc('month', date '{ON}') as billing_month, {place}, {facts}
        from {intervals}
        cross join (
            select unnest(generate_series(timestamptz '{ON} 00:00+00', timestamptz '{ON} 23:00+00', interval 1 hour))
        ) as hours(hour_at)
        group by hours.hour_at
    """)


def make(folder: Path, threads: int = 2) -> float:
    """Run the models of receipts as a run does; returns the seconds."""
    variables = {
        "start_date": ON.isoformat(),
        "end_date": (ON + timedelta(days=1)).isoformat(),
        "keeps_receipts": True,
    }
    surroundings = {"WATTLEDGER_WAREHOUSE": str(folder / "warehouse.duckdb"), "WATTLEDGER_THREADS": str(threads)}
    began = time.monotonic()
    results = run_dbt(["run", "--select", *MODELS], variables, surroundings, folder / "dbt")
    wrong = [f"{one.node.name}: {one.message}" for one in results if one.status != "success"]
    if wrong:
        raise RuntimeError("; ".join(wrong))
    return time.monotonic() - began
