"""The legend of the printed page: its inputs with their source, and the names and kinds that the tables use."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest

from pipelines.advice import consolidation_table, right_sizing_table
from pipelines.command_line.advice_headline import _KINDS
from pipelines.command_line.headline import _ways_in
from pipelines.command_line.model_headline import _inputs
from pipelines.fleet.fleet_file import DEFAULT_FLEET, PROJECT, load_fleet
from pipelines.publishing.publication import DATABASE, REPORT, WORKBOOK

FLEET = """
fleet: priced
synthetic: true
period: {start: 2026-10-01, end: 2026-10-02}
sources: [{name: demo, kind: synthetic, scenario: demo, interval_seconds: 60}]
sites: [{name: west, zone: unknown, pue: 1.25}, {name: east, zone: unknown, pue: 2}]
cost_rates:
  - {device_type: a6000, usd_per_gpu_hour: 0.4, valid_from: 2026-01-01, source: contract}
  - {device_type: a6000, usd_per_gpu_hour: 0.5, valid_from: 2026-09-01, source: contract}
  - {device_type: a6000, usd_per_gpu_hour: 9.0, valid_from: 2026-12-01, source: contract}
"""


def test_the_inputs_are_named_with_their_source(tmp_path: Path) -> None:
    path = tmp_path / "priced.yaml"
    path.write_text(FLEET, encoding="utf-8")
    with duckdb.connect() as connection:
        connection.execute("create schema marts")
        # A row of tokens without power has device type `none`; the last type is in no list of rates.
        connection.execute(
            "create table marts.model_daily as select date '2026-10-01' as date, device_type"
            " from (values ('a6000'), ('h100-sxm5-80gb'), ('none'), ('prototype')) as types(device_type)"
        )
        assert _inputs(connection, load_fleet(path)) == {
            "GPU types": "a6000 (0.50 USD per hour, fleet file), h100-sxm5-80gb (1.30 USD per hour, seed cost_rates),"
            " prototype (no price)",
            "PUE": "1.25 at west, 2 at east",
        }
        connection.execute("delete from marts.model_daily")
        connection.execute("insert into marts.model_daily select '2026-10-01', 'type-' || n from range(6) as t(n)")
        assert _inputs(connection, load_fleet(path))["GPU types"].endswith("type-3 (no price), … and 2 more")


def test_every_kind_of_advice_has_its_meaning() -> None:
    described = right_sizing_table.COLUMNS["kind"][1] + consolidation_table.COLUMNS["kind"][1]
    assert set(_KINDS) == set(re.findall(r"`([a-z_]+)`", described)) - {"shares_with"}


def test_the_page_ends_with_the_files_and_the_command_that_answers_sql_on_this_fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(PROJECT)
    data = {"WATTLEDGER_DATA": str(tmp_path / "data"), "WATTLEDGER_VALIDATION_DATA": "/x"}
    command = ".venv/bin/python -m pipelines sql"
    demo, mlperf = load_fleet(DEFAULT_FLEET, data), load_fleet(PROJECT / "fleets" / "mlperf.yaml", data)
    assert list(_ways_in(demo, Path("t.duckdb"))) == [
        "tables: t.duckdb (schemas finance, marts, published)",
        f'in SQL: {command} "select * from marts.fleet_daily"',
    ]
    assert list(_ways_in(mlperf, Path("t")))[-1].startswith(f"in SQL: {command} --fleet fleets/mlperf.yaml ")
    (tmp_path / "my fleets").mkdir()
    path = tmp_path / "my fleets" / "priced.yaml"
    path.write_text(FLEET, encoding="utf-8")
    fleet = load_fleet(path, data)
    (fleet.published / "one").mkdir(parents=True)
    for name in (DATABASE, WORKBOOK, REPORT):
        (fleet.published / "one" / name).touch()
    (fleet.published / "latest").symlink_to("one")
    assert list(_ways_in(fleet, fleet.published / DATABASE)) == [
        f"report: {tmp_path}/data/priced/published/report.html",
        f"workbook: {tmp_path}/data/priced/published/wattledger.xlsx",
        f"tables: {tmp_path}/data/priced/published/wattledger.duckdb (schemas finance, marts, published)",
        f"in SQL: {command} --fleet '{path}' \"select * from marts.fleet_daily\"",
    ]
