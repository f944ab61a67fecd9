"""The files of a publication beside its database: a Parquet file per table, and the cost of each month as FOCUS CSV.

Add here a format that readers open without DuckDB. Keep out which rows are published (`published_tables`) and the
switch from one publication to the next (`publication`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path

import duckdb
from duckdb.func import PythonUDFType
from duckdb.sqltypes import VARCHAR

from pipelines.publishing import publication_manifest, published_tables, spreadsheet_cells
from pipelines.publishing.parts import Parts
from pipelines.publishing.publication_manifest import File, Manifest, TableName
from pipelines.publishing.published_tables import Table
from pipelines.warehouse.database import literal

Dates = tuple[date, date]  # half-open
FOCUS = ("marts", "focus_cost_and_usage")
# How the table is kept here; FOCUS has neither of them.
NOT_OF_FOCUS = frozenset({"date", "billing_month"})


def write_parquet(
    connection: duckdb.DuckDBPyConnection,
    building: Path,
    previous: tuple[Path, Manifest] | None,
    dates: Dates,
    same: set[str],
    *,
    labels: Mapping[str, str],
) -> dict[TableName, tuple[File, ...]]:
    """Write each table of `target`; returns its files. Of fine-grained tables in `same` only the files of `dates` are
    written; the others are those that the previous publication's manifest names."""
    written: dict[TableName, tuple[File, ...]] = {}
    for table in [
        *published_tables.tables(connection, "target").values(),
        Table("published", "publication", ()),
    ]:
        if not table.is_fine_grained:
            written[table.schema, table.name] = (export(connection, "target", table, building, labels=labels),)
            continue
        is_same = str(table) in same
        files = []
        if previous is not None and is_same:
            folder, manifest = previous
            for file in manifest.tables[table.schema, table.name].files:
                if file.on is not None and not dates[0] <= file.on < dates[1]:
                    files.append(share_listed(folder, file, building))
        found = connection.execute(
            f"select distinct date from target.{table}" + (" where date >= ? and date < ?" if is_same else ""),
            list(dates) if is_same else [],
        ).fetchall()
        files += [export(connection, "target", table, building, on=on, labels=labels) for (on,) in sorted(found)]
        written[table.schema, table.name] = tuple(sorted(files, key=lambda file: file.path))
    return written


def labels_of(fleet: str, is_synthetic: bool, publication_id: str) -> dict[str, str]:
    """What each Parquet file states about itself."""
    return {"fleet": fleet, "is_synthetic": str(is_synthetic).lower(), "publication_id": publication_id}


def parquet_path(table: Table, on: date | None) -> Path:
    """Where a publication has the Parquet file of a table, or of one of its dates."""
    place = Path("parquet", table.schema, table.name)
    return place / f"date={on.isoformat()}.parquet" if on is not None else place.with_name(f"{table.name}.parquet")


def focus_path(month: date) -> Path:
    """Where a publication has the FOCUS file of a billing month."""
    return Path("focus", f"cost_and_usage_{month:%Y-%m}.csv")


def export(
    connection: duckdb.DuckDBPyConnection,
    of: str,
    table: Table,
    folder: Path,
    *,
    on: date | None = None,
    labels: Mapping[str, str],
    name: str = "",
) -> File:
    """Write the Parquet file of a table of an attached database, or of one of its dates; with another `name`, there."""
    path = parquet_path(table, on)
    path = path.with_name(name) if name else path
    chosen = f" where date = date '{on.isoformat()}'" if on is not None else ""
    listed = ", ".join(f"{label}: {literal(value)}" for label, value in labels.items())
    options = f"format parquet, compression zstd, kv_metadata {{{listed}}}"
    rows = _copy(connection, f"select * from {of}.{table}{chosen}", folder / path, options)
    return publication_manifest.file_of(folder, path.as_posix(), rows, on)


def write_focus(
    connection: duckdb.DuckDBPyConnection,
    building: Path,
    previous: tuple[Path, Manifest] | None,
    dates: Dates,
    same: set[str],
    *,
    parts: Parts,
) -> tuple[File, ...]:
    """Write focus/cost_and_usage_<month>.csv for each billing month, with the columns of FOCUS 1.2 and `x_` ones;
    returns the files.

    A month that cannot be written has no file, and a line of `parts`; the next publication writes it. Months
    that the run did not restate are the files of the previous publication.
    """
    table = published_tables.tables(connection, "target").get(FOCUS)
    if table is None:
        return ()
    first, last = published_tables.restated_months(*dates)
    months = connection.execute(f"select distinct billing_month from target.{table} order by 1").fetchall()
    kept = {}
    if previous is not None and str(table) in same:
        kept = {file.on: file for file in previous[1].focus if file.on is not None and not first <= file.on <= last}
    files: list[File | None] = []
    for (month,) in months:
        if previous is not None and month in kept:
            files.append(share_listed(previous[0], kept[month], building))
        else:
            files.append(
                parts.attempt(
                    f"file {focus_path(month)}",
                    partial(export_focus, connection, "target", table, building, month),
                    partial(_removed, building / focus_path(month)),
                )
            )
    return tuple(file for file in files if file is not None)


def export_focus(
    connection: duckdb.DuckDBPyConnection, of: str, table: Table, folder: Path, month: date, *, name: str = ""
) -> File:
    """Write the FOCUS file of a billing month from a table of an attached database; with another `name`, there.

    A text that a spreadsheet would run has an apostrophe in front (`spreadsheet_cells`).
    """
    path = focus_path(month)
    path = path.with_name(name) if name else path
    listed = ", ".join(_as_focus(column, kind) for column, kind in table.columns if column not in NOT_OF_FOCUS)
    query = (
        f"select {listed} from {of}.{table} where billing_month = date '{month.isoformat()}'"
        f" order by {', '.join(['date', *_ordered(table)])}"
    )
    connection.create_function(
        "harmless", spreadsheet_cells.harmless_column, [VARCHAR], VARCHAR, type=PythonUDFType.ARROW
    )
    try:
        rows = _copy(connection, query, folder / path, "format csv, header")
    finally:
        connection.remove_function("harmless")
    return publication_manifest.file_of(folder, path.as_posix(), rows, month)


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


def _copy(connection: duckdb.DuckDBPyConnection, query: str, path: Path, options: str) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    ((rows,),) = connection.execute(f"copy ({query}) to {literal(path)} ({options})").fetchall()
    return int(rows)


def _removed(path: Path, _: str) -> None:
    """No file, in place of one that is half written."""
    path.unlink(missing_ok=True)


def share_listed(folder: Path, file: File, building: Path) -> File:
    """Share a file of another publication; returns it with the time that it has here."""
    share(folder / file.path, building / file.path)
    return replace(file, modified_ns=(building / file.path).stat().st_mtime_ns)


def share(path: Path, at: Path) -> None:
    """Put the same file into another publication: as a hard link, or as a copy where the file system has no links.

    A copy keeps its time, as far as the file system can.
    """
    at.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(path, at)
    except OSError:
        shutil.copy2(path, at)
