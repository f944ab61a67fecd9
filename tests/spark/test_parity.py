"""The bundled fleets on a real cluster: every mart on Spark is DuckDB's, also when a worker dies during the build, and
when the job itself books on Spark."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from concurrent.futures import Future
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb

from pipelines.fleet.fleet_file import DEFAULT_FLEET
from pipelines.spark import driver
from pipelines.spark.cluster import SparkError
from pipelines.spark.committed_marts import Committed, committed_rows
from tests import messy
from tests.books import Book, command, validation_data
from tests.ledger import (
    test_book_goodput,
    test_book_load_test,
    test_claims,
    test_engines_identity,
    test_free_boards,
    test_handovers,
    test_models_of_intervals,
    test_money,
    test_scrape_copies,
)
from tests.planted import DAY as PLANTED_DAY
from tests.planted import Series, plant
from tests.spark import IS_WHOLE, cluster, parity
from tests.spark.parity import lake_of

# Of the demo's days.
DAYS = int(os.environ.get("WATTLEDGER_SPARK_DAYS", "28" if IS_WHOLE else "8"))


def building(
    running: cluster.Driver,
    book: Book,
    lake: Path,
    dates: tuple[date, date],
    raw: tuple[dict[str, list[str]], Path],
    *,
    master: str | None = None,
) -> Future[driver.Build]:
    """A build under way."""
    dbt_vars = {
        "grid_seconds": book.fleet.grid_seconds,
        "max_spread_seconds": round(book.fleet.max_spread_days * 86400),
    }
    return running.submit(driver.build, lake, *raw, *dates, dbt_vars=dbt_vars, master=master)


def compared(book: Book, lake: Path, title: str, start: date, end: date) -> int:
    """Print the table of differences; how many rows differ."""
    with book.connection(read_only=True) as connection:
        found = parity.differences(connection, partial(committed_rows, lake))
    print(f"\n{parity.table(title, found, start, end)}")
    assert {one.mart for one in found} == {
        path.stem for path in (driver.DBT_PROJECT / "models" / "marts").glob("*.sql")
    }
    return sum(one.differing_rows for one in found)


def test_the_demo_fleet_is_the_same_on_both_engines_and_a_workers_death_mixes_nothing(
    spark_cluster: cluster.Cluster, spark_driver: cluster.Driver, tmp_path: Path
) -> None:
    book, lake = Book.of(DEFAULT_FLEET, tmp_path / "data"), tmp_path / "lake"
    start, end = book.fleet.period.start, book.fleet.period.start + timedelta(days=DAYS)
    last = end - timedelta(days=1)
    book.run(start, end)
    raw = lake_of(book, lake)

    # Two runs: all days but one, then the last day beside them, during which a worker is killed.
    first = building(spark_driver, book, lake, (start, last), raw).result(timeout=2400)
    committed = (lake / "marts" / "_committed.json").read_bytes()
    build = building(spark_driver, book, lake, (last, end), raw)
    deadline = time.monotonic() + 1200
    while not build.done() and time.monotonic() < deadline:
        made = [path for path in (lake / "marts").glob("*/energy_ledger") if first.run_id not in str(path)]
        if made and any(made[0].rglob("*.parquet")):
            spark_cluster.kill_worker()
            break
        time.sleep(0.1)
    assert spark_cluster.alive() <= 2
    try:
        build.result(timeout=2400)
        finished = True
    except SparkError as failure:
        print(f"\nthe build failed whole: {failure}")
        finished = False
    spark_cluster.add_worker()

    print(f"\na worker was killed during the second build: {'it finished' if finished else 'it failed whole'}")
    if not finished:
        assert (lake / "marts" / "_committed.json").read_bytes() == committed
        building(spark_driver, book, lake, (last, end), raw).result(timeout=2400)
    assert compared(book, lake, "demo", start, end) == 0
    assert Committed.of(lake).run_id != first.run_id


def test_ordinary_mess_is_the_same_on_both_engines(spark_driver: cluster.Driver, tmp_path: Path) -> None:
    """What the tests of identity, handovers, claims, silences, money and free boards planted, a day's goodput and a
    load test beside published results, in one fleet: each build on Spark plans the same 180 models."""
    book, lake = planted_book(tmp_path), tmp_path / "lake"
    dates = (PLANTED_DAY, PLANTED_DAY + timedelta(days=3))
    raw = lake_of(book, lake)
    building(spark_driver, book, lake, dates, raw, master=cluster.LOCAL).result(timeout=2400)
    assert compared(book, lake, "ordinary mess", *dates) == 0

    # Nothing that was planted is missing from both.
    assert book.query("select count(*) from marts.load_test_phases") == [(len(test_book_load_test.PHASES),)]
    origins = "select origin, count(*) > 400 from marts.platform_results group by origin order by origin"
    assert book.query(origins) == [("own_window", False), ("published", True)]
    bases = "select distinct goodput_basis from marts.goodput_hourly order by 1"
    assert book.query(bases) == [("histograms",), ("requests",), (None,)]


def planted_book(folder: Path) -> Book:
    """Three days of every planted fleet at once, booked on DuckDB."""
    validation_data()
    load_test = test_book_load_test.entries(folder)
    goodput = test_book_goodput.entries(folder, *test_book_goodput.goodput_day(folder))
    free = [*test_free_boards.west(), *test_free_boards.east(), *test_free_boards.elsewhere()]
    series = {
        "messy": messy.series(),
        "handovers": test_handovers.boards(),
        "claims": [*test_claims.scrapers(), *test_claims.silences()],
        "engines": [
            *test_engines_identity.models(),
            *test_engines_identity.scrapes(),
            *test_engines_identity.silences(),
        ],
        "copies": [*test_scrape_copies.merged(), *test_scrape_copies.apart()],
        "models": test_models_of_intervals.planted(),
        "money": of_namespace("money", test_money.series()),
        "free": of_namespace("free", free),
    }
    money: dict[str, Any] = test_money.fleet(folder)
    others = [site for site in test_free_boards.sites() if site["name"] != "west"]
    entries: dict[str, Any] = {
        **money,
        "sites": [*money["sites"], *others],
        "nodes": [*money["nodes"], *test_free_boards.PLACES, *load_test["nodes"]],
        "devices": [*test_claims.LISTED, *money["devices"], test_free_boards.SPARE],
        "models": [*test_engines_identity.MODELS, *goodput["models"], *load_test["models"]],
        "requests": [*goodput["requests"], *load_test["requests"]],
        "benchmarks": [published(name) for name in ("benchmarks", "history")],
        "engines": [{"engine": "llm/stated-0", "targets": ["gateway:9000"]}],
        "max_spread_days": 0.25,
    }
    sources = [*goodput["sources"], *load_test["sources"]]
    book = plant(folder, series, days=3, more_sources=sources, **entries)
    book.run()
    return book


def published(name: str) -> dict[str, str]:
    """Results that were really published, of now and earlier."""
    path = f"${{WATTLEDGER_VALIDATION_DATA}}/inferencex/{name}.json"
    return {"name": name, "path": path, "kind": "inferencex", "as_of": "2026-06-11"}


def of_namespace(name: str, series: Iterable[Series]) -> list[Series]:
    """The same pods elsewhere: names are used twice among the planted fleets."""
    return [
        (metric, {**labels, "namespace": name} if "namespace" in labels else labels, samples)
        for metric, labels, samples in series
    ]


def ran(fleet: Path, data: Path, **more: str) -> str:
    """What a run of the job prints."""
    done = command(fleet, data, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def materialized(data: Path) -> set[str]:
    """The assets that the runs of a data folder materialized."""
    with dg.DagsterInstance.from_config(str(next(data.glob("*/.dagster")))) as instance:
        events = instance.get_latest_materialization_events(instance.all_asset_keys())
    return {key.to_user_string() for key, event in events.items() if event is not None}


def described(connection: duckdb.DuckDBPyConnection, database: str) -> list[tuple[object, ...]]:
    """Every mart's columns and comments, as a reader of the database sees them."""
    return connection.execute(
        "select table_name, tables.comment, column_name, data_type, columns.comment from duckdb_columns() as columns"
        " join duckdb_tables() as tables using (database_name, schema_name, table_name)"
        " where database_name = ? and schema_name = 'marts' order by all",
        [database],
    ).fetchall()


def test_one_line_of_the_fleet_file_books_mlperf_on_spark(spark_cluster: cluster.Cluster, tmp_path: Path) -> None:
    validation_data()
    plain = DEFAULT_FLEET.with_name("mlperf.yaml")
    moved = tmp_path / "mlperf.yaml"
    moved.write_text(
        plain.read_text(encoding="utf-8") + "landing: {target: lake, path: lake/, engine: spark}\n", encoding="utf-8"
    )
    ours, theirs = tmp_path / "duckdb", tmp_path / "spark"
    printed = {
        data: ran(fleet, data, **more).splitlines()
        for fleet, data, more in ((plain, ours, {}), (moved, theirs, spark_cluster.environment()))
    }
    book = Book.of(plain, ours)
    period = book.fleet.period
    assert period.end is not None
    assert compared(book, theirs / "mlperf" / "lake", "mlperf", period.start, period.end) == 0

    # Readers see no difference, and neither does whoever watches the job.
    (checks,) = [line for line in printed[theirs] if " checks: " in line]
    print(f"\nthe job on Spark: {checks}")
    assert checks in printed[ours]
    assert materialized(theirs) == materialized(ours)
    with book.connection(read_only=True) as connection:
        for name, data in (("ours", ours), ("theirs", theirs)):
            connection.execute(f"attach '{data}/mlperf/published/wattledger.duckdb' as published_{name} (read_only)")
        found = parity.differences(connection, lambda mart: f"select * from published_theirs.marts.{mart}")
        assert sum(one.differing_rows for one in found) == 0
        assert described(connection, "published_theirs") == described(connection, "published_ours") != []
    assert list((theirs / "mlperf" / "lake" / "control").iterdir()) == []
