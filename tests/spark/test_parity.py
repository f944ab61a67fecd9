"""Every mart on Spark is DuckDB's: of ordinary mess, although a worker dies, and of MLPerf when the job itself books on
Spark. That a date whose invariant fails is held back there too: test_demo.py, of `make test-spark-whole`."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pytest

from pipelines.fleet.places import DEFAULT_FLEET
from tests import messy
from tests.books import Book, command, later_command, validation_data
from tests.drawn import cells
from tests.drawn.odd_cells import drawn
from tests.drawn.test_odd_cells import CELLS, FOUND, SEED
from tests.ledger import test_new_exporters
from tests.ledger.advice import test_free_boards
from tests.ledger.attribution import test_token_shares
from tests.ledger.benchmarks import test_book_load_test
from tests.ledger.claims import test_claims, test_mig
from tests.ledger.cost import test_money
from tests.ledger.efficiency import test_book_goodput
from tests.ledger.meters import test_boards_behind_wall_meters, test_handovers
from tests.ledger.tokens import (
    test_engines_identity,
    test_inferred_roles,
    test_roles_by_cluster,
    test_scrape_copies,
    test_scrapers_and_groups,
)
from tests.ledger.usage import test_models_of_intervals
from tests.planted import DAY as PLANTED_DAY
from tests.planted import Series, plant
from tests.spark import cluster, parity
from tests.spark.commits import built_while_a_worker_dies
from tests.spark.parity import building, compared, lake_of

WORLDS = 60
DATES = (PLANTED_DAY, PLANTED_DAY + timedelta(days=3))


@pytest.mark.needs("pyspark", "java", "validation-data")
def test_ordinary_mess_is_the_same_on_both_engines_although_a_worker_dies(
    spark_cluster: cluster.Cluster, spark_driver: cluster.Driver, tmp_path: Path
) -> None:
    """What the tests of identity, handovers, claims, silences, money and free boards planted, all odd cells, a day's
    goodput and a load test beside published results, in one fleet: each build on Spark plans the same 190 models."""
    book, lake = planted_book(tmp_path), tmp_path / "lake"
    raw = lake_of(book, lake, DATES)
    built_while_a_worker_dies(spark_cluster, lake, lambda: building(spark_driver, book, lake, DATES, raw))
    assert compared(book, lake, "ordinary mess", *DATES) == 0

    # Nothing that was planted is missing from both.
    assert book.query("select count(*) > 100 from marts.unreadable_values") == [(True,)]
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
        "odd": [one for cell in (*FOUND, *drawn(SEED, CELLS)) for one in cell.series()],
        # The clusters of 2026: what was once booked wrong, and worlds with all their genes.
        "slices": of_namespace("slices", itertools.chain(*(shape() for shape in test_mig.CASES))),
        "shares": of_namespace("shares", test_token_shares.planted_series()),
        "walls": of_namespace("walls", test_boards_behind_wall_meters.planted()),
        "groups": [*test_scrapers_and_groups.scrapers(), *test_scrapers_and_groups.groups()],
        "roles": of_namespace("roles", test_roles_by_cluster.series()),
        "pools": of_namespace("pools", test_inferred_roles.series()),
        "exporters": of_namespace("exporters", test_new_exporters.of_cluster()),
        "worlds": [one for number in range(WORLDS) for one in cells.planted(cells.drawn(SEED, number))],
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


def lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What a run of the job printed."""
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


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


@pytest.mark.needs("validation-data")
def test_one_line_of_the_fleet_file_books_mlperf_on_spark(
    spark_cluster: cluster.Cluster, spark_driver: cluster.Driver, tmp_path: Path
) -> None:
    validation_data()
    spark_driver.end()  # the job has a driver of its own
    plain = DEFAULT_FLEET.with_name("mlperf.yaml")
    moved = tmp_path / "mlperf.yaml"
    moved.write_text(
        plain.read_text(encoding="utf-8") + "landing: {target: lake, path: lake/, engine: spark}\n", encoding="utf-8"
    )
    ours, theirs = tmp_path / "duckdb", tmp_path / "spark"
    on_spark = spark_cluster.environment(
        settings=cluster.FOR_FEW_ROWS,
        WATTLEDGER_SPARK_MASTER=cluster.LOCAL,
        WATTLEDGER_SPARK_SHUFFLE_PARTITIONS="2",
    )
    printed = {ours: lines(later_command(plain, ours)), theirs: lines(command(moved, theirs, **on_spark))}
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
