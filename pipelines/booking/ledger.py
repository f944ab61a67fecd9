"""The dbt project as Dagster assets: seeds when their files changed, and every model of the dates that are due.

Add here what decides how dbt is run. Keep out what a model computes, and every number: that is `dbt_project`.
"""

import json
import logging
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
from dagster_dbt import (
    DagsterDbtTranslator,
    DagsterDbtTranslatorSettings,
    DbtProject,
    build_dbt_asset_specs,
    dbt_assets,
)

from pipelines.booking import checks, dbt_run, refused_series, upgrades
from pipelines.booking.dbt_results import (
    FAILED,
    WARNED,
    errors_of,
    is_error,
    results_of,
    rows_found,
    selected_names,
    unchanged_digests,
)
from pipelines.booking.project import constants_of, environment_of, project_contracts, seed_digest, variables_of
from pipelines.fleet.fleet_file import Fleet
from pipelines.publishing import history, restoring
from pipelines.warehouse import database, due_dates, settings
from pipelines.warehouse.asset_keys import asset_key
from pipelines.warehouse.partitions import POOL, daily
from pipelines.warehouse.raw_tables import create_tables

SEED_TYPE = "resource_type:seed"
SEEDS, MODELS = ("--select", SEED_TYPE), ("--exclude", SEED_TYPE)
# The models that are steps of the book, and those that readers see, as dbt selects them.
STEPS, MARTS = "config.schema:staging config.schema:intermediate", "config.schema:marts"

# By topic; all others are of operations.
OWNERS = {"cost": "finance", "focus": "finance", "prices": "finance", "carbon": "sustainability"}
# How a mart's description ends.
RANK = re.compile(r" \[(start here|topic|evidence): \w+\]\s*$")

# What books the dates [first, end) of a fleet, within an asset that Dagster runs: one per engine. The last argument:
# whether marts that are made only if their inputs changed may keep their rows.
Book = Callable[[dg.AssetExecutionContext, Fleet, date, date, bool], Iterator[Any]]

logger = logging.getLogger(__name__)


class LedgerConfig(dg.Config):
    """`rebuild` books the run's dates, and again all dates that were booked before, from what has landed. `adopt` keeps
    what is published of dates of which the sources hold less by now. Both allow a run whose warehouse was lost. `anew`
    makes the marts, too, whose inputs did not change, as `rebuild` does."""

    rebuild: bool = False
    adopt: bool = False
    anew: bool = False


def _topic(dbt_resource_props: Mapping[str, Any]) -> str | None:
    """The folder of a model below `models`; None of anything else."""
    if dbt_resource_props["resource_type"] != "model":
        return None
    return Path(dbt_resource_props["original_file_path"]).parts[1]


class LedgerTranslator(DagsterDbtTranslator):
    """Assets are called as their tables are (`asset_keys`)."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(DagsterDbtTranslatorSettings(enable_source_tests_as_checks=True))
        self.fleet = fleet

    def get_asset_key(self, dbt_resource_props: Mapping[str, Any]) -> dg.AssetKey:
        """The key of a model: fleet, schema, name."""
        return asset_key(self.fleet, dbt_resource_props["schema"], dbt_resource_props["name"])

    def get_group_name(self, dbt_resource_props: Mapping[str, Any]) -> str:
        """A model is in the group of its topic, the folder below `models`; a seed in that of its schema."""
        return _topic(dbt_resource_props) or str(dbt_resource_props["schema"])

    def get_owners(self, dbt_resource_props: Mapping[str, Any]) -> Sequence[str]:
        """The readers who would notice first that a table is wrong."""
        return [f"team:{OWNERS.get(_topic(dbt_resource_props) or '', 'operations')}"]

    def get_metadata(self, dbt_resource_props: Mapping[str, Any]) -> Mapping[str, Any]:
        """What dbt knows, and a mart's rank: whether a reader starts there."""
        rank = RANK.search(dbt_resource_props.get("description") or "")
        return {**super().get_metadata(dbt_resource_props), **({"rank": rank[1]} if rank else {})}


def step_specs(fleet: Fleet, project: DbtProject) -> Sequence[dg.AssetSpec]:
    """The models between raw and the marts, and the list of refused series, as the asset graph shows them: made with
    the marts, not materialized one by one. To record them in Dagster took as long as to build them (docs/bench.md)."""
    models = build_dbt_asset_specs(
        manifest=project.manifest_path, select=STEPS, dagster_dbt_translator=LedgerTranslator(fleet)
    )
    refused = dg.AssetSpec(
        asset_key(fleet, "raw", "refused_series"),
        description="One row per series that the last booking left out, because a model cannot take a value of it.",
        group_name="raw",
        kinds={"duckdb"},
    )
    return [*models, refused]


def ledger_assets(fleet: Fleet, project: DbtProject, book: Book) -> list[dg.AssetsDefinition]:
    """Two definitions: the seeds (unpartitioned) and the marts with all models before them (daily), which `book`
    makes."""
    translator = LedgerTranslator(fleet)

    @dbt_assets(
        manifest=project.manifest_path,
        project=project,
        select=SEED_TYPE,
        name="seeds",
        dagster_dbt_translator=translator,
        pool=POOL,
    )
    def seeds(context: dg.AssetExecutionContext) -> Iterator[Any]:
        digest = seed_digest()
        checks.prefetch()
        with database.writing(fleet.warehouse, "seeds"):
            if context.is_subset or not _is_loaded(fleet, digest):
                yield from _build(context, fleet, SEEDS)
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
        select=MARTS,
        name="ledger",
        partitions_def=daily(fleet),
        backfill_policy=dg.BackfillPolicy.single_run(),
        dagster_dbt_translator=translator,
        pool=POOL,
    )
    def ledger(context: dg.AssetExecutionContext, config: LedgerConfig) -> Iterator[Any]:
        window = context.partition_time_window
        first, end = window.start.date(), window.end.date()
        # Who selects marts wants them made.
        keeps_unchanged = not (config.rebuild or config.anew or context.is_subset)
        with database.writing(fleet.warehouse, "ledger"):
            _check_history(fleet, config)
            if config.rebuild:
                first, end = _all_booked(fleet, first, end)
            try:
                yield from book(context, fleet, first, end, keeps_unchanged)
            except upgrades.NeedsRebuild as refusal:
                raise dg.Failure(str(refusal), allow_retries=False) from None

    return [seeds, ledger]


def _check_history(fleet: Fleet, config: LedgerConfig) -> None:
    """Refuse to book where what is published would be lost."""
    try:
        history.before_booking(fleet, lands_again=config.rebuild or config.adopt, adopts=config.adopt)
    except (history.WarehouseLost, restoring.PublicationDamaged) as refusal:
        raise dg.Failure(str(refusal), allow_retries=False) from None


def _all_booked(fleet: Fleet, first: date, end: date) -> tuple[date, date]:
    """[first, end) widened to every booked date; due until they are booked, so that a crash leaves no half of them."""
    with database.connect(fleet.warehouse) as connection:
        create_tables(connection)
        for on in settings.booked_dates(connection):
            first, end = min(first, on), max(end, on + timedelta(days=1))
        due_dates.mark_due(connection, first, end)
    return first, end


def on_duckdb(
    context: dg.AssetExecutionContext, fleet: Fleet, first: date, end: date, keeps_unchanged: bool
) -> Iterator[Any]:
    """Book the dates [first, end) and those that are due, in the fleet's own warehouse."""
    with database.connect(fleet.warehouse) as connection:
        create_tables(connection)
        first, end = due_dates.dates_to_book(connection, first, end)
        upgrades.prepare(connection, fleet, project_contracts(), first, end, is_whole=not context.is_subset)
    logger.info("booking %s to %s", first, end - timedelta(days=1))
    checks.prefetch()
    yield from _build(context, fleet, MODELS, first, end, keeps_unchanged=keeps_unchanged)
    if not context.is_subset:
        # A run of only some models leaves its dates due.
        with database.connect(fleet.warehouse) as connection:
            due_dates.booked(connection, first, end, run_id=context.run_id, constants=constants_of(fleet))


def _build(
    context: dg.AssetExecutionContext,
    fleet: Fleet,
    kind: Sequence[str],
    first: date = date.min,
    end: date = date.min,
    *,
    keeps_unchanged: bool = False,
) -> Iterator[Any]:
    """Build what the context selects, of the dates [first, end); without dates, seeds. `kind` is dbt's selection of
    all that the step could build. With `keeps_unchanged`, marts that are made only if their inputs changed keep their
    rows if these did not. A model that fails ends the step, after the results of what was built."""
    chosen = kind
    if context.is_subset:
        # With `+`, the steps that a mart reads are built too: those in the warehouse are of the previous run's dates.
        names = [f"+{name}" if kind is MODELS else name for name in selected_names(context)]
        chosen = ["--indirect-selection", "empty", "--select", *names, *(MODELS if kind is MODELS else ())]
    # Unit tests test the project, not the day: `make test` runs them.
    words = ["build", "--exclude-resource-type", "unit_test", *chosen]
    variables = {**variables_of(fleet, first, end), "keeps_unchanged": keeps_unchanged}
    build = partial(dbt_run.run_dbt, variables=variables, environment=environment_of(fleet), target=fleet.root / "dbt")
    if kind is not MODELS:
        results = build(words)
    else:
        results = refused_series.built(fleet.warehouse, first, end, context.run_id, partial(build, words))
        if tests := _tests_that_stop_models(results):
            # dbt skips what is behind them. `words` end with what is excluded.
            results = [*build([*words, *(one.node.name for one in tests)]), *tests]
    rows = {one.node.unique_id: one.message for one in results if is_error(one)}
    failed = [one.node for one in results if str(one.status) in (FAILED, WARNED)]
    if failed:
        with database.connect(fleet.warehouse, read_only=True) as connection:
            rows |= {test.unique_id: rows_found(connection, test) for test in failed}
    statuses = {one.node.unique_id: str(one.status) for one in results}
    yield from results_of(context, statuses, rows, unchanged=unchanged_digests(results))
    if errors := errors_of(results):
        raise dg.Failure(f"{errors}. {_how_to_see(fleet, results, variables)}", allow_retries=False)


def _tests_that_stop_models(results: Sequence[Any]) -> list[Any]:
    """The data tests that could not run, where models were skipped for no other reason."""
    wrong = [one for one in results if is_error(one)]
    is_only_tests = all(one.node.resource_type == "test" for one in wrong)
    return wrong if is_only_tests and errors_of(results) else []


def _how_to_see(fleet: Fleet, results: Sequence[Any], variables: Mapping[str, Any]) -> str:
    """What stays, and the command that builds what failed alone."""
    model = next(one.node.name for one in results if is_error(one))
    command = [
        *("env", f"WATTLEDGER_WAREHOUSE={fleet.warehouse}", ".venv/bin/dbt", "build", "--project-dir", "dbt_project"),
        *("--profiles-dir", "dbt_project", "--select", model, "--vars", json.dumps(variables)),
    ]
    return f"What was published before stays. To see it fail alone: {shlex.join(command)}"


def _is_loaded(fleet: Fleet, digest: str) -> bool:
    if not fleet.warehouse.exists():
        return False
    with database.connect(fleet.warehouse) as connection:
        create_tables(connection)
        return connection.execute("select digest from raw.seeds_loaded").fetchall() == [(digest,)]


def _remember_loaded(fleet: Fleet, digest: str) -> None:
    with database.connect(fleet.warehouse) as connection:
        create_tables(connection)
        with database.transaction(connection):
            connection.execute("delete from raw.seeds_loaded")
            connection.execute("insert into raw.seeds_loaded values (?)", [digest])
