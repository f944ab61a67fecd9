"""The publication in an object store: files that are new, one commit per table, and a manifest that names them all.

Files are never changed and only deleted when no publication that is kept has them, so a reader who holds a manifest
reads one publication, whatever is published meanwhile; `latest.json` is written last
(docs/decisions/README.md, 0025). Add here what is written, and when. Keep out what a file holds
(`table_files`) and how the store is reached (`place`).

    latest.json                                         each table's files, columns and version: one publication
    publications/<publication_id>.json                  the same of each publication that is kept
    tables/<schema>/<table>/<span>-<…>.parquet          its rows
    tables/<schema>/<table>/_delta_log/                 its Delta log, unless `tables` is `parquet`
    publishers/<token>.json                             who publishes at this moment
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from collectors.samples import url_without_secrets
from pipelines.fleet.fleet_file import Fleet
from pipelines.fleet.targets.publication_targets import ObjectStoreTarget
from pipelines.publishing import snapshots
from pipelines.publishing.object_store import delta_tables, manifests, table_files
from pipelines.publishing.object_store.manifests import LATEST, PUBLICATIONS, TABLES, Manifest, StoredTable
from pipelines.publishing.object_store.place import ObjectStoreError, Place, Turn, taking_turns
from pipelines.publishing.object_store.table_files import Wanted
from pipelines.publishing.restoring import PublicationDamaged
from pipelines.publishing.retention import KEPT
from pipelines.publishing.snapshots import Snapshot
from pipelines.warehouse import database, step_deadline

# A store that takes 30 ms for a request is asked for several tables at a time.
TABLES_AT_ONCE = 8

logger = logging.getLogger(__name__)


@dataclass
class Stored:
    """What one run changed in the store: rows and bytes per table, and publications that were deleted."""

    publication_id: str
    place: str
    previous_id: str | None = None
    rows: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    files: int = 0
    forgotten: list[str] = field(default_factory=list)
    seconds: float = 0.0


def publish(fleet: Fleet, target: ObjectStoreTarget, now: datetime | None = None) -> Stored | None:
    """Bring the store up to the fleet's current publication, whatever it has missed; None before the first one.

    ObjectStoreError where the store is away or refuses; its readers then have the old publication, whole.
    """
    folder = fleet.latest_publication
    if folder is None:
        return None
    began = time.monotonic()
    try:
        if target.tables == "delta":
            delta_tables.check_installed()
        place = Place(target.url)
        with (
            snapshots.opened(fleet.published, folder) as snapshot,
            taking_turns(place, database.lock_timeout_seconds()) as turn,
        ):
            done = _publish(snapshot, place, turn, target, now or datetime.now(UTC))
    except (ObjectStoreError, PublicationDamaged) as refusal:
        raise ObjectStoreError(
            f"publication.object_store: {refusal}. The snapshot {folder.name} is published; the object store keeps what"
            " it has, and the next run writes all that is missing"
        ) from refusal
    done.seconds = time.monotonic() - began
    return done


def publish_within_limits(fleet: Fleet, target: ObjectStoreTarget) -> Stored | None:
    """The same in a process of its own, which ends at `limits.step_seconds`: ObjectStoreError then too."""
    seconds = target.limits.step_seconds
    try:
        return step_deadline.within(seconds, publish, fleet, target)
    except step_deadline.StepTookTooLong:
        raise ObjectStoreError(
            f"publication.object_store: {url_without_secrets(target.url)}: not done within {seconds:g} s, so the upload"
            " was ended and the object store keeps what it has. Look whether the store answers; if the upload is that"
            " large, raise publication.object_store.limits.step_seconds"
        ) from None


def _publish(snapshot: Snapshot, place: Place, turn: Turn, target: ObjectStoreTarget, now: datetime) -> Stored:
    previous = manifests.read(place, LATEST)
    if previous is not None:
        _check_is_older(previous, snapshot, place)
    done = Stored(snapshot.publication_id, place.shown, previous.publication_id if previous else None)
    present = place.sizes(TABLES)
    wanted = table_files.wanted_tables(snapshot, previous.tables if previous else {})
    with (
        tempfile.TemporaryDirectory(prefix="wattledger-object-store-") as name,
        ThreadPoolExecutor(TABLES_AT_ONCE) as pool,
    ):
        folder = Path(name)
        uploaded = list(pool.map(lambda one: _with_files(snapshot, place, one, present, folder), wanted))
        turn.confirm()
        if target.tables == "delta":
            uploaded = list(
                pool.map(
                    lambda one: replace(
                        one,
                        delta_version=delta_tables.commit(place, one, snapshot.publication_id, target.keep_days),
                    ),
                    uploaded,
                )
            )
        else:
            uploaded = [replace(one, delta_version=None) for one in uploaded]
    made = Manifest(_publication_row(snapshot), {(one.schema, one.name): one for one in uploaded}, now)
    _note_changes(made, previous, done)
    at = manifests.path_of(made.publication_id)
    if made != previous or at not in place.files(PUBLICATIONS):
        turn.confirm()
        payload = made.to_json()
        place.put(at, payload)
        place.put(LATEST, payload)
    done.forgotten = _forget_old(
        place, made, present, now - timedelta(days=target.keep_days), made.publication.get("tenant_erased_at")
    )
    return done


def _check_is_older(previous: Manifest, snapshot: Snapshot, place: Place) -> None:
    if previous.publication["fleet"] != snapshot.fleet:
        raise ObjectStoreError(
            f"{place.shown}: it holds the fleet {previous.publication['fleet']!r}, expected {snapshot.fleet!r}. Give"
            " this fleet its own prefix: publication.object_store.url"
        )
    if previous.published_at > snapshot.published_at:
        raise ObjectStoreError(
            f"{place.shown}: it has the later publication {previous.publication_id}, which another run made. Run again"
        )


def _with_files(
    snapshot: Snapshot, place: Place, wanted: Wanted, present: Mapping[str, int], folder: Path
) -> StoredTable:
    """The table with a file for each of its spans; those that the store lacks are written and uploaded."""
    kept = wanted.kept(present)
    unchanged = [one for one in wanted.stored.files if wanted.spans.get(one.span) == one.fingerprint]
    lost = [one.name for one in unchanged if one not in kept.values()]
    if lost:
        logger.warning(
            "%s: another hand deleted or changed files of %s (%s%s); they are written again",
            place.shown,
            wanted.stored.folder,
            lost[0],
            f" and {len(lost) - 1:,} more" if len(lost) > 1 else "",
        )
    files = []
    with snapshot.connection.cursor() as cursor:
        for span, fingerprint in wanted.spans.items():
            if span in kept:
                files.append(kept[span])
                continue
            path = table_files.write(snapshot, cursor, wanted, span, folder)
            file = table_files.described(path, span, fingerprint)
            place.upload(path, f"{wanted.stored.folder}/{file.name}")
            if path.parent == folder:
                path.unlink()
            files.append(file)
    return replace(wanted.stored, files=tuple(files))


def _publication_row(snapshot: Snapshot) -> dict[str, Any]:
    """The row of published.publication, as JSON has it."""
    cursor = snapshot.connection.execute("select * from published.publication")
    names = [str(one[0]) for one in cursor.description or ()]
    ((*values,),) = cursor.fetchall()
    return {
        name: value.astimezone(UTC).isoformat()
        if isinstance(value, datetime)
        else value.isoformat()
        if isinstance(value, date)
        else value
        for name, value in zip(names, values, strict=True)
    }


def _note_changes(made: Manifest, previous: Manifest | None, done: Stored) -> None:
    before = previous.paths if previous is not None else set()
    for table in made.tables.values():
        fresh = [file for file in table.files if f"{table.folder}/{file.name}" not in before]
        if fresh:
            done.rows[f"{table.schema}.{table.name}"] = sum(file.rows for file in fresh)
            done.bytes += sum(file.bytes for file in fresh)
            done.files += len(fresh)


def _forget_old(
    place: Place, current: Manifest, present: Mapping[str, int], limit: datetime, erased_at: str | None
) -> list[str]:
    """Delete the publications that were replaced before `limit`, beyond the newest, and those that may hold the name of
    a tenant that was erased since, and then the files that none has; returns their ids.

    What an interrupted run uploaded goes as well. The current publication is in the store before anything is deleted.
    """
    paths = sorted(path for path in place.files(PUBLICATIONS) if path.endswith(".json"))
    found = [one for one in (manifests.read(place, path) for path in paths) if one is not None]
    found.sort(key=lambda one: one.published_at)
    old = [
        one
        for one, successor in list(pairwise(found))[: max(0, len(found) - KEPT)]
        if successor.stored_at < limit and one.publication_id != current.publication_id
    ]
    if erased_at is not None:
        at = datetime.fromisoformat(erased_at)
        old += [one for one in found if one.published_at < at and one not in old and one != current]
    for one in old:
        place.remove(manifests.path_of(one.publication_id))
    kept = [current, *(one for one in found if one not in old)]
    referenced = {path for one in kept for path in one.paths}
    folders = {table.folder for one in kept for table in one.tables.values()}
    gone = {table.folder for one in old for table in one.tables.values()} - folders
    for path in sorted(present.keys() - referenced):
        folder = path.rpartition("/")[0].partition(f"/{delta_tables.LOG}")[0]
        is_ours = f"/{delta_tables.LOG}/" not in path and path.endswith(".parquet") and folder in folders
        if is_ours or folder in gone:
            place.remove(path)
    return [one.publication_id for one in old]
