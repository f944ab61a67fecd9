"""Every asset, check, job and schedule of one fleet, put together, with the policies that hold for all of them.

Add an asset in the package that it belongs to, and list it here, in the order in which a run makes it. Only this module
knows the optional parts (Spark, PostgreSQL, object stores); it imports them only for a fleet whose file names them.
Keep out what an asset does.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from datetime import timedelta

import dagster as dg
import duckdb
from dagster_dbt import DbtProject

from pipelines.advice import (
    advice_score,
    consolidation_table,
    cost_forecasts,
    efficiency_fits,
    empty_tables,
    right_sizing_table,
    sleep_table,
)
from pipelines.alarming import run_sensors
from pipelines.booking import alarms, checks, invariants, ledger, stale_settings
from pipelines.booking.fleet_file_check import fleet_file_check
from pipelines.booking.project import prepared_project
from pipelines.fleet.fleet_file import Fleet, load_fleet
from pipelines.fleet.places import DEFAULT_FLEET
from pipelines.landing import bill_assets, request_assets, stores, telemetry_assets, window_assets
from pipelines.publishing import month_closing, publication, published_tables
from pipelines.receipts import receipt_asset
from pipelines.report import fleet_report
from pipelines.upkeep import run_costs, upkeep_asset
from pipelines.warehouse import advice_history, contracts, night_lock
from pipelines.warehouse.asset_keys import schema_of
from pipelines.warehouse.partitions import POOL
from pipelines.warehouse.tenants import tenant_names

JOB = "daily_ledger"
SCHEDULE = f"{JOB}_schedule"
# Hour and minute, UTC. After the day's first hour: by then the head that closes yesterday's midnight can be landed.
NIGHTLY = (1, 15)


def fleet_of_environment() -> Fleet:
    """The fleet that WATTLEDGER_FLEET names, else the bundled one. FleetError lists what is wrong with the file."""
    return load_fleet(os.environ.get("WATTLEDGER_FLEET") or DEFAULT_FLEET)


def validate(fleet: Fleet) -> None:
    """FleetError where a run could not land or book: before minutes of landing, not after."""
    stores.validate(fleet)
    if fleet.landing.engine == "spark":
        from pipelines.spark import cluster  # noqa: PLC0415 (an optional part)

        cluster.validate(fleet)


def definitions_of(fleet: Fleet) -> dg.Definitions:
    """All definitions of a fleet; parses the dbt project when its manifest is missing or old."""
    project = prepared_project(fleet.root.parent)
    manifest = json.loads(project.manifest_path.read_text(encoding="utf-8"))
    landed = [
        *telemetry_assets.telemetry_assets(fleet),
        *request_assets.request_assets(fleet),
        bill_assets.bills_asset(fleet),
        window_assets.run_windows_asset(fleet),
    ]
    books = ledger.ledger_assets(fleet, project, _booking_of(fleet), _create_read)
    booked = [
        invariants.invariant_checks(fleet),
        *checks.asset_checks(fleet),
        alarms.drift_alarms(fleet),
        fleet_file_check(fleet),
        stale_settings.settings_check(fleet),
    ]
    tables = [
        *books,
        efficiency_fits.efficiency_fit_asset(fleet, POOL),
        cost_forecasts.cost_forecast_assets(fleet, manifest, POOL),
        right_sizing_table.right_sizing_asset(fleet, manifest, POOL),
        consolidation_table.consolidation_asset(fleet, manifest, POOL),
        advice_score.advice_score_asset(fleet, manifest, POOL),
        sleep_table.sleep_after_asset(fleet, manifest, POOL),
    ]
    marts = sorted(key for made in tables for key in made.keys if schema_of(key) in published_tables.SCHEMAS)
    published = publication.publication_asset(fleet, marts, POOL, run_costs.note)
    copies = list(_copies(fleet, project))
    report = fleet_report.fleet_report_asset(fleet, POOL)
    kept = [receipt_asset.receipts_asset(fleet, marts, POOL)] if fleet.receipts.keep else []
    job = dg.define_asset_job(
        JOB,
        selection=dg.AssetSelection.all(),
        description=f"Land, book, check and publish the fleet {fleet.fleet}.",
        tags={"fleet": fleet.fleet, "synthetic": str(fleet.synthetic).lower()},
    )
    made = [*landed, *tables, published, report, *copies, *kept]
    upkeep = upkeep_asset.upkeep_asset(fleet, _last(made), POOL)
    assets = [*made, upkeep]
    return dg.Definitions(
        # A closed period has nothing to keep fresh.
        assets=assets if fleet.period.end is not None else dg.map_asset_specs(_kept_fresh, assets),
        asset_checks=booked,
        jobs=[job],
        schedules=[_nightly(fleet, job)],
        sensors=run_sensors.alarm_sensors(fleet, JOB),
        # A process per step would pay Python's and Dagster's start each time, and one warehouse has one writer anyway.
        executor=dg.in_process_executor,
    )


def _last(made: Sequence[dg.AssetsDefinition]) -> list[dg.AssetKey]:
    """What nothing else of `made` depends on: when these are made, all are. Of each asset that a step waits for Dagster
    asks its history what version of it there is, in a transaction of its own."""
    read = {dep.asset_key for one in made for spec in one.specs for dep in spec.deps}
    return sorted({key for one in made for key in one.keys} - read)


def _nightly(fleet: Fleet, job: dg.UnresolvedAssetJobDefinition) -> dg.ScheduleDefinition:
    is_open = fleet.period.end is None

    @dg.schedule(
        name=SCHEDULE,
        job=job,
        cron_schedule=f"{NIGHTLY[1]} {NIGHTLY[0]} * * *",
        execution_timezone="UTC",
        # A closed period has nothing to schedule once it is booked.
        default_status=dg.DefaultScheduleStatus.RUNNING if is_open else dg.DefaultScheduleStatus.STOPPED,
    )
    def nightly(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        """Books yesterday, unless a process that is open beside this one does."""
        holder = night_lock.holder(fleet.root)
        if holder is not None and holder.command == night_lock.SERVE:
            return dg.SkipReason(f"{holder} runs the nights of this fleet")
        on = context.scheduled_execution_time.date() - timedelta(days=1)
        if on not in fleet.days(on + timedelta(days=1)):
            return dg.SkipReason(f"{on} is not in the fleet's period")
        return dg.RunRequest(run_key=on.isoformat(), partition_key=on.isoformat())

    return nightly


def _booking_of(fleet: Fleet) -> ledger.Book:
    """What books the fleet's dates. Without a lake Spark has nothing to read, and has read nothing before."""
    if fleet.landing.path is None:
        return ledger.on_duckdb
    from pipelines.spark import ledger_on_spark  # noqa: PLC0415 (an optional part)

    return ledger_on_spark.booking_of(fleet)


def _create_read(fleet: Fleet, connection: duckdb.DuckDBPyConnection) -> None:
    """Tables that models read and that no model makes."""
    empty_tables.create(connection)
    month_closing.take_back(fleet, connection)
    tenant_names.key_labels(connection)


def _copies(fleet: Fleet, project: DbtProject) -> Iterator[dg.AssetsDefinition]:
    """The publication in the other places that the fleet file names."""
    targets = fleet.publication
    if targets.postgresql is not None:
        from pipelines.publishing.postgresql.asset import postgresql_asset  # noqa: PLC0415 (an optional part)

        marts = contracts.contracts_of(project.manifest_path, project.project_dir).marts
        yield postgresql_asset(fleet, targets.postgresql, marts, POOL)
    if targets.object_store is not None:
        from pipelines.publishing.object_store.asset import object_store_asset  # noqa: PLC0415 (an optional part)

        yield object_store_asset(fleet, targets.object_store, POOL)


def rebuilt_assets(job: dg.JobDefinition) -> list[dg.AssetKey]:
    """What `run --rebuild` computes again: every asset except the landing of telemetry and of requests."""
    landed = {dg.AssetKey(["raw", table]) for table in (*telemetry_assets.TELEMETRY_TABLES, "requests")}
    return sorted(set(job.asset_layer.executable_asset_keys) - landed)


def stretch_assets(job: dg.JobDefinition) -> list[dg.AssetKey]:
    """What lands and books a stretch of a long history: a further run of the same command publishes all stretches."""
    return sorted(key for key in first_look_assets(job) if schema_of(key) != "published")


def first_look_assets(job: dg.JobDefinition) -> list[dg.AssetKey]:
    """What shows the newest date of a long history before the others are booked: all that `wattledger table` reads.
    Copies and the report are made once, of the whole; and of a date alone no advice is given that is kept for ever."""
    keys = job.asset_layer.executable_asset_keys
    later = {*advice_history.TABLES, "disk_use"}
    after = {key for key in published_assets(job) if key.path[-1] != "publication"}
    return sorted(key for key in keys if key.path[-1] not in later and key not in after)


def published_assets(job: dg.JobDefinition) -> list[dg.AssetKey]:
    """What publishing alone makes: the publication, its report and its copies."""
    advice = {table.partition(".")[2] for table in empty_tables.TABLES if table.startswith("published.")}
    keys = job.asset_layer.executable_asset_keys
    return sorted(key for key in keys if schema_of(key) == "published" and key.path[-1] not in advice)


def _kept_fresh(spec: dg.AssetSpec) -> dg.AssetSpec:
    """A fleet without an end is booked every night: its tables are new by 04:00 UTC."""
    policy = dg.FreshnessPolicy.cron(deadline_cron="0 4 * * *", lower_bound_delta=timedelta(hours=3))
    return spec.replace_attributes(freshness_policy=policy) if schema_of(spec.key) in ("marts", "published") else spec
