"""The dbt project as Dagster assets: seeds when their files changed, and every model of the dates that are due.

Add here what decides how dbt is run. Keep out what a model computes, and every number: that is `dbt_project`.
"""

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import date, timedelta
from typing import Any

import dagster as dg
from dagster_dbt import (
    DagsterDbtTranslator,
    DagsterDbtTranslatorSettings,
    DbtProject,
    dbt_assets,
)

from pipelines.booking import checks, upgrades
from pipelines.booking.failed_tests import with_rows
from pipelines.booking.project import (
    Dbt,
    constants_of,
    environment,
    project_contracts,
    project_vars,
    seed_digest,
    settings_of_a_run,
)
from pipelines.fleet.fleet_file import PROJECT, Fleet
from pipelines.landing.telemetry_assets import POOL, daily
from pipelines.publishing import history
from pipelines.warehouse import database, due_dates, settings
from pipelines.warehouse.asset_keys import asset_key
from pipelines.warehouse.raw_tables import create_tables

DBT_PROJECT = PROJECT / "dbt_project"
SEEDS = "resource_type:seed"
UNIQUE_ID = "dagster_dbt/unique_id"  # where dagster-dbt keeps dbt's name of a model or test
# They test the project, not the day: `make test` runs them.
WITHOUT_UNIT_TESTS = ("--exclude-resource-type", "unit_test")

logger = logging.getLogger(__name__)


class LedgerConfig(dg.Config):
    """`rebuild` books every date that is booked anew, beside the run's own: from what has landed. `adopt` lets
    published dates stand of which the sources have less. Both allow a run whose warehouse was lost."""

    rebuild: bool = False
    adopt: bool = False


class LedgerTranslator(DagsterDbtTranslator):
    """Assets are called as their tables are (`asset_keys`)."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(DagsterDbtTranslatorSettings(enable_source_tests_as_checks=True))
        self.fleet = fleet

    def get_asset_key(self, dbt_resource_props: Mapping[str, Any]) -> dg.AssetKey:
        """The key of a model: fleet, schema, name."""
        return asset_key(self.fleet, dbt_resource_props["schema"], dbt_resource_props["name"])

    def get_group_name(self, dbt_resource_props: Mapping[str, Any]) -> str:
        """Models are grouped by schema."""
        return str(dbt_resource_props["schema"])


def ledger_assets(fleet: Fleet, project: DbtProject) -> list[dg.AssetsDefinition]:
    """Two definitions: the seeds (unpartitioned) and all models (daily)."""
    translator = LedgerTranslator(fleet)

    @dbt_assets(
        manifest=project.manifest_path,
        project=project,
        select=SEEDS,
        name="seeds",
        dagster_dbt_translator=translator,
        pool=POOL,
    )
    def seeds(context: dg.AssetExecutionContext, dbt: Dbt) -> Iterator[Any]:
        digest = seed_digest()
        checks.prefetch()
        with database.writing(fleet.warehouse, "seeds"):
            if context.is_subset or not _is_loaded(fleet, digest):
                yield from _dbt(context, dbt, fleet)
                if not context.is_subset:
                    _remember_loaded(fleet, digest)
                return
        unchanged = {"unchanged_digest": digest}
        for key in context.selected_asset_keys:
            yield dg.MaterializeResult(asset_key=key, metadata=unchanged)
        for check in context.selected_asset_check_keys:
            yield dg.AssetCheckResult(asset_key=check.asset_key, check_name=check.name, passed=True, metadata=unchanged)

    @dbt_assets(
        manifest=project.manifest_path,
        project=project,
        exclude=SEEDS,
        name="ledger",
        partitions_def=daily(fleet),
        backfill_policy=dg.BackfillPolicy.single_run(),
        dagster_dbt_translator=translator,
        pool=POOL,
    )
    def ledger(context: dg.AssetExecutionContext, dbt: Dbt, config: LedgerConfig) -> Iterator[Any]:
        window = context.partition_time_window
        first, end = window.start.date(), window.end.date()
        book = _on_duckdb
        if fleet.landing.engine == "spark":
            from pipelines.booking.ledger_on_spark import book  # noqa: PLC0415 (only where a fleet names it)
        with database.writing(fleet.warehouse, "ledger"):
            _check_history(fleet, config)
            if config.rebuild:
                first, end = _all_booked(fleet, first, end)
            try:
                yield from book(context, dbt, fleet, first, end)
            except upgrades.NeedsRebuild as refusal:
                raise dg.Failure(str(refusal), allow_retries=False) from None

    return [seeds, ledger]


def _check_history(fleet: Fleet, config: LedgerConfig) -> None:
    """Stop before a warehouse that has lost its books takes the place of what is published."""
    lost = history.lost_warehouse(fleet)
    if lost and not (config.rebuild or config.adopt):
        raise dg.Failure(lost, allow_retries=False)
    if config.adopt:
        with closing(database.connect(fleet.warehouse)) as connection:
            create_tables(connection)
            history.adopt(connection, fleet)


def _all_booked(fleet: Fleet, first: date, end: date) -> tuple[date, date]:
    """[first, end) widened to every booked date; due until they are booked, so that a crash leaves no half of them."""
    with closing(database.connect(fleet.warehouse)) as connection:
        create_tables(connection)
        for on in settings.booked_dates(connection):
            first, end = min(first, on), max(end, on + timedelta(days=1))
        due_dates.begun(connection, first, end)
    return first, end


def _on_duckdb(context: dg.AssetExecutionContext, dbt: Dbt, fleet: Fleet, first: date, end: date) -> Iterator[Any]:
    with closing(database.connect(fleet.warehouse)) as connection:
        create_tables(connection)
        first, end = due_dates.dates_to_book(connection, first, end)
        if _is_known_to_spark(fleet):
            due_dates.missed_by_spark(connection, first, end)
        upgrades.prepare(connection, fleet, project_contracts(), first, end, is_whole=not context.is_subset)
    logger.info("booking %s to %s", first, end - timedelta(days=1))
    checks.prefetch()
    yield from _dbt(context, dbt, fleet, first, end)
    if not context.is_subset:
        # A part of the models has not healed what is due.
        with closing(database.connect(fleet.warehouse)) as connection:
            due_dates.booked(connection, first, end, run_id=context.run_id, told=constants_of(fleet))


def _is_known_to_spark(fleet: Fleet) -> bool:
    """Whether the fleet's lake holds marts that Spark built."""
    if fleet.landing.path is None:
        return False
    from pipelines.spark.spark_ledger import has_built  # noqa: PLC0415 (only where a fleet has a lake)

    return has_built(fleet)


def _dbt(
    context: dg.AssetExecutionContext,
    dbt: Dbt,
    fleet: Fleet,
    first: date = date.min,
    end: date = date.min,
) -> Iterator[Any]:
    """Build what the context selects, of the dates [first, end); without dates, seeds.

    dbt parses the whole project again, two seconds, where the vars or the folder are not those of last time. So seeds
    and models share both, and the dates come by the environment (macros/booked_dates.sql).
    """
    # A seed's table of other columns refuses its file, so it is made anew; of marts only what `upgrades` drops is.
    anew = () if first < end else ("--full-refresh",)
    # Nobody reads dbt's JSON files of a run: what happened is in Dagster's events and in dbt.log.
    args = ["--no-write-json", "build", *anew, *WITHOUT_UNIT_TESTS, "--vars", json.dumps(project_vars(fleet))]
    with environment(settings_of_a_run(fleet, first, end)):  # dbt takes a copy when it starts
        invocation = dbt.cli(args, context=context, target_path=fleet.root / "dbt")
    failed = []
    for event in invocation.stream():
        if isinstance(event, dg.AssetCheckResult) and not event.passed:
            failed.append(event)  # its rows can be read when dbt has let go of the warehouse
        else:
            yield event
    yield from with_rows(fleet, failed)


def _is_loaded(fleet: Fleet, digest: str) -> bool:
    if not fleet.warehouse.exists():
        return False
    with closing(database.connect(fleet.warehouse)) as connection:
        create_tables(connection)
        return connection.execute("select digest from raw.seeds_loaded").fetchall() == [(digest,)]


def _remember_loaded(fleet: Fleet, digest: str) -> None:
    with closing(database.connect(fleet.warehouse)) as connection:
        create_tables(connection)
        connection.execute("begin")
        connection.execute("delete from raw.seeds_loaded")
        connection.execute("insert into raw.seeds_loaded values (?)", [digest])
        connection.execute("commit")
