"""The dbt project's own unit tests on Spark: each rule of the book on a handful of rows, as on DuckDB."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any

from pipelines.fleet.places import DEFAULT_FLEET
from pipelines.spark import driver
from pipelines.warehouse.raw_tables import create_tables
from tests.books import Book
from tests.spark import IS_WHOLE
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


def sample(tests: Iterable[dict[str, Any]]) -> list[str]:
    """The names of one unit test of each model: the one with the most rows, of equals the first by name."""
    rows = {test["name"]: sum(len(given["rows"] or []) for given in test["given"]) for test in tests}
    by_size = sorted(tests, key=lambda test: (-rows[test["name"]], test["name"]))
    first = {test["model"]: test["name"] for test in reversed(by_size)}
    return sorted(first.values())


def unit_tests(lake: Path, files: dict[str, list[str]], control: Path, is_whole: bool) -> tuple[dict[str, str], int]:
    """Run dbt's unit tests in a session over empty tables: all of them, or a sample. The status of each that ran, and
    how many the project has."""
    run = driver.Run(RUN[0], lake, *RUN[1:])
    with driver.session(run.work) as session:
        driver.register(session, files, control)
        for name, value in FOR_FEW_ROWS.items():
            session.conf.set(name, value)
        # Unit tests read the columns' types from the tables: empty ones do.
        driver.run_dbt(["build", "--empty", "--resource-type", "seed", "--resource-type", "model"], run, {})
        manifest = json.loads((run.work / "dbt" / "manifest.json").read_text(encoding="utf-8"))
        tests = list(manifest["unit_tests"].values())
        selected = ["test_type:unit"] if is_whole else sample(tests)
        statuses, _ = driver.run_dbt(["test", "--select", *selected], run, {})
    return statuses, len(tests)


def test_every_rule_holds_on_its_few_rows(spark_driver: Driver, tmp_path: Path) -> None:
    book, lake = Book.of(DEFAULT_FLEET, tmp_path / "data"), tmp_path / "lake"
    with book.connection() as connection:
        create_tables(connection)
    work = spark_driver.submit(unit_tests, lake, *lake_of(book, lake, RUN[1:]), IS_WHOLE, master=LOCAL)
    statuses, total = work.result(timeout=2400)
    found = Counter(statuses.values())
    ran = "all of them" if IS_WHOLE else f"one of each model, of {total} in all"
    print(f"\ndbt unit tests on Spark: {found['pass']} of {len(statuses)} passed ({ran})")
    assert found == {"pass": len(statuses)}
    assert len(statuses) == total if IS_WHOLE else 100 < len(statuses) < total


def test_the_sample_has_one_test_of_each_model_the_one_with_the_most_rows() -> None:
    def test(model: str, name: str, *rows: int) -> dict[str, Any]:
        return {"model": model, "name": name, "given": [{"rows": [{}] * count} for count in rows]}

    tests = [test("a", "small", 1), test("a", "large", 1, 2), test("b", "second", 2), test("b", "first", 0, 2)]
    assert sample(tests) == ["first", "large"]
