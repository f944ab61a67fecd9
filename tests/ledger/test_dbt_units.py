"""The dbt project's own unit tests: each rule of the book on a handful of rows, run by dbt on an empty warehouse."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from pipelines.booking.dbt_run import run_dbt
from tests import metered
from tests.books import empty_warehouse
from tests.models import MODELS

DATES = {"start_date": "1970-01-01", "end_date": "1970-01-02"}


@pytest.mark.slow
def test_every_rule_holds_on_its_few_rows(tmp_path: Path) -> None:
    path = tmp_path / "warehouse.duckdb"
    shutil.copyfile(empty_warehouse(), path)  # unit tests read the columns' types from the tables
    results = run_dbt(["test", "--select", "test_type:unit"], DATES, {"WATTLEDGER_WAREHOUSE": str(path)}, tmp_path)
    metered.counts["dbt_unit_tests"] += len(results)
    assert {one.node.name: one.message for one in results if one.status != "pass"} == {}
    # Each that is written: dbt is silent of one that is disabled, or that its selection misses.
    files = [yaml.load(file.read_text(encoding="utf-8"), yaml.CSafeLoader) for file in MODELS.rglob("*.yml")]
    written = [test["name"] for file in files for test in (file or {}).get("unit_tests", ())]
    assert sorted(one.node.name for one in results) == sorted(written)
