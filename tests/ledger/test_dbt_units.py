"""The dbt project's own unit tests: each rule of the book on a handful of rows, run by dbt on an empty warehouse."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pipelines.booking.dbt_run import run_dbt
from tests.books import empty_warehouse

DATES = {"start_date": "1970-01-01", "end_date": "1970-01-02"}


@pytest.mark.rest
@pytest.mark.slow
def test_every_rule_holds_on_its_few_rows(tmp_path: Path) -> None:
    path = tmp_path / "warehouse.duckdb"
    shutil.copyfile(empty_warehouse(), path)  # unit tests read the columns' types from the tables
    results = run_dbt(["test", "--select", "test_type:unit"], DATES, {"WATTLEDGER_WAREHOUSE": str(path)}, tmp_path)
    assert {one.node.name: one.message for one in results if one.status != "pass"} == {}
    assert len(results) >= 290
