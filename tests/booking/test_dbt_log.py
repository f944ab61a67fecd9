"""What dbt writes where: its log where it is asked for, what it has parsed once, and no file beside the project's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.booking.dbt_run import parse, run_dbt
from pipelines.booking.project import prepared_project
from pipelines.fleet.places import DBT_PROJECT
from tests.books import empty_warehouse


def test_a_debug_log_has_dbts_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "warehouse.duckdb"
    shutil.copyfile(empty_warehouse(), path)
    words, environment = ["run", "--select", "stg_series"], {"WATTLEDGER_WAREHOUSE": str(path)}
    run_dbt(words, {}, environment, tmp_path)
    assert not (tmp_path / "dbt.log").exists()
    monkeypatch.setenv("DBT_LOG_LEVEL_FILE", "debug")
    run_dbt(words, {}, environment, tmp_path)
    log = (tmp_path / "dbt.log").read_text(encoding="utf-8")
    assert "Began running node model.wattledger.stg_series" in log
    assert 'create or replace table "warehouse"."staging"."stg_series" as (' in log


def test_a_changed_environment_parses_no_file_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """dbt drops what it has parsed when the profile's values change, and parses for seven seconds."""
    prepared_project()
    log = DBT_PROJECT / "target" / "dbt.log"
    parse(DBT_PROJECT, DBT_PROJECT / "target", "--no-write-json")
    size = log.stat().st_size if log.exists() else 0
    for name, value in {"WATTLEDGER_WAREHOUSE": "x.duckdb", "WATTLEDGER_THREADS": "7"}.items():
        monkeypatch.setenv(name, value)
    parse(DBT_PROJECT, DBT_PROJECT / "target", "--no-write-json")
    written = log.read_bytes()[size if log.stat().st_size > size else 0 :].decode()
    assert "skipping parsing" in written
    assert "Unable to do partial parsing" not in written


@pytest.mark.rest
def test_dbt_alone_leaves_no_file_in_the_project(tmp_path: Path) -> None:
    def files() -> set[Path]:
        return {path for path in DBT_PROJECT.iterdir() if path.name not in ("target", "logs")}

    before = files()
    done = subprocess.run(
        [Path(sys.executable).with_name("dbt"), "seed", "--select", "device_types", "--target-path", tmp_path],
        cwd=DBT_PROJECT,
        env={name: value for name, value in os.environ.items() if not name.startswith(("WATTLEDGER_", "DBT_"))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert files() == before
