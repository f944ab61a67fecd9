"""The snapshot of a publication, opened for whoever copies it to another place, and what each of its rows is known by.

Add here what every copy of a publication needs. Keep out the places: these are `postgresql` and `object_store`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path

import duckdb

from pipelines.publishing import publication_manifest, restoring
from pipelines.publishing.publication_manifest import DATABASE, File, Manifest
from pipelines.publishing.published_tables import ROWS_HASHED, Table
from pipelines.publishing.restoring import PublicationDamaged
from pipelines.warehouse import database

Fingerprints = dict[date | None, str]


@dataclass(frozen=True)
class Snapshot:
    """The publication that is copied, opened in its own folder: the link may point to the next one by now."""

    connection: duckdb.DuckDBPyConnection
    published: Path
    folder: Path
    manifest: Manifest
    publication_id: str
    published_at: datetime
    start_date: date
    end_date: date
    fleet: str
    code_version: str

    def to_send(self, file: File) -> Path:
        """A file of the publication whose hash was compared; it is written anew first where it is damaged."""
        path = self.folder / file.path
        if not path.exists() or publication_manifest.sha256_of(path) != file.sha256:
            restoring.checked(self.published, self.folder, suspects={file.path})
        return path


@contextmanager
def opened(published: Path, folder: Path) -> Iterator[Snapshot]:
    """A publication of the folder `published`, read-only, after its files were compared with its manifest.

    PublicationDamaged where it has lost rows, or where its database turns out to be damaged while it is read; it is
    written anew then, for the next run.
    """
    manifest = restoring.checked(published, folder)
    try:
        with database.connect(folder / DATABASE, read_only=True) as connection:
            (row,) = connection.execute(
                "select publication_id, published_at, start_date, end_date, fleet, code_version"
                " from published.publication"
            ).fetchall()
            yield Snapshot(connection, published, folder, manifest, *row)
    except duckdb.Error as refusal:
        if publication_manifest.sha256_of(folder / DATABASE) == manifest.database.sha256:
            raise
        restoring.checked(published, folder, suspects={DATABASE})
        raise PublicationDamaged(f"{folder / DATABASE} was damaged, and was written anew. Run again") from refusal


def fingerprints(snapshot: Snapshot, table: Table) -> Fingerprints:
    """A fingerprint of the rows of each date, which differs where they do; of None in a table without dates.

    Of tables of intervals it is that of the date's Parquet file in the manifest, which publications share as long as
    its rows stay: so a day costs the same after years. Of all others it is a hash of the rows.
    """
    shape = hashlib.blake2b(repr(table.columns).encode(), digest_size=4).hexdigest()
    if table.is_fine_grained:
        listed = snapshot.manifest.tables[table.schema, table.name]
        return {file.on: f"{shape} file {file.fingerprint}" for file in listed.files}
    on = "date" if ("date", "DATE") in table.columns else "cast(null as date)"
    rows = snapshot.connection.execute(f"select {on}, {ROWS_HASHED} from {table} as t group by 1").fetchall()
    return {on: f"{shape} rows {seen}" for on, seen in rows}


def changed(new: Mapping[date | None, str], old: Mapping[date | None, str]) -> list[date | None]:
    """The dates whose rows differ, came or went."""
    return [on for on in {**old, **new} if new.get(on) != old.get(on)]
