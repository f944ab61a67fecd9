"""Marts of another version with sealed dates: which rows a rebuild of the open dates carries over, and as what."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import duckdb
import pytest

from pipelines.booking import upgrades
from pipelines.fleet.fleet_file import Fleet, load_fleet
from pipelines.warehouse import due_dates, sealed_dates
from pipelines.warehouse.contracts import Contracts, Mart

HOURLY = (
    ("date", "date"),
    ("energy_joules", "double"),
    ("method_version", "string"),
    ("is_opening_balance", "boolean"),
)
TODAY = Contracts(
    {
        "model_hourly": Mart(HOURLY),
        "run_windows": Mart(
            (("window_id", "string"), ("start_at", "timestamptz"), ("end_at", "timestamptz")), "windows"
        ),
        "model_monthly": Mart((("month", "date"), ("energy_joules", "double")), "months"),
        "curve": Mart((("load", "double"),), "all"),
    },
    formulas="f",
    seeds=frozenset(),
    method_version="2",
)


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    path = tmp_path / "fleet.yaml"
    path.write_text("fleet: mine\nperiod: {start: 2026-08-01}\nsources: [{name: agents, kind: spool}]\n")
    return load_fleet(path, {"WATTLEDGER_DATA": str(tmp_path / "data")})


@pytest.fixture
def sealed(held: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """31 August and 1 October are booked by method 1; 31 August is sealed, and its joules were whole numbers."""
    held.execute("create schema marts")
    held.execute("create table marts.fleet_daily (date date, method_version varchar)")
    held.execute("insert into marts.fleet_daily values ('2026-08-31', '1'), ('2026-10-01', '1')")
    held.execute(
        "create table marts.model_hourly"
        " (is_opening_balance boolean, date date, energy_joules bigint, method_version varchar)"
    )
    held.execute("insert into marts.model_hourly values (false, '2026-08-31', 7, '1'), (false, '2026-10-01', 8, '1')")
    held.execute("create table marts.run_windows (window_id varchar, end_at timestamptz, start_at timestamptz)")
    held.execute(
        "insert into marts.run_windows values ('over', '2026-08-31 12:00Z', '2026-08-31 11:00Z'),"
        " ('open', '2026-10-01 12:00Z', '2026-10-01 11:00Z')"
    )
    held.execute("create table marts.model_monthly (energy_joules double, month date)")
    held.execute("insert into marts.model_monthly values (6, '2026-07-01'), (7, '2026-08-01'), (8, '2026-10-01')")
    held.execute("create table marts.curve (load double, lost integer)")
    sealed_dates.seal(held, [date(2026, 8, 31)], date(2026, 9, 1))
    return held


def prepare(connection: duckdb.DuckDBPyConnection, fleet: Fleet, contracts: Contracts, start: date) -> None:
    contracts = replace(
        contracts, marts={**contracts.marts, "fleet_daily": Mart((("date", "date"), ("method_version", "string")))}
    )
    upgrades.prepare(connection, fleet, contracts, start, date(2026, 10, 2), is_whole=True)


def test_a_rebuild_of_open_dates_covers_all_and_carries_the_others_over(
    sealed: duckdb.DuckDBPyConnection, fleet: Fleet
) -> None:
    prepare(sealed, fleet, TODAY, date(2026, 9, 1))
    assert sealed.execute("from marts.model_hourly").fetchall() == [(date(2026, 8, 31), 7.0, "1", True)]
    assert [name for name, *_ in sealed.execute("describe marts.model_hourly").fetchall()] == [n for n, _ in HOURLY]
    assert sealed.execute("select window_id from marts.run_windows").fetchall() == [("over",)]
    # A run of 1 September makes August anew, which some sites end on that date: from the rows of its dates.
    assert sealed.execute("select month from marts.model_monthly").fetchall() == [(date(2026, 7, 1),)]
    assert "curve" not in upgrades.marts_of(sealed)
    due = due_dates.due(sealed, due_dates.BOOKING)
    assert (due[0], due[-1]) == (date(2026, 9, 1), date(2026, 10, 1))
    # The second run finds nothing to do.
    prepare(sealed, fleet, TODAY, date(2026, 10, 1))
    assert sealed.execute("select count(*) from marts.model_hourly").fetchall() == [(1,)]


def test_a_run_that_leaves_an_open_date_out_is_refused(sealed: duckdb.DuckDBPyConnection, fleet: Fleet) -> None:
    sealed.execute("insert into marts.fleet_daily values ('2026-09-15', '1')")
    with pytest.raises(
        upgrades.NeedsRebuild, match="the dates 2026-09-15 to 2026-10-01 were booked by another version"
    ):
        prepare(sealed, fleet, TODAY, date(2026, 10, 1))
    assert sealed.execute("select count(*) from marts.model_hourly").fetchall() == [(2,)]


def test_sealed_dates_of_the_same_method_are_no_opening_balance(
    sealed: duckdb.DuckDBPyConnection, fleet: Fleet
) -> None:
    prepare(sealed, fleet, replace(TODAY, method_version="1"), date(2026, 9, 1))
    assert sealed.execute("from marts.model_hourly").fetchall() == [(date(2026, 8, 31), 7.0, "1", False)]
