"""What tests execute in place of dbt is what dbt executes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import duckdb
import pytest

from pipelines.booking import project
from tests.books import Book, empty_warehouse
from tests.planted import DAY, ENERGY, OUTPUT, board, plant, pod, rising, vllm
from tests.replay import replay

LIMITS = {"tokens_per_second": 54_321}


@pytest.fixture(scope="module")
def booked(tmp_path_factory: pytest.TempPathFactory) -> Book:
    """Two days of an engine, with settings of its own."""
    series = [
        (OUTPUT, vllm("chat-0", "llama"), rising(10, 0, 2 * 86400)),
        (ENERGY, {**board("GPU-a", "n"), **pod("chat-0")}, rising(300_000, 0, 2 * 86400)),
    ]
    book = plant(tmp_path_factory.mktemp("replay"), series, days=2, max_spread_days=2, limits=LIMITS)
    book.run()
    return book


def contents(book: Book) -> dict[str, tuple[object, ...]]:
    """Table -> rows and hash, of all that dbt makes."""
    with book.connection(read_only=True) as connection:
        names = connection.execute(
            "select schema_name || '.' || table_name from duckdb_tables() where schema_name in"
            " ('marts', 'intermediate', 'staging', 'reference', 'held_back') order by 1"
        ).fetchall()
        return {
            name: connection.execute(f"select count(*), sum(cast(hash(t) as hugeint)) from {name} as t").fetchall()[0]
            for (name,) in names
        }


@pytest.mark.long
def test_every_table_is_what_dbt_makes(booked: Book) -> None:
    replayed = contents(booked)
    booked.dbt("run", dates=(DAY, DAY + timedelta(days=2)))

    assert contents(booked) == replayed
    assert len(replayed) > 150 and replayed["marts.model_daily"][0] == 2


@pytest.mark.long
def test_what_is_written_down_has_no_other_dates(booked: Book) -> None:
    """The second of two days alone."""
    second = (DAY + timedelta(days=1), DAY + timedelta(days=2))
    booked.write(*second)
    replayed = contents(booked)
    booked.dbt("run", dates=second)

    assert contents(booked) == replayed


@pytest.mark.rest
def test_a_model_whose_queries_find_something_is_left_to_dbt(booked: Book, tmp_path: Path) -> None:
    book = booked.copy(tmp_path)
    variables = project.variables_of(book.fleet, DAY, DAY + timedelta(days=2))
    with book.connection() as connection:
        assert replay(connection, variables, [], empty_warehouse()) == []
        connection.execute("create schema held_back")
        connection.execute("create table held_back.model_daily as select * from marts.model_daily")
        assert replay(connection, variables, [], empty_warehouse()) == ["held_back_dates"]


@pytest.mark.rest
def test_a_model_that_fails_is_named(booked: Book, tmp_path: Path) -> None:
    book = booked.copy(tmp_path)
    variables = project.variables_of(book.fleet, DAY, DAY + timedelta(days=2))
    with book.connection() as connection:
        connection.execute("alter table raw.power_samples rename column value to watts")
        with pytest.raises(AssertionError, match=r"dbt run failed: int_impossible_samples: .*value"):
            replay(connection, variables, ["int_impossible_samples"], empty_warehouse())
        connection.execute("select 1")


@pytest.mark.rest
def test_tables_are_made_by_dbt_where_one_is_missing(booked: Book, tmp_path: Path) -> None:
    book = booked.copy(tmp_path)
    with duckdb.connect(str(book.fleet.warehouse)) as connection:
        connection.execute("drop table marts.model_daily")
    replace(book, marts=("model_daily",)).write(DAY, DAY + timedelta(days=2))

    assert book.query("select count(*) from marts.model_daily") == [(2,)]
