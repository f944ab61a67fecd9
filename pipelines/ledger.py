"""The dbt project as Dagster assets: seeds when their files changed, and every model of the dates that are due.

Add here what decides how dbt is run. Keep out what a model computes, and every number: that is `dbt_project`.
"""

import hashlib
import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import date, timedelta
from functools import cached_property
from importlib.metadata import version as installed_version
from pathlib import Path
from types import MappingProxyType
from typing import Any

import dagster as dg
import duckdb
from dagster_dbt import (
    DagsterDbtTranslator,
    DagsterDbtTranslatorSettings,
    DbtCliResource,
    DbtProject,
    dbt_assets,
)
from filelock import FileLock
from packaging.version import Version

from pipelines import (
    booking,
    checks,
    contracts,
    findings,
    history,
    publication,
    settings,
    spark,
    spark_ledger,
    upgrades,
    warehouse,
)
from pipelines.committed import Committed
from pipelines.fleet import PROJECT, Fleet
from pipelines.keys import asset_key
from pipelines.raw_tables import create_tables
from pipelines.telemetry import POOL, daily

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


class Dbt(DbtCliResource):
    """The dbt beside this Python. Its version is looked up in the environment: `dbt --version` would cost seconds and
    ask the network for newer ones."""

    @cached_property
    def _cli_version(self) -> Version:
        return Version(installed_version("dbt-core"))

    def _initialize_dbt_core_adapter(self, args: Sequence[str]) -> None:
        """No adapter in this process: Dagster would fetch row counts and column lineage with it, which nobody asks for,
        and building one parses all of dbt's macros, two seconds each time."""


class LedgerTranslator(DagsterDbtTranslator):
    """Assets are called as their tables are (`keys`)."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(DagsterDbtTranslatorSettings(enable_source_tests_as_checks=True))
        self.fleet = fleet

    def get_asset_key(self, dbt_resource_props: Mapping[str, Any]) -> dg.AssetKey:
        return asset_key(self.fleet, dbt_resource_props["schema"], dbt_resource_props["name"])

    def get_group_name(self, dbt_resource_props: Mapping[str, Any]) -> str:
        return dbt_resource_props["schema"]


def prepared_project() -> DbtProject:
    """The dbt project with a manifest that is not older than its files.

    A fresh checkout has none, and without one the definitions do not load; parsing takes a few seconds, once. Two
    processes that start together (the webserver and the daemon) parse one after the other.
    """
    project = DbtProject(project_dir=DBT_PROJECT, profiles_dir=DBT_PROJECT)
    manifest = project.manifest_path
    manifest.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(manifest.with_name("parse.lock")):
        if not manifest.exists() or manifest.stat().st_mtime < _newest_change():
            done = dbt_resource(project).cli(["parse", "--quiet"], target_path=project.target_path).wait()
            done.process.wait()
    return project


def dbt_resource(project: DbtProject) -> Dbt:
    """dbt of this environment, whether or not the environment is activated."""
    return Dbt(
        project_dir=project,
        profiles_dir=os.fspath(DBT_PROJECT),
        dbt_executable=os.fspath(Path(sys.executable).with_name("dbt")),
    )


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
        with warehouse.writing(fleet.warehouse, "seeds"):
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
        book = _on_spark if fleet.landing.engine == "spark" else _on_duckdb
        with warehouse.writing(fleet.warehouse, "ledger"):
            _check_history(fleet, config)
            if config.rebuild:
                first, end = _all_booked(fleet, first, end)
            try:
                yield from book(context, dbt, fleet, first, end)
            except upgrades.NeedsRebuild as refusal:
                raise dg.Failure(str(refusal), allow_retries=False) from None

    return [seeds, ledger]


def seed_digest(seeds: Path = DBT_PROJECT / "seeds") -> str:
    """A digest of every seed file and its configuration."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(seeds.iterdir()):
        if path.suffix in (".csv", ".yml"):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def constants_of(fleet: Fleet) -> settings.Constants:
    """What this code books a fleet's dates with."""
    return settings.constants(fleet, _contracts(), publication.code_version())


def _contracts() -> contracts.Contracts:
    return contracts.contracts_of(prepared_project().manifest_path, DBT_PROJECT)


def _check_history(fleet: Fleet, config: LedgerConfig) -> None:
    """Stop before a warehouse that has lost its books takes the place of what is published."""
    lost = history.lost_warehouse(fleet)
    if lost and not (config.rebuild or config.adopt):
        raise dg.Failure(lost, allow_retries=False)
    if config.adopt:
        with closing(warehouse.connect(fleet.warehouse)) as connection:
            create_tables(connection)
            history.adopt(connection, fleet)


def _all_booked(fleet: Fleet, first: date, end: date) -> tuple[date, date]:
    """[first, end) widened to every booked date; due until they are booked, so that a crash leaves no half of them."""
    with closing(warehouse.connect(fleet.warehouse)) as connection:
        create_tables(connection)
        for on in settings.booked_dates(connection):
            first, end = min(first, on), max(end, on + timedelta(days=1))
        booking.begun(connection, first, end)
    return first, end


def _on_duckdb(context: dg.AssetExecutionContext, dbt: Dbt, fleet: Fleet, first: date, end: date) -> Iterator[Any]:
    with closing(warehouse.connect(fleet.warehouse)) as connection:
        create_tables(connection)
        first, end = booking.dates_to_book(connection, first, end)
        if spark_ledger.has_built(fleet):
            booking.missed_by_spark(connection, first, end)
        upgrades.prepare(connection, fleet, _contracts(), first, end, is_whole=not context.is_subset)
    logger.info("booking %s to %s", first, end - timedelta(days=1))
    checks.prefetch()
    yield from _dbt(context, dbt, fleet, first, end)
    if not context.is_subset:
        # A part of the models has not healed what is due.
        with closing(warehouse.connect(fleet.warehouse)) as connection:
            booking.booked(connection, first, end, run_id=context.run_id, told=constants_of(fleet))


def _on_spark(context: dg.AssetExecutionContext, dbt: Dbt, fleet: Fleet, first: date, end: date) -> Iterator[Any]:
    """Spark builds all models whatever is selected: its marts are committed whole or not at all."""
    with closing(warehouse.connect(fleet.warehouse)) as connection:
        create_tables(connection)
        first, end = spark_ledger.dates_to_book(connection, fleet, first, end)
        committed = Committed.of(Path(fleet.landing.path))
        changed = upgrades.to_forget(connection, fleet, _contracts(), committed, (first, end))
    logger.info("booking %s to %s on Spark", first, end - timedelta(days=1))
    checks.prefetch()
    try:
        built = spark_ledger.build(fleet, first, end, _vars(fleet), forget=changed)
    except spark.SparkError as failure:
        yield from _checked(context, {name: said for name, said in failure.statuses.items() if said == "fail"})
        line = str(failure).partition("\n")[0]
        raise dg.Failure(f"{line} (Spark's own output: {spark_ledger.log_of(fleet)})") from None
    with closing(warehouse.connect(fleet.warehouse)) as connection:
        upgrades.forget(connection, changed)
    _create_marts(dbt, fleet, set(built.committed.columns))
    spark_ledger.take(fleet, first, end, context.run_id, constants_of(fleet))
    keys = {spec.metadata[UNIQUE_ID]: spec.key for spec in context.assets_def.specs}
    for name in built.statuses:  # in the order in which dbt built them, on which Dagster insists
        if keys.get(name) in context.selected_asset_keys:
            yield dg.MaterializeResult(asset_key=keys[name], metadata={"spark_run_id": built.run_id})
    yield from _checked(context, built.statuses, built.rows)


def _checked(
    context: dg.AssetExecutionContext, statuses: Mapping[str, str], rows: Mapping[str, str] = MappingProxyType({})
) -> Iterator[dg.AssetCheckResult]:
    """What dbt said of each test, by its unique id, as the results of the selected checks."""
    for spec in context.assets_def.check_specs:
        said = statuses.get(spec.metadata[UNIQUE_ID])
        if said is not None and spec.key in context.selected_asset_check_keys:
            yield dg.AssetCheckResult(
                asset_key=spec.asset_key,
                check_name=spec.name,
                passed=said == "pass",
                severity=dg.AssetCheckSeverity.WARN if said == "warn" else dg.AssetCheckSeverity.ERROR,
                description=rows.get(spec.metadata[UNIQUE_ID]),
                metadata={"status": said},
            )


def _create_marts(dbt: Dbt, fleet: Fleet, marts: set[str]) -> None:
    """Create those of these marts that the warehouse misses, empty, with their contracts and comments."""
    with closing(warehouse.connect(fleet.warehouse)) as connection:
        held = spark_ledger.marts_of(connection)
    if marts <= held:
        return
    args = ["--no-write-json", "run", "--empty", "--vars", json.dumps(_vars(fleet))]
    with _environment(_told(fleet)):
        done = dbt.cli([*args, *(("--exclude", *sorted(held)) if held else ())], target_path=fleet.root / "dbt")
    done.wait()


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
    args = ["--no-write-json", "build", *anew, *WITHOUT_UNIT_TESTS, "--vars", json.dumps(_vars(fleet))]
    with _environment(_told(fleet, first, end)):  # dbt takes a copy when it starts
        invocation = dbt.cli(args, context=context, target_path=fleet.root / "dbt")
    failed = []
    for event in invocation.stream():
        if isinstance(event, dg.AssetCheckResult) and not event.passed:
            failed.append(event)  # its rows can be read when dbt has let go of the warehouse
        else:
            yield event
    yield from _with_rows(fleet, failed)


def _with_rows(fleet: Fleet, failed: list[dg.AssetCheckResult]) -> Iterator[dg.AssetCheckResult]:
    """The results of data tests that failed, each with the rows that its own query finds."""
    if not failed:
        return
    nodes = json.loads(prepared_project().manifest_path.read_text(encoding="utf-8"))["nodes"].values()
    tests = {node["name"]: node for node in nodes if node["resource_type"] == "test"}
    with closing(warehouse.connect(fleet.warehouse, read_only=True)) as connection:
        for result in failed:
            files = sorted((fleet.root / "dbt" / "compiled").rglob(f"{result.check_name}.sql"))
            told = _rows(connection, files[0].read_text(), tests[result.check_name]) if files else result.description
            yield dg.AssetCheckResult(
                passed=False,
                asset_key=result.asset_key,
                check_name=result.check_name,
                severity=result.severity,
                description=told,
                metadata=result.metadata,
            )


def _rows(connection: duckdb.DuckDBPyConnection, query: str, test: Mapping[str, Any]) -> str:
    """What a data test found, as `findings` tells it; `expected` and `remedy` are in the test's meta."""
    found = connection.execute(
        f"select *, count(*) over () as rows_in_all from ({query}) order by all limit {findings.SHOWN}"
    )
    names = [column[0] for column in found.description][:-1]
    rows = found.fetchall()
    meta = test["config"]["meta"]
    lines = [findings.row(names, row[:-1]) for row in rows]
    return findings.report(lines, rows[0][-1] if rows else 0, meta.get("expected", ""), meta.get("remedy", ""))


def _vars(fleet: Fleet) -> dict[str, int]:
    return {"grid_seconds": fleet.grid_seconds, "max_spread_seconds": round(fleet.max_spread_days * 86400)}


def _told(fleet: Fleet, first: date = date.min, end: date = date.min) -> dict[str, str]:
    published = publication.current(fleet)
    return {
        "WATTLEDGER_WAREHOUSE": os.fspath(fleet.warehouse),
        # What a date that is held back falls back to (macros/held_back.sql).
        "WATTLEDGER_LAST_PUBLICATION": os.fspath(published / publication.DATABASE) if published else "",
        "DBT_ENV_CUSTOM_ENV_START_DATE": first.isoformat(),
        "DBT_ENV_CUSTOM_ENV_END_DATE": end.isoformat(),
    }


@contextmanager
def _environment(told: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in told}
    os.environ.update(told)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _is_loaded(fleet: Fleet, digest: str) -> bool:
    if not fleet.warehouse.exists():
        return False
    with closing(warehouse.connect(fleet.warehouse)) as connection:
        create_tables(connection)
        return connection.execute("select digest from raw.seeds_loaded").fetchall() == [(digest,)]


def _remember_loaded(fleet: Fleet, digest: str) -> None:
    with closing(warehouse.connect(fleet.warehouse)) as connection:
        create_tables(connection)
        connection.execute("begin")
        connection.execute("delete from raw.seeds_loaded")
        connection.execute("insert into raw.seeds_loaded values (?)", [digest])
        connection.execute("commit")


def _newest_change() -> float:
    generated = {DBT_PROJECT / name for name in ("target", "logs", "dbt_packages")}
    return max(
        path.stat().st_mtime
        for top in DBT_PROJECT.iterdir()
        if top not in generated and top.name != ".user.yml"
        for path in (top, *top.rglob("*"))
        if path.is_file()
    )
