"""What is wrong with a fleet's data, or due, and what to do: the sections of `wattledger doctor`.

Everything is read, nothing is written and no source is asked: that is `wattledger check`. Add a section here with what
a person has to do about it. Keep out how it is printed.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import duckdb

import pipelines
from pipelines.fleet.fleet_file import Fleet
from pipelines.upkeep import layers
from pipelines.upkeep.dagster_history import BROKEN_OFF, Run
from pipelines.warehouse import database, disk_room, due_dates, sealed_dates, settings
from pipelines.warehouse.raw_tables import SCHEMA_VERSION

ERROR, WARNING = "error", "warning"
# Growth is the mean over the nights of so many days.
GROWTH_DAYS = 30
# A disk that is full within so many days is worth a warning; one with less room than this, an error.
FULL_DAYS = 30
LEAST_FREE_RATIO = 0.05
# From one nightly run to the next, and two hours.
LATE_HOURS = 26
_PACKAGES = ("dagster", "dbt-core", "dbt-duckdb", "duckdb")
# The newest answer of each source for each whole date of telemetry, where it was none or not a full one.
_UNANSWERED = """
    select cast(window_start_at as date) as date, source, max_by(outcome, landed_at) as outcome,
        max_by(detail, landed_at) as detail
    from raw.landings
    where asset = 'raw/telemetry' and window_end_at - window_start_at = interval 1 day
    group by all having outcome in ('failed', 'refused_fewer', 'empty') order by all
"""
_WHY = {
    "failed": "the source did not answer",
    "refused_fewer": "the source has fewer rows than before; those before stay",
    "empty": "the source had nothing of it",
}


@dataclass(frozen=True)
class Trouble:
    """One thing that is wrong or doubtful, and what to do about it."""

    severity: str
    what: str
    remedy: str


@dataclass(frozen=True)
class LayerUse:
    """Bytes of a layer now, and by how many it grows in a day; None before two runs have measured it."""

    layer: str
    bytes: int
    bytes_per_day: float | None


@dataclass(frozen=True)
class DueDate:
    """A date that waits for something, and why."""

    date: date
    waits_for: str
    why: str


@dataclass(frozen=True)
class Diagnosis:
    """The sections of the page; `busy` is who has the warehouse open; its sections are empty then."""

    fleet: str
    at: datetime
    disk: tuple[LayerUse, ...]
    disk_free_bytes: int
    full_in_days: float | None
    runs: tuple[Run, ...]
    schedule: str | None
    versions: dict[str, str]
    clock: dict[str, str | None]
    due: tuple[DueDate, ...]
    sealed: str | None
    busy: str | None
    troubles: tuple[Trouble, ...]

    def to_json(self) -> dict[str, Any]:
        """For programs: dates and times as text."""
        return asdict(self)


def diagnosed(fleet: Fleet, home: Path, runs: Sequence[Run], schedule: str | None, now: datetime) -> Diagnosis:
    """What is found. `runs` are the newest ones, `schedule` is what Dagster makes of the nightly run."""
    disk: list[LayerUse] = []
    due: list[DueDate] = []
    sealed: list[date] = []
    landed_at: datetime | None = None
    versions = {"wattledger": pipelines.__version__, "python": platform.python_version()}
    versions |= {name: version(name) for name in _PACKAGES}
    troubles = [*_of_folders(fleet)]
    busy = None
    if fleet.warehouse.exists():
        try:
            with database.connect(fleet.warehouse, read_only=True, patience_seconds=0) as connection:
                held = database.tables(connection, "raw")
                disk = list(_disk(connection, fleet, home, now))
                if {"due_dates", "landings", "warehouse_version"} <= held:
                    due = list(_due(connection, fleet, now))
                    sealed = sealed_dates.of(connection)
                    ((landed_at,),) = connection.execute("select max(landed_at) from raw.landings").fetchall()
                    versions |= _of_warehouse(connection)
        except database.WarehouseBusy:
            busy = database.holder(fleet.warehouse)
        except duckdb.Error as refusal:
            what = f"{fleet.warehouse} cannot be opened: {' '.join(str(refusal).split())}"
            troubles.append(Trouble(ERROR, what, "restore it from a backup (docs/operations.md, Damaged warehouse)"))
    free = shutil.disk_usage(fleet.root if fleet.root.exists() else fleet.root.parent)
    growth = sum(one.bytes_per_day or 0 for one in disk if one.layer != layers.FREE)
    full_in = free.free / growth if growth > 0 else None
    troubles += _of_disk(fleet, free.free, free.total, full_in)
    troubles += _of_runs(runs, fleet, now)
    troubles += _of_clock(now, landed_at)
    troubles += _of_versions(versions)
    troubles += _of_due(due, fleet)
    return Diagnosis(
        fleet.fleet,
        now,
        tuple(disk),
        free.free,
        full_in,
        tuple(runs),
        schedule,
        versions,
        {"now": now.isoformat(timespec="seconds"), "newest_landing": landed_at.isoformat() if landed_at else None},
        tuple(due),
        sealed_dates.described(sealed) if sealed else None,
        busy,
        tuple(sorted(troubles, key=lambda one: one.severity)),
    )


def _disk(connection: duckdb.DuckDBPyConnection, fleet: Fleet, home: Path, now: datetime) -> Iterator[LayerUse]:
    growth: dict[str, float] = {}
    if "disk_use" in database.tables(connection, "raw"):
        rows = connection.execute(
            """
            select layer, (max_by(bytes, measured_at) - min_by(bytes, measured_at))
                / (epoch(max(measured_at) - min(measured_at)) / 86400)
            from raw.disk_use where measured_at > ? group by layer
            having max(measured_at) - min(measured_at) > interval 12 hour
            """,
            [now - timedelta(days=GROWTH_DAYS)],
        ).fetchall()
        growth = dict(rows)
    for layer, size in layers.measured(connection, fleet, home).items():
        yield LayerUse(layer, size, growth.get(layer))


def _due(connection: duckdb.DuckDBPyConnection, fleet: Fleet, now: datetime) -> Iterator[DueDate]:
    """Dates of the period that have not landed, those whose last answer was none, and those that wait to be booked or
    published."""
    open_from = sealed_dates.open_from(connection)
    days = [on for on in fleet.days(now.date()) if on >= open_from]
    landed = connection.execute(
        "select distinct cast(window_start_at as date) from raw.landings where asset = 'raw/telemetry'"
        " and window_end_at - window_start_at = interval 1 day"
    ).fetchall()
    asked = {on for (on,) in landed}
    yield from (DueDate(on, "landing", "no run has asked for it yet") for on in days if on not in asked)
    for on, source, outcome, detail in connection.execute(_UNANSWERED).fetchall():
        if on in days:
            why = f"{source}: {_WHY[outcome]}{f' ({detail})' if detail else ''}"
            yield DueDate(on, "landing", why)
    for what, why in (
        (due_dates.BOOKING, "what landed changed it, or a run was stopped before it was booked"),
        (due_dates.PUBLICATION, "it is booked, and no run has published it since"),
        (due_dates.HELD_BACK, "an invariant does not hold of it (marts.held_back_dates)"),
    ):
        yield from (DueDate(on, what, why) for on in due_dates.due(connection, what) if on >= open_from)


def _of_warehouse(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    rows = connection.execute("select schema_version, method_version, code_version from raw.warehouse_version")
    schema, method, code = rows.fetchall()[0]
    open_from = sealed_dates.open_from(connection)
    methods = sorted({method for on, method in settings.methods(connection).items() if on >= open_from})
    found = {"warehouse schema": f"{schema} (this code: {SCHEMA_VERSION})", "method_version": ", ".join(methods)}
    return {**found, "booked by": code or "", "method of the newest booking": method or ""}


def _of_folders(fleet: Fleet) -> Iterator[Trouble]:
    """What this user may not do, and what readers may not."""
    if not fleet.root.exists():
        yield Trouble(WARNING, f"{fleet.root} does not exist: nothing is booked yet", "run `wattledger run`")
        return
    who = f"user {os.geteuid()}" if hasattr(os, "geteuid") else "this user"
    for path in (fleet.root, fleet.warehouse, fleet.published, fleet.root / ".dagster"):
        if path.exists() and not os.access(path, os.R_OK | os.W_OK):
            yield Trouble(ERROR, f"{path} cannot be written by {who}", f"run as its owner, or: chown -R {who} {path}")
    owners = {path.stat().st_uid for path in (fleet.root, fleet.warehouse, fleet.published) if path.exists()}
    if len(owners) > 1:
        yield Trouble(
            WARNING,
            f"the files in {fleet.root} have several owners: users {', '.join(map(str, sorted(owners)))}",
            "let one user run every command; chown -R the folder to it",
        )


def _of_disk(fleet: Fleet, free: int, total: int, full_in: float | None) -> Iterator[Trouble]:
    needed = fleet.warehouse.stat().st_size if fleet.warehouse.exists() else 0
    remedy = "make room: `wattledger prune` shows what may go; WATTLEDGER_DATA moves the data to another disk"
    if free < LEAST_FREE_RATIO * total or free < needed:
        what = f"the disk of {fleet.root} has {disk_room.shown(free)} free of {disk_room.shown(total)}"
        severity = ERROR if free < LEAST_FREE_RATIO * total else WARNING
        more = f"; a backup or writing the warehouse anew needs {disk_room.shown(needed)}" if free < needed else ""
        yield Trouble(severity, what + more, remedy)
    elif full_in is not None and full_in < FULL_DAYS:
        yield Trouble(WARNING, f"at its growth the disk of {fleet.root} is full in {full_in:.0f} days", remedy)


def _of_runs(runs: Sequence[Run], fleet: Fleet, now: datetime) -> Iterator[Trouble]:
    """A run that failed; and of a fleet without an end, that none began for longer than a night."""
    if not runs:
        return
    newest = runs[0]
    at = f"{newest.began_at:%Y-%m-%d %H:%M} UTC"
    if newest.status == BROKEN_OFF:
        what = f"the last run broke off ({at}): its process ended before it did"
        yield Trouble(ERROR, what, "run again: what is whole stays. See whether it was killed for its memory")
    if newest.status == "FAILURE":
        yield Trouble(ERROR, f"the last run failed ({at})", f"run again; the reason is in {fleet.root / 'logs'}")
    if fleet.period.end is None and now - newest.began_at > timedelta(hours=LATE_HOURS):
        what = f"the last run began {(now - newest.began_at).total_seconds() / 3600:,.0f} h ago ({at})"
        remedy = f"`wattledger run --fleet {fleet.path}`; see whether its cron job, or `wattledger dev`, is alive"
        yield Trouble(WARNING, what, remedy)


def _of_clock(now: datetime, landed_at: datetime | None) -> Iterator[Trouble]:
    if landed_at is not None and landed_at > now + timedelta(minutes=1):
        yield Trouble(
            ERROR,
            f"this machine's clock is {now:%Y-%m-%d %H:%M} UTC, before the newest landing ({landed_at:%Y-%m-%d %H:%M})",
            "set the clock (NTP); `wattledger check` compares it with that of each server",
        )


def _of_versions(versions: dict[str, str]) -> Iterator[Trouble]:
    held = versions.get("warehouse schema", "").partition(" ")[0]
    if held.isdecimal() and int(held) > SCHEMA_VERSION:
        yield Trouble(ERROR, "a newer Wattledger wrote the warehouse", "use that version (docs/operations.md, Upgrade)")
    if "," in versions.get("method_version", ""):
        what = f"booked dates have several methods: {versions['method_version']}"
        yield Trouble(WARNING, what, "`wattledger run --rebuild` books them by one")


def _of_due(due: Iterable[DueDate], fleet: Fleet) -> Iterator[Trouble]:
    waiting: dict[str, list[date]] = {}
    for one in due:
        waiting.setdefault(one.waits_for, []).append(one.date)
    remedies = {
        "landing": f"`wattledger check --fleet {fleet.path}` asks the sources; then `wattledger run`",
        due_dates.BOOKING: "`wattledger run` books them",
        due_dates.PUBLICATION: "`wattledger run` publishes them",
        due_dates.HELD_BACK: "docs/operations.md, Held-back dates",
    }
    for what, dates in waiting.items():
        listed = sorted({*dates})
        span = f"{listed[0]}" if len(listed) == 1 else f"{len(listed)} dates from {listed[0]} to {listed[-1]}"
        waiting_for = "held back" if what == due_dates.HELD_BACK else f"due for {what}"
        yield Trouble(WARNING, f"{span}: {waiting_for}", remedies[what])
