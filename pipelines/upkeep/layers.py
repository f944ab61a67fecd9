"""The layers of a fleet's data: how many bytes each takes now, and what each run has left of it.

Add a layer here. Keep out what may be removed of one (`pruning`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import duckdb

from collectors import file_systems
from collectors.devices.spool import Spool
from pipelines.fleet.fleet_file import Fleet
from pipelines.fleet.sources import SpoolSource
from pipelines.upkeep import raw_removal
from pipelines.warehouse import compaction, disk_room

RAW, INTERMEDIATE, PUBLICATIONS = "raw", "intermediate", "publications"
HISTORY, LOGS, SPOOLS = "history", "logs", "spools"
# What `prune` knows, in the order in which a token passes through them.
LAYERS = (RAW, INTERMEDIATE, PUBLICATIONS, HISTORY, LOGS, SPOOLS)
IN_WAREHOUSE = frozenset({RAW, INTERMEDIATE})
# Of the warehouse's schemas, which hold the dates of the last run alone.
STEPS = ("staging", "intermediate")
# What else there is: the marts and all small tables, blocks of the warehouse that hold nothing, the rest of the folder.
MARTS, FREE, OTHER = "marts", "free in the warehouse", "other"
# The warehouse as one file, where it is not opened; what the running day takes.
WAREHOUSE, TODAY = "warehouse", "today"
# Names in the fleet's folder, or the beginning of one.
_FILES = {
    "warehouse.duckdb": WAREHOUSE,
    "published": PUBLICATIONS,
    "logs": LOGS,
    "today.duckdb": TODAY,
    ".today": TODAY,
}


def home_of(fleet: Fleet) -> Path:
    """The folder of the Dagster instance that this process uses."""
    return Path(os.environ.get("DAGSTER_HOME") or fleet.root / ".dagster")


def measured(connection: duckdb.DuckDBPyConnection, fleet: Fleet, home: Path) -> dict[str, int]:
    """Bytes of each layer; `home` is the folder of Dagster's instance. Blocks that nothing is in are a layer too."""
    blocks = compaction.blocks_of(connection)
    raw = sum(raw_removal.table_bytes(connection, "raw", table) for table in _tables(connection, "raw"))
    steps = sum(
        raw_removal.table_bytes(connection, schema, table) for schema in STEPS for table in _tables(connection, schema)
    )
    inside = {
        RAW: raw + _lake_bytes(fleet),
        INTERMEDIATE: steps,
        MARTS: max(blocks.used_bytes - raw - steps, 0),
        FREE: blocks.free_bytes,
    }
    beside = on_disk(fleet, home)
    del beside[WAREHOUSE]
    other = beside.pop(OTHER)
    spooled = sum(_spool_bytes(spool) for _, spool in spools(fleet))
    return {**inside, **beside, SPOOLS: spooled, OTHER: other}


def on_disk(fleet: Fleet, home: Path) -> dict[str, int]:
    """Bytes of the files of the fleet's folder, and of Dagster's history in `home`, by layer: what can be seen while
    another process writes the warehouse."""
    paths: dict[str, list[Path]] = {layer: [] for layer in (*_FILES.values(), OTHER)}
    for path in fleet.root.iterdir() if fleet.root.is_dir() else ():
        if path != home:
            layer = next((layer for name, layer in _FILES.items() if path.name.startswith(name)), OTHER)
            paths[layer].append(path)
    return {**{layer: disk_room.bytes_of(at) for layer, at in paths.items()}, HISTORY: disk_room.bytes_of([home])}


def note(connection: duckdb.DuckDBPyConnection, run_id: str, at: datetime, found: dict[str, int]) -> None:
    """Add what a run has left to raw.disk_use."""
    connection.executemany(
        "insert into raw.disk_use values (?, ?, ?, ?)", [[at, run_id, layer, size] for layer, size in found.items()]
    )


def spools(fleet: Fleet) -> Iterator[tuple[str, Spool]]:
    """The spools of the fleet that can be reached, each with its source's name."""
    for source in fleet.sources:
        if isinstance(source, SpoolSource):
            with suppress(Exception):  # each store raises its own kinds; the landing reports it
                yield source.name, Spool(source.path, fleet.landing.limits.answer_seconds)


def _tables(connection: duckdb.DuckDBPyConnection, schema: str) -> list[str]:
    rows = connection.execute(
        "select table_name from duckdb_tables() where database_name = current_database() and schema_name = ?", [schema]
    ).fetchall()
    return [name for (name,) in rows]


def _lake_bytes(fleet: Fleet) -> int:
    """Bytes of a lake in a folder; 0 for one that a server holds, which would be asked for each file."""
    path = fleet.landing.path
    if path is None or file_systems.is_remote(path):
        return 0
    return disk_room.bytes_of([Path(path)])


def _spool_bytes(spool: Spool) -> int:
    return disk_room.bytes_of([Path(spool.root)]) if spool.is_local else 0
