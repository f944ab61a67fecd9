"""A publication's files, compared with its manifest before anything is copied; what is damaged is written anew.

Its DuckDB file and its Parquet files hold the same rows, so either is made from the other, and a missing file removes
no figure. Where both are damaged, PublicationDamaged stops the copy, and nothing is deleted. Presence, size and time
are compared each time, hashes where a time differs, of what a copy sends, and of all files once a week. Add here how a
file is found damaged and written anew. Keep out what the manifest holds (`publication_manifest`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import duckdb

from pipelines.publishing import publication_manifest, published_files, published_tables, retention
from pipelines.publishing.focus import cost_and_usage
from pipelines.publishing.publication_manifest import DATABASE, File, ListedTable, Manifest, TableName
from pipelines.publishing.published_tables import ROWS_HASHED, Table
from pipelines.warehouse import database
from pipelines.warehouse.database import literal
from pipelines.warehouse.refusals import QuestionError

HASHES_COMPARED_EVERY = timedelta(days=7)
# Behind the name, so that no reader takes `*.parquet` for it.
_FRESH = ".restored"

logger = logging.getLogger(__name__)


class PublicationDamaged(QuestionError):
    """A publication has lost rows that none of its files has. The message is one line: which files, and what to do."""


def checked(published: Path, folder: Path, *, suspects: Collection[str] = (), now: datetime | None = None) -> Manifest:
    """The manifest of a publication of the folder `published`, after `restored`; for whoever does not publish.

    The publisher's lock is taken only where there is something to write or to hash. `suspects` are paths whose hashes
    are compared in any case.
    """
    now = now or datetime.now(UTC)
    manifest = publication_manifest.read(folder)
    if manifest is not None and not suspects and not is_due(manifest, now):
        files = (manifest.database, *manifest.files)
        if all(_compared(folder, file, is_hashed=False) is file for file in files):
            return manifest
    with database.writing(published, "publication"):
        return restored(folder, suspects=suspects, now=now)


def is_due(manifest: Manifest, now: datetime) -> bool:
    """Whether the hashes of all files are to be compared again."""
    return now - manifest.hashes_compared_at >= HASHES_COMPARED_EVERY


def restored(folder: Path, *, suspects: Collection[str] = (), now: datetime) -> Manifest:
    """The manifest of a publication, all of whose files are as it lists them; for whoever holds the publisher's lock.

    A damaged file is written anew, and a warning names it. A publication without a readable manifest gets one from its
    DuckDB file.
    """
    manifest = publication_manifest.read(folder)
    if manifest is None:
        return _listed_anew(folder, now)
    is_whole = is_due(manifest, now)
    changed: dict[str, File] = {}
    damaged: dict[str, str] = {}

    def compare(files: Collection[File], *, is_hashed: bool) -> None:
        for file in files:
            found = _compared(folder, file, is_hashed=is_hashed or file.path in suspects)
            if isinstance(found, str):
                damaged[file.path] = found
            elif found is not file:
                changed[file.path] = found

    files = [*manifest.files]
    compare([manifest.database, *files], is_hashed=is_whole)
    if damaged and not is_whole:
        # Only what is sound can be the source of others.
        of_tables = [file for table in manifest.tables.values() for file in table.files]
        compare(of_tables if DATABASE in damaged else [manifest.database], is_hashed=True)
    if DATABASE in damaged:
        _validate_source(folder, manifest, damaged)
        changed[DATABASE] = _database_anew(folder, manifest)
    changed |= _files_anew(folder, manifest, [file for file in files if file.path in damaged])
    for path, why in damaged.items():
        source = "its Parquet files" if path == DATABASE else DATABASE
        logger.warning("%s: %s; it was written anew from %s of the same publication", folder / path, why, source)
    if changed or is_whole:
        compared_at = now if is_whole else manifest.hashes_compared_at
        manifest = replace(manifest.with_files(changed), hashes_compared_at=compared_at)
        publication_manifest.write(folder, manifest)
    return manifest


def older_ones_restored(published: Path, current: Path | None, now: datetime) -> None:
    """The same for the other publications that are kept; one that cannot be restored is a warning."""
    for folder in retention.publications(published):
        if folder.resolve() != current and (folder / publication_manifest.NAME).exists():
            try:
                restored(folder, now=now)
            except PublicationDamaged as damage:
                logger.warning("%s", damage)


def _compared(folder: Path, file: File, *, is_hashed: bool) -> File | str:
    """The file where it is as it was listed, with another time where only that differs; else what is wrong with it."""
    path = folder / file.path
    try:
        found = path.stat()
        if found.st_size != file.bytes:
            return f"it has {found.st_size:,} bytes, expected {file.bytes:,}"
        if not is_hashed and found.st_mtime_ns == file.modified_ns:
            return file
        if publication_manifest.sha256_of(path) != file.sha256:
            return "its content is not what was published (another SHA-256)"
    except FileNotFoundError:
        return "it is missing"
    except OSError as refusal:
        return f"it cannot be read ({refusal.strerror})"
    return file if found.st_mtime_ns == file.modified_ns else replace(file, modified_ns=found.st_mtime_ns)


def _validate_source(folder: Path, manifest: Manifest, damaged: Collection[str]) -> None:
    """PublicationDamaged where the database cannot be made of the Parquet files."""
    lost = [file.path for table in manifest.tables.values() for file in table.files if file.path in damaged]
    if lost:
        more = f" (and {len(lost) - 1:,} more)" if len(lost) > 1 else ""
        raise _damaged(folder, f"{DATABASE} and {lost[0]}{more} are damaged or missing, and have the same rows")


def _damaged(folder: Path, what: str) -> PublicationDamaged:
    return PublicationDamaged(
        f"{folder}: {what}. Nothing was published, copied or deleted. Restore one of them from a backup, with its time"
        " or without, and run again; or move this folder away, and the next run publishes what the warehouse has"
        " (docs/operations.md)"
    )


# --- files from the database ------------------------------------------------------------------------------------------


@contextmanager
def _snapshot(folder: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with the publication's database attached as `snapshot`."""
    with database.connect(":memory:") as connection:
        connection.execute(f"attach {literal(folder / DATABASE)} as snapshot (read_only)")
        yield connection


def _labels(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    ((fleet, is_synthetic, publication_id),) = connection.execute(
        "select fleet, is_synthetic, publication_id from snapshot.published.publication"
    ).fetchall()
    return published_files.labels_of(fleet, is_synthetic, publication_id)


def _files_anew(folder: Path, manifest: Manifest, files: Collection[File]) -> dict[str, File]:
    """Write these files again from the database; returns them by path."""
    if not files:
        return {}
    tables = {file.path: table.table for table in manifest.tables.values() for file in table.files}
    with _snapshot(folder) as connection:
        labels = _labels(connection)
        made = {}
        for file in files:
            fresh = _exported(connection, folder, tables.get(file.path), file.on, labels)
            if fresh.rows != file.rows:
                raise _damaged(
                    folder, f"{file.path} is damaged, and {DATABASE} has {fresh.rows} of its {file.rows} rows"
                )
            made[file.path] = replace(_put(folder, fresh, file.path), fingerprint=file.fingerprint)
    return made


def _exported(
    connection: duckdb.DuckDBPyConnection, folder: Path, table: Table | None, on: date | None, labels: dict[str, str]
) -> File:
    """A file beside its place: the Parquet file of a table, or without one the FOCUS file of a month."""
    if table is not None:
        name = f"{published_files.parquet_path(table, on).name}{_FRESH}"
        return published_files.export(connection, "snapshot", table, folder, on=on, labels=labels, name=name)
    if on is None:
        raise ValueError("a FOCUS file is of a month")
    name = f"{cost_and_usage.path_of(on).name}{_FRESH}"
    return cost_and_usage.export(connection, "snapshot", folder, on, name=name)


def _put(folder: Path, fresh: File, path: str) -> File:
    """Bring a file from beside its place into it, in one step: who has the old one open reads on."""
    retention.put(folder / fresh.path, folder / path)
    return replace(fresh, path=path)


# --- the database from the files --------------------------------------------------------------------------------------


def _database_anew(folder: Path, manifest: Manifest) -> File:
    """Write the database again from the Parquet files."""
    fresh = folder / f"{DATABASE}{_FRESH}"
    for leftover in (fresh, folder / f"{DATABASE}{_FRESH}.wal"):
        leftover.unlink(missing_ok=True)
    with database.connect(":memory:") as connection:
        connection.execute("set preserve_insertion_order = true")
        connection.execute(f"attach {literal(fresh)} as target (storage_version '{published_tables.STORAGE_VERSION}')")
        for schema in published_tables.SCHEMAS:
            connection.execute(f"create schema target.{schema}")
        for table in manifest.tables.values():
            _filled(connection, folder, table)
        connection.execute("checkpoint target")
        connection.execute("detach target")
    fresh.chmod(0o444)
    retention.put(fresh, folder / DATABASE)
    return publication_manifest.file_of(folder, DATABASE)


def _filled(connection: duckdb.DuckDBPyConnection, folder: Path, listed: ListedTable) -> None:
    at = f"target.{listed.table}"
    columns = ", ".join(f"{_quoted(one.name)} {one.type}" for one in listed.columns)
    connection.execute(f"create table {at} ({columns})")
    if listed.files:
        rows = _read(listed.table, [folder / file.path for file in listed.files])
        connection.execute(f"insert into {at} {rows}").fetchall()
    ((rows,),) = connection.execute(f"select count(*) from {at}").fetchall()
    expected = sum(file.rows or 0 for file in listed.files)
    if rows != expected:
        name = f"{listed.schema}.{listed.name}"
        raise _damaged(folder, f"{DATABASE} is damaged, and the Parquet files of {name} have {rows} of {expected} rows")
    with database.transaction(connection):
        if listed.comment is not None:
            connection.execute(f"comment on table {at} is {literal(listed.comment)}")
        for column in listed.columns:
            if column.comment is not None:
                connection.execute(f"comment on column {at}.{_quoted(column.name)} is {literal(column.comment)}")


def _read(table: Table, paths: Collection[Path]) -> str:
    """A query of Parquet files with the table's own types."""
    typed = ", ".join(f"cast({_quoted(name)} as {kind}) as {_quoted(name)}" for name, kind in table.columns)
    listed = ", ".join(literal(path) for path in paths)
    return f"select {typed} from read_parquet([{listed}], hive_partitioning = false)"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# --- a publication without a manifest ---------------------------------------------------------------------------------


def _listed_anew(folder: Path, now: datetime) -> Manifest:
    """A manifest from the database, which has each date as it was published; files with other rows are written anew.

    For a publication from before manifests, and for one that lost its own. Reads all of its rows, once.
    """
    if not (folder / DATABASE).exists():
        raise _damaged(folder, f"{DATABASE} is missing, and there is no sound {publication_manifest.NAME}")
    files: dict[TableName, tuple[File, ...]] = {}
    try:
        with _snapshot(folder) as connection:
            labels = _labels(connection)
            tables = published_tables.tables(connection, "snapshot")
            tables["published", "publication"] = published_tables.publication_table(connection, "snapshot")
            for name, table in tables.items():
                files[name] = tuple(_sound_files(connection, folder, table, labels))
            months = []
            for month in cost_and_usage.months(connection, "snapshot"):
                fresh = _exported(connection, folder, None, month, labels)
                months.append(_put(folder, fresh, cost_and_usage.path_of(month).as_posix()))
            listed = publication_manifest.listed(connection, "snapshot", files)
    except duckdb.Error as refusal:
        words = " ".join(str(refusal).split())[:300]
        raise _damaged(
            folder, f"{DATABASE} cannot be read ({words}), and there is no sound {publication_manifest.NAME}"
        ) from refusal
    made = Manifest(folder.name, now, publication_manifest.file_of(folder, DATABASE), listed, tuple(months))
    publication_manifest.write(folder, made)
    logger.info("%s: its manifest was made from %s", folder, DATABASE)
    return made


def _sound_files(
    connection: duckdb.DuckDBPyConnection, folder: Path, table: Table, labels: dict[str, str]
) -> Iterator[File]:
    """The Parquet files of a table, each with the rows that the database has."""
    on = "date" if table.is_fine_grained else "cast(null as date)"
    by_date = " group by date" if table.is_fine_grained else ""
    rows = connection.execute(
        f"select {on}, count(*), {ROWS_HASHED} from snapshot.{table} as t{by_date} order by 1"
    ).fetchall()
    for at, count, hashed in rows:
        path = published_files.parquet_path(table, at)
        why = _other_rows(connection, folder / path, table, hashed)
        if why is None:
            yield publication_manifest.file_of(folder, path.as_posix(), count, at)
            continue
        yield _put(folder, _exported(connection, folder, table, at, labels), path.as_posix())
        logger.warning("%s: %s; it was written anew from %s of the same publication", folder / path, why, DATABASE)


def _other_rows(connection: duckdb.DuckDBPyConnection, path: Path, table: Table, hashed: str) -> str | None:
    """What is wrong with a Parquet file that should have the rows with this hash; None where it has them."""
    if not path.exists():
        return "it is missing"
    try:
        found = connection.execute(f"select {ROWS_HASHED} from ({_read(table, [path])}) as t").fetchall()
    except duckdb.Error:
        return "it cannot be read"
    return None if found == [(hashed,)] else f"its rows are not those of {DATABASE}"
