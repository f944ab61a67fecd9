"""A backup of a fleet: its warehouse, what is published and its fleet file, copied while nothing writes them.

    <fleet>-<UTC time>/backup.json            what it holds, with the warehouse's SHA-256
    <fleet>-<UTC time>/<the fleet file>
    <fleet>-<UTC time>/<fleet>/               the data folder as it is restored: warehouse.duckdb, published/

Dagster's history is left out, which holds nothing of the ledger, and so is a lake, which is copied like any folder.
Add here what a restored fleet would lack. Keep out what is printed.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path

from collectors.durable_files import sync_folder, write_whole
from pipelines.fleet.fleet_file import Fleet
from pipelines.publishing import publication_manifest, retention
from pipelines.warehouse import database, disk_room, settings
from pipelines.warehouse.raw_tables import create_tables
from pipelines.warehouse.refusals import QuestionError
from pipelines.warehouse.settings import code_version

FACTS = "backup.json"


class BackupDiffers(Exception):
    """What was read back is not what was written."""


@dataclass(frozen=True)
class Backup:
    """A backup that was made: its folder, its bytes, and the dates that its warehouse has booked."""

    folder: Path
    bytes: int
    dates: tuple[date, ...]


def back_up(fleet: Fleet, target: Path, now: datetime) -> Backup:
    """Copy the fleet into a new folder below `target`, and read the copy back. Nothing is left of one that fails.

    QuestionError where there is nothing to copy, or the target is inside the fleet's own folder; TooLittleRoom where
    the disk has no room.
    """
    if not fleet.warehouse.exists():
        raise QuestionError(f"fleet {fleet.fleet} has no warehouse yet: run `wattledger run` first")
    target = target.expanduser().absolute()
    if target.resolve().is_relative_to(fleet.root.resolve()):
        raise QuestionError(f"{target}: expected a folder outside {fleet.root}, best on another disk")
    target.mkdir(parents=True, exist_ok=True)
    name = f"{fleet.fleet}-{now:%Y%m%dT%H%M%SZ}"
    building = target / f".building-{name}"
    if (target / name).exists():
        raise QuestionError(f"{target / name} is there already; a second backup within a second is none")
    try:
        made = _copied(fleet, building, now)
        retention.sync(building)
        building.rename(target / name)
        sync_folder(target)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return Backup(target / name, disk_room.bytes_of([target / name]), made)


def _copied(fleet: Fleet, building: Path, now: datetime) -> tuple[date, ...]:
    data = building / fleet.fleet
    with database.writing(fleet.warehouse, "backup"):
        with database.connect(fleet.warehouse) as connection:
            create_tables(connection)
            dates = settings.booked_dates(connection)
            connection.execute("checkpoint")  # the file alone is whole then, without its write-ahead log
        for killed in building.parent.glob(f".building-{fleet.fleet}-*"):
            shutil.rmtree(killed)  # of a backup that was killed: another one of this fleet would hold the lock
        latest = fleet.latest_publication
        needed = disk_room.bytes_of([fleet.warehouse, *([latest] if latest else [])])
        disk_room.require(building.parent, needed, f"the backup of fleet {fleet.fleet}")
        data.mkdir(parents=True)
        digest = publication_manifest.copied(fleet.warehouse, data / fleet.warehouse.name)
        if latest is not None:
            # A publication finds changed files by their time, which copy2 keeps.
            shutil.copytree(latest, data / "published" / latest.name, symlinks=True, copy_function=shutil.copy2)
            for link in fleet.published.iterdir():
                if link.is_symlink():
                    (data / "published" / link.name).symlink_to(link.readlink())
    shutil.copyfile(fleet.path, building / fleet.path.name)
    copy = data / fleet.warehouse.name
    if publication_manifest.sha256_of(copy) != digest:
        raise BackupDiffers(f"{copy}: what was read back is not what was written. Is the disk failing?")
    with database.connect(copy, read_only=True) as connection:
        if settings.booked_dates(connection) != dates:
            raise BackupDiffers(f"{copy}: it has other dates than the warehouse")
    facts = {
        "fleet": fleet.fleet,
        "made_at": now.isoformat(timespec="seconds"),
        "code_version": code_version(),
        "first_date": str(dates[0]) if dates else None,
        "last_date": str(dates[-1]) if dates else None,
        "publication_id": latest.name if latest else None,
        "warehouse_sha256": digest,
    }
    write_whole(building / FACTS, (json.dumps(facts, indent=1) + "\n").encode())
    return tuple(dates)
