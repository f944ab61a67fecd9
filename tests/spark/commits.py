"""What readers have of a lake that Spark builds: committed rows, and those held back; and a build during which a worker
dies."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from datetime import date
from pathlib import Path
from typing import Any

import duckdb

from pipelines.spark.cluster import SparkError
from pipelines.spark.committed_marts import Committed, committed_rows
from pipelines.spark.driver import Build
from tests.spark.cluster import Cluster


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


def built_while_a_worker_dies(cluster: Cluster, lake: Path, begin: Callable[[], Future[Build]]) -> None:
    """Begin a build on the cluster, kill a worker while it writes, and start another. If the build fails, it must fail
    whole; then it is tried again."""
    file, before = lake / "marts" / "_committed.json", Committed.of(lake).run_id
    commit = file.read_bytes() if file.exists() else None
    earlier = set((lake / "marts").glob("*"))
    build, is_killed = begin(), False
    deadline = time.monotonic() + 3000
    while not build.done() and time.monotonic() < deadline:
        made = [path for path in (lake / "marts").glob("*/energy_ledger") if path.parent not in earlier]
        if made and any(made[0].rglob("*.parquet")):
            cluster.kill_worker()
            cluster.add_worker()
            is_killed = True
            break
        time.sleep(0.1)
    assert is_killed, "the build ended, or wrote no row of the ledger, before a worker was killed"
    try:
        build.result()
        finished = True
    except SparkError as failure:
        print(f"\nthe build failed whole: {failure}")
        finished = False

    print(f"\na worker was killed during the build: {'it finished' if finished else 'it failed whole'}")
    if not finished:
        assert (file.read_bytes() if file.exists() else None) == commit
        begin().result()
    assert Committed.of(lake).run_id != before
