"""Erase the name of a tenant: from the warehouse's one table of names, and from every copy that was made with it.

What was booked stays: the key has it, and nothing leads from the key to a name. Add here where a name may be. Keep out
what the command prints (`erase_command`) and how a publication lets the ones before an erasure go (`publication`,
`object_store.storing`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import duckdb

from pipelines.fleet.fleet_file import Fleet
from pipelines.publishing import retention
from pipelines.publishing.published_tables import ROWS_HASHED
from pipelines.warehouse import closings, compaction, database, disk_room, due_dates
from pipelines.warehouse.raw_tables import create_tables
from pipelines.warehouse.refusals import QuestionError
from pipelines.warehouse.tenants import tenant_names

# What readers open and what was charged, by month: which rows it has, and what they cost.
CHARGEBACK = "finance.chargeback"
CLOSED = "published.closed_chargebacks"
FOCUS = "FOCUS file"


@dataclass(frozen=True)
class State:
    """The digest of a table's month, or of a file, and USD of its rows; of a file none."""

    digest: str | None
    usd: Decimal | None


@dataclass(frozen=True)
class Started:
    """An erasure whose name is out of the warehouse, and what copies had before. `former_key` is still in copies; `on`
    is a date to publish."""

    key: str
    former_key: str | None
    on: date | None
    before: dict[str, State]


@dataclass(frozen=True)
class Change:
    """What an erasure did to a table's month or a file."""

    what: str
    before: State
    after: State


def begin(fleet: Fleet, tenant: str) -> Started:
    """Drop a tenant's name, by its name or key, and let the publication be made again. QuestionError for a tenant that
    is not known, and for one that the fleet file names: the next run would bring it back."""
    if not fleet.warehouse.exists():
        raise QuestionError(f"fleet {fleet.fleet} has no warehouse yet, so it knows no tenant")
    with database.writing(fleet.warehouse, "erase"), database.connect(fleet.warehouse) as connection:
        create_tables(connection)
        closings.create(connection)
        found = connection.execute(
            "select tenant_key, tenant, former_key from raw.tenant_names where tenant = $1 or tenant_key = $1", [tenant]
        ).fetchall()
        if not found:
            raise QuestionError(
                f"no tenant {tenant!r} is known. To list them: wattledger sql --fleet {fleet.path}"
                " 'select distinct tenant, tenant_key from finance.chargeback'"
            )
        ((key, name, former_key),) = found
        for place in _named_in(fleet, name):
            raise QuestionError(
                f"{place} of {fleet.path} names the tenant {name!r}, and the next run would bring the name back: take"
                " it out, then erase"
            )
        before = _states(fleet, connection)
        on = _last_date(connection)
        with database.transaction(connection):
            if name is not None:
                if key == name:
                    key, former_key = tenant_names.new_key(), name
                    tenant_names.rekey(connection, "", name, key)
                    connection.execute(
                        "update raw.tenant_names set tenant_key = ?, former_key = ? where tenant_key = ?",
                        [key, name, name],
                    ).fetchall()
                    _mark_all(connection, key)
                connection.execute(
                    "update raw.tenant_names set tenant = null, erased_at = ? where tenant_key = ?",
                    [datetime.now(UTC), key],
                ).fetchall()
            if on is not None:
                due_dates.mark(connection, due_dates.PUBLICATION, on, on + timedelta(days=1))
    return Started(key, former_key, on, before)


def finish(fleet: Fleet, started: Started) -> list[Change]:
    """Remove the copies that are older than the erasure, record what changed, and write the warehouse without its free
    blocks, which may hold the name. The publication is made again before."""
    with database.writing(fleet.published, "publication"):
        current = fleet.latest_publication
        for folder in retention.publications(fleet.published):
            if folder.resolve() != current:
                retention.remove(folder)
    with database.writing(fleet.warehouse, "erase"):
        with database.connect(fleet.warehouse) as connection:
            after = _states(fleet, connection)
            changes = [
                Change(what, started.before.get(what, State(None, None)), after.get(what, State(None, None)))
                for what in sorted(started.before.keys() | after.keys())
            ]
            for change in changes:
                if change.before.usd != change.after.usd:
                    raise ArithmeticError(
                        f"{change.what}: {change.before.usd} USD before the erasure, {change.after.usd} after it"
                    )
            with database.transaction(connection):
                for change in changes:
                    connection.execute(
                        "insert into raw.erasures select erased_at, tenant_key, ?, ?, ?, ?, ? from raw.tenant_names"
                        " where tenant_key = ?",
                        [
                            change.what,
                            change.before.digest,
                            change.after.digest,
                            change.before.usd,
                            change.after.usd,
                            started.key,
                        ],
                    ).fetchall()
                connection.execute(
                    "update raw.tenant_names set former_key = null where tenant_key = ?", [started.key]
                ).fetchall()
            connection.execute("checkpoint")
            blocks = compaction.blocks_of(connection)
        disk_room.require(fleet.root, blocks.used_bytes, f"writing {fleet.warehouse} anew without its free blocks")
        compaction.compact(fleet.warehouse)
    return changes


def _named_in(fleet: Fleet, name: str | None) -> Iterator[str]:
    if name is None:
        return
    for source in fleet.requests:
        if source.tenant == name:
            yield f"requests[{source.name}].tenant"
    for model in fleet.models:
        for number, price in enumerate(model.contract_prices):
            if price.tenant == name:
                yield f"models[{model.name}].contract_prices[{number}].tenant"


def _states(fleet: Fleet, connection: duckdb.DuckDBPyConnection) -> dict[str, State]:
    """What may hold a tenant's name or key, with its digest and sum: months of chargeback as readers have them, closed
    ones, and the FOCUS files of closed months."""
    found: dict[str, State] = {}
    rows = connection.execute(
        f"select month, event, {ROWS_HASHED}, sum(closed_cost_usd) from published.closed_chargebacks as t"
        " group by month, event order by event"
    ).fetchall()
    found |= {f"{CLOSED} {month:%Y-%m}, closing {event}": State(digest, usd) for month, event, digest, usd in rows}
    ((own,),) = connection.execute("select current_database()").fetchall()
    for month, digest in closings.frozen_files(connection, own).items():
        found[f"{FOCUS} {month:%Y-%m}"] = State(digest, None)
    if fleet.snapshot.exists():
        with closing(database.connect(fleet.snapshot, read_only=True)) as published:
            if "chargeback" in database.tables(published, "finance"):
                rows = published.execute(
                    f"select month, {ROWS_HASHED}, sum(known_cost_usd) from finance.chargeback as t"
                    " group by month order by month"
                ).fetchall()
                found |= {f"{CHARGEBACK} {month:%Y-%m}": State(digest, usd) for month, digest, usd in rows}
    return found


def _last_date(connection: duckdb.DuckDBPyConnection) -> date | None:
    """The newest booked date: with it the publication is made again, whose tables of months are made whole."""
    if "model_daily" not in database.tables(connection, "marts"):
        return None
    on: date | None = connection.execute("select max(date) from marts.model_daily").fetchall()[0][0]
    return on


def _mark_all(connection: duckdb.DuckDBPyConnection, key: str) -> None:
    """Let all dates of a tenant be published again: their rows have another key."""
    if "tenant_usage_daily" not in database.tables(connection, "marts"):
        return
    ((first, last),) = connection.execute(
        "select min(date), max(date) from marts.tenant_usage_daily where tenant = ?", [key]
    ).fetchall()
    if first is not None:
        due_dates.mark(connection, due_dates.PUBLICATION, first, last + timedelta(days=1))
