"""A table that lacks a column of its model: a developer who builds it with dbt reads which, or gets it."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from pipelines.booking.dbt_run import run_dbt
from pipelines.warehouse import database
from tests.books import broken_project, empty_warehouse

BUILD = ["run", "--select", "unplaced_meters"]


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """With a row of another date, and without two columns of today's model."""
    path = tmp_path / "warehouse.duckdb"
    shutil.copyfile(empty_warehouse(), path)
    with closing(database.connect(path)) as connection:
        for column in ("mean_watts", "proposed_node"):
            connection.execute(f"alter table marts.unplaced_meters drop column {column}")
        connection.execute("insert into marts.unplaced_meters (date) values (date '2026-10-01')")
    return path


def test_a_table_without_a_column_is_named_with_the_command_that_builds_it_anew(
    warehouse: Path, tmp_path: Path
) -> None:
    (done,) = run_dbt(BUILD, {}, {"WATTLEDGER_WAREHOUSE": str(warehouse)}, tmp_path)
    assert done.status == "error"
    expected = (
        "marts.unplaced_meters has no column mean_watts, proposed_node: build it anew with"
        " `dbt run --full-refresh --select unplaced_meters --vars '{start_date: FIRST, end_date: END}'` (it loses all"
        " other dates), or set on_schema_change to append_new_columns"
    )
    assert expected in done.message
    (done,) = run_dbt([*BUILD, "--full-refresh"], {}, {"WATTLEDGER_WAREHOUSE": str(warehouse)}, tmp_path)
    assert done.status == "success"


@pytest.mark.rest
def test_the_column_is_added_where_the_model_says_so(warehouse: Path, tmp_path: Path) -> None:
    project = broken_project(
        tmp_path, "dbt_project.yml", "+on_schema_change: fail", "+on_schema_change: append_new_columns"
    )
    (done,) = run_dbt(BUILD, {}, {"WATTLEDGER_WAREHOUSE": str(warehouse)}, tmp_path, project=project)
    assert done.status == "success", done.message
    with closing(database.connect(warehouse)) as connection:
        found = connection.execute("select date::varchar, mean_watts, proposed_node from marts.unplaced_meters")
        assert found.fetchall() == [("2026-10-01", None, None)]
