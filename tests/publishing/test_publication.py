"""The publication: whole or not at all, only the run's dates rewritten, readable by DuckDB 1.x."""

from __future__ import annotations

import struct
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import duckdb
import pytest

from pipelines.fleet.fleet_file import Fleet, load_fleet
from pipelines.publishing import history, publication
from pipelines.warehouse import database

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
        "parquet/marts/energy_ledger/date=2026-10-01.parquet",
        "parquet/marts/energy_ledger/date=2026-10-02.parquet",
        "parquet/marts/model_daily.parquet",
        "parquet/marts/model_monthly.parquet",
        "parquet/published/publication.parquet",
        "wattledger.duckdb",
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


def test_the_file_has_the_storage_version_that_duckdb_1_0_opens(fleet: Fleet) -> None:
    book(fleet, {"2026-10-01": 1})
    for minute in range(2):  # the second starts from a copy
        publish(fleet, "2026-10-01", "2026-10-02", minute)
        header = (fleet.published / "wattledger.duckdb").read_bytes()[:20]
        assert header[8:12] == b"DUCK"
        assert struct.unpack("<Q", header[12:20]) == (64,)


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
        assert publication.current(fleet).name == first.publication_id
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
    assert publication.current(fleet) is None
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
        assert publication.current(fleet).name == first.publication_id
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


def test_the_newest_five_are_kept_and_never_fewer_than_the_current_one(fleet: Fleet) -> None:
    book(fleet, {"2026-10-01": 1})
    made = [publish(fleet, "2026-10-01", "2026-10-02", minute).publication_id for minute in range(7)]
    kept = sorted(path.name for path in fleet.published.iterdir() if not path.is_symlink())
    assert kept == made[2:]
    assert publication.current(fleet).name == made[-1]


def test_parquet_says_which_fleet_and_that_it_is_synthetic(fleet: Fleet) -> None:
    book(fleet, {"2026-10-01": 1})
    publish(fleet, "2026-10-01", "2026-10-02")
    path = fleet.published / "latest" / "parquet" / "marts" / "model_daily.parquet"
    labels = dict(duckdb.sql(f"select key, value from parquet_kv_metadata('{path}')").fetchall())
    assert (labels[b"fleet"], labels[b"is_synthetic"]) == (b"tiny", b"true")
