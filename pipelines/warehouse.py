"""The one DuckDB file of a fleet: how it is opened, and who may write it.

Add here what every connection needs. Keep out tables and queries: each module owns its own.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import duckdb
from filelock import FileLock, Timeout

LOCK_TIMEOUT_SECONDS = 900.0  # a first backfill of a big fleet may hold the file for minutes


class WarehouseBusy(Exception):
    """Somebody else kept the warehouse for longer than we wait; the message says who."""


def lock_timeout_seconds() -> float:
    """How long a writer waits for the file: WATTLEDGER_LOCK_SECONDS, else 900."""
    return float(os.environ.get("WATTLEDGER_LOCK_SECONDS", LOCK_TIMEOUT_SECONDS))


def connect(path: Path | str, read_only: bool = False) -> duckdb.DuckDBPyConnection:
    """A connection in UTC, whatever the machine's time zone; close it before dbt starts.

    WATTLEDGER_MEMORY_LIMIT, WATTLEDGER_THREADS and WATTLEDGER_TEMP_DIRECTORY bound it. While another process has the
    file open (a shell, a BI tool) it waits as long as for the lock, then raises WarehouseBusy with DuckDB's own words.
    """
    deadline = time.monotonic() + lock_timeout_seconds()
    while True:
        try:
            connection = duckdb.connect(str(path), read_only=read_only)
            break
        except duckdb.IOException as refusal:
            if "lock" not in str(refusal).lower():
                raise
            if time.monotonic() >= deadline:
                raise WarehouseBusy(f"{path} is open in another process: {refusal}") from refusal
            time.sleep(0.2)
    # As a connection option this would ask for the icu extension before it is loaded.
    connection.execute("set TimeZone = 'UTC'")
    for setting, variable in (
        ("memory_limit", "WATTLEDGER_MEMORY_LIMIT"),
        ("threads", "WATTLEDGER_THREADS"),
        ("temp_directory", "WATTLEDGER_TEMP_DIRECTORY"),
    ):
        value = os.environ.get(variable)
        if value:
            quoted = value.replace("'", "''")
            connection.execute(f"set {setting} = '{quoted}'")
    # Raw rows carry their time; keeping arrival order would only cost memory.
    connection.execute("set preserve_insertion_order = false")
    return connection


@contextmanager
def writing(path: Path, purpose: str) -> Iterator[None]:
    """The right to write the warehouse at `path`, held for the `with` block.

    The pool of dagster.yaml lets one run write at a time; this file lock is the second guard, for runs that no daemon
    queued (`make run` beside `make dev`). WarehouseBusy after `lock_timeout_seconds`, naming the holder.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(f"{path}.lock")
    holder = Path(f"{path}.holder.json")
    try:
        lock.acquire(timeout=lock_timeout_seconds())
    except Timeout as refusal:
        raise WarehouseBusy(f"{path} is being written by {_holder(holder)}; waited {lock.timeout:g} s") from refusal
    try:
        holder.write_text(
            json.dumps(
                {
                    "pid": os.getpid(),
                    "host": socket.gethostname(),
                    "purpose": purpose,
                    "since": datetime.now(UTC).isoformat(timespec="seconds"),
                }
            )
        )
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def _holder(path: Path) -> str:
    try:
        held = json.loads(path.read_text())
        return f"process {held['pid']} on {held['host']} ({held['purpose']}, since {held['since']})"
    except (OSError, ValueError, KeyError):
        return "another process"
