"""The bundled fleets on a real cluster: every mart on Spark is DuckDB's, also when a worker dies during the build."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path

from pipelines import spark
from pipelines.committed import Committed, bring_back
from pipelines.fleet import DEFAULT_FLEET
from pipelines.publication import publish
from tests.books import Book, validation_data
from tests.spark import cluster, parity
from tests.spark.parity import lake_of

# Of the demo's 28 days; WATTLEDGER_SPARK_DAYS says another number.
DAYS = int(os.environ.get("WATTLEDGER_SPARK_DAYS", "28"))


@contextmanager
def building(
    running: cluster.Cluster, book: Book, lake: Path, dates: tuple[date, date], raw: tuple[dict[str, list[str]], Path]
) -> Iterator[Future[spark.Build]]:
    """A build on the cluster, under way."""
    dbt_vars = {
        "grid_seconds": book.fleet.grid_seconds,
        "max_spread_seconds": round(book.fleet.max_spread_days * 86400),
    }
    with running.process() as process:
        yield process.submit(spark.build, lake, *raw, *dates, dbt_vars=dbt_vars)


def compared(book: Book, lake: Path, title: str, start: date, end: date) -> int:
    """Print the table of differences; how many rows differ."""
    with book.connection(read_only=True) as connection:
        found = parity.differences(connection, lake)
    print(f"\n{parity.table(title, found, start, end)}")
    assert {one.mart for one in found} == {path.stem for path in (spark.DBT_PROJECT / "models" / "marts").glob("*.sql")}
    return sum(one.differing_rows for one in found)


def test_the_demo_fleet_is_the_same_on_both_engines_and_a_workers_death_mixes_nothing(
    spark_cluster: cluster.Cluster, tmp_path: Path
) -> None:
    book, lake = Book.of(DEFAULT_FLEET, tmp_path / "data"), tmp_path / "lake"
    start, end = book.fleet.period.start, book.fleet.period.start + timedelta(days=DAYS)
    last = end - timedelta(days=1)
    book.run(start, end)
    raw = lake_of(book, lake)

    # Two runs: all days but one, then the last day beside them, during which a worker is killed.
    with building(spark_cluster, book, lake, (start, last), raw) as build:
        first = build.result(timeout=600)
    committed = (lake / "marts" / "_committed.json").read_bytes()
    with building(spark_cluster, book, lake, (last, end), raw) as build:
        deadline = time.monotonic() + 600
        while not build.done() and time.monotonic() < deadline:
            made = [path for path in (lake / "marts").glob("*/energy_ledger") if first.run_id not in str(path)]
            if made and any(made[0].rglob("*.parquet")):
                spark_cluster.kill_worker()
                break
            time.sleep(0.1)
        assert spark_cluster.alive() <= 2
        try:
            build.result(timeout=600)
            finished = True
        except spark.SparkError as failure:
            print(f"\nthe build failed whole: {failure}")
            finished = False
    spark_cluster.add_worker()

    print(f"\na worker was killed during the second build: {'it finished' if finished else 'it failed whole'}")
    if not finished:
        assert (lake / "marts" / "_committed.json").read_bytes() == committed
        with building(spark_cluster, book, lake, (last, end), raw) as build:
            build.result(timeout=600)
    assert compared(book, lake, "demo", start, end) == 0
    assert Committed.of(lake).run_id != first.run_id


def test_the_mlperf_fleet_is_the_same_on_both_engines(spark_cluster: cluster.Cluster, tmp_path: Path) -> None:
    validation_data()
    book, lake = Book.of(DEFAULT_FLEET.with_name("mlperf.yaml"), tmp_path / "data"), tmp_path / "lake"
    period = book.fleet.period
    assert period.end is not None
    book.run()
    with building(spark_cluster, book, lake, (period.start, period.end), lake_of(book, lake)) as build:
        build.result(timeout=600)
    assert compared(book, lake, "mlperf", period.start, period.end) == 0

    # Readers see no difference: the marts come back into the warehouse, and from there into the same publication.
    ours = publish(book.fleet, period.start, period.end)
    hashes = book.hashes()
    with book.connection() as connection:
        for mart in Committed.of(lake).columns:
            connection.execute(f"delete from marts.{mart}").fetchall()
        bring_back(connection, lake, period.start, period.end)
    theirs = publish(book.fleet, period.start, period.end)
    assert theirs.rows == ours.rows
    assert {mart: found[0] for mart, found in book.hashes().items()} == {
        mart: found[0] for mart, found in hashes.items()
    }
