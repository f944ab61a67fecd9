"""After a crash: the warehouse's small tables follow the lake.

A landing in a lake puts its manifest and then commits in the warehouse. If the process is killed in between, the
lake has a landing that the warehouse lacks. Its series and chunks are in the lake too, so no source has to be asked
again. The same steps rebuild a lost warehouse. Keep out landings themselves: that is `telemetry_landing`.
"""

from __future__ import annotations

import logging
from datetime import datetime

import duckdb

from collectors.samples import Window
from pipelines.landing import stale_dates, stores, telemetry_landing
from pipelines.landing.lake import Lake, LakeError, Manifest
from pipelines.landing.stores import LakeStore, Store
from pipelines.warehouse import database, sealed_dates, step_deadline

logger = logging.getLogger(__name__)


def heal(
    connection: duckdb.DuckDBPyConnection,
    store: Store,
    catalogue: telemetry_landing.Catalogue,
    *,
    run_id: str,
    now: datetime,
) -> list[tuple[str, str]]:
    """Bring raw.series and raw.series_chunks up to each manifest that they do not know, one transaction each.

    Returns (source, date) of those. LakeError when the lake misses what the warehouse landed there: another path, or
    a mount that is away, must not look like a fleet without history.
    """
    if not isinstance(store, LakeStore):
        return []
    known = {
        (source, on): landing_id
        for source, on, landing_id in connection.execute(
            "select source, date, landing_id from raw.lake_days"
        ).fetchall()
    }
    landed = store.lake.landed()
    missing = sorted(known.keys() - landed.keys())
    if missing:
        source, on = missing[0]
        raise LakeError(
            f"{store.lake.shown}: holds nothing of {source} on {on} (and {len(missing) - 1} more), which the warehouse"
            " lists as landed there: is landing.path right, and the lake mounted?"
        )
    open_from = sealed_dates.open_from(connection)
    stale = [
        manifest
        for (source, on), manifest in sorted(landed.items())
        if known.get((source, on)) != manifest.landing_id and on >= open_from
    ]
    for manifest in stale:
        _heal(connection, store.lake, manifest, catalogue, run_id=run_id, now=now)
        step_deadline.progressed()
    return [(manifest.source, manifest.date.isoformat()) for manifest in stale]


def expose(connection: duckdb.DuckDBPyConnection, store: Store) -> None:
    """Let the warehouse's own raw.power_samples and raw.token_samples show the files of the lake."""
    if isinstance(store, LakeStore):
        store.lake.expose(connection, "raw")


def _heal(
    connection: duckdb.DuckDBPyConnection,
    lake: Lake,
    manifest: Manifest,
    catalogue: telemetry_landing.Catalogue,
    *,
    run_id: str,
    now: datetime,
) -> None:
    day = Window.of_day(manifest.date)
    window = Window(day.start_at, manifest.end_at)
    series, chunks = lake.read(manifest.files["series"]), lake.read(manifest.files["series_chunks"])
    before = stale_dates.chunks(connection, manifest.source, day)
    healed = telemetry_landing.Landing(
        manifest.source,
        window,
        "landed",
        telemetry_landing.rows_of(chunks),
        telemetry_landing.rows_of(before),
        url=lake.shown,
        detail=f"healed: the lake held landing {manifest.landing_id} and the warehouse did not",
    )
    with database.transaction(connection):
        telemetry_landing.remember_series(connection, series)
        telemetry_landing.replace_chunks(connection, manifest.source, day, chunks)
        is_head = manifest.end_at < day.end_at
        stale_dates.mark_stale(
            connection,
            before,
            chunks,
            catalogue.device_labels,
            is_head=is_head,
            booked_dates=catalogue.booked_dates,
        )
        stores.remember(connection, manifest.source, manifest.date, manifest.landing_id)
        telemetry_landing.audit(connection, healed, run_id, now)
    logger.info("%s %s: healed from the lake, %d rows", manifest.source, manifest.date, manifest.rows)
