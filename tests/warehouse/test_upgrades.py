"""A warehouse that other code has made: what today's code does to its tables, and that it ends like a fresh one."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import dagster as dg
import duckdb
import pytest
import yaml

from pipelines.booking import upgrades
from pipelines.code_location import JOB, definitions_of
from pipelines.command_line.main import main
from pipelines.fleet.fleet_file import Fleet, load_fleet
from pipelines.warehouse import database
from pipelines.warehouse.contracts import Contracts, Mart
from pipelines.warehouse.raw_tables import SCHEMA_VERSION, NewerWarehouse, create_tables
from tests.books import Book, command
from tests.killed_runs import has_logged, killed
from tests.warehouse.upgrades import telemetry

OLD = Path(__file__).parent / "upgrades"
TODAY = Contracts(
    {
        "fleet_daily": Mart((("date", "date"), ("energy_joules", "decimal(28,6)"), ("method_version", "string"))),
        "run_windows": Mart((("window_id", "string"), ("start_at", "timestamptz")), "windows"),
        "curve": Mart((("load", "double"),), "all"),
    },
    formulas="f",
    seeds=frozenset(),
    method_version="2",
)


def october(first: int, last: int) -> list[date]:
    return [date(2026, 10, 1) + timedelta(days=n - 1) for n in range(first, last + 1)]


# --- a warehouse of commit 1df5d03, as a user meets it ----------------------------------------------------------------


def old_fleet(folder: Path) -> Path:
    """The fleet of tests/warehouse/upgrades with all its four days of samples."""
    folder.mkdir(parents=True)
    telemetry.write(folder)
    return Path(shutil.copy(OLD / "fleet.yaml", folder))


def old_warehouse(path: Path, commit: str = "1df5d03") -> None:
    """The warehouse that a commit made of the first three days."""
    path.parent.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as name, database.connect(path) as connection:
        folder = Path(name)
        zipfile.ZipFile(OLD / f"{commit}.zip").extractall(folder)
        # Views are in the order of their names, not of what they read.
        waiting = connection.extract_statements((folder / "schema.sql").read_text(encoding="utf-8"))
        while waiting:
            left = []
            for statement in waiting:
                try:
                    connection.execute(statement)
                except duckdb.CatalogException:
                    left.append(statement)
            assert len(left) < len(waiting), left[0].query
            waiting = left
        for schema, table in connection.execute("select schema_name, table_name from duckdb_tables()").fetchall():
            rows = folder / f"{schema}_{table}.parquet"
            if rows.exists():
                connection.execute(f"insert into {schema}.{table} select * from '{rows}'").fetchall()


COLUMNS = """
    select schema_name, table_name, column_index, column_name, data_type, comment from duckdb_columns()
    where schema_name in ('marts', 'published') and table_name <> 'publication' order by all
"""


def hashes(book: Book) -> dict[str, tuple]:
    tables = book.query("select schema_name || '.' || table_name from duckdb_tables()"
                        " where schema_name in ('marts', 'published') and table_name <> 'restated_figures'"
                        " order by 1")  # fmt: skip
    return {
        table: book.query(f"select count(*), bit_xor(hash(t)), sum(cast(hash(t) as hugeint)) from {table} as t")[0]
        for (table,) in tables
    }


def published_dates(book: Book) -> list[date]:
    with database.connect(book.fleet.snapshot, read_only=True) as published:
        rows = published.execute("select distinct date from marts.fleet_daily order by date").fetchall()
    return [on for (on,) in rows]


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Book]:
    """The old warehouse, refused at first and then rebuilt by today's code."""
    folder = tmp_path_factory.mktemp("upgraded") / "fleet"
    fleet, data = old_fleet(folder), folder.parent / "data"
    book = Book.of(fleet, data)
    old_warehouse(book.fleet.warehouse)
    # As warehouses one hundred commits older had it: a seed of other columns, a mart that is made no more.
    with book.connection() as connection:
        connection.execute("alter table reference.device_types drop column gpus")
        connection.execute("delete from raw.seeds_loaded")
        connection.execute("create table marts.forgotten as select 1 as one")
        connection.execute("alter table raw.landings drop column detail")
    refused = command(fleet, data, "--start", "2026-10-04")
    assert refused.returncode == 1, refused.stdout
    assert (
        "the dates 2026-10-01 to 2026-10-03 were booked by another version: method_version was 1 and is 5"
        in refused.stderr
    )
    assert f"Re-book all dates from raw with: wattledger run --fleet {fleet} --rebuild" in refused.stderr
    assert "Traceback" not in refused.stderr
    # The telemetry of the fourth day is landed all the same: 12 series, a sample every two minutes.
    landed = "select count(*) from raw.{} where observed_at >= '2026-10-04'"
    assert book.query(f"select ({landed.format('power_samples')}) + ({landed.format('token_samples')})") == [(8640,)]
    assert not (book.fleet.published / "latest").exists()
    rebuilt = command(fleet, data, "--rebuild")
    assert rebuilt.returncode == 0, rebuilt.stdout + rebuilt.stderr
    assert "dates_use_todays_settings" not in rebuilt.stdout
    return fleet, book


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Book:
    """What today's code makes of all four days, with no older warehouse."""
    folder = tmp_path_factory.mktemp("fresh")
    book = Book.of(old_fleet(folder / "fleet"), folder / "data")
    book.run()
    return book


@pytest.mark.long
def test_a_warehouse_of_an_older_commit_ends_equal_to_a_fresh_one(upgraded: tuple[Path, Book], fresh: Book) -> None:
    _, book = upgraded
    assert hashes(book) == hashes(fresh)
    assert book.query(COLUMNS) == fresh.query(COLUMNS)
    # Chat runs 13 of 24 hours at 300 W and else at 90 W, for four days: the last sample but one ends at 23:58.
    joules = 300 * 13 * 3600 * 4 + 90 * (11 * 3600 * 4 - 120)
    assert book.query("select sum(energy_joules)::double from marts.model_daily where model = 'chat'") == [(joules,)]
    with duckdb.connect(str(book.fleet.published / "wattledger.duckdb"), read_only=True) as published:
        assert published.execute(COLUMNS).fetchall() == fresh.query(COLUMNS)
    assert published_dates(book) == october(1, 4)


@pytest.mark.long
def test_a_changed_tariff_is_listed_and_the_named_command_rebooks_it(
    upgraded: tuple[Path, Book], tmp_path: Path
) -> None:
    fleet, book = upgraded
    data = book.fleet.root.parent
    contents = yaml.safe_load(fleet.read_text(encoding="utf-8"))
    contents["sites"][0]["tariff"][1]["usd_per_kwh"] = 0.36
    fleet.write_text(yaml.safe_dump(contents, sort_keys=False), encoding="utf-8")
    done = command(fleet, data, "--start", "2026-10-04")
    assert done.returncode == 0, done.stdout + done.stderr
    # From the 3rd, on a clock seven hours behind UTC: the 2nd ends there at 17:00. The run itself booked the 4th.
    options = "--rebuild --start 2026-10-03 --end 2026-10-04"
    assert (
        "  warned marts/fleet_daily dates_use_todays_settings: 1 booked date uses older settings: tariffs: 2026-10-03"
        f" (1 date). Re-book with: wattledger run --fleet {fleet} {options}" in done.stdout
    )
    done = command(fleet, data, *options.split())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "dates_use_todays_settings" not in done.stdout
    fresh = Book.of(fleet, tmp_path / "fresh")
    fresh.run()
    assert hashes(book) == hashes(fresh)
    # What alone is not the same: the figures that were published with the old tariff.
    assert book.query("select distinct figure, reason from published.restated_figures") == [("cost", "price")]


# The one row of both commits' publications.
OLD_PUBLICATION = """
    create table published.publication as select $1 as publication_id,
        timestamptz '2026-10-05 00:00:00Z' as published_at, date '2026-10-01' as start_date,
        date '2026-10-04' as end_date, 'upgraded' as fleet, true as is_synthetic, '1.0.0' as code_version,
        null::varchar as previous_publication_id, null::varchar as held_back_dates,
        null::varchar as held_back_reasons, false as is_forced, null::varchar as forced_reasons
"""


def publish_old(fleet: Fleet) -> None:
    """The marts of an old warehouse as what readers see of it."""
    folder = fleet.published / "20261005T000000000000Z-00000001"
    folder.mkdir(parents=True)
    with duckdb.connect() as connection:
        connection.execute(f"attach {database.literal(fleet.warehouse)} as old (read_only)")
        connection.execute(f"attach '{folder / 'wattledger.duckdb'}' as made (storage_version 'v1.0.0')")
        connection.execute("use made")
        tables = "select schema_name, table_name from duckdb_tables() where database_name = 'old'"
        for schema, table in connection.execute(f"{tables} and schema_name in ('marts', 'published')").fetchall():
            connection.execute(f"create schema if not exists {schema}")
            connection.execute(f"create table {schema}.{table} as from old.{schema}.{table}")
        connection.execute(OLD_PUBLICATION, [folder.name])
    (fleet.published / "latest").symlink_to(folder.name)
    fleet.snapshot.symlink_to("latest/wattledger.duckdb")


@pytest.mark.long
@pytest.mark.parametrize(("commit", "tables"), [("d82048b", 0), ("d4c0322", 1)])
def test_an_upgrade_that_is_killed_goes_on_with_the_next_night(
    commit: str, tables: int, fresh: Book, tmp_path: Path
) -> None:
    """Older code booked and published three days. Today's `--rebuild` is killed while it books them anew."""
    fleet, data = old_fleet(tmp_path / "fleet"), tmp_path / "data"
    book = Book.of(fleet, data)
    old_warehouse(book.fleet.warehouse, commit)
    publish_old(book.fleet)

    def is_half_way() -> bool:
        return has_logged(book.fleet.root, "START sql incremental model marts.model_daily")

    assert killed(fleet, data, is_half_way, "--rebuild", group=True)
    # A mart of other columns than d82048b had is not there until it is booked anew. What readers see is what it was.
    assert book.query("select count(*) from duckdb_tables() where table_name = 'cost_daily'") == [(tables,)]
    assert published_dates(book) == october(1, 3)
    # The next night asks for the fourth day alone; the other three are due.
    done = command(fleet, data, "--start", "2026-10-04")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "booking 2026-10-01 to 2026-10-04" in done.stdout
    assert hashes(book) == hashes(fresh)
    assert book.query(COLUMNS) == fresh.query(COLUMNS)
    assert published_dates(book) == october(1, 4)


# --- the command line, before anything runs ---------------------------------------------------------------------------


@pytest.fixture
def one_booked_date(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """A fleet whose warehouse has booked 2 October, alone."""
    monkeypatch.setenv("WATTLEDGER_DATA", str(fleet.root.parent))
    fleet.root.mkdir(parents=True)
    with database.connect(fleet.warehouse) as connection:
        create_tables(connection)
        connection.execute("insert into raw.booked_with values ('2026-10-02', 'method_version', '2')")
    return fleet


def test_a_newer_warehouse_is_one_line(one_booked_date: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    with database.connect(one_booked_date.warehouse) as connection:
        connection.execute("update raw.warehouse_version set schema_version = 99")
    assert main(["run", "--fleet", str(one_booked_date.path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("the warehouse was written by a newer Wattledger (its schema version is 99")


def test_a_rebuild_is_of_booked_dates(one_booked_date: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    outside = ["run", "--fleet", str(one_booked_date.path), "--rebuild", "--start", "2026-10-01"]
    assert main(outside) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        "--start 2026-10-01 --end 2026-10-03: expected a start from 2026-10-02 on, and an end up to 2026-10-03, the"
        " date after the last one"
    )
    with database.connect(one_booked_date.warehouse) as connection:
        connection.execute("delete from raw.booked_with")
    assert main(["run", "--fleet", str(one_booked_date.path), "--rebuild"]) == 2
    assert capsys.readouterr().err == "fleet mine: no date is booked yet; run without --rebuild\n"


# --- tables of raw and fleet ------------------------------------------------------------------------------------------


def test_a_table_of_other_columns_gets_todays_and_keeps_its_rows(held: duckdb.DuckDBPyConnection) -> None:
    held.execute("drop table raw.due_dates")
    held.execute("create table raw.due_dates (due varchar, forgotten integer)")
    held.execute("insert into raw.due_dates values ('booking', 1)")
    held.execute("drop table raw.warehouse_version")
    create_tables(held)
    assert held.execute("select * from raw.due_dates").fetchall() == [(None, "booking")]
    assert held.execute("from raw.warehouse_version").fetchall() == [(SCHEMA_VERSION, None, None)]


def test_a_warehouse_of_today_is_only_looked_at(held: duckdb.DuckDBPyConnection) -> None:
    held.execute("drop table raw.power_samples")
    held.execute("create view raw.power_samples as select 1 as of_a_lake")
    before = held.execute("select table_name, table_oid from duckdb_tables() order by 1").fetchall()
    create_tables(held)
    assert held.execute("select table_name, table_oid from duckdb_tables() order by 1").fetchall() == before
    assert held.execute("from raw.power_samples").fetchall() == [(1,)]


def test_a_newer_warehouse_is_refused_untouched(held: duckdb.DuckDBPyConnection) -> None:
    held.execute("update raw.warehouse_version set schema_version = ?", [SCHEMA_VERSION + 1])
    held.execute("alter table raw.landings add column of_tomorrow integer")
    with pytest.raises(NewerWarehouse, match=f"schema version is {SCHEMA_VERSION + 1}, this code knows up to"):
        create_tables(held)
    assert held.execute("describe raw.landings").fetchall()[-1][0] == "of_tomorrow"


@pytest.mark.rest
def test_one_seed_alone_does_not_count_as_all(fleet: Fleet) -> None:
    """What is chosen in the UI: the others may still be those of an older version."""
    job = definitions_of(fleet).resolve_job_def(JOB)
    chosen = [dg.AssetKey(["reference", "meter_errors"])]
    assert job.execute_in_process(asset_selection=chosen, partition_key="2026-10-05").success
    with database.connect(fleet.warehouse) as connection:
        create_tables(connection)
        assert connection.execute("select count(*) > 0 from reference.meter_errors").fetchall() == [(True,)]
        assert connection.execute("from raw.seeds_loaded").fetchall() == []


# --- marts ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    path = tmp_path / "fleet.yaml"
    path.write_text("fleet: mine\nperiod: {start: 2026-10-01}\nsources: [{name: agents, kind: spool}]\n")
    return load_fleet(path, {"WATTLEDGER_DATA": str(tmp_path / "data")})


@pytest.fixture
def booked(held: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """A warehouse whose marts are those of TODAY, with the dates 1 to 3 October."""
    held.execute("create schema marts")
    held.execute("create table marts.fleet_daily (date date, energy_joules decimal(28,6), method_version varchar)")
    held.execute("insert into marts.fleet_daily select date '2026-10-01' + n::integer, 7, '2' from range(3) as days(n)")
    held.execute("create table marts.run_windows (window_id varchar, start_at timestamptz)")
    held.execute("create table marts.curve (load double)")
    held.execute("create table marts.efficiency_fit (form varchar)")
    return held


def prepare(
    connection: duckdb.DuckDBPyConnection, fleet: Fleet, first: int, last: int, *, is_whole: bool = True
) -> dict[str, list[str]]:
    """Make the marts ready for a run of these dates of October; their columns then."""
    dates = october(first, last)
    upgrades.prepare(connection, fleet, TODAY, dates[0], dates[-1] + timedelta(days=1), is_whole=is_whole)
    held = (
        "select table_name, list(column_name order by column_index) from duckdb_columns() where schema_name = 'marts'"
    )
    return dict(connection.execute(f"{held} group by 1 order by 1").fetchall())


UNCHANGED: Mapping[str, list[str]] = {
    "curve": ["load"],
    "efficiency_fit": ["form"],
    "fleet_daily": ["date", "energy_joules", "method_version"],
    "run_windows": ["window_id", "start_at"],
}


def test_marts_that_match_their_contracts_are_kept(booked: duckdb.DuckDBPyConnection, fleet: Fleet) -> None:
    assert prepare(booked, fleet, 4, 4) == UNCHANGED
    assert prepare(booked, fleet, 1, 3) == UNCHANGED
    assert booked.execute("select count(*) from marts.fleet_daily").fetchall() == [(3,)]
    assert booked.execute("select * from raw.due_dates").fetchall() == []


def test_a_new_column_is_added_and_is_null_on_older_dates(booked: duckdb.DuckDBPyConnection, fleet: Fleet) -> None:
    booked.execute("alter table marts.fleet_daily drop column energy_joules")
    assert prepare(booked, fleet, 4, 4)["fleet_daily"] == ["date", "method_version", "energy_joules"]
    rows = booked.execute("select distinct energy_joules, typeof(energy_joules) from marts.fleet_daily").fetchall()
    assert rows == [(None, "DECIMAL(28,6)")]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("drop table marts.run_windows", "mart run_windows is new"),
        ("alter table marts.fleet_daily add column lost integer", "mart fleet_daily has no column lost any more"),
        (
            "alter table marts.fleet_daily alter energy_joules type double",
            r"column energy_joules of mart fleet_daily was double and is decimal\(28,6\)",
        ),
        ("update marts.fleet_daily set method_version = '1'", "method_version was 1 and is 2"),
    ],
)
def test_what_only_all_dates_can_fill_is_refused_for_less(
    booked: duckdb.DuckDBPyConnection, fleet: Fleet, change: str, words: str
) -> None:
    booked.execute(change)
    before = upgrades.marts_of(booked)
    with pytest.raises(upgrades.NeedsRebuild, match=f"2026-10-01 to 2026-10-03 were .*{words}.* --rebuild$") as refusal:
        prepare(booked, fleet, 3, 4)
    assert "\n" not in str(refusal.value)
    assert upgrades.marts_of(booked) == before
    # A run of all dates (a closed fleet's every run) asks for nothing; they are due until they are booked.
    shown = prepare(booked, fleet, 1, 4)
    assert shown.keys() <= UNCHANGED.keys()
    if "alter" in change:
        assert "fleet_daily" not in shown
        due = booked.execute("select date from raw.due_dates where due = 'booking' order by 1").fetchall()
        assert due == [(on,) for on in october(1, 4)]


def test_dates_that_the_run_books_itself_may_be_of_another_method(
    booked: duckdb.DuckDBPyConnection, fleet: Fleet
) -> None:
    booked.execute("update marts.fleet_daily set method_version = '1' where date >= '2026-10-02'")
    assert prepare(booked, fleet, 2, 4) == UNCHANGED


def test_a_mart_that_every_run_makes_anew_changes_freely(booked: duckdb.DuckDBPyConnection, fleet: Fleet) -> None:
    booked.execute("alter table marts.curve add column lost integer")
    assert "curve" not in prepare(booked, fleet, 4, 4)


def test_a_mart_of_months_whose_rows_had_none_is_made_anew(booked: duckdb.DuckDBPyConnection, fleet: Fleet) -> None:
    """A run replaces whole months: rows without one would stay beside the new ones."""
    racks = Mart((("date", "date"), ("billing_month", "date")), "billing_months")
    contracts = replace(TODAY, marts={**TODAY.marts, "racks": racks})
    for more, is_kept in (("", False), (", date '2026-10-01' as billing_month", True)):
        booked.execute(f"create table marts.racks as select date '2026-10-01' as date{more}")
        upgrades.prepare(booked, fleet, contracts, date(2026, 10, 4), date(2026, 10, 5), is_whole=True)
        assert ("racks" in upgrades.marts_of(booked)) == is_kept


def test_columns_in_another_order_wait_for_a_run_of_all_dates(booked: duckdb.DuckDBPyConnection, fleet: Fleet) -> None:
    booked.execute("create or replace table marts.run_windows (start_at timestamptz, window_id varchar)")
    assert prepare(booked, fleet, 4, 4)["run_windows"] == ["start_at", "window_id"]
    assert "run_windows" not in prepare(booked, fleet, 1, 4)


def test_a_column_with_another_name_keeps_its_rows_and_makes_no_date_old(
    booked: duckdb.DuckDBPyConnection, fleet: Fleet
) -> None:
    columns = (("date", "date"), ("booked_joules", "decimal(28,6)"), ("method_version", "string"))
    renamed = Mart(columns, formerly={"booked_joules": "energy_joules"})
    contracts = replace(TODAY, marts={**TODAY.marts, "fleet_daily": renamed})
    assert contracts.columns == TODAY.columns
    for _ in range(2):  # a second run finds nothing to do
        upgrades.prepare(booked, fleet, contracts, date(2026, 10, 3), date(2026, 10, 4), is_whole=True)
        assert booked.execute("select date, booked_joules from marts.fleet_daily order by 1").fetchall() == [
            (on, 7) for on in october(1, 3)
        ]


def test_a_column_that_is_gone_is_dropped_and_makes_no_date_due(
    booked: duckdb.DuckDBPyConnection, fleet: Fleet
) -> None:
    booked.execute("alter table marts.fleet_daily add column usage_cost_usd double")
    before = dict(TODAY.marts)["fleet_daily"]
    contracts = replace(
        TODAY, marts={**TODAY.marts, "fleet_daily": replace(before, gone=frozenset({"usage_cost_usd"}))}
    )
    upgrades.prepare(booked, fleet, contracts, date(2026, 10, 3), date(2026, 10, 4), is_whole=True)
    assert "usage_cost_usd" not in dict(upgrades.marts_of(booked)["fleet_daily"])
    assert booked.execute("select count(*) from marts.fleet_daily").fetchall() == [(3,)]
    assert booked.execute("select * from raw.due_dates where due = 'booking'").fetchall() == []


def test_a_part_of_the_models_drops_nothing(booked: duckdb.DuckDBPyConnection, fleet: Fleet) -> None:
    booked.execute("alter table marts.fleet_daily drop column energy_joules")
    assert "fleet_daily" in prepare(booked, fleet, 1, 4, is_whole=False)


def test_a_table_that_nothing_makes_any_more_goes(booked: duckdb.DuckDBPyConnection, fleet: Fleet) -> None:
    booked.execute("create table marts.forgotten as select 1 as one")
    assert prepare(booked, fleet, 4, 4) == UNCHANGED


def test_a_new_warehouse_has_nothing_to_upgrade(held: duckdb.DuckDBPyConnection, fleet: Fleet) -> None:
    assert prepare(held, fleet, 1, 1) == {}
