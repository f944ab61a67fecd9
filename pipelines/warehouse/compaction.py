"""A DuckDB file without its free blocks: deleted rows leave room for new ones, and never make the file smaller.

Add here how a file is written anew. Keep out when it is worth it, except the share of free blocks from which on it is.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import duckdb

from collectors.durable_files import sync_folder
from pipelines.warehouse import database

# From which share of free blocks on a file is written anew without being asked for.
WORTH_RATIO = 0.5
# A file of a few blocks is not worth it.
LEAST_BYTES = 16 << 20


class Blocks(NamedTuple):
    """Bytes of a DuckDB file: all of it, and what of it is free."""

    file_bytes: int
    free_bytes: int

    @property
    def used_bytes(self) -> int:
        """What a file without free blocks takes."""
        return self.file_bytes - self.free_bytes

    @property
    def is_worth_it(self) -> bool:
        """Whether at least half of the file is free."""
        return self.file_bytes >= LEAST_BYTES and self.free_bytes >= WORTH_RATIO * self.file_bytes


class CopyDiffers(Exception):
    """The copy has other rows than the file; the file stays as it is."""


def blocks_of(connection: duckdb.DuckDBPyConnection, name: str | None = None) -> Blocks:
    """The blocks of the connection's own database, or of another one that is attached."""
    rows = connection.execute(
        "select block_size * total_blocks, block_size * free_blocks from pragma_database_size()"
        " where database_name = coalesce(?, current_database())",
        [name],
    ).fetchall()
    return Blocks(*rows[0])


def compact(path: Path, storage_version: str | None = None) -> int:
    """Write the file at `path` anew without free blocks; returns the bytes that it is smaller by. The caller holds the
    right to write it, and has seen to the room. A crash leaves the old file or the new one.
    """
    fresh = remove_unfinished(path)
    before = path.stat()
    try:
        database.connect(path).close()  # takes in what a crash left in the write-ahead log
        with database.connect(":memory:") as connection:
            connection.execute(f"attach {database.literal(path)} as old (read_only)")
            options = f" (storage_version {database.literal(storage_version)})" if storage_version else ""
            connection.execute(f"attach {database.literal(fresh)} as fresh{options}")
            connection.execute("copy from database old to fresh")
            connection.execute("checkpoint fresh")
            if _contents(connection, "old") != _contents(connection, "fresh"):
                raise CopyDiffers(f"{path}: its copy has other rows or tables; the file stays as it is")
            connection.execute("detach fresh")
            connection.execute("detach old")
        fresh.chmod(before.st_mode & 0o7777)
        with fresh.open("rb") as held:
            os.fsync(held.fileno())
        size = fresh.stat().st_size
        fresh.replace(path)
        sync_folder(path.parent)
    finally:
        remove_unfinished(path)
    return before.st_size - size


def remove_unfinished(path: Path) -> Path:
    """Remove what a copy that was killed left beside the file; returns where the copy is made."""
    fresh = path.with_name(f".compact-{path.name}")
    fresh.unlink(missing_ok=True)
    fresh.with_name(f"{fresh.name}.wal").unlink(missing_ok=True)
    return fresh


def _contents(connection: duckdb.DuckDBPyConnection, name: str) -> list[tuple[object, ...]]:
    """The tables of an attached database with their columns, comments and numbers of rows, and its views."""
    tables = connection.execute(
        "select schema_name, table_name, comment from duckdb_tables() where database_name = ? order by all", [name]
    ).fetchall()
    columns = connection.execute(
        "select schema_name, table_name, column_name, data_type, comment from duckdb_columns()"
        " where database_name = ? and not internal order by all",
        [name],
    ).fetchall()
    counted: list[tuple[object, ...]] = [
        (schema, table, *connection.execute(f'select count(*) from {name}."{schema}"."{table}"').fetchall()[0])
        for schema, table, _ in tables
    ]
    views = connection.execute(
        "select schema_name, view_name, comment from duckdb_views() where database_name = ? and not internal"
        " order by all",
        [name],
    ).fetchall()
    return [*tables, *columns, *counted, *views]
