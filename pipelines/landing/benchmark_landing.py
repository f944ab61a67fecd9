"""raw.benchmark_results: other people's published results, replaced whole per entry of the fleet file.

Add here what holds for every publisher. Keep out formats (`collectors.records.benchmark_files`) and comparisons (SQL).
"""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import pyarrow as pa

from collectors.rows import Rejects
from collectors.samples import SourceError, printable
from pipelines.fleet.fleet_file import Fleet
from pipelines.warehouse import database
from pipelines.warehouse.raw_tables import columns_of


@dataclass(frozen=True)
class Reading:
    """What became of one entry: the rows it holds now, why it could not be read anew, if so, and which of its rows were
    refused."""

    name: str
    rows: int
    failure: str | None = None
    rejected: str | None = None


def write_benchmark_results(connection: duckdb.DuckDBPyConnection, fleet: Fleet) -> list[Reading]:
    """Replace the results of every entry, each in one transaction. An entry that cannot be read keeps its old rows;
    what the fleet file no longer names is forgotten."""
    names = [benchmark.name for benchmark in fleet.benchmarks]
    connection.execute(
        "delete from raw.benchmark_results where not list_contains(cast(? as varchar[]), source)", [names]
    ).fetchall()
    readings = []
    columns = columns_of("raw", "benchmark_results")
    for benchmark in fleet.benchmarks:
        failure, table = None, None
        rejects = Rejects(benchmark.limits.bad_rows_ratio)
        try:
            stated = {"source": benchmark.name, "benchmark": benchmark.kind, "as_of": benchmark.as_of}
            rows = [{**stated, **row} for row in benchmark.files().results(rejects)]
            table = pa.Table.from_pylist([{column: row.get(column) for column in columns} for row in rows])
        except SourceError as refusal:
            failure = str(refusal)
        except Exception as error:  # no error of a reader may stop the booking of energy
            why = printable(f"{type(error).__name__}: {error}")
            failure = f"{benchmark.path}: cannot be read as {benchmark.kind}: {why}"
        if table is not None:
            failure = _replace(connection, benchmark.name, table)
        held = connection.execute(
            "select count(*) from raw.benchmark_results where source = ?", [benchmark.name]
        ).fetchall()[0][0]
        readings.append(Reading(benchmark.name, held, failure, str(rejects) or None))
    return readings


def _replace(connection: duckdb.DuckDBPyConnection, source: str, table: pa.Table) -> str | None:
    """Replace the results of one source in one transaction; why not, where a value does not fit its column."""
    try:
        with database.registered(connection, results_came=table), database.transaction(connection):
            connection.execute("delete from raw.benchmark_results where source = ?", [source]).fetchall()
            connection.execute("insert into raw.benchmark_results by name select * from results_came").fetchall()
    except duckdb.DataError as error:
        return f"a value does not fit its column of raw.benchmark_results: {error}"
    return None
