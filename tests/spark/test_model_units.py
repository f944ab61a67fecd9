"""The dbt project's own unit tests on Spark: each rule of the book on a handful of rows, as on DuckDB."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import duckdb

from pipelines.booking.project import prepared_project
from pipelines.fleet.places import DEFAULT_FLEET
from pipelines.spark import driver
from pipelines.warehouse.raw_tables import create_tables
from tests.books import Book, empty_warehouse
from tests.spark import IS_WHOLE
from tests.spark.cluster import FOR_FEW_ROWS, LOCAL, Driver
from tests.spark.parity import lake_of

RUN = ("empty", date(1970, 1, 1), date(1970, 1, 2))
# What Spark calls the types of the warehouse's tables. It sums integers to bigint, DuckDB to hugeint.
SPARK_TYPES = {"VARCHAR": "string", "HUGEINT": "bigint", "TIMESTAMP WITH TIME ZONE": "timestamp"}


def sample(tests: Iterable[dict[str, Any]]) -> list[str]:
    """The names of one unit test of each model: the one with the most rows, of equals the first by name."""
    rows = {test["name"]: sum(len(given["rows"] or []) for given in test["given"]) for test in tests}
    by_size = sorted(tests, key=lambda test: (-rows[test["name"]], test["name"]))
    first = {test["model"]: test["name"] for test in reversed(by_size)}
    return sorted(first.values())


def on_spark(manifest: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The project's seeds and models by name, without those that are enabled on DuckDB alone: finance, and what advice
    reads."""
    nodes = [node for node in manifest["nodes"].values() if node["resource_type"] in ("seed", "model")]
    return {node["name"]: node for node in nodes if "enabled" not in node["unrendered_config"]}


def empty_tables(nodes: Iterable[dict[str, Any]]) -> dict[str, str]:
    """The tables of these nodes, `schema.name`, and the columns of each in Spark's words, as they are in a warehouse:
    some are views there."""
    query = """
        select schema_name || '.' || table_name as name, column_name, data_type from duckdb_columns()
        where database_name = current_database() and list_contains(?, name)
        order by name, column_index
    """
    columns = defaultdict[str, list[str]](list)
    with closing(duckdb.connect(empty_warehouse(), read_only=True)) as connection:
        names = [f"{node['schema']}.{node['alias']}" for node in nodes]
        for table, column, kind in connection.execute(query, [names]).fetchall():
            columns[table].append(f"`{column}` {SPARK_TYPES.get(kind, kind)}")
    return {table: ", ".join(listed) for table, listed in columns.items()}


def statuses_of(
    lake: Path, files: dict[str, list[str]], control: Path, tables: dict[str, str], selected: list[str]
) -> dict[str, str]:
    """Run the selected unit tests in a session over empty tables, of which they read the columns' types; the status of
    each."""
    run = driver.Run(RUN[0], lake, *RUN[1:])
    with driver.session(run.work) as session:
        driver.register(session, files, control)
        session.conf.set("spark.sql.shuffle.partitions", "1")
        for schema in sorted({table.partition(".")[0] for table in tables}):
            session.sql(f"create database {schema}")
        for table, columns in tables.items():
            session.sql(f"create table {table} ({columns}) using parquet")
        return driver.run_dbt(["test", "--select", *selected], run, {})[0]


def test_every_rule_holds_on_its_few_rows(spark_driver: Driver, tmp_path: Path) -> None:
    book, lake = Book.of(DEFAULT_FLEET, tmp_path / "data"), tmp_path / "lake"
    with book.connection() as connection:
        create_tables(connection)
    manifest = json.loads(prepared_project().manifest_path.read_text(encoding="utf-8"))
    nodes = on_spark(manifest)
    tests = [test for test in manifest["unit_tests"].values() if test["model"] in nodes]
    selected = ["test_type:unit"] if IS_WHOLE else sample(tests)
    raw = lake_of(book, lake, RUN[1:])
    tables = empty_tables(nodes.values())
    work = spark_driver.submit(statuses_of, lake, *raw, tables, selected, master=LOCAL, settings=FOR_FEW_ROWS)
    statuses = work.result()
    found = Counter(statuses.values())
    ran = "all of them" if IS_WHOLE else f"one of each model, of {len(tests)} in all"
    print(f"\ndbt unit tests on Spark: {found['pass']} of {len(statuses)} passed ({ran})")
    assert found == {"pass": len(tests) if IS_WHOLE else len(selected)}


def test_the_sample_has_one_test_of_each_model_the_one_with_the_most_rows() -> None:
    def test(model: str, name: str, *rows: int) -> dict[str, Any]:
        return {"model": model, "name": name, "given": [{"rows": [{}] * count} for count in rows]}

    tests = [test("a", "small", 1), test("a", "large", 1, 2), test("b", "second", 2), test("b", "first", 0, 2)]
    assert sample(tests) == ["first", "large"]
