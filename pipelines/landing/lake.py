"""The lake: samples as Parquet files on any file system that fsspec knows, one manifest per (source, UTC date).

    raw/power_samples/date=<date>/source=<source>/<landing_id>-<n>.parquet       token_samples likewise
    raw/series_chunks/date=<date>/source=<source>/<landing_id>-<n>.parquet       its rows of raw.series_chunks
    raw/series/date=<date>/source=<source>/<landing_id>-<n>.parquet              the series of those
    raw/_landed/<source>/<date>.json                                             the truth: which of these files count
    control/<run_id>/<schema>.<table>.parquet                                    the warehouse's small tables, for Spark

An object store has no rename, so a date is replaced by new files and then one put of its manifest; a reader follows
manifests only. Add here the places of files and how to find them. Keep out when they are written (`stores`)
and what they mean.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem

from collectors import file_systems
from collectors.durable_files import write_whole
from collectors.samples import url_without_secrets
from pipelines.landing.parquet_files import ROW_GROUP_ROWS, Writer
from pipelines.warehouse import database
from pipelines.warehouse.raw_tables import FLEET_TABLES

SAMPLE_TABLES = ("power_samples", "token_samples")
TABLES = (*SAMPLE_TABLES, "series_chunks", "series")
# What the models read of schema raw, beside the two tables of samples.
RAW_CONTROL_TABLES = (
    *("landings", "series", "series_chunks", "grid_intensity", "model_prices"),
    *("run_windows", "bills", "requests", "benchmark_results", "refused_series", "unfilled_dates"),
)
CONTROL_TABLES = (*(f"raw.{table}" for table in RAW_CONTROL_TABLES), *(f"fleet.{table}" for table in FLEET_TABLES))

# Manifests are small and many: a store that takes 30 ms for each is asked for several at a time.
REQUESTS_AT_ONCE = 16

# Requests grow with history, and the models read those of the run's dates and of run windows alone.
_EXPORTED = {
    "raw.requests": "select requests.* from raw.requests as requests"
    " where requests.started_at >= $start_at and requests.started_at < $end_at"
    " or exists (from raw.run_windows as windows"
    " where requests.started_at >= windows.start_at and requests.started_at < windows.end_at)"
}


class LakeError(Exception):
    """The lake cannot be used as it is; the message gives the reason, without secrets."""


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
        """The manifest as it is in the lake."""
        fields = {
            "source": self.source,
            "date": self.date.isoformat(),
            "landing_id": self.landing_id,
            "rows": self.rows,
            "end_at": self.end_at.astimezone(UTC).isoformat(),
            "files": {table: list(self.files[table]) for table in TABLES},
        }
        return (json.dumps(fields, indent=1) + "\n").encode()

    @classmethod
    def of_json(cls, payload: bytes) -> Manifest:
        """The manifest in these bytes. ValueError, KeyError or TypeError for anything else."""
        fields = json.loads(payload)
        return cls(
            fields["source"],
            date.fromisoformat(fields["date"]),
            fields["landing_id"],
            int(fields["rows"]),
            datetime.fromisoformat(fields["end_at"]),
            {table: tuple(fields["files"][table]) for table in TABLES},
        )


class Lake:
    """A lake at a local path or an fsspec URL. LakeError when no installed package serves the URL."""

    def __init__(self, path: str | Path) -> None:
        self.shown = url_without_secrets(str(path))
        with _refusals(f"{self.shown}: no such kind of store", str(path)):
            self.fs, root = file_systems.file_system(str(path))
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
        path = self.path(_manifest_path(source, on))
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

    def path(self, relative: str) -> str:
        """A path of this lake as its file system knows it."""
        return f"{self.root}/{relative}"

    def uri(self, relative: str) -> str:
        """How others find a path of this lake: absolute where it is local, else with its protocol."""
        path = self.path(relative)
        return path if self.is_local else self.fs.unstrip_protocol(path)

    def read(self, paths: Iterable[str]) -> pa.Table:
        """The rows of small files, given relative to the lake."""
        with _refusals(f"{self.shown}: cannot be read"):
            tables = [pq.ParquetFile(pa.BufferReader(self.fs.cat_file(self.path(path)))).read() for path in paths]
        return pa.concat_tables(tables)

    # --- what a landing writes ----------------------------------------------------------------------------------------

    def probe(self) -> None:
        """Write and remove a file where manifests go: LakeError now rather than after an hour of reading."""
        path = f"raw/_landed/.probe-{secrets.token_hex(4)}"
        with _refusals(f"{self.shown}: cannot be written"):
            self.put(path, b"")
            self.fs.rm_file(self.path(path))
            self._found("raw/_landed")

    def put(self, relative: str, payload: bytes) -> None:
        """Write one small file so that a reader sees the old or the new one, whole."""
        path = self.path(relative)
        if self.is_local:
            write_whole(Path(path), payload)
        else:
            self.fs.pipe_file(path, payload)

    def put_manifest(self, manifest: Manifest) -> None:
        """Switch the manifest's (source, date) to its files, at once."""
        self.put(_manifest_path(manifest.source, manifest.date), manifest.to_json())

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files, given relative to the lake; those that are gone already are fine."""
        for path in paths:
            try:
                self.fs.rm_file(self.path(path))
            except FileNotFoundError:
                continue

    def orphans(self, source: str, on: date) -> list[str]:
        """Relative paths of the files of a (source, date) that its manifest does not name."""
        self.fs.invalidate_cache()
        manifest = self.manifest(source, on)
        live = {path for paths in manifest.files.values() for path in paths} if manifest else set()
        found = [path for table in TABLES for path in self._found(folder(table, source, on))]
        return [path for path in (path.removeprefix(f"{self.root}/") for path in found) if path not in live]

    def dated_files(self, end: date) -> dict[date, list[str]]:
        """Relative paths of every file of the dates before `end`, whether a manifest names it or not, by date."""
        self.fs.invalidate_cache()
        found: dict[date, list[str]] = {}
        for path in self._found("raw"):
            relative = path.removeprefix(f"{self.root}/")
            on = _date_of(relative)
            if on is not None and on < end:
                found.setdefault(on, []).append(relative)
        return found

    def bytes_of(self, paths: Iterable[str]) -> int:
        """Bytes of files, given relative to the lake; 0 of one that is gone."""
        total = 0
        for path in paths:
            with suppress(FileNotFoundError):
                total += int(self.fs.size(self.path(path)) or 0)
        return total

    def forget(self, end: date) -> None:
        """Remove what is here of the dates before `end`: manifests first, so that no reader follows one to a file that
        is gone."""
        for paths in self.dated_files(end).values():
            self.remove(sorted(paths, key=lambda path: not path.startswith("raw/_landed/")))

    # --- what others read ---------------------------------------------------------------------------------------------

    def expose(
        self, connection: duckdb.DuckDBPyConnection, schema: str, start: date = date.min, end: date = date.max
    ) -> None:
        """Views `schema`.power_samples and `schema`.token_samples over exactly the live files of [start, end).

        They replace empty tables of these names. ValueError where such a table holds rows.
        """
        landed = [manifest for (_, on), manifest in sorted(self.landed().items()) if start <= on < end]
        for table in SAMPLE_TABLES:
            name = f"{schema}.{table}"
            if table in database.tables(connection, schema):
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
        listed = ", ".join(map(database.literal, files))
        # A path holds date=… and source=…, which would become columns.
        return f"select series_id, observed_at, value from read_parquet([{listed}], hive_partitioning = false)"

    def remove_control(self, run_id: str) -> None:
        """Remove what `export_control` wrote for a run."""
        self.remove([path.removeprefix(f"{self.root}/") for path in self._found(f"control/{run_id}")])
        folder = Path(self.path(f"control/{run_id}"))
        if self.is_local and folder.is_dir():
            folder.rmdir()

    # --- how ----------------------------------------------------------------------------------------------------------

    def _found(self, relative: str) -> list[str]:
        try:
            return sorted(self.fs.find(self.path(relative)))
        except FileNotFoundError:
            return []

    def _manifests(self, paths: Iterable[str]) -> Iterator[Manifest]:
        paths = list(paths)
        at_once = 1 if self.is_local else REQUESTS_AT_ONCE
        with _refusals(f"{self.shown}: cannot be read"), ThreadPoolExecutor(at_once) as pool:
            payloads = list(pool.map(self.fs.cat_file, paths))
        for path, payload in zip(paths, payloads, strict=True):
            yield _read_manifest(path, payload)


def folder(table: str, source: str, on: date) -> str:
    """The folder of the files of one table, source and date, relative to the lake."""
    return f"raw/{table}/date={on.isoformat()}/source={source}"


def new_landing_id() -> str:
    """A name that no other landing has; sorts by time."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}-{secrets.token_hex(4)}"


def export_control(
    connection: duckdb.DuckDBPyConnection, lake: Lake, run_id: str, start: date, end: date
) -> dict[str, str]:
    """Write what the models read of the warehouse's small tables, for the dates [start, end), into the lake.

    Returns the absolute path, or URI, of the one file of each of CONTROL_TABLES, by "schema.table".
    """
    found = {}
    span = {name: datetime.combine(on, time(), UTC) for name, on in (("start_at", start), ("end_at", end))}
    for name in CONTROL_TABLES:
        rows = connection.sql(_EXPORTED[name], params=span) if name in _EXPORTED else connection.table(name)
        reader = rows.to_arrow_reader(ROW_GROUP_ROWS)
        path = f"control/{run_id}/{name}.parquet"
        writer = Writer(lake, partial(_only, path), reader.schema, is_one_file=True)
        with _refusals(f"{lake.shown}: cannot be written"):
            for batch in reader:
                writer.write(batch)
            writer.close(is_needed=True)
        found[name] = lake.uri(path)
    return found


def _only(path: str, _n: int) -> str:
    return path


_NO_SAMPLES = (
    "select cast(null as bigint) as series_id, cast(null as timestamptz) as observed_at, cast(null as double) as value"
    " where false"
)


def _manifest_path(source: str, on: date) -> str:
    return f"raw/_landed/{source}/{on.isoformat()}.json"


def _date_of(relative: str) -> date | None:
    """The date that a file of the lake is of: its folder's, or that of a manifest's name."""
    named = re.search(r"/date=([^/]+)/", relative) or re.fullmatch(r"raw/_landed/.*/([^/]+)\.json", relative)
    try:
        return date.fromisoformat(named[1]) if named else None
    except ValueError:
        return None


def _read_manifest(path: str, payload: bytes) -> Manifest:
    try:
        return Manifest.of_json(payload)
    except (ValueError, KeyError, TypeError) as wrong:
        raise LakeError(f"{path} is not a manifest: {wrong!r}") from wrong


class _refusals:
    """Turn whatever a store raises (each has its own kinds) into LakeError."""

    def __init__(self, what: str, secret: str | None = None) -> None:
        self.what = what
        self.secret = secret  # a URL that may carry one, and that the store may repeat

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, LakeError):
            reason = str(error) if self.secret is None else str(error).replace(self.secret, "…")
            reason = file_systems.secrets_of(self.secret or "").masked(reason)
            raise LakeError(f"{self.what}: {type(error).__name__}: {reason}") from error
