"""What tests make of the project's code alone, kept from one test run to the next.

Making it takes seconds of dbt, and each worker process and each test run would make it again. It is made once for each
state of the code that it comes from. Keep out what a fleet or a test gives.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path

from filelock import FileLock

from pipelines.fleet.places import DBT_PROJECT, PROJECT

KEPT = DBT_PROJECT / "target" / "kept_by_tests"
USED_SECONDS = 1800


def kept(name: str, make: Callable[[Path], None]) -> Path:
    """The folder in which `make` wrote, once for this state of the code; nothing writes there afterwards."""
    of_this_code = KEPT / _digest()
    of_this_code.mkdir(parents=True, exist_ok=True)
    with FileLock(KEPT / "lock"):
        os.utime(of_this_code)
        for other in KEPT.iterdir():
            # Another run of the tests, which started before a change, may still read it.
            if other.is_dir() and time.time() - other.stat().st_mtime > USED_SECONDS:
                shutil.rmtree(other)
        folder, began = of_this_code / name, of_this_code / f"{name}.began"
        if not folder.exists():
            shutil.rmtree(began, ignore_errors=True)
            began.mkdir()
            make(began)
            began.rename(folder)
    return folder


@cache
def _digest() -> str:
    """Of everything from which dbt and DuckDB make a warehouse."""
    digest = hashlib.blake2b(digest_size=10)
    generated = {DBT_PROJECT / name for name in ("target", "logs", "dbt_packages")}
    folders = [path for path in sorted(DBT_PROJECT.iterdir()) if path not in generated and path.name != ".user.yml"]
    folders += [PROJECT / "pipelines" / "warehouse", PROJECT / "pipelines" / "booking", Path(__file__).parent]
    for top in folders:
        for path in [top, *sorted(top.rglob("*"))]:
            if path.suffix in (".sql", ".yml", ".csv") or (path.suffix == ".py" and _is_read(path)):
                digest.update(f"{path}\0".encode() + path.read_bytes() + b"\0")
    for package in ("dbt-core", "dbt-duckdb", "duckdb"):
        digest.update(version(package).encode())
    return digest.hexdigest()


def _is_read(path: Path) -> bool:
    """Of the tests, only those that make what is kept."""
    return path.parent != Path(__file__).parent or path.name in ("books.py", "kept.py", "replay.py")
