"""The ledger of a fleet with a lake, as Dagster runs it: Spark builds the models of the due dates, or DuckDB does and
notes what Spark then lacks.

Add here what Dagster shows of a build on Spark. Keep out the build itself (`driver`) and what connects it with the
warehouse (`spark_ledger`).
"""

import logging
import re
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg

from pipelines.booking import checks, dbt_run, ledger, refused_series
from pipelines.booking.dbt_results import FAILED, errors_of, facts_of, results_of
from pipelines.booking.project import constants_of, environment_of, project_contracts, variables_of
from pipelines.fleet.fleet_file import Fleet
from pipelines.fleet.places import parsed_folder
from pipelines.spark import changed_marts, spark_ledger
from pipelines.spark.cluster import SparkError
from pipelines.spark.committed_marts import Committed
from pipelines.spark.driver import Build
from pipelines.warehouse import database, due_dates
from pipelines.warehouse.raw_tables import create_tables

logger = logging.getLogger(__name__)


def booking_of(fleet: Fleet) -> ledger.Book:
    """What books a fleet with a lake: the engine that its file names."""
    return book if fleet.landing.engine == "spark" else book_on_duckdb


def book_on_duckdb(context: dg.AssetExecutionContext, fleet: Fleet, asked: ledger.Asked) -> Iterator[Any]:
    """DuckDB books. Where Spark has built marts before, its next run has to book these dates as well."""
    if spark_ledger.has_built(fleet):
        with database.connect(fleet.warehouse) as connection:
            create_tables(connection)
            missed = due_dates.dates_to_book(connection, asked.first, asked.end, until=asked.until)
            spark_ledger.missed(connection, *missed)
    yield from ledger.on_duckdb(context, fleet, asked)


def book(context: dg.AssetExecutionContext, fleet: Fleet, asked: ledger.Asked) -> Iterator[Any]:
    """Spark builds all models whatever is selected and unchanged: its marts are committed whole or not at all."""
    with database.connect(fleet.warehouse) as connection:
        create_tables(connection)
        first, end = spark_ledger.dates_to_book(connection, fleet, asked.first, asked.end)
        committed = Committed.of(Path(fleet.landing.lake_path))
        unasked = due_dates.unasked(connection, first, end)
        changed = changed_marts.to_forget(connection, fleet, project_contracts(fleet), committed, (first, end))
    logger.info("booking %s to %s on Spark", first, end - timedelta(days=1))
    checks.prefetch()
    variables = variables_of(fleet, first, end, unasked=unasked)
    build = partial(spark_ledger.build, fleet, first, end, variables, forget=changed)
    try:
        built = _built(fleet, first, end, context.run_id, build)
    except SparkError as failure:
        yield from results_of(
            context, {name: status for name, status in failure.statuses.items() if status == FAILED}, {}, {}
        )
        line = str(failure).partition("\n")[0]
        raise dg.Failure(f"{line} (Spark's own output: {spark_ledger.log_of(fleet)})") from None
    with database.connect(fleet.warehouse) as connection:
        changed_marts.forget(connection, changed)
    _create_marts(fleet, set(built.committed.columns))
    spark_ledger.take(fleet, first, end, context.run_id, constants_of(fleet))
    if built.committed.columns:
        # What advice and finance read, of the marts that came back: models of DuckDB alone.
        _run(fleet, "run", "--select", "tag:advice", "tag:finance")
    made = [name for name, status in built.statuses.items() if status == "success"]
    with database.connect(fleet.warehouse, read_only=True) as connection:
        held = database.tables(connection, "marts")
        marts = {name: mart for name, mart in project_contracts(fleet).marts.items() if name in held}
        facts = facts_of(connection, marts, dict.fromkeys(made), first, end)
    of_run = {name: {**facts.get(name, {}), "spark_run_id": built.run_id} for name in made}
    yield from results_of(context, built.statuses, built.rows, of_run)


def _built(fleet: Fleet, first: date, end: date, run_id: str, build: Callable[[], Build]) -> Build:
    """Build with every series; or once more without those whose values Spark cannot take (`refused_series`)."""
    with database.connect(fleet.warehouse) as connection:
        refused_series.forget(connection)
    try:
        return build()
    except SparkError as failure:
        lines = [line.partition(": ") for line in re.split(r"; (?=(?:model|test|seed)\.)", str(failure))]
        errors = [(name.rpartition(".")[2], message) for name, _, message in lines if name.startswith("model.")]
        with database.connect(fleet.warehouse) as connection:
            if not refused_series.refuse(connection, errors, first, end, run_id):
                raise
    logger.warning("series refused: a model cannot take a value of theirs; booking once more without them")
    return build()


def _create_marts(fleet: Fleet, marts: set[str]) -> None:
    """Create those of these marts that the warehouse misses, empty, with their contracts and comments."""
    with database.connect(fleet.warehouse) as connection:
        held = database.tables(connection, "marts")
    if marts <= held:
        return
    _run(fleet, "run", "--empty", *(("--exclude", *sorted(held)) if held else ()))


def _run(fleet: Fleet, *words: str) -> None:
    """dbt on the fleet's own warehouse."""
    results = dbt_run.run_dbt(
        words, variables_of(fleet), environment_of(fleet), fleet.root / "dbt", parsed=parsed_folder(fleet.root.parent)
    )
    if errors := errors_of(results):
        raise dg.Failure(errors, allow_retries=False)
