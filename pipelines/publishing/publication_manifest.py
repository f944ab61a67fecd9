"""The manifest of a publication: each table's dates and files, with size, time and SHA-256, as they were published.

    published/<publication_id>/manifest.json

The next publication and every copy take from it which dates there are, and never look for files: one that is missing
is then missed. Add here what is known of a file. Keep out what is done about one that is damaged (`restoring`), and
what a file holds (`published_files`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb

from collectors.durable_files import opened, write_whole
from pipelines.publishing import published_tables
from pipelines.publishing.published_tables import Table
from pipelines.warehouse import settings

DATABASE = "wattledger.duckdb"
WORKBOOK = "wattledger.xlsx"
REPORT = "report.html"
NAME = "manifest.json"
FORMAT = 1
# A database of gigabytes is read in parts.
PART_BYTES = 2**22
TableName = tuple[str, str]  # schema and table


@dataclass(frozen=True)
class File:
    """A file of a publication, relative to its folder.

    `on` is the date of its rows, the first of their billing month for a FOCUS file, and None for a whole table.
    `modified_ns` is the file's time, in nanoseconds since 1970. `fingerprint` differs where the rows may differ; it
    stays when the file is written anew.
    """

    path: str
    bytes: int
    modified_ns: int
    sha256: str
    fingerprint: str
    rows: int | None = None
    on: date | None = None


@dataclass(frozen=True)
class Column:
    """A column of a table, with DuckDB's type."""

    name: str
    type: str
    comment: str | None = None


@dataclass(frozen=True)
class ListedTable:
    """A table of a publication. `dates` are the dates of its rows as stretches [first, last] without a hole; none for a
    table without dates."""

    schema: str
    name: str
    columns: tuple[Column, ...]
    comment: str | None
    dates: tuple[tuple[date, date], ...]
    files: tuple[File, ...]

    @property
    def table(self) -> Table:
        """Its columns, as the publisher knows tables."""
        return Table(self.schema, self.name, tuple((one.name, one.type) for one in self.columns))


@dataclass(frozen=True)
class Manifest:
    """What one publication has. `hashes_compared_at` is when the hashes of all its files were last compared."""

    publication_id: str
    hashes_compared_at: datetime
    database: File
    tables: Mapping[TableName, ListedTable]
    focus: tuple[File, ...] = ()

    @property
    def files(self) -> Iterator[File]:
        """All its files but the database."""
        for table in self.tables.values():
            yield from table.files
        yield from self.focus

    def with_files(self, changed: Mapping[str, File]) -> Manifest:
        """The same with other sizes, times and hashes of some files, by their paths."""
        return replace(
            self,
            database=changed.get(self.database.path, self.database),
            tables={
                name: replace(table, files=tuple(changed.get(file.path, file) for file in table.files))
                for name, table in self.tables.items()
            },
            focus=tuple(changed.get(file.path, file) for file in self.focus),
        )


def file_of(folder: Path, path: str, rows: int | None = None, on: date | None = None) -> File:
    """A file that was just written."""
    found = (folder / path).stat()
    identity = f"{found.st_size} {found.st_mtime_ns}"
    return File(path, found.st_size, found.st_mtime_ns, sha256_of(folder / path), identity, rows, on)


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def copied(path: Path, to: Path) -> str:
    """Copy a file; returns the SHA-256 of what was copied."""
    digest = hashlib.sha256()
    with path.open("rb") as source, to.open("wb") as copy:
        while part := source.read(PART_BYTES):
            digest.update(part)
            copy.write(part)
    return digest.hexdigest()


def listed(
    connection: duckdb.DuckDBPyConnection, of: str, files: Mapping[TableName, tuple[File, ...]]
) -> dict[TableName, ListedTable]:
    """The tables of an attached database, with their files."""
    comments = published_tables.comments(connection, of)
    tables = published_tables.tables(connection, of)
    tables["published", "publication"] = published_tables.publication_table(connection, of)
    found = {}
    for name, table in tables.items():
        described = comments.get(name, {})
        columns = tuple(Column(column, kind, described.get(column)) for column, kind in table.columns)
        if table.is_fine_grained:
            dates = [file.on for file in files[name] if file.on is not None]
        elif ("date", "DATE") in table.columns:
            rows = connection.execute(f"select distinct date from {of}.{table} where date is not null").fetchall()
            dates = [on for (on,) in rows]
        else:
            dates = []
        stretches = tuple(settings.ranges(dates))
        found[name] = ListedTable(*name, columns, described.get(""), stretches, files[name])
    return found


def to_json(manifest: Manifest) -> bytes:
    """The manifest as its file has it."""
    fields = {
        "format": FORMAT,
        "publication_id": manifest.publication_id,
        "hashes_compared_at": manifest.hashes_compared_at.astimezone(UTC).isoformat(),
        "database": asdict(manifest.database),
        "tables": [asdict(table) for table in manifest.tables.values()],
        "focus": [asdict(file) for file in manifest.focus],
    }
    plain = json.loads(json.dumps(fields, default=date.isoformat))
    return (json.dumps({"sha256": _digest(plain), **plain}, indent=1, ensure_ascii=False) + "\n").encode()


def write(folder: Path, manifest: Manifest) -> None:
    """Write the manifest into the folder of a publication that readers see, in one step."""
    write_whole(folder / NAME, to_json(manifest))
    opened(folder / NAME)


def read(folder: Path) -> Manifest | None:
    """The manifest of a publication; None where there is none, or where it is damaged or another publication's."""
    try:
        fields = json.loads((folder / NAME).read_bytes())
        if fields.pop("sha256") != _digest(fields) or fields["format"] != FORMAT:
            return None
        tables = [_table(one) for one in fields["tables"]]
        found = Manifest(
            fields["publication_id"],
            datetime.fromisoformat(fields["hashes_compared_at"]),
            _file(fields["database"]),
            {(one.schema, one.name): one for one in tables},
            tuple(_file(one) for one in fields["focus"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return found if found.publication_id == folder.name else None


def _table(fields: dict[str, Any]) -> ListedTable:
    return ListedTable(
        fields["schema"],
        fields["name"],
        tuple(Column(**one) for one in fields["columns"]),
        fields["comment"],
        tuple((date.fromisoformat(first), date.fromisoformat(last)) for first, last in fields["dates"]),
        tuple(_file(one) for one in fields["files"]),
    )


def _file(fields: dict[str, Any]) -> File:
    on = fields["on"]
    return File(**{**fields, "on": date.fromisoformat(on) if on is not None else None})


def _digest(fields: object) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
