"""Rows of PostgreSQL, or files of a store, that another hand deleted, changed or added: made whole, and reported.

Two dates of `tiny_marts`; the last run published 2026-10-02 alone. 2026-10-02 has 2 J, two rows of intervals of 1 J.
"""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipelines.fleet.fleet_file import Fleet
from pipelines.publishing.postgresql import loading as postgresql
from pipelines.publishing.postgresql.server import Server
from tests.books import on
from tests.publishing import test_object_store as stores
from tests.publishing.test_postgresql import DSN, MARTS, ask, daily, differences, fleet, run, server, session, target
from tests.tiny_marts import book, publish

__all__ = ["fleet", "server"]  # the fixtures
pytestmark = [pytest.mark.sampled, pytest.mark.needs("postgresql")]

NIGHT = datetime(2026, 11, 2, 3, tzinfo=UTC)  # a Monday


def load(fleet: Fleet, night: datetime = NIGHT) -> postgresql.Loaded:
    done = postgresql.publish(fleet, target(fleet), MARTS, night)
    assert done is not None
    return done


@pytest.fixture
def loaded(fleet: Fleet) -> Fleet:
    book(fleet, {"2026-10-01": 1, "2026-10-02": 1})
    publish(fleet)
    load(fleet)
    book(fleet, {"2026-10-01": 1, "2026-10-02": 2})
    publish(fleet, "2026-10-02", "2026-10-03")
    load(fleet)
    return fleet


def by_hand(fleet: Fleet, *statements: str) -> None:
    run(os.environ[DSN], *(one.replace("marts.", f"{target(fleet).schema_prefix}marts.") for one in statements))


def writes(fleet: Fleet) -> int:
    """Rows that were ever written in the fleet's schemas."""
    counted = "select sum(n_tup_ins + n_tup_upd + n_tup_del)::int from pg_stat_user_tables"
    return ask(fleet, f"{counted} where starts_with(schemaname, '{target(fleet).schema_prefix}')")[0][0]


@pytest.mark.parametrize(
    ("statement", "rows", "notice"),
    [
        # an old date, that no run was about
        (
            "delete from marts.model_daily where date = '2026-10-01'",
            {"marts.model_daily": 1},
            "marts.model_daily: another hand changed its rows of 2026-10-01 in PostgreSQL (0 there, expected 1)",
        ),
        (
            "delete from marts.energy_ledger where date = '2026-10-01' and meter = 'GPU-1'",
            {"marts.energy_ledger": 2},
            "marts.energy_ledger: another hand changed its rows of 2026-10-01 in PostgreSQL (1 there, expected 2)",
        ),
        # the run's own date
        (
            "delete from marts.energy_ledger where date = '2026-10-02'",
            {"marts.energy_ledger": 2},
            "marts.energy_ledger: another hand changed its rows of 2026-10-02 in PostgreSQL (0 there, expected 2)",
        ),
        (
            "update marts.model_daily set energy_joules = 99 where date = '2026-10-02'",
            {"marts.model_daily": 1},
            "marts.model_daily: another hand changed its rows of 2026-10-02 in PostgreSQL (1 there, expected 1)",
        ),
        (
            "update marts.energy_ledger set meter = meter || '!' where date = '2026-10-02'",
            {"marts.energy_ledger": 2},
            "marts.energy_ledger: another hand changed its rows of 2026-10-02 in PostgreSQL (2 there, expected 2)",
        ),
        # a table without dates, all rows of one, and a date that was never booked
        (
            "update marts.model_monthly set energy_joules = 99",
            {"marts.model_monthly": 1},
            "marts.model_monthly: another hand changed its rows in PostgreSQL (1 there, expected 1)",
        ),
        (
            "truncate marts.energy_ledger",
            {"marts.energy_ledger": 4},
            "marts.energy_ledger: another hand changed its rows of 2026-10-01, 2026-10-02 in PostgreSQL"
            " (0 there, expected 4)",
        ),
        (
            "insert into marts.model_daily (date, model) values ('2031-01-01', 'x'), (null, 'x')",
            {"marts.model_daily": 0},
            "marts.model_daily: another hand changed its rows of 2031-01-01 and without a date in PostgreSQL"
            " (2 there, expected 0)",
        ),
        (
            "alter table marts.model_daily drop column energy_joules",
            {"marts.model_daily": 2},
            "marts.model_daily: another hand changed its rows of 2026-10-01, 2026-10-02 in PostgreSQL"
            " (2 there, expected 2)",
        ),
    ],
)
def test_what_another_hand_changed_is_made_whole_at_the_next_load(
    loaded: Fleet, statement: str, rows: dict[str, int], notice: str
) -> None:
    by_hand(loaded, statement)
    assert [name for name, n in differences_of(loaded) if n] != []
    # A transaction that has read the table, and is not over, keeps no load waiting.
    with session(os.environ[DSN], autocommit=False) as reader:
        reader.execute(f"select count(*) from {target(loaded).schema_prefix}marts.model_monthly")
        done = load(loaded)
    assert done.rows == rows
    assert done.notices == [f"{notice}; they were loaded again"]
    assert [name for name, n in differences_of(loaded) if n] == []
    assert daily(loaded) == {"2026-10-01": 1, "2026-10-02": 2}
    assert load(loaded).rows == {}


def differences_of(fleet: Fleet) -> list[tuple[str, int]]:
    try:
        return differences(fleet)
    except Exception as missing:
        if "does not exist" not in str(missing):
            raise
        return [("a column", 1)]


def test_a_value_of_an_old_date_is_made_whole_within_the_week(loaded: Fleet) -> None:
    by_hand(loaded, "update marts.model_daily set energy_joules = 99 where date = '2026-10-01'")
    found = [load(loaded, NIGHT + timedelta(days=day)).dates for day in range(7)]
    assert sorted(found, key=len) == [*([set()] * 6), {on("10-01")}]
    assert daily(loaded) == {"2026-10-01": 1, "2026-10-02": 2}


def test_where_nothing_differs_nothing_is_written_and_old_dates_are_read_once_a_week(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 28 dates the run's own is read each night, and four others, each of them once in the week."""
    days = {f"2026-10-{day:02}": float(day) for day in range(1, 29)}
    book(fleet, days)
    publish(fleet)
    load(fleet)
    publish(fleet, "2026-10-28", "2026-10-29")
    load(fleet)
    before, read = writes(fleet), []
    stream = Server.stream
    monkeypatch.setattr(Server, "stream", lambda self, query: read.append(query) or stream(self, query))
    for day in range(7):
        assert load(fleet, NIGHT + timedelta(days=day)).rows == {}
    assert writes(fleet) == before
    of_ledger = [query for query in read if "energy_ledger" in query]
    dates = [one for one in days for query in of_ledger if f"'{one}'" in query]
    assert {one: dates.count(one) for one in days} == {**dict.fromkeys(days, 1), "2026-10-28": 7}
    assert max(query.count("2026-10-") for query in of_ledger) == 5
    # The count sees writes at all.
    by_hand(fleet, "delete from marts.model_daily where date = '2026-10-03'")
    load(fleet)
    assert writes(fleet) > before


def test_columns_and_tables_of_others_are_no_difference(loaded: Fleet) -> None:
    by_hand(
        loaded,
        "alter table marts.model_daily add column note text",
        "update marts.model_daily set note = 'mine'",
        "create table marts.theirs as select date '2026-10-02' as date",
    )
    assert load(loaded).rows == {}
    assert ask(loaded, "select distinct note from marts.model_daily") == [("mine",)]


@pytest.mark.parametrize(
    ("pattern", "notice"),
    [
        ("tables/marts/energy_ledger/2026-10-01-*.parquet", True),
        ("tables/marts/model_daily", True),
        # These are of the bookkeeping, and hold no row of their own.
        ("tables/marts/model_daily/_delta_log", False),
        ("publications/*.json", False),
        ("latest.json", False),
    ],
)
def test_what_another_hand_deleted_in_an_object_store_is_written_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, pattern: str, notice: bool
) -> None:
    fleet = stores.tiny(tmp_path)
    book(fleet, {"2026-10-01": 1, "2026-10-02": 2})
    publish(fleet)
    stores.store(fleet)
    (found,) = stores.local(fleet).glob(pattern)
    shutil.rmtree(found) if found.is_dir() else found.unlink()
    stores.store(fleet)
    assert [pattern for _ in stores.local(fleet).glob(pattern)] == [pattern]
    assert stores.Reader(fleet).daily() == {"2026-10-01": 1, "2026-10-02": 2}
    assert stores.Reader(fleet).delta("marts.energy_ledger", "select sum(energy_joules) from t") == [(3,)]
    assert any("another hand deleted or changed files of tables/marts/" in line for line in caplog.messages) is notice
    caplog.clear()
    assert stores.store(fleet).files == 0
    assert caplog.messages == []
