"""Every place that may hold a tenant's name, and how `erase` takes it out there.

`erase` does what the list has, and its test fails for a file in a fleet's folder that no place of the list covers. Add
a place here when something new is written there. Keep out what is beyond the ledger's reach: SECURITY.md names it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock

from pipelines.fleet.fleet_file import Fleet
from pipelines.publishing.tenant_erasure import Started
from pipelines.receipts import receipt_files, tenant_statement
from pipelines.today import ticks
from pipelines.warehouse import database


class Place(NamedTuple):
    """Names in the fleet's folder (with `*` for any letters), or a copy elsewhere; `erase` is what is done there
    after the publication was made again, None where nothing is left to do or no name is ever written."""

    where: str
    how: str
    erase: Callable[[Fleet, Started], object] | None = None


def _statements_removed(fleet: Fleet, started: Started) -> None:
    for key in filter(None, (started.key, started.former_key)):
        for page in tenant_statement.folder_of(fleet).glob(f"{key}_*"):
            page.unlink()


def _receipts_rekeyed(fleet: Fleet, started: Started) -> None:
    if started.former_key is not None:
        receipt_files.rekey(fleet, started.former_key, started.key)


def _tick_removed(fleet: Fleet, _: Started) -> None:
    """The tick's own warehouse is made anew by the next tick; one that is being made is waited for."""
    work = fleet.root / ticks.WORK
    if not work.exists():
        return
    with FileLock(work / ticks.LOCK, timeout=database.lock_timeout_seconds()):
        for path in work.iterdir():
            if path.name != ticks.LOCK:
                _removed(path)


def _removed(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


COPY_IN_POSTGRESQL = "publication.postgresql"
COPY_IN_A_STORE = "publication.object_store"
PLACES = (
    Place("warehouse.duckdb*", "raw.tenant_names loses the name, and the file is written anew without free blocks"),
    Place("published*", "a publication is made without the name, and all older ones are removed"),
    Place(COPY_IN_POSTGRESQL, "the load replaces the rows; then it vacuums and analyzes the tables and the statistics"),
    Place(COPY_IN_A_STORE, "the upload removes what is older than the erasure"),
    Place("statements", "the tenant's pages are removed", _statements_removed),
    Place("receipts", "an older version's name becomes the key", _receipts_rekeyed),
    Place(".today", "it is removed; the next tick makes it again", _tick_removed),
    Place("fleet_file", "has a path"),
    Place("*.lock", "has a process"),
    Place("today.duckdb", "has no tenant: figures are of models"),
    Place("exports", "has no tenant: prices are of models"),
    Place("alarms.json", "has no tenant"),
    Place("dbt", "has no row: statements and the names of tables"),
    Place("logs", "has no row of a request; an error quotes no value of one"),
    Place(".dagster*", "has no row of a request"),
)
