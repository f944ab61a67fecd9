"""The ledger on Spark, for a fleet file with `engine: spark`: from the warehouse to a build, and back into it.

Add here what connects a warehouse and a build. Keep out the build itself (`driver`), how committed marts are read
(`committed_marts`), and Dagster's events (`pipelines.booking`).
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import uuid
from collections.abc import Collection, Mapping
from datetime import date, timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import duckdb

from pipelines.fleet.fleet_file import Fleet
from pipelines.landing.lake import SAMPLE_TABLES, Lake, export_control
from pipelines.spark import driver
from pipelines.spark.cluster import SparkError
from pipelines.spark.committed_marts import Committed, bring_back
from pipelines.warehouse import database, due_dates, settings

# What dates are due for, in raw.due_dates, that DuckDB booked of a fleet whose marts Spark had built.
SPARK = "spark"


def dates_to_book(connection: duckdb.DuckDBPyConnection, fleet: Fleet, start: date, end: date) -> tuple[date, date]:
    """The run's dates [start, end), widened to include every due date and those that DuckDB booked since Spark did:
    half-open.

    If Spark has committed no marts yet, every date that DuckDB has booked is among them: Spark sums months from hours
    that it has computed itself. The dates stay due until their marts are back in the warehouse.
    """
    start, end = due_dates.dates_to_book(connection, start, end, SPARK)
    if not has_built(fleet) and "fleet_daily" in database.tables(connection, "marts"):
        first, last = connection.execute("select min(date), max(date) from marts.fleet_daily").fetchall()[0]
        if first is not None:
            start, end = min(start, first), max(end, last + timedelta(days=1))
    due_dates.mark_due(connection, start, end)
    return start, end


def has_built(fleet: Fleet) -> bool:
    """Whether the fleet's lake holds marts that Spark built."""
    return fleet.landing.path is not None and Committed.of(Path(fleet.landing.path)).run_id != ""


def missed(connection: duckdb.DuckDBPyConnection, start: date, end: date) -> None:
    """Record that DuckDB books the dates [start, end): Spark's next run has to book them as well."""
    due_dates.mark(connection, SPARK, start, end)


def build(
    fleet: Fleet, start: date, end: date, dbt_vars: Mapping[str, Any], *, forget: Collection[str] = ()
) -> driver.Build:
    """Book the dates [start, end) on Spark, in a process of its own. `forget` and SparkError as of `driver.build`."""
    lake, run_id = Lake(fleet.landing.lake_path), uuid.uuid4().hex
    try:
        with database.connect(fleet.warehouse) as connection:
            export_control(connection, lake, run_id, start, end)
        # The files of all dates: a counter's neighbouring sample may be many days away.
        manifests = [manifest for _, manifest in sorted(lake.landed().items())]
        files = {table: lake.files(table, manifests) for table in SAMPLE_TABLES}
        control = Path(lake.path(f"control/{run_id}"))
        return in_a_process(log_of(fleet), (Path(lake.root), files, control, start, end), dbt_vars, forget)
    finally:
        lake.remove_control(run_id)


def log_of(fleet: Fleet) -> Path:
    """The log of the newest build."""
    return fleet.root / "spark.log"


def take(fleet: Fleet, start: date, end: date, run_id: str = "", constants: settings.Constants | None = None) -> None:
    """Bring the committed marts of [start, end) into the warehouse, which has their tables; mark them as booked."""
    with database.connect(fleet.warehouse) as connection:
        bring_back(connection, Path(fleet.landing.lake_path), start, end)
        due_dates.booked(connection, start, end, run_id=run_id, also=SPARK, constants=constants)


def in_a_process(
    log: Path, arguments: tuple[Any, ...], dbt_vars: Mapping[str, Any], forget: Collection[str] = ()
) -> driver.Build:
    """Run a build in a process of its own: Spark's Java keeps its memory until the Python that started it ends."""
    context = multiprocessing.get_context("spawn")
    answers, answer = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(answer, log, arguments, dict(dbt_vars), forget), name="spark")
    process.start()
    answer.close()
    try:
        result: driver.Build | SparkError = answers.recv()
    except EOFError:
        process.join()
        result = SparkError(f"the process of the build died, exit status {process.exitcode}")
    except BaseException:
        process.terminate()
        raise
    finally:
        process.join()
        answers.close()
    if isinstance(result, SparkError):
        raise result
    return result


def _answer(
    answer: Connection, log: Path, arguments: tuple[Any, ...], dbt_vars: dict[str, Any], forget: Collection[str]
) -> None:
    # Java and dbt print to the log file: their lines are no progress for the console.
    with log.open("w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        result: driver.Build | SparkError = driver.build(*arguments, dbt_vars=dbt_vars, forget=forget)
    except SparkError as failure:
        print(failure, file=sys.stderr)
        result = failure
    answer.send(result)
