"""The Parquet files that each table of a publication should have in an object store, and writing those that are new.

A file is never changed: its name carries the span of its rows, a fingerprint of them and a random token. A table of
intervals or hours has a file per date, copied as the publication's folder has it; another table with a date has one per
month; all others have one. Add here what a file holds. Keep out when files are written (`object_store`).
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import duckdb
import pyarrow.parquet as pq

from pipelines.publishing import publication_manifest, published_tables, snapshots
from pipelines.publishing.object_store.manifests import Column, File, Name, StoredTable
from pipelines.publishing.published_tables import Table
from pipelines.publishing.snapshots import Snapshot
from pipelines.warehouse.database import literal

ALL = "all"
_WITHOUT_DATE = "none"
# Types of DuckDB that every reader of Parquet and Delta knows alike; the others are cast.
_COMMON = frozenset(
    {
        *("BIGINT", "BLOB", "BOOLEAN", "DATE", "DOUBLE", "FLOAT", "INTEGER", "SMALLINT", "TINYINT", "VARCHAR"),
        "TIMESTAMP WITH TIME ZONE",
    }
)
_CAST = {
    "HUGEINT": "DECIMAL(38,0)",
    "TIMESTAMP": "TIMESTAMP WITH TIME ZONE",
    "UBIGINT": "DECIMAL(38,0)",
    "UINTEGER": "BIGINT",
    "USMALLINT": "INTEGER",
    "UTINYINT": "SMALLINT",
}


@dataclass(frozen=True)
class Wanted:
    """A table as it should be in the store: its columns, and the fingerprint of each span. `table` is None for a table
    that the publication has no more."""

    table: Table | None
    stored: StoredTable
    spans: Mapping[str, str]

    def kept(self, present: Mapping[str, int]) -> dict[str, File]:
        """The files of an older publication that hold the wanted rows and are in the store with all their bytes, by
        span. `present` has the bytes of each file there."""
        return {
            file.span: file
            for file in self.stored.files
            if self.spans.get(file.span) == file.fingerprint
            and present.get(f"{self.stored.folder}/{file.name}") == file.bytes
        }


def stored_type(kind: str) -> str:
    """The type that a column of DuckDB's type has in the files."""
    if kind in _COMMON or kind.startswith("DECIMAL("):
        return kind
    return _CAST.get(kind, "VARCHAR")


def wanted_tables(snapshot: Snapshot, previous: Mapping[Name, StoredTable]) -> list[Wanted]:
    """Every table of the snapshot, and those that it has no more; each with the files that the previous one had.

    A column or table that went stays for a minor version, NULL or empty.
    """
    connection, version = snapshot.connection, snapshot.code_version
    ((own,),) = connection.execute("select current_database()").fetchall()
    tables = published_tables.tables(connection, own)
    tables["published", "publication"] = published_tables.publication_table(connection, own)
    comments = published_tables.comments(connection, own)
    found = []
    for name, table in tables.items():
        described, before = comments.get(name, {}), previous.get(name)
        columns = {column: Column(stored_type(kind), described.get(column)) for column, kind in table.columns}
        for column, held in before.columns.items() if before is not None else ():
            if column not in columns and _stays(held.deprecated_in, version):
                columns[column] = replace(held, deprecated_in=held.deprecated_in or version)
        files = before.files if before is not None else ()
        stored = StoredTable(*name, columns, files, described.get(""))
        found.append(Wanted(table, stored, _spans(snapshot, table, stored)))
    for name, before in previous.items():
        if name not in tables and _stays(before.deprecated_in, version):
            stored = replace(before, deprecated_in=before.deprecated_in or version)
            found.append(Wanted(None, stored, {ALL: _digest(_shape(stored), "no rows")}))
    return found


def write(snapshot: Snapshot, cursor: duckdb.DuckDBPyConnection, wanted: Wanted, span: str, folder: Path) -> Path:
    """A file with the rows of a span on this machine: the publication's own where that is the same, or a new one."""
    table, stored = wanted.table, wanted.stored
    if table is not None and table.is_fine_grained and span != ALL and _is_as_published(table, stored):
        (own,) = (file for file in snapshot.manifest.tables[table.schema, table.name].files if _is_of(file, span))
        return snapshot.to_send(own)
    given = dict(table.columns) if table is not None else {}
    selected = ", ".join(_selected(name, one, given.get(name)) for name, one in stored.columns.items())
    rows = f"from {table} where {_chosen(span)}" if table is not None else "where false"
    cursor.execute("set TimeZone = 'UTC'")
    path = folder / f"{stored.schema}.{stored.name}.{span}.parquet"
    cursor.execute(f"copy (select {selected} {rows}) to {literal(path)} (format parquet, compression zstd)").fetchall()
    return path


def described(path: Path, span: str, fingerprint: str) -> File:
    """What the manifest has of a file of this machine, under a name that no other file gets."""
    parquet = pq.ParquetFile(path)
    metadata, names = parquet.metadata, parquet.schema_arrow.names
    first, last = [], []
    if "date" in names:
        at = names.index("date")
        for group in range(metadata.num_row_groups):
            found = metadata.row_group(group).column(at).statistics
            if found is not None and found.has_min_max:
                first.append(found.min)
                last.append(found.max)
    parquet.close()
    return File(
        f"{span}-{fingerprint}-{secrets.token_hex(4)}.parquet",
        span,
        fingerprint,
        metadata.num_rows,
        path.stat().st_size,
        min(first).isoformat() if first else None,
        max(last).isoformat() if last else None,
    )


def _spans(snapshot: Snapshot, table: Table, stored: StoredTable) -> dict[str, str]:
    """The fingerprint of the rows of each file."""
    parts: dict[str, list[str]] = {}
    found = snapshots.fingerprints(snapshot, table)
    for on, seen in sorted(found.items(), key=lambda one: (one[0] is None, one[0] or date.min)):
        parts.setdefault(_span(table, on), []).append(f"{on} {seen}")
    shape = _shape(stored)
    return {span: _digest(shape, *seen) for span, seen in parts.items()} or {ALL: _digest(shape, "no rows")}


def _span(table: Table, on: date | None) -> str:
    if ("date", "DATE") not in table.columns:
        return ALL
    if on is None:
        return _WITHOUT_DATE
    return on.isoformat() if table.is_fine_grained else on.isoformat()[:7]


def _chosen(span: str) -> str:
    if span == ALL:
        return "true"
    if span == _WITHOUT_DATE:
        return "date is null"
    if len(span) == len("2026-10"):
        return f"date >= date '{span}-01' and date < date '{span}-01' + interval 1 month"
    return f"date = date '{span}'"


def _selected(name: str, column: Column, kind: str | None) -> str:
    quoted = '"' + name.replace('"', '""') + '"'
    if kind is None:
        return f"cast(null as {column.type}) as {quoted}"
    if kind == column.type:
        return quoted
    is_nested = kind.endswith("]") or kind.startswith(("STRUCT", "MAP"))
    return f"cast({f'to_json({quoted})' if is_nested else quoted} as {column.type}) as {quoted}"


def _is_of(file: publication_manifest.File, span: str) -> bool:
    return file.on is not None and file.on.isoformat() == span


def _is_as_published(table: Table, stored: StoredTable) -> bool:
    return [(name, one.type) for name, one in stored.columns.items()] == list(table.columns)


def _shape(stored: StoredTable) -> str:
    return repr([(name, one.type) for name, one in stored.columns.items()])


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()


def _stays(deprecated_in: str | None, version: str) -> bool:
    """Whether a thing that went is still there: until the next minor version."""
    return deprecated_in is None or deprecated_in.split(".")[:2] == version.split(".")[:2]
