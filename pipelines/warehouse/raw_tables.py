"""The tables that the pipeline writes before dbt runs: schema `raw` (the sources' rows), schema `fleet` (the file's).

When a collector delivers a new column, add it here and in `dbt_project/models/sources.yml`, and raise SCHEMA_VERSION:
`create_tables` then adds it to existing warehouses. Keep out derived values.
"""

from __future__ import annotations

import duckdb

from pipelines.warehouse import database
from pipelines.warehouse.tenants import tenant_names

# Raised with every change of the tables below, so that older code refuses a warehouse instead of dropping its columns.
SCHEMA_VERSION = 13

RAW_TABLES = {
    # One row. A warehouse without this table has version 1.
    "warehouse_version": "schema_version integer, method_version varchar, code_version varchar",
    "series": "series_id bigint, source varchar, source_kind varchar, metric varchar, labels varchar,"
    " first_seen_at timestamptz, last_seen_at timestamptz",
    "power_samples": "series_id bigint, observed_at timestamptz, value double",
    "token_samples": "series_id bigint, observed_at timestamptz, value double",
    "series_chunks": "series_id bigint, source varchar, chunk_start_at timestamptz, chunk_end_at timestamptz,"
    " samples bigint, first_at timestamptz, first_value double, last_at timestamptz, last_value double,"
    " falls bigint, duplicates bigint, out_of_order bigint, rejects bigint,"
    " longest_gap_seconds double, typical_interval_seconds double, steepest_rise_per_second double",
    # Average direct, average life-cycle and marginal are three quantities; a row holds those that its source states.
    "grid_intensity": "zone varchar, start_at timestamptz, end_at timestamptz, direct_gco2e_per_kwh double,"
    " lifecycle_gco2e_per_kwh double, marginal_gco2e_per_kwh double, is_estimated boolean, source varchar,"
    " source_kind varchar",
    "model_prices": "model varchar, provider varchar, input_usd_per_mtok double, cached_input_usd_per_mtok double,"
    " output_usd_per_mtok double, source varchar, valid_from date, as_of date",
    "run_windows": "window_id varchar, node varchar, engine varchar, model varchar, start_at timestamptz,"
    " end_at timestamptz, output_tokens double, total_tokens double, source varchar",
    # Of `amount` in `currency`, `usd` is what it is in USD; negative: a credit.
    "bills": "invoice varchar, site varchar, kind varchar, start_at timestamptz, end_at timestamptz, usd double,"
    " amount double, currency varchar, source varchar",
    "requests": "source varchar, source_kind varchar, request_id varchar, window_id varchar, started_at timestamptz,"
    " ended_at timestamptz, ttft_seconds double, end_to_end_seconds double, status varchar, is_ok boolean,"
    " is_gateway_cached boolean, model varchar, engine varchar, api_base varchar, team varchar, tenant varchar,"
    " key_hash varchar, input_tokens bigint, cached_input_tokens bigint, cache_write_input_tokens bigint,"
    " output_tokens bigint, reasoning_output_tokens bigint, tokens_basis varchar, spend_usd double,"
    " stated_concurrency double",
    # The only table with the names of tenants; `tenant` NULL: it was erased. `former_key`: of an erasure that is not
    # over, the key that is still in copies.
    "tenant_names": "tenant_key varchar, tenant varchar, named_at timestamptz, erased_at timestamptz,"
    " former_key varchar",
    # What an erasure changed: a file or a table, its SHA-256 and what its rows cost, before and after.
    "erasures": "erased_at timestamptz, tenant_key varchar, what varchar, hash_before varchar, hash_after varchar,"
    " usd_before double, usd_after double",
    # Throughput and watts are the whole system's; what is published per GPU is kept for rows without a number of GPUs.
    "benchmark_results": "source varchar, benchmark varchar, result_id varchar, submitter varchar, system varchar,"
    " accelerator varchar, accelerators double, model varchar, architecture varchar, precision varchar,"
    " framework varchar, software varchar, scenario varchar, configuration varchar, is_disaggregated boolean,"
    " speculation varchar, input_length_tokens double, output_length_tokens double, concurrency double,"
    " output_tokens_per_second double, total_tokens_per_second double, total_tokens_per_second_per_gpu double,"
    " output_tokens_per_second_per_user double, output_tokens_per_second_per_user_basis varchar, ttft_seconds double,"
    " ttft_p99_seconds double, tpot_p99_seconds double, end_to_end_seconds double, watts double, watts_basis varchar,"
    " result_value double, result_unit varchar, file varchar, measured_on date, run_url varchar, as_of date",
    "landings": "landed_at timestamptz, run_id varchar, asset varchar, source varchar, window_start_at timestamptz,"
    " window_end_at timestamptz, outcome varchar, rows bigint, rows_before bigint, url varchar, status varchar,"
    " detail varchar",
    # Of the last booking: series that it leaves out. `label` NULL: the value is one of its samples.
    "refused_series": "series_id bigint, source varchar, metric varchar, label varchar, value varchar, model varchar,"
    " message varchar, run_id varchar, refused_at timestamptz",
    "unknown_families": "source varchar, metric varchar, series bigint, last_seen_at timestamptz",
    # What those of power and energy are about; `device_index` and `pci_bus_id` are unique on their node alone.
    "unknown_devices": "source varchar, metric varchar, device_uuid varchar, device_index varchar, pci_bus_id varchar,"
    " node varchar, last_seen_at timestamptz",
    # What a server answered about the number of its samples when a date of it landed; of the newest dates. `question`
    # is a digest of the families that it was asked about.
    "source_counts": "source varchar, date date, question varchar, metric varchar, start_at timestamptz,"
    " samples bigint, newest_at timestamptz",
    # Dates of which a server has no samples up to their end. NULL in `given_up_at`: each run asks for them again.
    "unfilled_dates": "source varchar, date date, last_sample_at timestamptz, given_up_at timestamptz",
    # Dates that a landing made stale and no run has booked yet: kept over a crash between landing and publishing.
    "due_dates": "date date, due varchar",
    # Which dates a run booked: its own and those that were due. Half-open.
    "bookings": "run_id varchar, start_date date, end_date date",
    # Dates whose published rows are kept where the sources have less of them (`run --adopt`).
    "opening_balance": "date date",
    # Booked dates of which samples were removed, and what the marts have only since the dates behind them:
    # `sealed_dates`. Without a column name it is the whole mart.
    "sealed_dates": "date date, sealed_at timestamptz",
    "columns_since": "mart varchar, column_name varchar, since date",
    # What each run left on the disk, layer by layer.
    "disk_use": "measured_at timestamptz, run_id varchar, layer varchar, bytes bigint",
    # What each run took. `busy_core_seconds` and `package_joules` are the whole machine's; `watts_per_core` is what the
    # fleet file stated. Held is what the fleet's folder and the marts had at that moment.
    "run_costs": "run_id varchar, began_at timestamptz, measured_at timestamptz, measured_until varchar,"
    " wall_seconds double, core_seconds double, busy_core_seconds double, package_joules double, watts_per_core double,"
    " peak_memory_bytes bigint, held_bytes bigint, held_gpu_seconds double",
    # Where samples are in a lake: the landing that the tables above describe.
    "lake_days": "source varchar, date date, landing_id varchar",
    # Which seed files the warehouse holds, so that a run without changed seeds does not load them again.
    "seeds_loaded": "digest varchar",
    # What each view that holds nothing of a run was made from, so that a run without changes does not make it again.
    "views_made": "view_name varchar, digest varchar",
    # What a mart's rows were made from, of marts that are made again only if it changed. dbt writes it with the rows.
    "made_from": "mart varchar, digest varchar",
    # What each date was booked with, and which nodes, models, … its book names: `settings`.
    "booked_with": "date date, setting varchar, value varchar",
    "booked_names": "date date, kind varchar, name varchar",
    # What the dates of the latest publication were booked with: a restatement has its reason by what differs.
    "published_with": "date date, setting varchar, value varchar",
}

FLEET_TABLES = {
    "sources": "source varchar, kind varchar, interval_seconds double, tokens_complete boolean, temporality varchar,"
    " site varchar, metric_prefix varchar",
    # Labels that name who asked: of a series the first of each kind counts.
    "tenant_labels": "source varchar, entry integer, names varchar, label varchar",
    "sites": "site varchar, zone varchar, time_zone varchar, pue double, wue_litres_per_kwh double,"
    " cooling_share_of_overhead double, rented_by varchar",
    "tariffs": "site varchar, valid_from date, valid_to date, local_hour_from integer, local_hour_to integer,"
    " usd_per_kwh double",
    # The unit of `usd` is that of the part: per kW and month, month, GPU-hour or tonne.
    "site_charges": "site varchar, part varchar, usd double, provisioned_kw double, interval_minutes integer,"
    " device_type varchar, valid_from date, valid_to date",
    "nodes": "node varchar, site varchar, rack varchar, device_type varchar, host_watts double",
    "node_gpus": "node varchar, site varchar, device_type varchar, gpus integer, valid_from date, valid_to date",
    "node_aliases": "alias varchar, node varchar",
    "devices": "device_uuid varchar, node varchar, device_type varchar, spare boolean",
    "device_types": "device_type varchar, gpus integer, memory_gib double, memory_bandwidth_gb_per_second double,"
    " power_limit_watts double, idle_watts_bare double, idle_watts_loaded double, embodied_kgco2e double,"
    " embodied_life_years double",
    "device_type_aliases": "alias varchar, device_type varchar",
    "model_aliases": "alias varchar, model varchar",
    "models": "model varchar, ttft_slo_seconds double, tpot_slo_seconds double, slo_attainment_ratio double,"
    " min_replicas integer, cold_start_seconds double, most_waiting_ratio double, keep_apart varchar,"
    " weights_gib double, kv_bytes_per_token double, context_tokens integer, list_price_source varchar,"
    " list_price_name varchar",
    "contract_prices": "model varchar, tenant varchar, input_usd_per_mtok double, cached_input_usd_per_mtok double,"
    " output_usd_per_mtok double, valid_from date, valid_to date",
    # Names may be prefixes; the first entry that fits counts.
    "engines": "entry integer, engine varchar, is_prefix boolean, model varchar, deployment varchar, team varchar,"
    " role varchar, node varchar, accelerators boolean, work varchar",
    "engine_pods": "entry integer, pod varchar, is_prefix boolean, engine varchar, model varchar, deployment varchar,"
    " team varchar, role varchar, work varchar",
    "engine_targets": "target varchar, engine varchar",
    "teams": "namespace varchar, team varchar",
    "assignments": "device_uuid varchar, node varchar, engine varchar, model varchar, deployment varchar,"
    " namespace varchar, team varchar, role varchar, start_at timestamptz, end_at timestamptz",
    "cost_rates": "device_type varchar, valid_from date, valid_to date, usd_per_gpu_hour double,"
    " includes varchar, source varchar, price_usd_per_gpu double,"
    " residual_value_usd_per_gpu double, life_years double, cost_of_capital_ratio double",
    # Of several contracts the first entry is used first. `matching`: share (of each hour), hourly or yearly.
    "energy_contracts": "entry integer, contract varchar, site varchar, matching varchar, gco2e_per_kwh double,"
    " is_renewable boolean, share_ratio double, mwh_per_year double, local_hour_from integer, local_hour_to integer,"
    " source varchar, valid_from date, valid_to date",
    "residual_mixes": "site varchar, gco2e_per_kwh double, source varchar, valid_from date, valid_to date",
    "currency_rates": "currency varchar, month date, usd_per_unit double",
    "commitments": "commitment varchar, site varchar, device_type varchar, gpus double, usd_per_gpu_hour double,"
    " valid_from date, valid_to date",
    "commitment_offers": "site varchar, device_type varchar, term_months integer, usd_per_gpu_hour double,"
    " provider varchar",
    "budgets": "budget varchar, scope varchar, scope_name varchar, basis varchar, usd_per_month double,"
    " valid_from date, valid_to date",
    "spot_rates": "site varchar, device_type varchar, gpus double, usd_per_gpu_hour double, start_at timestamptz,"
    " end_at timestamptz",
}


_DUCKDB_TYPES = {"timestamptz": "TIMESTAMP WITH TIME ZONE"}


class NewerWarehouse(Exception):
    """The warehouse was written by newer code and may have columns that this code would drop."""


def create_tables(connection: duckdb.DuckDBPyConnection) -> None:
    """Bring the tables to today's columns: create missing tables, and rebuild those with other columns from their own
    rows. A warehouse that is up to date is not written. NewerWarehouse is raised before anything is changed."""
    held: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for schema, table, column, kind in connection.execute(
        "select schema_name, table_name, column_name, data_type from duckdb_columns()"
        " where database_name = current_database() and schema_name in ('raw', 'fleet')"
        " order by schema_name, table_name, column_index"
    ).fetchall():
        held.setdefault((schema, table), []).append((column, kind))
    version = 1
    if ("raw", "warehouse_version") in held:
        version = connection.execute("select max(schema_version) from raw.warehouse_version").fetchall()[0][0]
    if version is not None and version > SCHEMA_VERSION:
        raise NewerWarehouse(
            f"the warehouse was written by a newer Wattledger (its schema version is {version}, this code knows up to"
            f" {SCHEMA_VERSION}). Use that version, or restore the copy of the warehouse from before its upgrade."
        )
    changed = [
        (schema, table, columns)
        for schema, tables in (("raw", RAW_TABLES), ("fleet", FLEET_TABLES))
        for table, columns in tables.items()
        if held.get((schema, table)) != _described(columns)
    ]
    # In a lake's warehouse samples are views of files, whose columns are the files' own.
    views = {row for row in connection.execute("select schema_name, view_name from duckdb_views()").fetchall()}
    changed = [(schema, table, columns) for schema, table, columns in changed if (schema, table) not in views]
    if not changed and version == SCHEMA_VERSION:
        return
    with database.transaction(connection):
        for schema in ("raw", "fleet"):
            connection.execute(f"create schema if not exists {schema}")
        for schema, table, columns in changed:
            _make(connection, schema, table, columns, [name for name, _ in held.get((schema, table), [])])
        if ("raw", "requests") in held and ("raw", "tenant_names") not in held:
            tenant_names.keep_older_names(connection)
        connection.execute("update raw.warehouse_version set schema_version = ?", [SCHEMA_VERSION])
        connection.execute(
            "insert into raw.warehouse_version (schema_version) select ?"
            " where not exists (select 1 from raw.warehouse_version)",
            [SCHEMA_VERSION],
        )


def _described(columns: str) -> list[tuple[str, str]]:
    """(name, type) of each column of a table of this module, with DuckDB's names of the types."""
    pairs = (column.split() for column in columns.split(","))
    return [(name, _DUCKDB_TYPES.get(kind, kind.upper())) for name, kind in pairs]


def _make(connection: duckdb.DuckDBPyConnection, schema: str, table: str, columns: str, held: list[str]) -> None:
    """Create a table, or give it these columns: rows keep what they held in columns of the same name."""
    if table == "grid_intensity" and "hour_start_at" in held:
        held = []  # version 0.1 had whole hours and files only, which every run reads again
        connection.execute("drop table raw.grid_intensity")
    if not held:
        connection.execute(f"create table {schema}.{table} ({columns})")
        return
    kept = ", ".join(column for column in (column.split()[0] for column in columns.split(",")) if column in held)
    connection.execute(f"create temp table rows_kept as select * from {schema}.{table}").fetchall()
    connection.execute(f"create or replace table {schema}.{table} ({columns})")
    if kept:
        connection.execute(f"insert into {schema}.{table} ({kept}) select {kept} from rows_kept").fetchall()
    connection.execute("drop table rows_kept")


def columns_of(schema: str, table: str) -> list[str]:
    """Column names of a table of this module, in order."""
    tables = {"raw": RAW_TABLES, "fleet": FLEET_TABLES}[schema]
    return [column.split()[0] for column in tables[table].split(",")]
