"""The lake: samples as Parquet files on any file system that fsspec knows, one manifest per (source, UTC date).

    raw/power_samples/date=<date>/source=<source>/<landing_id>-<n>.parquet       token_samples likewise
    raw/series_chunks/date=<date>/source=<source>/<landing_id>-<n>.parquet       its rows of raw.series_chunks
    raw/series/date=<date>/source=<source>/<landing_id>-<n>.parquet              the series of those
    raw/_landed/<source>/<date>.json                                             the truth: which of these files count
    control/<run_id>/<schema>.<table>.parquet                                    the warehouse's small tables, for Spark

An object store has no rename, so a date is replaced by new files and then one put of its manifest; a reader follows
manifests only. Add here how files lie and are found. Keep out when they are written (`stores`) and what they mean.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem

from collectors.samples import url_without_secrets
from pipelines.raw_tables import FLEET_TABLES

SAMPLE_TABLES = ("power_samples", "token_samples")
TABLES = (*SAMPLE_TABLES, "series_chunks", "series")
CONTROL_TABLES = (
    *(f"raw.{table}" for table in ("series", "series_chunks", "grid_intensity", "run_windows")),
    *(f"fleet.{table}" for table in FLEET_TABLES),
)

# A row group is what a reader skips or takes whole, and what a writer holds in memory: 24 MB of samples.
ROW_GROUP_ROWS = 2**20
# One file per 16 M rows is some 50–150 MB: few to list, and enough of them for a cluster's cores on a big day.
FILE_ROWS = 2**24


class LakeError(Exception):
    """The lake cannot be used as it is; the message says why, without secrets."""


@dataclass(frozen=True)
class Manifest:
    """What counts of one (source, UTC date). `files` maps each table of TABLES to paths relative to the lake.

    `rows` counts samples. `end_at` is where the landed window ends: before midnight, only the day's head is here.
    """

    source: str
    date: date
    landing_id: str
    rows: int
    end_at: datetime
    files: dict[str, tuple[str, ...]]

    def to_json(self) -> bytes:
        """The manifest as it lies in the lake."""
        told = {
            "source": self.source,
            "date": self.date.isoformat(),
            "landing_id": self.landing_id,
            "rows": self.rows,
            "end_at": self.end_at.astimezone(UTC).isoformat(),
            "files": {table: list(self.files[table]) for table in TABLES},
        }
        return (json.dumps(told, indent=1) + "\n").encode()

    @classmethod
    def of_json(cls, payload: bytes) -> Manifest:
        """The manifest in these bytes. ValueError, KeyError or TypeError when it is none."""
        told = json.loads(payload)
        return cls(
            told["source"],
            date.fromisoformat(told["date"]),
            told["landing_id"],
            int(told["rows"]),
            datetime.fromisoformat(told["end_at"]),
            {table: tuple(told["files"][table]) for table in TABLES},
        )


class Lake:
    """A lake at a local path or an fsspec URL. LakeError when no installed package serves the URL."""

    def __init__(self, path: str | Path) -> None:
        self.shown = url_without_secrets(str(path))
        with _refusals(f"{self.shown}: no such kind of store"):
            self.fs, root = fsspec.core.url_to_fs(str(path))
        self.root = root.rstrip("/")
        self.is_local = isinstance(self.fs, LocalFileSystem)

    # --- what is landed -----------------------------------------------------------------------------------------------

    def landed(self) -> dict[tuple[str, date], Manifest]:
        """Every manifest, by (source, date). LakeError when the lake cannot be read, or holds a garbled manifest."""
        with _refusals(f"{self.shown}: cannot be read"):
            self.fs.invalidate_cache()
            paths = self._found("raw/_landed")
        return {(m.source, m.date): m for m in self._manifests(p for p in paths if p.endswith(".json"))}

    def manifest(self, source: str, on: date) -> Manifest | None:
        """The manifest of one (source, date); None where nothing is landed."""
        path = self._path(_manifest_path(source, on))
        with _refusals(f"{self.shown}: cannot be read"):
            try:
                payload = self.fs.cat_file(path)
            except FileNotFoundError:
                return None
        return _read_manifest(path, payload)

    def sample_files(self, table: str, start: date, end: date) -> list[str]:
        """Absolute paths, or URIs, of the live files of a table of TABLES with dates in [start, end)."""
        return self.files(table, (m for (_, on), m in sorted(self.landed().items()) if start <= on < end))

    def files(self, table: str, manifests: Iterable[Manifest]) -> list[str]:
        """Absolute paths, or URIs, of a table's files in these manifests."""
        return [self.uri(path) for manifest in manifests for path in manifest.files[table]]

    def uri(self, relative: str) -> str:
        """How others find a path of this lake: absolute where it is local, else with its protocol."""
        path = self._path(relative)
        return path if self.is_local else self.fs.unstrip_protocol(path)

    def read(self, paths: Iterable[str]) -> pa.Table:
        """The rows of small files, given relative to the lake."""
        with _refusals(f"{self.shown}: cannot be read"):
            tables = [pq.ParquetFile(pa.BufferReader(self.fs.cat_file(self._path(path)))).read() for path in paths]
        return pa.concat_tables(tables)

    # --- what a landing writes ----------------------------------------------------------------------------------------

    def probe(self) -> None:
        """Write and remove a file where manifests go: LakeError now rather than after an hour of reading."""
        path = f"raw/_landed/.probe-{secrets.token_hex(4)}"
        with _refusals(f"{self.shown}: cannot be written"):
            self.put(path, b"")
            self.fs.rm_file(self._path(path))
            self._found("raw/_landed")

    def put(self, relative: str, payload: bytes) -> None:
        """Write one small file so that a reader sees the old or the new one, whole."""
        path = self._path(relative)
        if not self.is_local:
            self.fs.pipe_file(path, payload)
            return
        final = Path(path)
        final.parent.mkdir(parents=True, exist_ok=True)
        fresh = final.with_name(f".{final.name}.tmp")
        with fresh.open("wb") as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(final)
        _sync_folder(final.parent)

    def put_manifest(self, manifest: Manifest) -> None:
        """Switch the manifest's (source, date) to its files, at once."""
        self.put(_manifest_path(manifest.source, manifest.date), manifest.to_json())

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files, given relative to the lake; those that are gone already are fine."""
        for path in paths:
            try:
                self.fs.rm_file(self._path(path))
            except FileNotFoundError:
                continue

    def orphans(self, source: str, on: date) -> list[str]:
        """Relative paths of the files of a (source, date) that its manifest does not name."""
        self.fs.invalidate_cache()
        manifest = self.manifest(source, on)
        live = {path for paths in manifest.files.values() for path in paths} if manifest else set()
        found = [path for table in TABLES for path in self._found(folder(table, source, on))]
        return [path for path in (path.removeprefix(f"{self.root}/") for path in found) if path not in live]

    # --- what others read ---------------------------------------------------------------------------------------------

    def expose(
        self, connection: duckdb.DuckDBPyConnection, schema: str, start: date = date.min, end: date = date.max
    ) -> None:
        """Views `schema`.power_samples and `schema`.token_samples over exactly the live files of [start, end).

        They stand in place of empty tables of these names. ValueError where such a table holds rows.
        """
        landed = [manifest for (_, on), manifest in sorted(self.landed().items()) if start <= on < end]
        for table in SAMPLE_TABLES:
            name = f"{schema}.{table}"
            is_table = connection.execute(
                "select count(*) from duckdb_tables() where schema_name = ? and table_name = ?", [schema, table]
            ).fetchall() == [(1,)]
            if is_table:
                if connection.execute(f"select count(*) from {name}").fetchall() != [(0,)]:
                    raise ValueError(f"{name} holds samples of its own")
                connection.execute(f"drop table {name}")
            connection.execute(f"create or replace view {name} as {self.select(connection, self.files(table, landed))}")

    def select(self, connection: duckdb.DuckDBPyConnection, files: list[str]) -> str:
        """A query for the samples in `files`, which the connection can read from now on."""
        if not self.is_local:
            protocol = self.fs.protocol if isinstance(self.fs.protocol, str) else self.fs.protocol[0]
            if not connection.filesystem_is_registered(protocol):
                connection.register_filesystem(self.fs)
        if not files:
            return _NO_SAMPLES
        listed = ", ".join("'" + path.replace("'", "''") + "'" for path in files)
        # A path holds date=… and source=…, which would become columns.
        return f"select series_id, observed_at, value from read_parquet([{listed}], hive_partitioning = false)"

    def remove_control(self, run_id: str) -> None:
        """Remove what `export_control` wrote for a run."""
        self.remove([path.removeprefix(f"{self.root}/") for path in self._found(f"control/{run_id}")])

    # --- how ----------------------------------------------------------------------------------------------------------

    def _path(self, relative: str) -> str:
        return f"{self.root}/{relative}"

    def _found(self, relative: str) -> list[str]:
        try:
            return sorted(self.fs.find(self._path(relative)))
        except FileNotFoundError:
            return []

    def _manifests(self, paths: Iterable[str]) -> Iterator[Manifest]:
        paths = list(paths)
        with _refusals(f"{self.shown}: cannot be read"):
            # A remote store is asked for all of them at once.
            payloads = self.fs.cat(paths) if self.fs.async_impl else {path: self.fs.cat_file(path) for path in paths}
        for path in paths:
            yield _read_manifest(path, payloads[path])


class Writer:
    """Parquet files of one table of one landing: row groups of ROW_GROUP_ROWS, files of FILE_ROWS, as rows arrive."""

    def __init__(self, lake: Lake, place: Callable[[int], str], schema: pa.Schema, is_one_file: bool = False) -> None:
        self.lake = lake
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
        """Take rows in; they lie in files after `close`."""
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
        self.lake.remove(self.files)

    def _put(self, group: pa.Table) -> None:
        if self._parquet is None:
            path = self.place(len(self.files))
            self.files.append(path)
            at = self.lake._path(path)
            if self.lake.is_local:
                Path(at).parent.mkdir(parents=True, exist_ok=True)
                self._file = Path(at).open("wb")  # noqa: SIM115 (closed by _finish)
            else:
                self._file = self.lake.fs.open(at, "wb")
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
        if self.lake.is_local:
            # The manifest must not outlive a crash of the host that its files did not.
            self._file.flush()
            os.fsync(self._file.fileno())
        self._file.close()
        if self.lake.is_local:
            _sync_folder(Path(self.lake._path(self.files[-1])).parent)
        self._parquet, self._file, self._rows_in_file = None, None, 0


def folder(table: str, source: str, on: date) -> str:
    """Where the files of one table, source and date lie, relative to the lake."""
    return f"raw/{table}/date={on.isoformat()}/source={source}"


def new_landing_id() -> str:
    """A name that no other landing has; sorts by time."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}-{secrets.token_hex(4)}"


def export_control(connection: duckdb.DuckDBPyConnection, lake: Lake, run_id: str) -> dict[str, str]:
    """Write the warehouse's small tables into the lake, for a reader that is not DuckDB.

    Returns the absolute path, or URI, of the one file of each of CONTROL_TABLES, by "schema.table".
    """
    found = {}
    for name in CONTROL_TABLES:
        reader = connection.sql(f"select * from {name}").to_arrow_reader(ROW_GROUP_ROWS)
        path = f"control/{run_id}/{name}.parquet"
        writer = Writer(lake, lambda n, path=path: path, reader.schema, is_one_file=True)
        with _refusals(f"{lake.shown}: cannot be written"):
            for batch in reader:
                writer.write(batch)
            writer.close(is_needed=True)
        found[name] = lake.uri(path)
    return found


_NO_SAMPLES = (
    "select cast(null as bigint) as series_id, cast(null as timestamptz) as observed_at, cast(null as double) as value"
    " where false"
)


def _manifest_path(source: str, on: date) -> str:
    return f"raw/_landed/{source}/{on.isoformat()}.json"


def _read_manifest(path: str, payload: bytes) -> Manifest:
    try:
        return Manifest.of_json(payload)
    except (ValueError, KeyError, TypeError) as wrong:
        raise LakeError(f"{path} is not a manifest: {wrong!r}") from wrong


class _refusals:
    """Turn whatever a store raises (each has its own kinds) into LakeError."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, LakeError):
            raise LakeError(f"{self.what}: {type(error).__name__}: {error}") from error


def _sync_folder(path: Path) -> None:
    """Make new names survive a crash of the host; some shares refuse, and there the names are all one gets."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)
