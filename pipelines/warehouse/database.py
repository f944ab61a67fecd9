"""The one DuckDB file of a fleet: how it is opened, and who may write it.

Add here what every connection needs. Keep out tables and queries: each module owns its own.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
from filelock import FileLock, Timeout

from pipelines.warehouse.refusals import QuestionError, busy

LOCK_TIMEOUT_SECONDS = 900.0  # a first backfill of a big fleet may hold the file for minutes

logger = logging.getLogger(__name__)


class WarehouseBusy(Exception):
    """Another process kept the warehouse for longer than we wait; the message names it."""


def literal(text: object) -> str:
    """Text as an SQL literal, with its quotes."""
    return "'" + str(text).replace("'", "''") + "'"


@contextmanager
def registered(connection: duckdb.DuckDBPyConnection, **tables: pa.Table) -> Iterator[None]:
    """Arrow tables as views of these names for the length of a `with` block."""
    for name, table in tables.items():
        connection.register(name, table)
    try:
        yield
    finally:
        for name in tables:
            connection.unregister(name)


@contextmanager
def transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """What the `with` block writes, all of it or, where it raises, nothing."""
    connection.execute("begin")
    try:
        yield
        connection.execute("commit")
    except BaseException:
        connection.execute("rollback")
        raise


def tables(connection: duckdb.DuckDBPyConnection, schema: str, of: str | None = None) -> set[str]:
    """Names of the tables of a schema of the connection's own database, or of another that is attached; no views."""
    query = "select table_name from duckdb_tables() where schema_name = ? and database_name = "
    query += "coalesce(?, current_database())"
    return {row[0] for row in connection.execute(query, [schema, of]).fetchall()}


def lock_timeout_seconds() -> float:
    """How long a writer waits for the file: WATTLEDGER_LOCK_SECONDS, else 900."""
    seconds = os.environ.get("WATTLEDGER_LOCK_SECONDS") or LOCK_TIMEOUT_SECONDS
    try:
        return float(seconds)
    except ValueError:
        raise QuestionError(f"WATTLEDGER_LOCK_SECONDS: got {seconds!r}, expected seconds such as 900") from None


def connect(
    path: Path | str, read_only: bool = False, patience_seconds: float | None = None
) -> duckdb.DuckDBPyConnection:
    """A connection in UTC, whatever the machine's time zone; close it before dbt starts.

    WATTLEDGER_MEMORY_LIMIT, WATTLEDGER_THREADS and WATTLEDGER_TEMP_DIRECTORY bound it. While another process has the
    file open (a shell, a BI tool) it waits `patience_seconds`, by default as long as for the lock, then raises
    WarehouseBusy with DuckDB's own words.
    """
    patience = lock_timeout_seconds() if patience_seconds is None else patience_seconds
    deadline = time.monotonic() + patience
    is_logged = False
    while True:
        try:
            connection = duckdb.connect(str(path), read_only=read_only)
            break
        except duckdb.IOException as refusal:
            if "lock" not in str(refusal).lower():
                raise
            # With the refusal as its cause, the message would be repeated wherever the innermost cause is shown.
            message = busy(path, str(refusal))
            if time.monotonic() >= deadline:
                raise WarehouseBusy(f"{message} (waited {patience:g} s)") from None
            if not is_logged:
                logger.info("waiting up to %g s: %s", patience, message)
                is_logged = True
            time.sleep(0.2)
    # As a connection option this would need the icu extension before it is loaded.
    connection.execute("set TimeZone = 'UTC'")
    for setting, variable in (
        ("memory_limit", "WATTLEDGER_MEMORY_LIMIT"),
        ("threads", "WATTLEDGER_THREADS"),
        ("temp_directory", "WATTLEDGER_TEMP_DIRECTORY"),
    ):
        value = os.environ.get(variable)
        if value:
            try:
                connection.execute(f"set {setting} = {literal(value)}")
            except duckdb.Error as refusal:
                connection.close()
                raise QuestionError(f"{variable}={value}: {' '.join(str(refusal).split())}") from None
    # Raw rows carry their time; keeping arrival order would only cost memory.
    connection.execute("set preserve_insertion_order = false")
    return connection


@contextmanager
def one_thread(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """DuckDB works with one thread for the `with` block, which ends outside of a transaction.

    For rows that arrive in small tables: two threads cut each of them into row groups that are not full, and write them
    again at the checkpoint. 80 million samples took 13.4 processor seconds and 445 MB with two threads, 12.7 and 400
    with one.
    """
    threads = connection.execute("select current_setting('threads')").fetchall()[0][0]
    connection.execute("set threads = 1")
    try:
        yield
    finally:
        connection.execute(f"set threads = {threads}")


@contextmanager
def writing(path: Path, purpose: str) -> Iterator[None]:
    """The right to write the warehouse at `path`, held for the `with` block.

    The pool of dagster.yaml lets one run write at a time; this file lock is the second guard, for runs that no daemon
    queued (`wattledger run` beside `wattledger dev`). WarehouseBusy after `lock_timeout_seconds`, naming the holder.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(f"{path}.lock")
    noted = _holder_file(path)
    patience = lock_timeout_seconds()
    try:
        lock.acquire(timeout=0)
    except Timeout:
        logger.info("waiting up to %g s: %s is being written by %s", patience, path, holder(path))
        try:
            lock.acquire(timeout=patience)
        except Timeout:
            raise WarehouseBusy(
                f"{path} is being written by {holder(path)}; waited {patience:g} s. Run again when that is done, or"
                " set WATTLEDGER_LOCK_SECONDS to wait longer."
            ) from None
    try:
        since = datetime.now(UTC).isoformat(timespec="seconds")
        own = {"pid": os.getpid(), "host": socket.gethostname(), "purpose": purpose, "since": since}
        noted.write_text(json.dumps(own))
        yield
    finally:
        noted.unlink(missing_ok=True)
        lock.release()


def writer(path: Path) -> str | None:
    """The process that is writing the warehouse at `path` at this moment; None where there is none."""
    if not path.parent.exists():
        return None
    lock = FileLock(f"{path}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return holder(path)
    lock.release()
    return None


def holder(path: Path) -> str:
    """Who writes the warehouse at `path`, as far as it noted itself."""
    try:
        held = json.loads(_holder_file(path).read_text())
        return f"process {held['pid']} on {held['host']} ({held['purpose']}, since {held['since']})"
    except (OSError, ValueError, KeyError):
        return "another process"


def _holder_file(path: Path) -> Path:
    return Path(f"{path}.holder.json")
