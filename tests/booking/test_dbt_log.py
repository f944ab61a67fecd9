"""dbt's log is written where it is asked for, and nowhere else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pipelines.booking.dbt_run import run_dbt
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
