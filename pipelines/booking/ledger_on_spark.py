"""The ledger of a fleet whose file says `engine: spark`: the models of the dates that are due, built by Spark.

Imported only for such a fleet. Keep out the build itself: that is `pipelines.spark`.
"""

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

import dagster as dg

from pipelines.booking import checks, upgrades
from pipelines.booking.project import Dbt, constants_of, environment, project_contracts, project_vars, settings_of_a_run
from pipelines.fleet.fleet_file import Fleet
from pipelines.spark import spark_ledger
from pipelines.spark.cluster import SparkError
from pipelines.spark.committed_marts import Committed
from pipelines.warehouse import database
from pipelines.warehouse.raw_tables import create_tables

UNIQUE_ID = "dagster_dbt/unique_id"  # where dagster-dbt keeps dbt's name of a model or test

logger = logging.getLogger(__name__)


def book(context: dg.AssetExecutionContext, dbt: Dbt, fleet: Fleet, first: date, end: date) -> Iterator[Any]:
    """Spark builds all models whatever is selected: its marts are committed whole or not at all."""
    with closing(database.connect(fleet.warehouse)) as connection:
        create_tables(connection)
        first, end = spark_ledger.dates_to_book(connection, fleet, first, end)
        committed = Committed.of(Path(fleet.landing.lake_path))
        changed = upgrades.to_forget(connection, fleet, project_contracts(), committed, (first, end))
    logger.info("booking %s to %s on Spark", first, end - timedelta(days=1))
    checks.prefetch()
    try:
        built = spark_ledger.build(fleet, first, end, project_vars(fleet), forget=changed)
    except SparkError as failure:
        yield from _checked(context, {name: said for name, said in failure.statuses.items() if said == "fail"})
        line = str(failure).partition("\n")[0]
        raise dg.Failure(f"{line} (Spark's own output: {spark_ledger.log_of(fleet)})") from None
    with closing(database.connect(fleet.warehouse)) as connection:
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
    with closing(database.connect(fleet.warehouse)) as connection:
        held = spark_ledger.marts_of(connection)
    if marts <= held:
        return
    args = ["--no-write-json", "run", "--empty", "--vars", json.dumps(project_vars(fleet))]
    with environment(settings_of_a_run(fleet)):
        done = dbt.cli([*args, *(("--exclude", *sorted(held)) if held else ())], target_path=fleet.root / "dbt")
    done.wait()
