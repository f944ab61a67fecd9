"""The demo fleet on Spark: a date whose invariant fails is held back, a worker that dies mixes nothing, and after both
every mart is DuckDB's. One lake for all three, as each build plans every model for minutes. `make test-spark-whole`
alone runs this (tests/spark/conftest.py)."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

from pipelines.fleet.places import DEFAULT_FLEET
from tests.books import Book, broken_project
from tests.spark.cluster import LOCAL, Cluster, Driver
from tests.spark.commits import built_while_a_worker_dies, committed, held_back
from tests.spark.parity import building, compared, lake_of

START, END = date(2026, 10, 1), date(2026, 10, 29)
BAD, NEW = END - timedelta(days=2), END - timedelta(days=1)
LAW = "every_metered_joule_is_booked_once"
# Loses every interval of 12:00 from BAD on.
RIGHT_SQL = "select * from final"
WRONG_SQL = f"select * from final where not (date >= date '{BAD}' and hour(interval_start_at) = 12)"


def test_the_demo_is_the_same_on_both_engines_after_dates_held_back_and_a_workers_death(
    spark_cluster: Cluster, spark_driver: Driver, tmp_path: Path
) -> None:
    book, lake = Book.of(DEFAULT_FLEET, tmp_path / "data"), tmp_path / "lake"
    book.run(START, END)
    raw = lake_of(book, lake, (START, END))

    # All dates but the last are committed by right SQL, then the last two are built by SQL that loses an hour.
    building(spark_driver, book, lake, (START, NEW), raw, master=LOCAL).result()
    right = committed(lake)
    september, october = date(2026, 9, 1), START  # one site is behind UTC: its first hours are of September
    assert right == {**right, "flags": [(september, None), (october, None)], "laws": []}
    project = broken_project(tmp_path, "models/attribution/energy_ledger.sql", RIGHT_SQL, WRONG_SQL)
    building(spark_driver, book, lake, (BAD, END), raw, project=project, master=LOCAL).result()
    kept = committed(lake)

    # What was committed of the first of the two stays; the second, of which nothing was, is absent.
    assert kept == {**right, "flags": [(september, None), (october, f"{BAD},{NEW}")], "laws": kept["laws"]}
    assert BAD in kept["ledger"] and NEW not in kept["ledger"]
    broken = {on: {law for day, law in kept["laws"] if day == on} for on, _ in kept["laws"]}
    assert broken.keys() == {BAD, NEW}
    assert broken[BAD] == broken[NEW]
    assert kept["laws"][0] == (BAD, LAW)
    joules, hours = held_back(lake, BAD)
    assert 0 < joules < kept["ledger"][BAD]
    assert hours == 23

    # Right SQL books both again, and a worker is killed meanwhile.
    built_while_a_worker_dies(spark_cluster, lake, lambda: building(spark_driver, book, lake, (BAD, END), raw))
    assert compared(book, lake, "demo", START, END) == 0
