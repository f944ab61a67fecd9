"""The same raw tables for two engines, a build of them on Spark, and a row-by-row comparison of the marts, printed as a
table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path

import duckdb

from pipelines.fleet.places import DBT_PROJECT
from pipelines.landing.lake import SAMPLE_TABLES, Lake, export_control
from pipelines.spark import driver
from pipelines.spark.committed_marts import committed_rows
from tests.books import Book
from tests.models import marts
from tests.spark.cluster import FOR_MANY_ROWS, Driver

Raw = tuple[dict[str, list[str]], Path]  # the sample files by table, and the control folder

# Fitted from the marts by the job itself, on whichever engine they were booked.
FITTED = ("efficiency_fit", "budget_monthly", "cost_forecast")
TOLERANCE = 1e-9  # of doubles, relative; everything else is exact


@dataclass(frozen=True)
class Difference:
    """One mart on both engines: rows of each, rows that the other engine does not have."""

    mart: str
    duckdb_rows: int
    spark_rows: int
    differing_rows: int


def lake_of(book: Book, lake: Path, dates: tuple[date, date]) -> Raw:
    """The warehouse's raw tables as a lake: one file per table and date; the sample files, and the control folder."""
    control = lake / "control" / "test"
    files: dict[str, list[str]] = {}
    with book.connection(read_only=True) as connection:
        export_control(connection, Lake(lake), "test", *dates)
        for name in SAMPLE_TABLES:
            files[name] = []
            held = connection.execute(
                f"select distinct cast(observed_at as date) from raw.{name} order by 1"
            ).fetchall()
            for (on,) in held:
                path = lake / "raw" / name / f"date={on}" / "all.parquet"
                path.parent.mkdir(parents=True)
                connection.execute(
                    f"copy (from raw.{name} where cast(observed_at as date) = date '{on}') to '{path}'"
                ).fetchall()
                files[name].append(str(path))
    return files, control


def building(
    running: Driver,
    book: Book,
    lake: Path,
    dates: tuple[date, date],
    raw: Raw,
    *,
    project: Path = DBT_PROJECT,
    master: str | None = None,
    settings: Mapping[str, str] = FOR_MANY_ROWS,
) -> Future[driver.Build]:
    """A build under way, on the cluster or on another `master`, with these settings of Spark."""
    dbt_vars = {
        "grid_seconds": book.fleet.grid_seconds,
        "max_spread_seconds": round(book.fleet.max_spread_days * 86400),
    }
    build = partial(driver.build, dbt_vars=dbt_vars, project=project)
    return running.submit(build, lake, *raw, *dates, master=master, settings=settings)


def compared(book: Book, lake: Path, title: str, start: date, end: date) -> int:
    """Print the table of differences; how many rows differ."""
    with book.connection(read_only=True) as connection:
        found = differences(connection, partial(committed_rows, lake))
    print(f"\n{table(title, found, start, end)}")
    assert {one.mart for one in found} == {path.stem for path in marts()}
    return sum(one.differing_rows for one in found)


def differences(connection: duckdb.DuckDBPyConnection, rows_of: Callable[[str], str]) -> list[Difference]:
    """Every booked mart of the warehouse against what the queries of `rows_of` give by the name of a mart."""
    marts = connection.execute(
        "select table_name from duckdb_tables() where schema_name = 'marts' and not list_contains(?, table_name)"
        " order by 1",
        [list(FITTED)],
    ).fetchall()
    return [_difference(connection, mart, rows_of(mart)) for (mart,) in marts]


def _difference(connection: duckdb.DuckDBPyConnection, mart: str, theirs: str) -> Difference:
    described = connection.execute(f"describe marts.{mart}").fetchall()
    columns = {name: kind for name, kind, *_ in described}
    exact = [name for name, kind in columns.items() if kind != "DOUBLE"]
    doubles = [name for name, kind in columns.items() if kind == "DOUBLE"]
    connection.execute(f"create or replace temp view ours as select * from marts.{mart}")
    connection.execute(f"create or replace temp view theirs as {theirs}")
    found = {name: kind for name, kind, *_ in connection.execute("describe theirs").fetchall()}
    if found != columns:
        raise AssertionError(f"{mart}: columns differ: {set(columns.items()) ^ set(found.items())}")
    rows = [connection.execute(f"select count(*) from {side}").fetchall()[0][0] for side in ("ours", "theirs")]
    # Equal rows are matched by all that is exact, then by their doubles in order.
    keys = ", ".join(f'"{name}"' for name in exact)
    order = ", ".join(f'"{name}"' for name in doubles) or "1"
    numbered = f"select *, row_number() over (partition by {keys} order by {order}) as nth from"
    same = " and ".join(
        [f'a."{name}" is not distinct from b."{name}"' for name in exact]
        + ["a.nth = b.nth"]
        + [
            f'(a."{name}" is not distinct from b."{name}"'
            f' or abs(a."{name}" - b."{name}") <= {TOLERANCE} * greatest(abs(a."{name}"), abs(b."{name}")))'
            for name in doubles
        ]
    )
    (matched,) = connection.execute(
        f"select count(*) from ({numbered} ours) as a join ({numbered} theirs) as b on {same}"
    ).fetchall()[0]
    return Difference(mart, rows[0], rows[1], rows[0] + rows[1] - 2 * matched)


def table(title: str, found: list[Difference], start: date, end: date) -> str:
    """The comparison as readers of the log see it."""
    lines = [f"{title}, [{start}, {end}):", f"{'mart':<28} {'DuckDB rows':>12} {'Spark rows':>12} {'differing':>10}"]
    lines += [f"{d.mart:<28} {d.duckdb_rows:>12,} {d.spark_rows:>12,} {d.differing_rows:>10,}" for d in found]
    return "\n".join(lines)
