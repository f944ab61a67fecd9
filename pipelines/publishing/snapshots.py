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

from pipelines.publishing import publication
from pipelines.publishing.published_tables import Table
from pipelines.warehouse import database

Fingerprints = dict[date | None, str]


@dataclass(frozen=True)
class Snapshot:
    """The publication that is copied, opened in its own folder: the link may point to the next one by now."""

    connection: duckdb.DuckDBPyConnection
    folder: Path
    publication_id: str
    published_at: datetime
    fleet: str
    code_version: str


@contextmanager
def opened(folder: Path) -> Iterator[Snapshot]:
    """A publication, read-only."""
    with database.connect(folder / publication.DATABASE, read_only=True) as connection:
        ((publication_id, published_at, fleet, code_version),) = connection.execute(
            "select publication_id, published_at, fleet, code_version from published.publication"
        ).fetchall()
        yield Snapshot(connection, folder, publication_id, published_at, fleet, code_version)


def publication_table(connection: duckdb.DuckDBPyConnection) -> Table:
    """The table `publication` of a snapshot: one row about the publication itself."""
    columns = connection.execute(
        "select column_name, data_type from duckdb_columns() where database_name = current_database()"
        " and schema_name = 'published' and table_name = 'publication' order by column_index"
    ).fetchall()
    return Table("published", "publication", tuple(columns))


def comments(connection: duckdb.DuckDBPyConnection) -> dict[tuple[str, str], dict[str, str]]:
    """The descriptions of each table's columns; that of the table itself has the name ''."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for schema, table, column, comment in connection.execute(
        """
        select schema_name, table_name, '', comment from duckdb_tables()
        where database_name = current_database() and comment is not null
        union all
        select schema_name, table_name, column_name, comment from duckdb_columns()
        where database_name = current_database() and comment is not null
        """
    ).fetchall():
        found.setdefault((schema, table), {})[column] = comment
    return found


def fingerprints(snapshot: duckdb.DuckDBPyConnection, folder: Path, table: Table) -> Fingerprints:
    """A fingerprint of the rows of each date, which differs where they do; of None in a table without dates.

    Of tables of intervals it is the date's Parquet file, which publications share as long as its rows stay: so a day
    costs the same after years. Of all others it is a hash of the rows.
    """
    shape = hashlib.blake2b(repr(table.columns).encode(), digest_size=4).hexdigest()
    if table.is_fine_grained:
        files = sorted((folder / "parquet" / table.schema / table.name).glob("date=*.parquet"))
        if files:
            return {
                date.fromisoformat(path.stem.removeprefix("date=")): f"{shape} file {_identity(path)}" for path in files
            }
    on = "date" if ("date", "DATE") in table.columns else "cast(null as date)"
    rows = snapshot.execute(
        f"select {on}, format('{{}} {{}} {{}}', count(*), bit_xor(hash(t)), sum(cast(hash(t) as hugeint)))"
        f" from {table} as t group by 1"
    ).fetchall()
    return {on: f"{shape} rows {seen}" for on, seen in rows}


def changed(new: Mapping[date | None, str], old: Mapping[date | None, str]) -> list[date | None]:
    """The dates whose rows differ, came or went."""
    return [on for on in {**old, **new} if new.get(on) != old.get(on)]


def _identity(path: Path) -> str:
    found = path.stat()
    return f"{found.st_size} {found.st_mtime_ns}"
