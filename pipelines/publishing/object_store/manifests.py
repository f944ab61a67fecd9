"""What a reader of the object store opens first: each table of one publication with its files, columns and version.

    latest.json                            the current publication; written last, in one step
    publications/<publication_id>.json     the same for each publication that is kept

Add here what a reader must know to read one publication. Keep out how files are made (`table_files`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pipelines.publishing.object_store.place import ObjectStoreError, Place

FORMAT = 1
LATEST = "latest.json"
PUBLICATIONS = "publications"
TABLES = "tables"
Name = tuple[str, str]  # schema and table


@dataclass(frozen=True)
class File:
    """A Parquet file of a table. `span` is the date or month of its rows, or `all`; `fingerprint` differs where they
    do. Dates are the first and last of its rows, None without any."""

    name: str
    span: str
    fingerprint: str
    rows: int
    bytes: int
    first_date: str | None = None
    last_date: str | None = None


@dataclass(frozen=True)
class Column:
    """A column as its files have it: DuckDB's type, and since which version no publication has it."""

    type: str
    comment: str | None = None
    deprecated_in: str | None = None


@dataclass(frozen=True)
class StoredTable:
    """A table of one publication; `delta_version` is None where there is no Delta log."""

    schema: str
    name: str
    columns: Mapping[str, Column] = field(hash=False)
    files: tuple[File, ...] = ()
    comment: str | None = None
    deprecated_in: str | None = None
    delta_version: int | None = None

    @property
    def folder(self) -> str:
        """Where its files are."""
        return f"{TABLES}/{self.schema}/{self.name}"

    @property
    def paths(self) -> set[str]:
        """Its files, relative to the place."""
        return {f"{self.folder}/{file.name}" for file in self.files}

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return sum(file.rows for file in self.files)


@dataclass(frozen=True)
class Manifest:
    """One publication in an object store. `publication` is its row of published.publication."""

    publication: Mapping[str, Any] = field(hash=False)
    tables: Mapping[Name, StoredTable] = field(hash=False)
    stored_at: datetime = field(compare=False)

    @property
    def publication_id(self) -> str:
        """Its publication."""
        return str(self.publication["publication_id"])

    @property
    def published_at(self) -> datetime:
        """When the snapshot was published."""
        return datetime.fromisoformat(self.publication["published_at"])

    @property
    def paths(self) -> set[str]:
        """All its files, relative to the place."""
        return {path for table in self.tables.values() for path in table.paths}

    def to_json(self) -> bytes:
        """The manifest as a reader finds it. Paths are relative to the manifest's place, so that it can be moved."""
        tables = {
            f"{table.schema}.{table.name}": {
                "path": table.folder,
                "delta_version": table.delta_version,
                "rows": table.rows,
                "comment": table.comment,
                "deprecated_in": table.deprecated_in,
                "columns": {
                    name: {"type": one.type, "comment": one.comment, "deprecated_in": one.deprecated_in}
                    for name, one in table.columns.items()
                },
                "files": [
                    {
                        "path": f"{table.folder}/{file.name}",
                        "rows": file.rows,
                        "bytes": file.bytes,
                        "first_date": file.first_date,
                        "last_date": file.last_date,
                        "span": file.span,
                        "fingerprint": file.fingerprint,
                    }
                    for file in table.files
                ],
            }
            for table in self.tables.values()
        }
        fields = {
            "format": FORMAT,
            **self.publication,
            "stored_at": self.stored_at.astimezone(UTC).isoformat(),
            "tables": tables,
        }
        return (json.dumps(fields, indent=1, ensure_ascii=False) + "\n").encode()

    @classmethod
    def of_json(cls, payload: bytes) -> Manifest:
        """The manifest in these bytes. ValueError, KeyError or TypeError for anything else."""
        fields = json.loads(payload)
        if fields.pop("format") != FORMAT:
            raise ValueError("an unknown format")
        stored_at = datetime.fromisoformat(fields.pop("stored_at"))
        tables = {}
        for name, table in fields.pop("tables").items():
            schema, _, bare = name.partition(".")
            tables[schema, bare] = StoredTable(
                schema,
                bare,
                {column: Column(**one) for column, one in table["columns"].items()},
                tuple(
                    File(
                        one["path"].rpartition("/")[2],
                        one["span"],
                        one["fingerprint"],
                        one["rows"],
                        one["bytes"],
                        one["first_date"],
                        one["last_date"],
                    )
                    for one in table["files"]
                ),
                table["comment"],
                table["deprecated_in"],
                table["delta_version"],
            )
        return cls(fields, tables, stored_at)


def path_of(publication_id: str) -> str:
    """Where the manifest of a publication is."""
    return f"{PUBLICATIONS}/{publication_id}.json"


def read(place: Place, path: str) -> Manifest | None:
    """A manifest; None where there is none. ObjectStoreError where a file is none."""
    payload = place.get(path)
    if payload is None:
        return None
    try:
        return Manifest.of_json(payload)
    except (ValueError, KeyError, TypeError) as wrong:
        raise ObjectStoreError(
            f"{place.shown}: {path} is no manifest of Wattledger ({type(wrong).__name__}). Publish to an empty prefix,"
            " or delete the file: the next run then writes all tables again"
        ) from None
