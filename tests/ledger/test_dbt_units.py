"""The dbt project's own unit tests: each rule of the book on a handful of rows, run by dbt on an empty warehouse."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from pipelines.fleet.fleet_file import PROJECT
from pipelines.warehouse import database
from pipelines.warehouse.raw_tables import create_tables

DATES = '{start_date: "1970-01-01", end_date: "1970-01-02"}'


def dbt(path: Path, *arguments: str) -> str:
    """Run dbt on the warehouse `path` with its artefacts beside it; what it printed."""
    done = subprocess.run(
        [Path(sys.executable).with_name("dbt"), *arguments, "--vars", DATES, "--target-path", path.parent / "target"],
        cwd=PROJECT / "dbt_project",
        env={**os.environ, "WATTLEDGER_WAREHOUSE": str(path), "DBT_LOG_PATH": str(path.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_every_rule_holds_on_its_few_rows(tmp_path: Path) -> None:
    path = tmp_path / "warehouse.duckdb"
    with closing(database.connect(path)) as connection:
        create_tables(connection)
    # Unit tests read the columns' types from the tables: empty ones do.
    dbt(path, "build", "--empty", "--resource-type", "seed", "--resource-type", "model")
    printed = dbt(path, "test", "--select", "test_type:unit")
    passed = re.search(r"PASS=(\d+) WARN=0 ERROR=0 SKIP=0", printed)
    assert passed and int(passed[1]) >= 250, printed[-2000:]
