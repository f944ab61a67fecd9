"""The layers of a fleet's data: how many bytes each takes now, and what each run has left of it.

Add a layer here. Keep out what may be removed of one (`pruning`).
"""

from __future__ import annotations

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


def measured(connection: duckdb.DuckDBPyConnection, fleet: Fleet, home: Path) -> dict[str, int]:
    """Bytes of each layer; `home` is the folder of Dagster's instance. Blocks that nothing is in are a layer too."""
    blocks = compaction.blocks_of(connection)
    raw = sum(raw_removal.table_bytes(connection, "raw", table) for table in _tables(connection, "raw"))
    steps = sum(
        raw_removal.table_bytes(connection, schema, table) for schema in STEPS for table in _tables(connection, schema)
    )
    lake = _lake_bytes(fleet)
    found = {
        RAW: raw + lake,
        INTERMEDIATE: steps,
        MARTS: max(blocks.used_bytes - raw - steps, 0),
        FREE: blocks.free_bytes,
        PUBLICATIONS: disk_room.bytes_of([fleet.published]),
        HISTORY: disk_room.bytes_of([home]),
        LOGS: disk_room.bytes_of([fleet.root / "logs"]),
        SPOOLS: sum(_spool_bytes(spool) for _, spool in spools(fleet)),
    }
    counted = [fleet.warehouse, fleet.published, fleet.root / "logs"]
    others = [path for path in fleet.root.iterdir() if path not in counted and path != home]
    return {**found, OTHER: disk_room.bytes_of(others)}


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
