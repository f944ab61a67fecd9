"""The dbt project as Dagster assets: seeds when their files changed, and every model of the dates that are due.

Add here what decides how dbt is run. Keep out what a model computes, and every number: that is `dbt_project`.
"""

import json
import logging
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from functools import partial
from typing import Any, NamedTuple

import dagster as dg
import duckdb
from dagster_dbt import DbtProject, dbt_assets

from pipelines.booking import checks, dbt_run, refused_series, standing_views, upgrades
from pipelines.booking.dbt_results import (
    FAILED,
    WARNED,
    errors_of,
    facts_of,
    is_error,
    results_of,
    rows_found,
    selected_names,
    unchanged_digests,
)
from pipelines.booking.ledger_translator import LedgerTranslator
from pipelines.booking.project import (
    constants_of,
    environment_of,
    project_contracts,
    project_digest,
    seed_digest,
    variables_of,
)
from pipelines.fleet.fleet_file import Fleet
from pipelines.fleet.places import parsed_folder
from pipelines.publishing import history, restoring
from pipelines.warehouse import database, due_dates, sealed_dates, settings
from pipelines.warehouse.closings import ClosingsLost
from pipelines.warehouse.partitions import POOL, daily
from pipelines.warehouse.raw_tables import create_tables
from pipelines.warehouse.refusals import QuestionError

SEED_TYPE = "resource_type:seed"
SEEDS, MODELS = ("--select", SEED_TYPE), ("--exclude", SEED_TYPE)
# The models that readers see, as dbt selects them.
MARTS = "config.schema:marts"


class Asked(NamedTuple):
    """What is to be booked: the dates [first, end), and those that are due before `until`. With `keeps_unchanged`,
    marts that are made only if their inputs changed may keep their rows."""

    first: date
    end: date
    until: date
    keeps_unchanged: bool


# What books dates of a fleet, within an asset that Dagster runs: one per engine.
Book = Callable[[dg.AssetExecutionContext, Fleet, Asked], Iterator[Any]]

logger = logging.getLogger(__name__)


class LedgerConfig(dg.Config):
    """`rebuild` books the run's dates, and again all dates that were booked before, from what has landed. `adopt` keeps
    what is published of dates of which the sources hold less by now. Both allow a run whose warehouse was lost. `anew`
    makes the marts, too, whose inputs did not change, as `rebuild` does. `is_followed`: the same command books the
    dates after the run's in a further run, so these stay due."""

    rebuild: bool = False
    adopt: bool = False
    anew: bool = False
    is_followed: bool = False


def ledger_assets(
    fleet: Fleet, project: DbtProject, book: Book, create_read: Callable[[Fleet, duckdb.DuckDBPyConnection], None]
) -> list[dg.AssetsDefinition]:
    """Two definitions: the seeds (unpartitioned) and the marts with all models before them (daily), which `book`
    makes. `create_read` creates the tables that models read and later steps of the run fill."""
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
                with database.connect(fleet.warehouse) as connection:
                    create_read(fleet, connection)
                    first, end = sealed_dates.clipped(connection, first, end)
                until = end if config.is_followed else date.max
                yield from book(context, fleet, Asked(first, end, until, keeps_unchanged))
            except (upgrades.NeedsRebuild, ClosingsLost, QuestionError) as refusal:
                raise dg.Failure(str(refusal), allow_retries=False) from None

    return [seeds, ledger]


def _check_history(fleet: Fleet, config: LedgerConfig) -> None:
    """Refuse to book where what is published would be lost."""
    try:
        history.before_booking(fleet, lands_again=config.rebuild or config.adopt, adopts=config.adopt)
    except (history.WarehouseLost, restoring.PublicationDamaged) as refusal:
        raise dg.Failure(str(refusal), allow_retries=False) from None


def _all_booked(fleet: Fleet, first: date, end: date) -> tuple[date, date]:
    """[first, end) widened to every booked date that is open; due until they are booked, so that a crash leaves no half
    of them."""
    with database.connect(fleet.warehouse) as connection:
        create_tables(connection)
        for on in settings.booked_dates(connection):
            first, end = min(first, on), max(end, on + timedelta(days=1))
        first, end = sealed_dates.clipped(connection, first, end)
        if sealed := sealed_dates.of(connection):
            logger.info("%s", sealed_dates.described(sealed))
        due_dates.mark_due(connection, first, end)
    return first, end


def on_duckdb(context: dg.AssetExecutionContext, fleet: Fleet, asked: Asked) -> Iterator[Any]:
    """Book the dates that are asked for and those that are due, in the fleet's own warehouse."""
    keeps_unchanged = asked.keeps_unchanged
    with database.connect(fleet.warehouse) as connection:
        create_tables(connection)
        first, end = due_dates.dates_to_book(connection, asked.first, asked.end, until=asked.until)
        upgrades.prepare(connection, fleet, project_contracts(fleet), first, end, is_whole=not context.is_subset)
        unasked = due_dates.unasked(connection, first, end)
        made_from = standing_views.MadeFrom(project_digest(), variables_of(fleet, first, end))
        is_kept = keeps_unchanged and standing_views.are_todays(connection, made_from)
    logger.info("booking %s to %s", first, end - timedelta(days=1))
    checks.prefetch()
    results: list[Any] = []
    kept = standing_views.SELECTED if is_kept else ()
    variables = {**variables_of(fleet, first, end, unasked=unasked), "keeps_unchanged": keeps_unchanged}
    yield from _build(context, fleet, MODELS, first, end, variables=variables, excluded=kept, on_built=results.extend)
    if not context.is_subset:
        # A run of only some models leaves its dates due.
        with database.connect(fleet.warehouse) as connection:
            if not is_kept:
                standing_views.remember(connection, made_from, results)
            sealed_dates.clear_partial(connection, project_contracts(fleet).marts)
            due_dates.booked(connection, first, end, run_id=context.run_id, constants=constants_of(fleet))


def _build(
    context: dg.AssetExecutionContext,
    fleet: Fleet,
    kind: Sequence[str],
    first: date = date.min,
    end: date = date.min,
    *,
    variables: Mapping[str, Any] | None = None,
    excluded: Sequence[str] = (),
    on_built: Callable[[list[Any]], None] | None = None,
) -> Iterator[Any]:
    """Build what the context selects, of the dates [first, end); without dates, seeds. `kind` is dbt's selection of
    all that the step could build, and ends with what is excluded, before what else is `excluded`. `on_built` gets dbt's
    results if nothing failed. `variables` are dbt's, by default those of the dates. A model that fails ends the step,
    after the results of what was built."""
    chosen = kind
    if context.is_subset:
        # With `+`, the steps that a mart reads are built too: those in the warehouse are of the previous run's dates.
        names = [f"+{name}" if kind is MODELS else name for name in selected_names(context)]
        chosen = ["--indirect-selection", "empty", "--select", *names, *(MODELS if kind is MODELS else ())]
    # Unit tests test the project, not the day: `make test` runs them.
    words = ["build", "--exclude-resource-type", "unit_test", *chosen, *excluded]
    variables = variables or variables_of(fleet, first, end)
    target, parsed = fleet.root / "dbt", parsed_folder(fleet.root.parent)

    def build(words: Sequence[str]) -> list[Any]:
        return dbt_run.with_memory_enough(
            lambda more: dbt_run.run_dbt(words, variables, {**environment_of(fleet), **more}, target, parsed=parsed)
        )

    if kind is not MODELS:
        results = build(words)
    else:
        results = refused_series.built(fleet.warehouse, first, end, context.run_id, partial(build, words))
        if tests := _tests_that_stop_models(results):
            # dbt skips what is behind them.
            results = [*build([*words, *(one.node.name for one in tests)]), *tests]
    rows = {one.node.unique_id: one.message for one in results if is_error(one)}
    seconds = {one.node.unique_id: one.execution_time for one in results if str(one.status) == "success"}
    facts: dict[str, dict[str, Any]] = {}
    if kind is MODELS:
        with database.connect(fleet.warehouse, read_only=True) as connection:
            facts = facts_of(connection, project_contracts(fleet).marts, seconds, first, end)
            for one in results:
                if str(one.status) in (FAILED, WARNED):
                    rows[one.node.unique_id], facts[one.node.unique_id] = rows_found(connection, one.node)
    for name, digest in unchanged_digests(results).items():
        facts[name] = {**facts.get(name, {}), "unchanged_digest": digest}
    yield from results_of(context, {one.node.unique_id: str(one.status) for one in results}, rows, facts)
    if errors := errors_of(results):
        raise dg.Failure(f"{errors}. {_how_to_see(fleet, results, variables)}", allow_retries=False)
    if on_built:
        on_built(results)


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
