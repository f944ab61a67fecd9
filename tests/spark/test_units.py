"""The dbt project's own unit tests on Spark: each rule of the book on a handful of rows, as on DuckDB."""

from __future__ import annotations

import json
from collections import Counter
from datetime import date
from pathlib import Path

from pipelines.fleet.fleet_file import DEFAULT_FLEET
from pipelines.spark import driver
from pipelines.warehouse.raw_tables import create_tables
from tests.books import Book
from tests.spark.cluster import LOCAL, Driver
from tests.spark.parity import lake_of

# A few rows are read before Java code for them is made, and need no second look at the plan: a third of the time.
FOR_FEW_ROWS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}
RUN = ("empty", date(1970, 1, 1), date(1970, 1, 2))


def unit_tests(lake: Path, files: dict[str, list[str]], control: Path) -> tuple[dict[str, str], int]:
    """Run dbt's unit tests in a session over empty tables; the status of each, and how many the project has."""
    run = driver.Run(RUN[0], lake, *RUN[1:])
    with driver.session(run.work) as session:
        driver.register(session, files, control)
        for name, value in FOR_FEW_ROWS.items():
            session.conf.set(name, value)
        # Unit tests read the columns' types from the tables: empty ones do.
        driver.run_dbt(["build", "--empty", "--resource-type", "seed", "--resource-type", "model"], run, {})
        statuses, _ = driver.run_dbt(["test", "--select", "test_type:unit"], run, {})
    manifest = json.loads((run.work / "dbt" / "manifest.json").read_text(encoding="utf-8"))
    return statuses, len(manifest["unit_tests"])


def test_every_rule_holds_on_its_few_rows(spark_driver: Driver, tmp_path: Path) -> None:
    book, lake = Book.of(DEFAULT_FLEET, tmp_path / "data"), tmp_path / "lake"
    with book.connection() as connection:
        create_tables(connection)
    statuses, expected = spark_driver.submit(unit_tests, lake, *lake_of(book, lake), master=LOCAL).result(timeout=2400)
    found = Counter(statuses.values())
    print(f"\ndbt unit tests on Spark: {found['pass']} of {expected} passed")
    assert found == {"pass": expected}
