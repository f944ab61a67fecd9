"""The files of a publication beside its database: a Parquet file per table, and the cost of each month as FOCUS CSV.

Add here a format that readers open without DuckDB. Keep out which rows are published (`published_tables`) and the
switch from one publication to the next (`publication`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path

import duckdb
from duckdb.func import PythonUDFType
from duckdb.sqltypes import VARCHAR

from pipelines.publishing import published_tables, spreadsheet_cells
from pipelines.publishing.published_tables import Table
from pipelines.warehouse.database import literal

Dates = tuple[date, date]  # half-open
FOCUS = ("marts", "focus_cost_and_usage")
# How the table is kept here; FOCUS has neither of them.
NOT_OF_FOCUS = frozenset({"date", "billing_month"})


def write_parquet(
    connection: duckdb.DuckDBPyConnection,
    building: Path,
    previous: Path | None,
    dates: Dates,
    same: set[str],
    *,
    labels: Mapping[str, str],
) -> None:
    """Write each table of `target`. Of fine-grained tables in `same` only the files of `dates` are written; the others
    are those of the previous publication."""
    listed = ", ".join(f"{name}: {literal(value)}" for name, value in labels.items())
    options = f"format parquet, compression zstd, kv_metadata {{{listed}}}"
    for table in [
        *published_tables.tables(connection, "target").values(),
        Table("published", "publication", ()),
    ]:
        place = Path("parquet", table.schema, table.name)
        if not table.is_fine_grained:
            _copy(connection, f"select * from target.{table}", (building / place).with_suffix(".parquet"), options)
            continue
        is_same = str(table) in same
        for path in _untouched(previous / place, dates) if previous is not None and is_same else ():
            share(path, building / place / path.name)
        found = connection.execute(
            f"select distinct date from target.{table}" + (" where date >= ? and date < ?" if is_same else ""),
            list(dates) if is_same else [],
        ).fetchall()
        for (on,) in sorted(found):
            query = f"select * from target.{table} where date = date '{on.isoformat()}'"
            _copy(connection, query, building / place / f"date={on.isoformat()}.parquet", options)


def write_focus(
    connection: duckdb.DuckDBPyConnection, building: Path, previous: Path | None, dates: Dates, same: set[str]
) -> None:
    """Write focus/cost_and_usage_<month>.csv for each billing month, with the columns of FOCUS 1.2 and `x_` ones.

    A text that a spreadsheet would run has an apostrophe in front (`spreadsheet_cells`). Months that the run did not
    restate are the files of the previous publication.
    """
    table = published_tables.tables(connection, "target").get(FOCUS)
    if table is None:
        return
    connection.create_function(
        "harmless", spreadsheet_cells.harmless_column, [VARCHAR], VARCHAR, type=PythonUDFType.ARROW
    )
    listed = ", ".join(_as_focus(name, kind) for name, kind in table.columns if name not in NOT_OF_FOCUS)
    first, last = published_tables.restated_months(*dates)
    months = connection.execute(f"select distinct billing_month from target.{table} order by 1").fetchall()
    for (month,) in months:
        place = Path("focus", f"cost_and_usage_{month:%Y-%m}.csv")
        old = previous / place if previous is not None and str(table) in same else None
        if old is not None and old.exists() and not first <= month <= last:
            share(old, building / place)
            continue
        query = (
            f"select {listed} from target.{table} where billing_month = date '{month.isoformat()}'"
            f" order by date, {', '.join(_ordered(table))}"
        )
        _copy(connection, query, building / place, "format csv, header")


def _as_focus(name: str, kind: str) -> str:
    """A column as FOCUS writes it: times are UTC with a Z, texts do nothing in a spreadsheet."""
    if kind == "VARCHAR":
        return f'harmless("{name}") as "{name}"'
    if kind != "TIMESTAMP WITH TIME ZONE":
        return f'"{name}"'
    return f"strftime(\"{name}\" at time zone 'UTC', '%Y-%m-%dT%H:%M:%SZ') as \"{name}\""


def _ordered(table: Table) -> Iterator[str]:
    """The columns that name a row, as far as the table has them: the same rows make the same file."""
    names = {name for name, _ in table.columns}
    for name in ("BillingAccountId", "x_Deployment", "x_Model", "x_DeviceType", "x_MeterScope", "x_Role", "SkuPriceId"):
        if name in names:
            yield f'"{name}"'


def _copy(connection: duckdb.DuckDBPyConnection, query: str, path: Path, options: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection.execute(f"copy ({query}) to {literal(path)} ({options})").fetchall()


def _untouched(folder: Path, dates: Dates) -> Iterator[Path]:
    for path in folder.glob("date=*.parquet"):
        if not dates[0] <= date.fromisoformat(path.stem.removeprefix("date=")) < dates[1]:
            yield path


def share(path: Path, at: Path) -> None:
    """Put the same file into another publication: as a hard link, or as a copy where the file system has no links.

    A copy keeps its time: that shows PostgreSQL's publisher that its rows are loaded already.
    """
    at.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(path, at)
    except OSError:
        shutil.copy2(path, at)
