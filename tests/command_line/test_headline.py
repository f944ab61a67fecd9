"""The legend of the printed page: its inputs with their source, and the names and kinds that the tables use."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import duckdb
import pytest

from pipelines.advice import consolidation_table, right_sizing_table
from pipelines.command_line import advice_headline, model_headline, month_headline, options
from pipelines.command_line.advice_headline import _KINDS
from pipelines.command_line.headline import BY_NAME, _ways_in, headline, one_table
from pipelines.command_line.model_headline import _inputs
from pipelines.fleet.fleet_file import load_fleet
from pipelines.fleet.places import DEFAULT_FLEET, PROJECT
from pipelines.publishing.parts import Parts
from pipelines.publishing.publication_manifest import DATABASE, REPORT, WORKBOOK
from tests.report import publications
from tests.report.publications import advice

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


def test_advice_is_in_the_order_of_what_it_saves_at_once_and_names_the_date_of_the_rest(tmp_path: Path) -> None:
    """The committed 16 GPUs save more kWh, and 11,680 USD a month once their commitment ends: that is in no total."""
    rows = [
        advice("committed", "spin_down", saving_kwh_month=200, saving_energy_usd_month=20, avoidable_now_usd_month=0,
            avoidable_later_usd_month=11_680, avoidable_from=date(2027, 7, 1), saving_now_usd_month=20),
        advice("free", "spin_down", saving_kwh_month=100, saving_energy_usd_month=10, avoidable_now_usd_month=5_840,
            avoidable_later_usd_month=0, saving_now_usd_month=5_850),
    ]  # fmt: skip
    with duckdb.connect(str(publications.write(tmp_path, published_right_sizing=rows)), read_only=True) as connection:
        lines = advice_headline.advice(connection).splitlines()[3:6]
    assert [line.split()[0] for line in lines] == ["llm/free", "llm/committed", "all"]
    assert lines[0].split()[8:10] == ["5,840.00", "–"]
    assert lines[1].split()[8:12] == ["0.00", "11680.00", "from", "2027-07-01"]
    assert lines[2].split()[1:] == ["16", "0", "300.0", "–", "30.00", "–", "5,840.00", "–", "–", "–"]


def test_the_page_ends_with_the_files_and_the_command_that_answers_sql_on_this_fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(PROJECT)
    data = {"WATTLEDGER_DATA": str(tmp_path / "data"), "WATTLEDGER_VALIDATION_DATA": "/x"}
    command = "wattledger sql"
    demo, mlperf = load_fleet(DEFAULT_FLEET, data), load_fleet(PROJECT / "fleets" / "mlperf.yaml", data)
    assert list(_ways_in(demo, Path("t.duckdb"))) == [
        "more: wattledger table NAME: changes, budgets, free, windows; models and advice with all columns",
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
        f"more: wattledger table --fleet '{path}' NAME: changes, budgets, free, windows;"
        " models and advice with all columns",
        f"tables: {tmp_path}/data/priced/published/wattledger.duckdb (schemas finance, marts, published)",
        f"in SQL: {command} --fleet '{path}' \"select * from marts.fleet_daily\"",
    ]


def test_months_add_up_sites_and_mark_what_is_known_in_part() -> None:
    """Two sites of October, of which one changed after it was closed; November got the 7.20 USD."""
    with duckdb.connect() as connection:
        assert month_headline.months(connection) == month_headline.budgets(connection) == ""
        assert month_headline.changes(connection) == ""
        connection.execute("create schema finance")
        connection.execute(
            "create table finance.months as select * from (values"
            " (date '2026-10-01', 'west', 'adjusted', 744, 744, 100.0, 0, 107.2, 53.6, null, true, 'EUR', 80.0),"
            " (date '2026-10-01', 'east', 'adjusted', 744, 744, 50.0, 0, 50.0, 25.0, null, false, 'EUR', 40.0),"
            " (date '2026-11-01', 'west', 'open', 24, 720, 47.2, 7.2, 40.0, 10.0, 1200.0, true, null, null),"
            " (date '2026-11-01', 'bare', 'open', 24, 720, null, 0, null, null, null, false, null, null)"
            ") as months(month, site, status, booked_hours, month_hours, closed_cost_usd, adjustment_usd,"
            " known_cost_usd, idle_cost_usd, forecast_usd, is_cost_complete, currency, closed_cost_in_currency)"
        )
        connection.execute(
            "create table finance.budgets (month date, budget varchar, scope varchar, name varchar, budget_usd double,"
            " spent_usd double, forecast_usd double, expected_overrun_usd double)"
        )
        newest, older = month_headline.months(connection).splitlines()[2:4]
        assert " ".join(newest.split()) == "2026-11 open 3.3% ≥ 47.20 7.20 ≥ 40.00 25.0% 1,200.00 –"
        assert " ".join(older.split()) == "2026-10 adjusted 100.0% ≥ 150.00 – ≥ 157.20 50.0% – 120.00"
        assert month_headline.budgets(connection) == ""


def test_the_parts_that_the_terminal_names_add_up_to_all_parts() -> None:
    """384 USD pay for commitments that nothing used: they are capacity, and in no row of the table of models. 100 + 20
    + 30 + 384 + 6 = 540; on another basis is the same cost again."""
    with duckdb.connect() as connection:
        connection.execute("create schema marts")
        connection.execute(
            "create table marts.cost_daily as select * from (values"
            " ('llm/gpt', 'fully_loaded', 'capacity', 100.0, true), ('llm/gpt', 'fully_loaded', 'energy', 20.0, true),"
            " ('llm/gpt', 'fully_loaded', 'hosting', 30.0, true), ('llm/gpt', 'usage', 'hosting', 10.0, true),"
            " ('__unused_commitment__', 'fully_loaded', 'capacity', 384.0, true),"
            " ('__unmetered__', 'fully_loaded', 'capacity', 6.0, true)"
            ") as costs(deployment, basis, part, cost_usd, is_cost_complete)"
        )
        assert model_headline._all_parts(connection) == {
            "all parts": "540.00 USD, as in the table of months: USD compute 120.00, unused commitment 384.00,"
            " hosting 30.00, unmetered accelerators 6.00"
        }


@pytest.mark.parametrize(("of_the_node", "shown"), [(0.9e3, ["m"]), (1.1e3, ["m (board)", "m (node)"])])
def test_a_thousandth_of_a_models_joules_by_another_meter_has_no_row(
    tmp_path: Path, of_the_node: float, shown: list[str]
) -> None:
    """A node's meter has two seconds of it, as its boards' exporter was scraped late; the fleet's sum has them."""
    path = tmp_path / "priced.yaml"
    path.write_text(FLEET, encoding="utf-8")
    fleet = load_fleet(path, {"WATTLEDGER_DATA": str(tmp_path / "data")})
    days = [
        publications.model_day(date(2026, 10, 1), "m", meter_scope=scope, energy_joules=joules, facility_energy_kwh=kwh)
        for scope, joules, kwh in (("board", 1e6, 2.0), ("node", of_the_node, 0.5))
    ]
    with duckdb.connect(str(publications.write(fleet.published, marts_model_daily=days)), read_only=True) as connection:
        rows = model_headline.models(connection, fleet).splitlines()[2:]
    assert [re.split(r" {2,}", row)[0] for row in rows[: len(shown) + 1]] == [*shown, "fleet"]
    assert " 2.5 " in rows[len(shown)]


def test_the_first_page_has_three_tables_of_at_most_a_hundred_columns_and_the_others_have_names(tmp_path: Path) -> None:
    path = tmp_path / "priced.yaml"
    path.write_text(FLEET, encoding="utf-8")
    fleet = load_fleet(path, {"WATTLEDGER_DATA": str(tmp_path / "data")})
    on = date(2026, 10, 1)
    usd = {"closed_cost_usd": 99_999, "known_cost_usd": 99_999, "forecast_usd": 99_999, "idle_cost_usd": 1}
    publications.write(
        fleet.published,
        marts_model_daily=[
            publications.model_day(on, "Qwen3.5-397B", facility_energy_kwh=99_999, compute_cost_usd=99_999)
        ],
        finance_months=[
            {"month": on, "site": "west", "status": "adjusted", "booked_hours": 1, "month_hours": 744, **usd}
        ],
        published_right_sizing=[
            advice("llm-research/Qwen3.5-397B", "try_it", trial_replicas=2, saving_kwh_month=9_999)
        ],
    )
    printed = headline(fleet)
    tables = [line for line in printed.splitlines() if re.fullmatch(r"-+(  -+)+", line)]
    assert (len(tables), max(map(len, tables)) <= 100) == (3, True)
    assert max(len(line) for line in printed.splitlines() if line.startswith("  ")) <= 100
    assert options.TABLES == BY_NAME
    for name in BY_NAME:
        assert one_table(fleet, name, parts := Parts()) and parts.failed == []
    assert "J/total token" in one_table(fleet, "models", Parts()) and "J/total token" not in printed
    assert one_table(fleet, "windows", Parts()) == "windows: no rows"
