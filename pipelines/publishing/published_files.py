"""The Parquet files of a publication beside its database: one per table, or one per date of a fine-grained table.

Add here what holds for any file that readers open without DuckDB. Keep out other formats (`focus`, `workbook`), which
rows are published (`published_tables`) and the switch from one publication to the next (`publication`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path

import duckdb

from pipelines.publishing import publication_manifest, published_tables
from pipelines.publishing.publication_manifest import File, Manifest, TableName
from pipelines.publishing.published_tables import Table
from pipelines.warehouse.database import literal

Dates = tuple[date, date]  # half-open


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
    rows = copy(connection, f"select * from {of}.{table}{chosen}", folder / path, options)
    return publication_manifest.file_of(folder, path.as_posix(), rows, on)


def copy(connection: duckdb.DuckDBPyConnection, query: str, path: Path, options: str) -> int:
    """Write the rows of a query to a file; returns how many there are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ((rows,),) = connection.execute(f"copy ({query}) to {literal(path)} ({options})").fetchall()
    return int(rows)


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
