"""The publication: whole or not at all, only the run's dates rewritten, readable by DuckDB 1.x."""

from __future__ import annotations

import struct
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import duckdb
import pytest

from pipelines import publication, warehouse
from pipelines.fleet import Fleet, load_fleet

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
    with closing(warehouse.connect(fleet.warehouse)) as connection:
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
    book(fleet, {"2026-10-01": 1, "2026-10-02": 2, "2026-10-03": 3})
    first = publish(fleet, "2026-10-01", "2026-10-04")
    book(fleet, {"2026-10-01": 100, "2026-10-02": 20, "2026-10-04": 4})
    second = publish(fleet, "2026-10-02", "2026-10-05", 1)
    assert second.previous_publication_id == first.publication_id
    assert daily(fleet) == {"2026-10-01": 1.0, "2026-10-02": 20.0, "2026-10-04": 4.0}
    assert read(fleet, "select energy_joules::double from marts.model_monthly") == [(124.0,)]
    ledger = fleet.published / second.publication_id / "parquet" / "marts" / "energy_ledger"
    assert sorted(path.name for path in ledger.iterdir()) == [
        "date=2026-10-01.parquet",
        "date=2026-10-02.parquet",
        "date=2026-10-04.parquet",
    ]
    old = fleet.published / first.publication_id / "parquet" / "marts" / "energy_ledger"
    assert (ledger / "date=2026-10-01.parquet").samefile(old / "date=2026-10-01.parquet")
    assert not (ledger / "date=2026-10-02.parquet").samefile(old / "date=2026-10-02.parquet")
    total = duckdb.sql(f"select sum(energy_joules)::double from '{ledger}/*.parquet'").fetchall()
    assert total == [(25.0,)]


def test_a_table_whose_columns_changed_is_replaced_whole(fleet: Fleet) -> None:
    book(fleet, {"2026-10-01": 1, "2026-10-02": 2})
    publish(fleet, "2026-10-01", "2026-10-03")
    with closing(warehouse.connect(fleet.warehouse)) as connection:
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

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    for step in ("_replace_tables", "_write_parquet", "_link"):
        with monkeypatch.context() as patch:
            patch.setattr(publication, step, crash)
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
