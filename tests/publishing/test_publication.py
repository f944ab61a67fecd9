"""The publication: whole or not at all, only the run's dates rewritten, readable by DuckDB 1.x."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import duckdb
import pytest

from pipelines.fleet.fleet_file import Fleet, load_fleet
from pipelines.fleet.running.retention_rules import Retention
from pipelines.publishing import history, publication
from pipelines.warehouse import compaction, database, disk_room
from pipelines.warehouse.refusals import QuestionError
from tests import optional

FLEET = """
fleet: tiny
synthetic: true
period: {start: 2026-10-01}
sources: [{name: synthetic, kind: synthetic, scenario: demo, interval_seconds: 60}]
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    path = tmp_path / "tiny.yaml"
    path.write_text(FLEET)
    made = load_fleet(path, {"WATTLEDGER_DATA": str(tmp_path / "data")})
    made.root.mkdir(parents=True)
    return made


def book(fleet: Fleet, joules: dict[str, float]) -> None:
    """Marts with one row per date in a fine-grained, a daily and an undated table."""
    with closing(database.connect(fleet.warehouse)) as connection:
        connection.execute("create schema if not exists marts")
        connection.execute(
            "create or replace table marts.energy_ledger"
            " (date date, interval_start_at timestamptz, energy_joules decimal(28, 6))"
        )
        connection.execute("create or replace table marts.model_daily (date date, energy_joules decimal(28, 6))")
        connection.execute("create or replace table marts.model_monthly (month date, energy_joules decimal(28, 6))")
        connection.execute("comment on table marts.model_daily is 'One row per date. It''s in joules.'")
        connection.execute("comment on column marts.model_daily.energy_joules is 'Joules.'")
        for on, value in joules.items():
            connection.execute("insert into marts.energy_ledger values (?, ?::date::timestamptz, ?)", [on, on, value])
            connection.execute("insert into marts.model_daily values (?, ?)", [on, value])
        connection.execute(
            "insert into marts.model_monthly select date_trunc('month', date), sum(energy_joules)"
            " from marts.model_daily group by 1"
        )


def publish(fleet: Fleet, start: str, end: str, minute: int = 0) -> publication.Publication:
    at = datetime(2026, 10, 5, tzinfo=UTC) + timedelta(minutes=minute)
    return publication.publish(fleet, date.fromisoformat(start), date.fromisoformat(end), published_at=at)


def read(fleet: Fleet, query: str) -> list[tuple]:
    with closing(duckdb.connect(str(fleet.published / "wattledger.duckdb"), read_only=True)) as connection:
        return connection.execute(query).fetchall()


def daily(fleet: Fleet) -> dict[str, float]:
    rows = read(fleet, "select date::varchar, energy_joules::double from marts.model_daily order by 1")
    return dict(rows)


def test_a_first_publication_has_everything(fleet: Fleet) -> None:
    book(fleet, {"2026-10-01": 1, "2026-10-02": 2})
    made = publish(fleet, "2026-10-01", "2026-10-03")
    assert daily(fleet) == {"2026-10-01": 1.0, "2026-10-02": 2.0}
    assert read(
        fleet, "select fleet, is_synthetic, start_date::varchar, end_date::varchar from published.publication"
    ) == [("tiny", True, "2026-10-01", "2026-10-03")]
    assert made.rows == {"marts.energy_ledger": 2, "marts.model_daily": 2, "marts.model_monthly": 1}
    files = sorted(str(p.relative_to(fleet.published / "latest")) for p in (fleet.published / "latest").rglob("*.*"))
    assert files == [
        "manifest.json",
        "parquet/marts/energy_ledger/date=2026-10-01.parquet",
        "parquet/marts/energy_ledger/date=2026-10-02.parquet",
        "parquet/marts/model_daily.parquet",
        "parquet/marts/model_monthly.parquet",
        "parquet/published/publication.parquet",
        "wattledger.duckdb",
        "wattledger.xlsx",
    ]


def test_descriptions_travel_with_the_tables(fleet: Fleet) -> None:
    book(fleet, {"2026-10-01": 1})
    publish(fleet, "2026-10-01", "2026-10-02")
    assert read(fleet, "select comment from duckdb_tables() where table_name = 'model_daily'") == [
        ("One row per date. It's in joules.",)
    ]
    assert read(
        fleet, "select comment from duckdb_columns() where table_name = 'model_daily' and comment is not null"
    ) == [("Joules.",)]


def test_a_changed_description_reaches_a_table_that_keeps_its_other_dates(fleet: Fleet) -> None:
    book(fleet, {"2026-10-01": 1})
    publish(fleet, "2026-10-01", "2026-10-02")
    book(fleet, {"2026-10-01": 1, "2026-10-02": 2})
    with closing(database.connect(fleet.warehouse)) as connection:
        connection.execute("comment on table marts.model_daily is 'One row per date. [start here: usage]'")
        connection.execute("comment on column marts.model_daily.energy_joules is 'Joules at the board.'")
    publish(fleet, "2026-10-02", "2026-10-03", minute=1)
    assert daily(fleet) == {"2026-10-01": 1.0, "2026-10-02": 2.0}
    assert read(fleet, "select comment from duckdb_tables() where table_name = 'model_daily'") == [
        ("One row per date. [start here: usage]",)
    ]
    assert read(
        fleet, "select comment from duckdb_columns() where table_name = 'model_daily' and comment is not null"
    ) == [("Joules at the board.",)]


def test_the_file_has_the_storage_version_that_duckdb_1_0_opens(fleet: Fleet) -> None:
    book(fleet, {"2026-10-01": 1})
    for minute in range(2):  # the second starts from a copy
        publish(fleet, "2026-10-01", "2026-10-02", minute)
        header = (fleet.published / "wattledger.duckdb").read_bytes()[:20]
        assert header[8:12] == b"DUCK"
        assert struct.unpack("<Q", header[12:20]) == (64,)


def test_a_database_of_which_half_is_free_is_written_anew(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row is 8 bytes that cannot be packed. A table without dates is replaced whole, and leaves its blocks free."""

    def size_with(undated: int, start: str, minute: int) -> int:
        book(fleet, {"2026-10-01": 1, "2026-10-02": 2})
        with closing(database.connect(fleet.warehouse)) as connection:
            for table, rows in (("undated", undated), ("dated", 400_000)):
                on = "date '2026-10-01' as date, " if table == "dated" else ""
                connection.execute(
                    f"create or replace table marts.{table} as select {on}random() as x from range({rows})"
                )
            connection.execute("comment on column marts.undated.x is 'No unit.'")
        publish(fleet, start, "2026-10-03", minute)
        assert read(fleet, "select count(*) from marts.undated") == [(undated,)]
        assert read(fleet, "select comment from duckdb_columns() where table_name = 'undated'") == [("No unit.",)]
        return (fleet.published / "latest" / "wattledger.duckdb").stat().st_size

    monkeypatch.setattr(compaction, "LEAST_BYTES", 1_000_000)
    first = size_with(200_000, "2026-10-01", 0)
    # The rows of 1 October stay: 3.2 of 6.4 MB and more are used. Then they are replaced as well, and half is free.
    assert size_with(200_000, "2026-10-02", 1) > first + 1_000_000
    assert size_with(1_000, "2026-10-01", 2) < first
    header = (fleet.published / "wattledger.duckdb").read_bytes()[:20]
    assert struct.unpack("<Q", header[12:20]) == (64,)
    assert daily(fleet) == {"2026-10-01": 1.0, "2026-10-02": 2.0}


def test_a_copy_that_finds_no_room_leaves_the_database_as_it_is(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "LEAST_BYTES", 0)
    monkeypatch.setattr(compaction, "WORTH_RATIO", 0)
    monkeypatch.setattr(disk_room, "MARGIN_RATIO", 1e12)
    book(fleet, {"2026-10-01": 1})
    publish(fleet, "2026-10-01", "2026-10-02")
    assert daily(fleet) == {"2026-10-01": 1.0}


def test_only_the_runs_dates_are_replaced_and_untouched_parquet_is_shared(fleet: Fleet) -> None:
    book(fleet, {"2026-10-01": 1, "2026-10-02": 2})
    first = publish(fleet, "2026-10-01", "2026-10-03")
    book(fleet, {"2026-10-01": 1, "2026-10-02": 20, "2026-10-03": 4})
    second = publish(fleet, "2026-10-02", "2026-10-04", 1)
    assert second.previous_publication_id == first.publication_id
    assert daily(fleet) == {"2026-10-01": 1.0, "2026-10-02": 20.0, "2026-10-03": 4.0}
    assert read(fleet, "select energy_joules::double from marts.model_monthly") == [(25.0,)]
    ledger = fleet.published / second.publication_id / "parquet" / "marts" / "energy_ledger"
    assert sorted(path.name for path in ledger.iterdir()) == [
        "date=2026-10-01.parquet",
        "date=2026-10-02.parquet",
        "date=2026-10-03.parquet",
    ]
    old = fleet.published / first.publication_id / "parquet" / "marts" / "energy_ledger"
    assert (ledger / "date=2026-10-01.parquet").samefile(old / "date=2026-10-01.parquet")
    assert not (ledger / "date=2026-10-02.parquet").samefile(old / "date=2026-10-02.parquet")
    total = duckdb.sql(f"select sum(energy_joules)::double from '{ledger}/*.parquet'").fetchall()
    assert total == [(25.0,)]


def book_costs(fleet: Fleet, rows: dict[tuple[str, str], float]) -> None:
    """The cost of each (date, billing month), in cost_daily and as FOCUS has it."""
    with closing(database.connect(fleet.warehouse)) as connection:
        connection.execute("set TimeZone = 'UTC'")
        for table, columns in (
            ("cost_daily", "date date, billing_month date, cost_usd decimal(28, 12)"),
            (
                "focus_cost_and_usage",
                'date date, billing_month date, "BilledCost" decimal(28, 12), "ChargePeriodStart" timestamptz,'
                ' "SkuPriceId" varchar, "x_IsCash" boolean',
            ),
        ):
            connection.execute(f"create or replace table marts.{table} ({columns})")
        for (on, month), usd in rows.items():
            connection.execute("insert into marts.cost_daily values (?, ?, ?)", [on, month, usd])
            connection.execute(
                "insert into marts.focus_cost_and_usage values (?, ?, ?, ?::date::timestamptz, ?, true)",
                [on, month, usd, on, 'energy, "day"'],
            )


def test_a_month_whose_earlier_dates_changed_is_published_whole(fleet: Fleet) -> None:
    """A demand charge that rises on 3 October restates 2 October; September is as it was."""
    book(fleet, {"2026-09-15": 1, "2026-10-02": 2})
    book_costs(fleet, {("2026-09-15", "2026-09-01"): 1, ("2026-10-02", "2026-10-01"): 2})
    publish(fleet, "2026-09-15", "2026-10-03")
    book(fleet, {"2026-09-15": 1, "2026-10-02": 2, "2026-10-03": 3})
    # The run has no row of September any more: what it did not compute stays.
    book_costs(fleet, {("2026-10-02", "2026-10-01"): 20, ("2026-10-03", "2026-10-01"): 30})
    publish(fleet, "2026-10-03", "2026-10-04", 1)
    for query in (
        "select date::varchar, cost_usd::double from marts.cost_daily order by 1",
        'select date::varchar, "BilledCost"::double from marts.focus_cost_and_usage order by 1',
    ):
        assert read(fleet, query) == [("2026-09-15", 1.0), ("2026-10-02", 20.0), ("2026-10-03", 30.0)]


def test_the_cost_of_each_month_is_a_csv_file_with_the_columns_of_focus_alone(fleet: Fleet) -> None:
    book(fleet, {"2026-09-15": 1, "2026-10-02": 2})
    book_costs(fleet, {("2026-09-15", "2026-09-01"): 1.25, ("2026-10-02", "2026-10-01"): 2})
    first = publish(fleet, "2026-09-15", "2026-10-03")
    old = fleet.published / first.publication_id / "focus"
    assert {path.name: path.read_text() for path in old.iterdir()} == {
        "cost_and_usage_2026-09.csv": "BilledCost,ChargePeriodStart,SkuPriceId,x_IsCash\n"
        '1.250000000000,2026-09-15T00:00:00Z,"energy, ""day""",true\n',
        "cost_and_usage_2026-10.csv": "BilledCost,ChargePeriodStart,SkuPriceId,x_IsCash\n"
        '2.000000000000,2026-10-02T00:00:00Z,"energy, ""day""",true\n',
    }
    second = publish(fleet, "2026-10-02", "2026-10-03", 1)
    new = fleet.published / second.publication_id / "focus"
    # A run of 2 October restates October alone.
    assert (new / "cost_and_usage_2026-09.csv").samefile(old / "cost_and_usage_2026-09.csv")
    assert not (new / "cost_and_usage_2026-10.csv").samefile(old / "cost_and_usage_2026-10.csv")


# --- what is published stays ------------------------------------------------------------------------------------------


def test_a_published_date_that_the_warehouse_lost_is_not_published_away(fleet: Fleet) -> None:
    """Oct 2 is gone from the warehouse, whether or not this run was to book it."""
    book(fleet, {"2026-10-01": 1, "2026-10-02": 2, "2026-10-03": 3})
    first = publish(fleet, "2026-10-01", "2026-10-04")
    book(fleet, {"2026-10-01": 1, "2026-10-03": 3})
    for start in ("2026-10-01", "2026-10-03"):
        with pytest.raises(
            history.HistoryWouldShrink, match="2026-10-02: published, but not in the warehouse"
        ) as refusal:
            publish(fleet, start, "2026-10-04", 1)
        assert "--force-publish" in str(refusal.value)
        assert fleet.latest_publication.name == first.publication_id
    assert daily(fleet) == {"2026-10-01": 1.0, "2026-10-02": 2.0, "2026-10-03": 3.0}
    assert [path for path in fleet.published.iterdir() if path.name.startswith(".")] == []


def test_a_date_that_no_run_was_to_change_is_not_published_changed(fleet: Fleet) -> None:
    """3.6 MJ, which is 1 kWh, became 7.2 MJ; only Oct 2 was booked."""
    book(fleet, {"2026-10-01": 3.6e6, "2026-10-02": 2})
    publish(fleet, "2026-10-01", "2026-10-03")
    book(fleet, {"2026-10-01": 7.2e6, "2026-10-02": 20})
    with pytest.raises(history.HistoryWouldShrink, match="2026-10-01: 2 kWh in the warehouse, 1 kWh published"):
        publish(fleet, "2026-10-02", "2026-10-03", 1)
    made = publish(fleet, "2026-10-01", "2026-10-03", 2)  # booked by this run: it may change
    assert made.forced == ()
    assert daily(fleet) == {"2026-10-01": 7.2e6, "2026-10-02": 20.0}


def test_a_forced_publication_says_what_it_overrode(fleet: Fleet) -> None:
    book(fleet, {"2026-10-01": 1, "2026-10-02": 2})
    publish(fleet, "2026-10-01", "2026-10-03")
    book(fleet, {"2026-10-02": 2})
    start, end = date(2026, 10, 2), date(2026, 10, 3)
    publication.publish(fleet, start, end, force=True, published_at=datetime(2026, 10, 6, tzinfo=UTC))
    assert read(fleet, "select is_forced, forced_reasons from published.publication") == [
        (True, "2026-10-01: published, but not in the warehouse")
    ]


def test_a_month_that_is_not_the_sum_of_its_published_hours_is_not_published(fleet: Fleet) -> None:
    """A warehouse that was lost and booked in part: its month has one of two days."""
    book(fleet, {"2026-10-01": 3.6e6, "2026-10-02": 7.2e6})
    with closing(database.connect(fleet.warehouse)) as connection:
        connection.execute("alter table marts.model_monthly add column method_version varchar default '2'")
        connection.execute(
            "create table marts.model_hourly as select date, date::timestamptz as hour_start_at,"
            " date '2026-10-01' as billing_month, energy_joules, false as is_opening_balance, '2' as method_version"
            " from marts.model_daily"
        )
    publish(fleet, "2026-10-01", "2026-10-03")
    with closing(database.connect(fleet.warehouse)) as connection:
        connection.execute("update marts.model_monthly set energy_joules = 7.2e6")
    with pytest.raises(history.HistoryWouldShrink, match="month 2026-10-01: 2 kWh in model_monthly, 3 kWh in hours"):
        publish(fleet, "2026-10-02", "2026-10-03", 1)


def test_a_new_warehouse_does_not_publish_less_of_a_date_than_readers_have(fleet: Fleet) -> None:
    """24 meter-hours were published of Oct 1; a warehouse that never published it has found 2 of them again."""

    def cover(hours: float) -> None:
        with closing(database.connect(fleet.warehouse)) as connection:
            connection.execute("alter table marts.model_daily add column if not exists covered_seconds double")
            connection.execute("update marts.model_daily set covered_seconds = ?", [hours * 3600])

    book(fleet, {"2026-10-01": 24})
    cover(24)
    start, end = date(2026, 10, 1), date(2026, 10, 2)
    publication.publish(fleet, start, end, published_at=datetime(2026, 10, 5, tzinfo=UTC))
    book(fleet, {"2026-10-01": 2})
    cover(2)
    later = datetime(2026, 10, 6, tzinfo=UTC)
    with pytest.raises(history.HistoryWouldShrink, match=r"2026-10-01: 2\.0 meter-hours covered, 24\.0 published"):
        publication.publish(fleet, start, end, own=[], published_at=later)
    # The same of a date that this warehouse has published itself is a restatement: its run was asked for it.
    assert publication.publish(fleet, start, end, own=[start], published_at=later).forced == ()


# --- dates that are held back -----------------------------------------------------------------------------------------


def hold_back(fleet: Fleet, *dates: str) -> None:
    with closing(database.connect(fleet.warehouse)) as connection:
        connection.execute("create or replace table marts.held_back_dates (date date, invariant varchar)")
        for on in dates:
            connection.execute("insert into marts.held_back_dates values (?, 'tokens_are_booked_once')", [on])


def test_a_held_back_date_keeps_what_was_published_and_the_publication_says_why(fleet: Fleet) -> None:
    book(fleet, {"2026-10-01": 1, "2026-10-02": 2})
    publish(fleet, "2026-10-01", "2026-10-03")
    book(fleet, {"2026-10-01": 10, "2026-10-02": 20})
    hold_back(fleet, "2026-10-01")
    publish(fleet, "2026-10-01", "2026-10-03", 1)
    assert daily(fleet) == {"2026-10-01": 1.0, "2026-10-02": 20.0}
    assert read(fleet, "select held_back_dates, held_back_reasons, is_forced from published.publication") == [
        ("2026-10-01", "2026-10-01: tokens_are_booked_once", False)
    ]
    # Force overrides losses, never this.
    publication.publish(fleet, date(2026, 10, 1), date(2026, 10, 3), force=True)
    assert daily(fleet) == {"2026-10-01": 1.0, "2026-10-02": 20.0}


def test_a_column_that_is_new_is_unknown_on_a_held_back_date(fleet: Fleet) -> None:
    book(fleet, {"2026-10-01": 1, "2026-10-02": 2})
    publish(fleet, "2026-10-01", "2026-10-03")
    book(fleet, {"2026-10-02": 20})
    hold_back(fleet, "2026-10-01")
    with closing(database.connect(fleet.warehouse)) as connection:
        connection.execute("alter table marts.model_daily add column output_tokens bigint default 7")
    publish(fleet, "2026-10-01", "2026-10-03", 1)
    assert read(
        fleet, "select date::varchar, energy_joules::double, output_tokens from marts.model_daily order by 1"
    ) == [
        ("2026-10-01", 1.0, None),
        ("2026-10-02", 20.0, 7),
    ]


def test_nothing_is_published_while_every_date_is_held_back(fleet: Fleet) -> None:
    book(fleet, {})
    hold_back(fleet, "2026-10-01")
    assert publish(fleet, "2026-10-01", "2026-10-02") is None
    assert fleet.latest_publication is None
    assert list(fleet.published.iterdir()) == []


def test_a_table_whose_columns_changed_is_replaced_whole(fleet: Fleet) -> None:
    book(fleet, {"2026-10-01": 1, "2026-10-02": 2})
    publish(fleet, "2026-10-01", "2026-10-03")
    with closing(database.connect(fleet.warehouse)) as connection:
        connection.execute("alter table marts.model_daily add column output_tokens bigint")
        connection.execute("drop table marts.model_monthly")
    publish(fleet, "2026-10-02", "2026-10-03", 1)
    assert read(fleet, "select date::varchar, output_tokens from marts.model_daily order by 1") == [
        ("2026-10-01", None),
        ("2026-10-02", None),
    ]
    assert read(fleet, "select count(*) from duckdb_tables() where table_name = 'model_monthly'") == [(0,)]


def test_a_crash_leaves_the_old_publication_current_and_the_next_one_cleans_up(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    book(fleet, {"2026-10-01": 1})
    first = publish(fleet, "2026-10-01", "2026-10-02")
    book(fleet, {"2026-10-01": 2})

    def crash(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    steps = (
        (publication.published_tables, "replace_tables"),
        (publication.published_files, "write_parquet"),
        (publication, "_link"),
    )
    for module, step in steps:
        with monkeypatch.context() as patch:
            patch.setattr(module, step, crash)
            with pytest.raises(KeyboardInterrupt):
                publish(fleet, "2026-10-01", "2026-10-02", 1)
        assert fleet.latest_publication.name == first.publication_id
        assert daily(fleet) == {"2026-10-01": 1.0}
    publish(fleet, "2026-10-01", "2026-10-02", 2)
    assert daily(fleet) == {"2026-10-01": 2.0}
    assert [path for path in fleet.published.iterdir() if path.name.startswith(".")] == []


def test_a_reader_with_an_open_file_is_not_disturbed(fleet: Fleet) -> None:
    book(fleet, {"2026-10-01": 1})
    publish(fleet, "2026-10-01", "2026-10-02")
    with closing(duckdb.connect(str(fleet.published / "wattledger.duckdb"), read_only=True)) as reader:
        book(fleet, {"2026-10-01": 2})
        publish(fleet, "2026-10-01", "2026-10-02", 1)
        assert reader.execute("select energy_joules::double from marts.model_daily").fetchall() == [(1.0,)]
    assert daily(fleet) == {"2026-10-01": 2.0}


def test_parquet_says_which_fleet_and_that_it_is_synthetic(fleet: Fleet) -> None:
    book(fleet, {"2026-10-01": 1})
    publish(fleet, "2026-10-01", "2026-10-02")
    path = fleet.published / "latest" / "parquet" / "marts" / "model_daily.parquet"
    labels = dict(duckdb.sql(f"select key, value from parquet_kv_metadata('{path}')").fetchall())
    assert (labels[b"fleet"], labels[b"is_synthetic"]) == (b"tiny", b"true")


# --- readers, while more publications come ----------------------------------------------------------------------------


def parquet_sum(folder: Path) -> float:
    """What a reader gets from the Parquet files of a publication whose path it resolved before."""
    files = folder / "parquet" / "marts" / "energy_ledger" / "*.parquet"
    ((total,),) = duckdb.sql(f"select sum(energy_joules)::double from '{files}'").fetchall()
    return total


@pytest.mark.rest
def test_a_reader_keeps_what_it_opened_while_ten_more_publications_come(fleet: Fleet) -> None:
    """The publication is a month old, and was current until the first of the ten."""
    book(fleet, {"2026-10-01": 1, "2026-10-02": 2})
    start, end = date(2026, 10, 1), date(2026, 10, 3)
    publication.publish(fleet, start, end, published_at=datetime(2026, 9, 5, tzinfo=UTC))
    opened = (fleet.published / "latest").resolve()
    session = duckdb.connect(str(fleet.published / "wattledger.duckdb"), read_only=True)
    for minute in range(1, 11):
        book(fleet, {"2026-10-01": 1, "2026-10-02": 2 + minute})
        publish(fleet, "2026-10-02", "2026-10-03", minute)
    assert parquet_sum(opened) == 3.0
    assert session.execute("select sum(energy_joules)::double from marts.energy_ledger").fetchall() == [(3.0,)]
    session.close()
    assert parquet_sum((fleet.published / "latest").resolve()) == 13.0
    assert daily(fleet) == {"2026-10-01": 1.0, "2026-10-02": 12.0}


def test_a_new_column_breaks_no_query_of_a_reader(fleet: Fleet) -> None:
    """It comes before the others, and only 2 October is booked with it: both dates' Parquet files have it."""
    book(fleet, {"2026-10-01": 1, "2026-10-02": 2})
    publish(fleet, "2026-10-01", "2026-10-03")
    query = "select date::varchar, energy_joules::double from marts.energy_ledger order by 1"
    before = read(fleet, query)
    with closing(database.connect(fleet.warehouse)) as connection:
        connection.execute(
            "create or replace table marts.energy_ledger as"
            " select if(date = '2026-10-02', 'r1', null) as rack, * from marts.energy_ledger"
        )
    publish(fleet, "2026-10-02", "2026-10-03", 1)
    assert read(fleet, query) == before == [("2026-10-01", 1.0), ("2026-10-02", 2.0)]
    assert read(fleet, "select rack from marts.energy_ledger order by date") == [(None,), ("r1",)]
    files = (fleet.published / "latest").resolve() / "parquet" / "marts" / "energy_ledger" / "*.parquet"
    for on in ("2026-10-01", "2026-10-02"):
        one = str(files).replace("*", f"date={on}")
        ((named,),) = duckdb.sql(f"select list(name order by name) from parquet_schema('{one}')").fetchall()
        assert {"rack", "energy_joules"} <= set(named)
    assert parquet_sum((fleet.published / "latest").resolve()) == 3.0


def minutes_kept(fleet: Fleet) -> list[int]:
    """The minutes after midnight of the publications that are still there."""
    names = sorted(path.name for path in fleet.published.iterdir() if path.name.startswith("2026"))
    return [int(name[9:11]) * 60 + int(name[11:13]) + 1440 * (int(name[6:8]) - 5) for name in names]


@pytest.mark.parametrize(("retention", "kept"), [({}, [0, 1, 2880]), ({"publications": 1}, [1, 2880])])
def test_another_number_of_publications_stays_where_retention_states_it(
    fleet: Fleet, retention: dict[str, int], kept: list[int]
) -> None:
    """The second one was replaced just now: it stays for a day, whatever is stated."""
    fleet = fleet.model_copy(update={"retention": Retention(**retention)})
    book(fleet, {"2026-10-01": 1})
    for minute in (0, 1, 2 * 24 * 60):
        publish(fleet, "2026-10-01", "2026-10-02", minute)
    assert minutes_kept(fleet) == kept


def test_a_publication_goes_a_day_after_its_replacement_unless_it_is_among_the_newest_five(fleet: Fleet) -> None:
    day = 24 * 60
    book(fleet, {"2026-10-01": 1})
    (fleet.published / "notes of mine").mkdir(parents=True)
    for minute in (0, 1, 2, 60, 61, 62, 63):
        publish(fleet, "2026-10-01", "2026-10-02", minute)
    assert minutes_kept(fleet) == [0, 1, 2, 60, 61, 62, 63]
    publish(fleet, "2026-10-01", "2026-10-02", day + 1)
    # 0 was replaced at minute 1, which is just a day ago; 1 at minute 2.
    assert minutes_kept(fleet) == [0, 1, 2, 60, 61, 62, 63, day + 1]
    publish(fleet, "2026-10-01", "2026-10-02", day + 30)
    # Of 1 and 2: 1 was replaced at minute 2, 2 at minute 60, which is less than a day ago.
    assert minutes_kept(fleet) == [2, 60, 61, 62, 63, day + 1, day + 30]
    publish(fleet, "2026-10-01", "2026-10-02", 9 * day)
    assert minutes_kept(fleet) == [62, 63, day + 1, day + 30, 9 * day]
    assert (fleet.published / "notes of mine").is_dir()


def test_how_long_publications_stay_is_an_environment_variable(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATTLEDGER_KEEP_HOURS", "0.5")
    book(fleet, {"2026-10-01": 1})
    for minute in (0, 1, 2, 3, 4, 5, 35):
        publish(fleet, "2026-10-01", "2026-10-02", minute)
    assert minutes_kept(fleet) == [2, 3, 4, 5, 35]
    for wrong in ("long", "-1", "nan", "inf"):
        monkeypatch.setenv("WATTLEDGER_KEEP_HOURS", wrong)
        with pytest.raises(QuestionError, match=f"got '{wrong}', expected hours such as 24, at most 87,600"):
            publish(fleet, "2026-10-01", "2026-10-02", 36)


READERS = 20
READER = """
import sys, time, duckdb
seen = []
while 6.0 not in seen:
    with duckdb.connect(sys.argv[1], read_only=True) as connection:
        ledger = connection.sql("select energy_joules::double from marts.energy_ledger").fetchall()
        time.sleep(0.02)
        day = connection.sql("select energy_joules::double from marts.model_daily").fetchall()
    assert ledger == day, (ledger, day)
    seen.append(day[0][0])
    if len(seen) == 1:
        print("ready", flush=True)
    time.sleep(0.1)
print(len(seen), len(set(seen)), seen[0], seen == sorted(seen))
"""


@pytest.mark.rest
def test_readers_in_a_loop_see_one_publication_or_the_next_and_never_two_at_once(fleet: Fleet) -> None:
    """Each publication has one number, in its ledger and in its day. Readers open the snapshot again and again, in
    processes of their own as BI tools do, until they have seen the last of five more; the publisher waits for none."""
    book(fleet, {"2026-10-01": 1})
    publish(fleet, "2026-10-01", "2026-10-02")
    command = [sys.executable, "-c", READER, str(fleet.published / "wattledger.duckdb")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    readers = [subprocess.Popen(command, **pipes) for _ in range(READERS)]
    try:
        assert [one.stdout.readline() for one in readers] == ["ready\n"] * READERS
        for number in range(2, 7):
            book(fleet, {"2026-10-01": number})
            publish(fleet, "2026-10-01", "2026-10-02", number)
        ended = [one.communicate(timeout=120) for one in readers]
    finally:
        for one in readers:
            one.kill()
    assert [errors for _, errors in ended] == [""] * READERS
    found = [printed.split() for printed, _ in ended]
    assert {tuple(rest) for _, _, *rest in found} == {("1.0", "True")}
    reads, seen = sum(int(count) for count, *_ in found), max(int(count) for _, count, *_ in found)
    assert reads >= 2 * READERS
    print(f"snapshot, {READERS} readers: {reads} reads of {seen} publications, 0 mixed")


def test_two_publishers_at_once_publish_one_after_the_other(fleet: Fleet) -> None:
    book(fleet, {"2026-10-01": 1})
    start, end = date(2026, 10, 1), date(2026, 10, 2)
    with ThreadPoolExecutor(3) as publishers:
        made = list(publishers.map(lambda _: publication.publish(fleet, start, end), range(3)))
    first, second, third = sorted(made, key=lambda one: one.published_at)
    assert (first.previous_publication_id, second.previous_publication_id, third.previous_publication_id) == (
        None,
        first.publication_id,
        second.publication_id,
    )
    assert read(fleet, "select publication_id from published.publication") == [(third.publication_id,)]
    assert [path.name for path in fleet.published.iterdir() if path.name.startswith(".")] == []


@pytest.mark.needs("root")
def test_a_full_disk_leaves_the_old_publication_and_the_space_that_the_new_one_took(fleet: Fleet) -> None:
    """The disk of published/ has 4 MiB; half a million random joules need more."""
    fleet.published.mkdir(parents=True)
    mounting = ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(fleet.published)]
    optional.required("root")
    subprocess.run(mounting, check=True)
    try:
        book(fleet, {"2026-10-01": 1})
        first = publish(fleet, "2026-10-01", "2026-10-02")
        free = shutil.disk_usage(fleet.published).free
        with closing(database.connect(fleet.warehouse)) as connection:
            connection.execute(
                "insert into marts.energy_ledger select date '2026-10-01', null, hash(range) % 1e9 from range(500000)"
            )
        with pytest.raises((OSError, duckdb.Error), match="No space left on device"):
            publish(fleet, "2026-10-01", "2026-10-02", 1)
        assert fleet.latest_publication.name == first.publication_id
        assert daily(fleet) == {"2026-10-01": 1.0}
        assert sorted(path.name for path in fleet.published.iterdir()) == [
            first.publication_id,
            "latest",
            "wattledger.duckdb",
            "wattledger.xlsx",
        ]
        assert shutil.disk_usage(fleet.published).free == free
    finally:
        subprocess.run(["umount", str(fleet.published)], check=True)


def test_everything_is_on_the_disk_before_readers_are_sent_to_it(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the calls; of the second publication only what it does not share with the first."""
    done: list[str] = []
    synced, replaced = os.fsync, Path.replace

    def fsync(held: int) -> None:
        done.append(f"sync {Path(f'/proc/self/fd/{held}').readlink().name}")
        synced(held)

    def replace(path: Path, target: Path) -> Path:
        done.append(f"switch {target.name}")
        return replaced(path, target)

    book(fleet, {"2026-10-01": 1, "2026-10-02": 2})
    publish(fleet, "2026-10-01", "2026-10-03")
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    book(fleet, {"2026-10-01": 1, "2026-10-02": 3})
    made = publish(fleet, "2026-10-02", "2026-10-03", 1)
    before, _, after = "\n".join(done).partition("switch latest")
    assert sorted(before.split("\n")) == sorted(
        [
            "",
            "sync date=2026-10-02.parquet",
            "sync manifest.json",
            "sync model_daily.parquet",
            "sync model_monthly.parquet",
            "sync publication.parquet",
            "sync wattledger.duckdb",
            "sync wattledger.xlsx",
            "sync energy_ledger",
            "sync marts",
            "sync published",
            "sync parquet",
            f"sync .building-{made.publication_id}",
            "sync published",
        ]
    )
    assert before.strip().endswith(f"sync .building-{made.publication_id}\nsync published")
    assert after == "\nsync published"
