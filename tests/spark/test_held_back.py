"""An invariant that fails on a date holds it back on Spark too, before the marts are committed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb

from pipelines.spark import driver
from pipelines.spark.committed_marts import Committed, committed_rows
from tests.books import Book, broken_project, demo_fleet, on
from tests.spark.cluster import LOCAL, Driver
from tests.spark.parity import lake_of

GOOD, BAD, NEW = on("10-07"), on("10-08"), on("10-09")
END = NEW + timedelta(days=1)
Raw = tuple[Mapping[str, list[str]], Path]  # the sample files by table, and the control folder
LAW = "every_metered_joule_is_booked_once"


def built(
    running: Driver,
    lake: Path,
    raw: Raw,
    end: date,
    project: Path = driver.DBT_PROJECT,
) -> dict[str, Any]:
    """Build the dates from GOOD to `end`; joules per date of the book, of the month, and its `held_back_dates`."""
    dbt_vars = {"grid_seconds": 300, "max_spread_seconds": 259200}  # the demo's
    build = running.submit(driver.build, lake, *raw, GOOD, end, dbt_vars=dbt_vars, project=project, master=LOCAL)
    build.result(timeout=2400)
    with duckdb.connect() as connection:
        connection.execute("set TimeZone = 'UTC'")

        def read(mart: str, select: str) -> list[tuple[Any, ...]]:
            return connection.execute(f"with mart as ({committed_rows(lake, mart)}) {select}").fetchall()

        sums = "select date, sum(energy_joules)::double from mart group by date order by date"
        return {
            "ledger": dict(read("energy_ledger", sums)),
            "fleet": dict(read("fleet_daily", sums)),
            "month": read("model_monthly", "select sum(energy_joules)::double from mart")[0][0],
            "flags": read("model_monthly", "select distinct held_back_dates from mart"),
            "laws": read("held_back_dates", "select distinct date, invariant from mart order by all"),
        }


def test_a_date_that_fails_is_kept_as_it_was_or_absent(spark_driver: Driver, tmp_path: Path) -> None:
    """Two dates are committed by right SQL. Then a third is built as well, by SQL that loses every interval of 12:00
    from Oct 8 on: what was committed of Oct 8 stays, and Oct 9, of which nothing was, is absent."""
    book, lake = Book.of(demo_fleet(tmp_path, GOOD, END), tmp_path / "data"), tmp_path / "lake"
    book.land(GOOD, END)
    raw = lake_of(book, lake)
    lost = "select * from final where not (date >= date '2026-10-08' and hour(interval_start_at) = 12)"
    project = broken_project(tmp_path, "models/marts/energy_ledger.sql", "select * from final", lost)

    right = built(spark_driver, lake, raw, NEW)
    kept = built(spark_driver, lake, raw, END, project)

    good, bad = right["ledger"][GOOD], right["ledger"][BAD]
    assert right == {**right, "ledger": {GOOD: good, BAD: bad}, "flags": [(None,)], "laws": []}
    assert kept == {**right, "flags": [("2026-10-08,2026-10-09",)], "laws": kept["laws"]}
    broken = {on_date: {law for day, law in kept["laws"] if day == on_date} for on_date, _ in kept["laws"]}
    assert broken.keys() == {BAD, NEW}
    assert broken[BAD] == broken[NEW]
    assert kept["laws"][0] == (BAD, LAW)
    # The rows that failed can be read beside the marts.
    with duckdb.connect() as connection:
        held = f"{lake}/held_back/energy_ledger/date=2026-10-08/*.parquet"
        ((joules, hours),) = connection.execute(
            "select sum(energy_joules)::double, count(distinct hour(interval_start_at)) from read_parquet(?)", [held]
        ).fetchall()
    assert 0 < joules < bad
    assert hours == 23
    assert Committed.of(lake).run_id
