"""What may go of a fleet's data, layer by layer, by what the fleet file's `retention` states; and removing it.

Add here what a layer lets go. Keep out how it is shown (the command `prune`) and when a run does it (`upkeep_asset`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from pathlib import Path

import dagster as dg
import duckdb

from pipelines.fleet.fleet_file import Fleet
from pipelines.fleet.places import DBT_PROJECT
from pipelines.publishing import retention
from pipelines.upkeep import dagster_history, layers, raw_removal
from pipelines.warehouse import compaction, contracts, database, disk_room, sealed_dates
from pipelines.warehouse.raw_tables import create_tables


@dataclass(frozen=True)
class Layer:
    """What a layer has and lets go. `rule` is what `retention` states of it, None where nothing; `goes` what goes, in
    words, empty where nothing does; `refused` why something stays that the rule lets go."""

    name: str
    rule: str | None
    goes: str = ""
    frees_bytes: int = 0
    refused: str | None = None
    remove: Callable[[], None] = field(default=lambda: None, compare=False)


@dataclass(frozen=True)
class History:
    """Dagster's history: its instance, the folder, and whether the folder's files are ours to tidy."""

    instance: dg.DagsterInstance
    home: Path
    is_ours: bool


def looked(
    connection: duckdb.DuckDBPyConnection, fleet: Fleet, history: History, now: datetime, chosen: Collection[str]
) -> list[Layer]:
    """What the chosen layers would give up now. Nothing is removed."""
    found = {
        layers.RAW: lambda: _raw(connection, fleet),
        layers.INTERMEDIATE: lambda: _intermediate(connection, fleet),
        layers.PUBLICATIONS: lambda: _publications(fleet, now),
        layers.HISTORY: lambda: _history(fleet, history, now),
        layers.LOGS: lambda: _logs(fleet, now),
        layers.SPOOLS: lambda: _spools(connection, fleet, now),
    }
    return [found[name]() for name in layers.LAYERS if name in chosen]


def compacted(fleet: Fleet, *, is_asked: bool) -> int:
    """Write the warehouse anew where half of it is free, or, where a person asked, where anything of note is; returns
    the bytes that it is smaller by. TooLittleRoom where the disk has no room for the copy. The caller holds the right
    to write, and no connection."""
    compaction.remove_unfinished(fleet.warehouse)
    with database.connect(fleet.warehouse) as connection:
        create_tables(connection)
        connection.execute("checkpoint")
        blocks = compaction.blocks_of(connection)
    is_of_note = is_asked and blocks.free_bytes >= compaction.LEAST_BYTES
    if not (blocks.is_worth_it or is_of_note):
        return 0
    disk_room.require(fleet.root, blocks.used_bytes, f"writing {fleet.warehouse} anew without its free blocks")
    return compaction.compact(fleet.warehouse)


def _raw(connection: duckdb.DuckDBPyConnection, fleet: Fleet) -> Layer:
    days = fleet.retention.raw_days
    if days is None:
        return Layer(layers.RAW, None)
    rule = f"raw_days: {days}"
    if fleet.landing.engine == "spark":
        return Layer(layers.RAW, rule, refused="with engine: spark every date's raw stays, as no date can be sealed")
    plan = raw_removal.planned(connection, fleet, contracts.variable(DBT_PROJECT, "curve_lookback_days"))
    if plan is None or not plan.dates:
        return Layer(layers.RAW, rule, refused=plan.refused if plan else None)
    goes = f"samples and requests of {_span(plan.dates)}; {plan.open_date} is the first date that can be booked again"

    def remove() -> None:
        raw_removal.remove(connection, fleet, plan)

    return Layer(layers.RAW, rule, goes, plan.bytes, plan.refused, remove)


def _intermediate(connection: duckdb.DuckDBPyConnection, fleet: Fleet) -> Layer:
    if fleet.retention.intermediate:
        return Layer(layers.INTERMEDIATE, None)
    rows = connection.execute(
        "select schema_name, table_name, estimated_size from duckdb_tables()"
        " where database_name = current_database() and list_contains(?, schema_name) order by all",
        [list(layers.STEPS)],
    ).fetchall()
    filled = [(schema, table) for schema, table, size in rows if size]
    size = sum(raw_removal.table_bytes(connection, schema, table) for schema, table in filled)

    def remove() -> None:
        with database.transaction(connection):
            for schema, table in filled:
                connection.execute(f'truncate {schema}."{table}"').fetchall()

    goes = f"the rows of {len(filled)} tables between raw and the marts: of the last run's dates" if filled else ""
    return Layer(layers.INTERMEDIATE, "intermediate: false", goes, size if filled else 0, remove=remove)


def _publications(fleet: Fleet, now: datetime) -> Layer:
    """These go with each publication, whether anything is stated or not."""
    kept = fleet.retention.publications or retention.KEPT
    rule = f"publications: {kept}, and what was replaced within {retention.kept_hours():g} h"
    if not fleet.published.is_dir():
        return Layer(layers.PUBLICATIONS, rule)
    old = retention.forgettable(fleet.published, fleet.latest_publication, now, kept)

    def remove() -> None:
        with database.writing(fleet.published, "prune"):
            for path in old:
                retention.remove(path)

    goes = f"{len(old)} publications, the newest of {old[-1].name[:8]}" if old else ""
    return Layer(layers.PUBLICATIONS, rule, goes, disk_room.freed_by(old), remove=remove)


def _history(fleet: Fleet, history: History, now: datetime) -> Layer:
    days = fleet.retention.history_days
    if days is None:
        return Layer(layers.HISTORY, None)
    home = history.home if history.is_ours else None
    old = dagster_history.removable(history.instance, fleet, days, now)
    old = old._replace(logs=dagster_history.with_logs(home, old.logs) if home else [])
    parts = []
    if old.runs:
        parts.append(f"{len(old.runs)} runs of Dagster; the newest of every date stay")
    if old.logs:
        parts.append(f"what {len(old.logs)} runs logged; what they made of their dates stays")
    return Layer(
        layers.HISTORY,
        f"history_days: {days}",
        ", and ".join(parts),
        dagster_history.bytes_of_runs(history.home, (*old.runs, *old.logs)),
        remove=lambda: dagster_history.remove(history.instance, old, home),
    )


def _logs(fleet: Fleet, now: datetime) -> Layer:
    days = fleet.retention.log_days
    if days is None:
        return Layer(layers.LOGS, None)
    limit = (now - timedelta(days=days)).timestamp()
    folder = fleet.root / "logs"
    old = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_mtime < limit]

    def remove() -> None:
        for path in old:
            path.unlink(missing_ok=True)

    goes = f"{len(old)} files" if old else ""
    return Layer(layers.LOGS, f"log_days: {days}", goes, disk_room.freed_by(old), remove=remove)


def _spools(connection: duckdb.DuckDBPyConnection, fleet: Fleet, now: datetime) -> Layer:
    """Files of dates that no run lands: sealed ones, and those outside the period."""
    days = fleet.retention.spool_days
    if days is None:
        return Layer(layers.SPOOLS, None)
    first = max(fleet.period.start, sealed_dates.open_from(connection))
    limit = now.date() - timedelta(days=days)
    found = [
        (spool, path, on)
        for _, spool in layers.spools(fleet)
        for on in spool.days()
        if on < limit and (on < first or (fleet.period.end is not None and on >= fleet.period.end))
        for path in spool.files(on)
    ]
    size = sum(int(spool.fs.size(path) or 0) for spool, path, _ in found)

    def remove() -> None:
        for spool, path, _ in found:
            spool.remove(path)

    dates = sorted({on for _, _, on in found})
    goes = f"{len(found)} files of {_span(dates)}, which no run lands" if found else ""
    return Layer(layers.SPOOLS, f"spool_days: {days}", goes, size, remove=remove)


def _span(dates: Collection[date]) -> str:
    return f"{min(dates)} to {max(dates)}" if len(dates) > 1 else f"{min(dates)}"


def lines(found: Collection[Layer]) -> Iterator[str]:
    """What goes and what is refused, a line each."""
    for layer in found:
        if layer.goes:
            yield f"{layer.name}: {layer.goes} ({disk_room.shown(layer.frees_bytes)})"
        if layer.refused:
            yield f"{layer.name}: {layer.refused}"
