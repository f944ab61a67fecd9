"""Parquet files of a lake while they are written: as rows arrive, with bounded memory, safe once they are closed.

Add here what holds for every file. Keep out which files count: that is `lake`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from fsspec import AbstractFileSystem

from collectors.durable_files import sync_folder

# A row group is what a reader skips or takes whole, and what a writer holds in memory: 24 MB of samples.
ROW_GROUP_ROWS = 2**20
# One file per 16 M rows is some 50–150 MB: few to list, and enough of them for a cluster's cores on a big day.
FILE_ROWS = 2**24


class Folder(Protocol):
    """Where files are written: a lake, as far as a writer needs it."""

    fs: AbstractFileSystem

    is_local: bool

    def path(self, relative: str) -> str:
        """Where a file is, given its path relative to the folder."""

    def remove(self, files: Iterable[str]) -> None:
        """Delete files, given by their relative paths."""


class Writer:
    """Parquet files of one table of one landing: row groups of ROW_GROUP_ROWS, files of FILE_ROWS, as rows arrive."""

    def __init__(
        self, folder: Folder, place: Callable[[int], str], schema: pa.Schema, is_one_file: bool = False
    ) -> None:
        self.folder = folder
        self.is_one_file = is_one_file
        self.place = place  # n -> path relative to the lake
        self.schema = schema
        self.files: list[str] = []
        self.rows = 0
        self._waiting: list[pa.Table] = []
        self._rows_waiting = 0
        self._file: Any = None
        self._parquet: pq.ParquetWriter | None = None
        self._rows_in_file = 0

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Take rows in; they are in files after `close`."""
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        self._waiting.append(table)
        self._rows_waiting += table.num_rows
        while self._rows_waiting >= ROW_GROUP_ROWS:
            held = pa.concat_tables(self._waiting)
            rest = held.slice(ROW_GROUP_ROWS)
            self._put(held.slice(0, ROW_GROUP_ROWS))
            self._waiting, self._rows_waiting = ([rest] if rest.num_rows else []), rest.num_rows

    def close(self, is_needed: bool = False) -> None:
        """Finish the last file; with `is_needed` there is a file also when there were no rows."""
        if self._rows_waiting or (is_needed and not self.files):
            self._put(pa.concat_tables(self._waiting) if self._waiting else self.schema.empty_table())
        self._waiting, self._rows_waiting = [], 0
        self._finish()

    def abandon(self) -> None:
        """Leave none of its files behind."""
        self._waiting, self._rows_waiting = [], 0
        self._finish()
        self.folder.remove(self.files)

    def _put(self, group: pa.Table) -> None:
        if self._parquet is None:
            path = self.place(len(self.files))
            self.files.append(path)
            at = self.folder.path(path)
            if self.folder.is_local:
                Path(at).parent.mkdir(parents=True, exist_ok=True)
                self._file = Path(at).open("wb")  # noqa: SIM115 (closed by _finish)
            else:
                self._file = self.folder.fs.open(at, "wb")
            self._parquet = pq.ParquetWriter(self._file, self.schema, compression="zstd")
        self._parquet.write_table(group, row_group_size=ROW_GROUP_ROWS)
        self.rows += group.num_rows
        self._rows_in_file += group.num_rows
        if self._rows_in_file >= FILE_ROWS and not self.is_one_file:
            self._finish()

    def _finish(self) -> None:
        if self._parquet is None:
            return
        self._parquet.close()
        if self.folder.is_local:
            # The manifest must not outlive a crash of the host that its files did not.
            self._file.flush()
            os.fsync(self._file.fileno())
        self._file.close()
        if self.folder.is_local:
            sync_folder(Path(self.folder.path(self.files[-1])).parent)
        self._parquet, self._file, self._rows_in_file = None, None, 0
