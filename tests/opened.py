"""A warehouse that a test reads many times: opened once for each state of its file.

Opening and closing one takes 45 ms of processor time, most of it for the columns of its tables. What stays open is a
copy, so nothing that writes the warehouse waits for it or finds it in use. Keep out what is read.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import duckdb

from pipelines.warehouse import database


@dataclass
class _Copy:
    """The one that is open, and of which file in which state it is."""

    state: tuple[object, ...] = ()
    folder: tempfile.TemporaryDirectory[str] | None = None
    connection: duckdb.DuckDBPyConnection | None = None


_copy = _Copy()


def rows(warehouse: Path, sql: str, parameters: list[object]) -> list[tuple]:
    """Rows of a warehouse, which may be written right before and after."""
    if warehouse.with_name(f"{warehouse.name}.wal").exists():  # a writer was killed: not all is in the file
        with closing(database.connect(warehouse, read_only=True)) as connection:
            return connection.execute(sql, parameters).fetchall()
    file = warehouse.stat()
    state = (os.getpid(), warehouse, file.st_ino, file.st_size, file.st_mtime_ns)
    if state != _copy.state:
        _open(warehouse, state)
    assert _copy.connection is not None
    return _copy.connection.execute(sql, parameters).fetchall()


def _open(warehouse: Path, state: tuple[object, ...]) -> None:
    if _copy.connection is not None and _copy.folder is not None:
        _copy.connection.close()
        _copy.folder.cleanup()
    _copy.state = ()
    _copy.folder = tempfile.TemporaryDirectory()
    path = Path(_copy.folder.name) / warehouse.name
    shutil.copyfile(warehouse, path)
    _copy.connection = database.connect(path, read_only=True)
    _copy.state = state
