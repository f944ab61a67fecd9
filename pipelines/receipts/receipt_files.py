"""The files of receipts: `<fleet>/receipts/<table>/date=<date>/rows.parquet`, one per table and UTC date.

Add here how they are written, expire and are opened for a query. Keep out when a run does it (`receipt_asset`).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import duckdb

from pipelines.fleet.fleet_file import Fleet
from pipelines.warehouse.database import literal

SCHEMA = "receipts"
# Table of receipts -> the model that a run makes it of.
TABLES = {"request_receipts": "int_receipts", "balancing_rows": "int_receipt_balances"}
FILE = "rows.parquet"
_DATE = "date="


@dataclass(frozen=True)
class Written:
    """What became of a run's date: its logged requests, and where its receipts are not the book, each as (model, fact,
    found, expected). Then nothing was written, and the files of an earlier run stay."""

    date: date
    requests: int
    broken: tuple[tuple[str, str, float, float], ...] = ()


def folder_of(fleet: Fleet) -> Path:
    """Where the fleet's receipts are."""
    return fleet.root / SCHEMA


def write(connection: duckdb.DuckDBPyConnection, fleet: Fleet, today: date) -> list[Written]:
    """Write the receipts of the dates that were booked last, and remove those older than `receipts.days`. A date's file
    is replaced in one step; a date without requests has none."""
    oldest = _oldest(fleet, today)
    written = []
    dates = connection.execute("select date from staging.stg_run_dates where date >= ? order by date", [oldest])
    for (on,) in dates.fetchall():
        (requests,) = connection.execute(
            "select count(*) from intermediate.int_receipts where date = ?", [on]
        ).fetchall()[0]
        broken = connection.execute(
            "select model, fact, found, expected from intermediate.int_broken_receipts where date = ? order by all",
            [on],
        ).fetchall()
        written.append(Written(on, requests, tuple(broken)))
        if not broken:
            for table, model in TABLES.items():
                _replace(connection, folder_of(fleet) / table / f"{_DATE}{on}", model, on, is_empty=not requests)
    expire(fleet, today)
    return written


def expire(fleet: Fleet, today: date) -> list[date]:
    """Remove the receipts of dates older than `receipts.days`, whether new ones are kept or not; returns the dates."""
    oldest = _oldest(fleet, today)
    old = [(on, path) for table in TABLES for on, path in _dates(fleet, table) if on < oldest]
    for _, path in old:
        shutil.rmtree(path)
    return sorted({on for on, _ in old})


def dates_of(fleet: Fleet) -> list[date]:
    """The dates that have receipts."""
    return sorted(on for on, _ in _dates(fleet, "request_receipts"))


def attach(connection: duckdb.DuckDBPyConnection, fleet: Fleet) -> None:
    """Have the tables as `receipts.<table>` in a connection that is not read-only and may read files; the fleet has
    receipts."""
    connection.execute(f"attach ':memory:' as {SCHEMA}")
    for table in TABLES:
        files = literal(folder_of(fleet) / table / f"{_DATE}*" / FILE)
        connection.execute(
            f"create view {SCHEMA}.{table} as select * from read_parquet({files}, hive_partitioning = true,"
            " hive_types = {'date': date}, union_by_name = true)"
        )


def rekey(fleet: Fleet, former: str, key: str) -> None:
    """Put another key in the place of a tenant's former one, file by file."""
    with closing(duckdb.connect(":memory:")) as connection:
        for _, folder in _dates(fleet, "request_receipts"):
            file, unfinished = folder / FILE, folder / f".{FILE}"
            of_tenant = f"from read_parquet({literal(file)}, hive_partitioning = false)"
            if connection.execute(f"select count(*) {of_tenant} where tenant = ?", [former]).fetchall() != [(0,)]:
                connection.execute(
                    f"copy (select * replace (case when tenant = {literal(former)} then {literal(key)} else tenant end"
                    f" as tenant) {of_tenant}) to {literal(unfinished)} (format parquet, compression zstd)"
                ).fetchall()
                unfinished.replace(file)


def _oldest(fleet: Fleet, today: date) -> date:
    return today - timedelta(days=fleet.receipts.days)


def _dates(fleet: Fleet, table: str) -> Iterator[tuple[date, Path]]:
    for path in sorted((folder_of(fleet) / table).glob(f"{_DATE}*")):
        yield date.fromisoformat(path.name.removeprefix(_DATE)), path


def _replace(connection: duckdb.DuckDBPyConnection, folder: Path, model: str, on: date, *, is_empty: bool) -> None:
    if is_empty:
        shutil.rmtree(folder, ignore_errors=True)
        return
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f".{FILE}"
    connection.execute(
        f"copy (select * exclude (date) from intermediate.{model} where date = {literal(on)})"
        f" to {literal(unfinished)} (format parquet, compression zstd)"
    )
    unfinished.replace(folder / FILE)
