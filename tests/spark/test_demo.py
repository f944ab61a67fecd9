"""The demo fleet on Spark: a date whose invariant fails is held back, a worker that dies mixes nothing, and after both
every mart is DuckDB's. One lake for all three, as each build plans every model for minutes."""

from __future__ import annotations

import os
import time
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb

from pipelines.fleet.fleet_file import DEFAULT_FLEET
from pipelines.spark.cluster import SparkError
from pipelines.spark.committed_marts import Committed, committed_rows
from tests.books import Book, broken_project
from tests.spark import IS_WHOLE
from tests.spark.cluster import LOCAL, Cluster, Driver
from tests.spark.parity import Raw, building, compared, lake_of

# Of the demo's days.
DAYS = int(os.environ.get("WATTLEDGER_SPARK_DAYS", "28" if IS_WHOLE else "8"))
START = date(2026, 10, 1)
END = START + timedelta(days=DAYS)
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
    raw = lake_of(book, lake)

    # All dates but the last are committed by right SQL, then the last two are built by SQL that loses an hour.
    building(spark_driver, book, lake, (START, NEW), raw, master=LOCAL).result(timeout=2400)
    right = committed(lake)
    september, october = date(2026, 9, 1), START  # one site is behind UTC: its first hours are of September
    assert right == {**right, "flags": [(september, None), (october, None)], "laws": []}
    project = broken_project(tmp_path, "models/marts/energy_ledger.sql", RIGHT_SQL, WRONG_SQL)
    building(spark_driver, book, lake, (BAD, END), raw, project=project, master=LOCAL).result(timeout=2400)
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
    booked_while_a_worker_dies(spark_cluster, spark_driver, book, lake, raw)
    assert compared(book, lake, "demo", START, END) == 0


def committed(lake: Path) -> dict[str, Any]:
    """What readers have: joules per date of the book, per date of the fleet and of the month, and what is held back."""
    with duckdb.connect() as connection:
        connection.execute("set TimeZone = 'UTC'")

        def read(mart: str, select: str) -> list[tuple[Any, ...]]:
            return connection.execute(f"with mart as ({committed_rows(lake, mart)}) {select}").fetchall()

        sums = "select date, sum(energy_joules)::double from mart group by date order by date"
        return {
            "ledger": dict(read("energy_ledger", sums)),
            "fleet": dict(read("fleet_daily", sums)),
            "month": read("model_monthly", "select sum(energy_joules)::double from mart")[0][0],
            "flags": read("model_monthly", "select distinct month, held_back_dates from mart order by all"),
            "laws": read("held_back_dates", "select distinct date, invariant from mart order by all"),
        }


def held_back(lake: Path, on: date) -> tuple[float, int]:
    """Joules and hours of the rows that failed, which can be read beside the marts."""
    query = "select sum(energy_joules)::double, count(distinct hour(interval_start_at)) from read_parquet(?)"
    with duckdb.connect() as connection:
        connection.execute("set TimeZone = 'UTC'")
        ((joules, hours),) = connection.execute(
            query, [f"{lake}/held_back/energy_ledger/date={on}/*.parquet"]
        ).fetchall()
    return joules, hours


def booked_while_a_worker_dies(cluster: Cluster, running: Driver, book: Book, lake: Path, raw: Raw) -> None:
    """Book the last two dates on the cluster and kill a worker while it writes. If the build fails, it must fail whole;
    then they are booked again."""
    commit, earlier = (lake / "marts" / "_committed.json").read_bytes(), set((lake / "marts").iterdir())
    before = Committed.of(lake).run_id
    build = building(running, book, lake, (BAD, END), raw)
    deadline = time.monotonic() + 1200
    while not build.done() and time.monotonic() < deadline:
        made = [path for path in (lake / "marts").glob("*/energy_ledger") if path.parent not in earlier]
        if made and any(made[0].rglob("*.parquet")):
            cluster.kill_worker()
            break
        time.sleep(0.1)
    assert cluster.alive() <= 2
    try:
        build.result(timeout=2400)
        finished = True
    except SparkError as failure:
        print(f"\nthe build failed whole: {failure}")
        finished = False
    cluster.add_worker()

    print(f"\na worker was killed during the build: {'it finished' if finished else 'it failed whole'}")
    if not finished:
        assert (lake / "marts" / "_committed.json").read_bytes() == commit
        building(running, book, lake, (BAD, END), raw).result(timeout=2400)
    assert Committed.of(lake).run_id != before
