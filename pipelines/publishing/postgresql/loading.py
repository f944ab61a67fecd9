"""The publication in PostgreSQL: what changed since the one that is there, replaced in one transaction.

Rows are deleted and inserted, tables are never swapped: so a session with an open connection sees the old publication
or the new one, a transaction that began before sees the old one to its end, and no reader waits
(docs/postgresql.md). Add here what is loaded, and when. Keep out what a table looks like
(`tables`) and what is ours there (`registry`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, date, datetime

import duckdb

from pipelines.fleet.fleet_file import Fleet
from pipelines.fleet.targets.publication_targets import PostgresqlTarget
from pipelines.publishing import published_tables, snapshots
from pipelines.publishing.postgresql import comparing, erasing, readers, registry
from pipelines.publishing.postgresql import tables as shapes
from pipelines.publishing.postgresql.comparing import Differing
from pipelines.publishing.postgresql.registry import Held
from pipelines.publishing.postgresql.server import PostgresqlError, Server, connected, place_of, quoted
from pipelines.publishing.postgresql.tables import Wanted
from pipelines.publishing.restoring import PublicationDamaged
from pipelines.publishing.snapshots import Fingerprints, Snapshot
from pipelines.warehouse import step_deadline
from pipelines.warehouse.contracts import Mart
from pipelines.warehouse.database import literal

BATCH_ROWS = 2**16

logger = logging.getLogger(__name__)


@dataclass
class Loaded:
    """What one run changed on the server: rows per table, the dates, and what a person should know."""

    publication_id: str
    place: str
    previous_id: str | None = None
    rows: dict[str, int] = field(default_factory=dict)
    dates: set[date] = field(default_factory=set)
    notices: list[str] = field(default_factory=list)
    seconds: float = 0.0


@dataclass(frozen=True)
class _Change:
    """A table whose rows, columns, key or comments are to change; `mended` is what another hand changed of it."""

    wanted: Wanted
    held: Held | None
    fresh: Fingerprints
    dates: list[date | None]
    has_key: bool
    retyped: list[str]
    mended: Differing | None


def publish(
    fleet: Fleet, target: PostgresqlTarget, marts: Mapping[str, Mart], now: datetime | None = None
) -> Loaded | None:
    """Bring the target up to the fleet's current publication, whatever it has missed; None before the first one.

    PostgresqlError where the server is away or refuses; it then has its old publication, whole.
    """
    folder = fleet.latest_publication
    if folder is None:
        return None
    began = time.monotonic()
    try:
        with snapshots.opened(fleet.published, folder) as snapshot, connected(target) as server:
            done = _publish(snapshot, server, target, marts, (now or datetime.now(UTC)).date())
    except (PostgresqlError, PublicationDamaged) as refusal:
        raise PostgresqlError(
            f"publication.postgresql: {refusal}. The snapshot {folder.name} is published; PostgreSQL keeps what it has,"
            " and the next run loads all that is missing"
        ) from None
    done.seconds = time.monotonic() - began
    return done


def publish_within_limits(fleet: Fleet, target: PostgresqlTarget, marts: Mapping[str, Mart]) -> Loaded | None:
    """The same in a process of its own, which ends at `limits.step_seconds`: PostgresqlError then too."""
    seconds = target.limits.step_seconds
    try:
        return step_deadline.within(seconds, publish, fleet, target, marts)
    except step_deadline.StepTookTooLong:
        raise PostgresqlError(
            f"publication.postgresql: {place_of(target)}: not done within {seconds:g} s, so the load was ended and"
            " PostgreSQL keeps what it has. Look whether the server answers; if the load is that large, raise"
            " publication.postgresql.limits.step_seconds"
        ) from None


def _publish(
    snapshot: Snapshot, server: Server, target: PostgresqlTarget, marts: Mapping[str, Mart], tonight: date
) -> Loaded:
    prefix = target.schema_prefix
    registry.prepare(server, prefix, [f"{prefix}{schema}" for schema in published_tables.SCHEMAS])
    held = registry.read(server, prefix)
    done = Loaded(snapshot.publication_id, server.place, _previous(server, target, held, snapshot))
    changes = list(_changes(snapshot, server, target, marts, held, tonight=tonight))
    for change in changes:
        _shape(server, change)
    # The last are those that keep readers out of a table until the end.
    for change in sorted(changes, key=lambda one: bool(one.retyped)):
        _load(snapshot, server, prefix, change, done)
    gone = held.keys() - {(change.wanted.schema, change.wanted.table.name) for change in changes}
    for name in sorted(gone):
        _deprecate_table(server, prefix, name, held[name], snapshot.code_version)
    readers.grant(server, target, done.notices)
    server.commit()
    _tidy(server, prefix, registry.read(server, prefix), snapshot.code_version, done)
    for change in changes:
        if change.held is None:
            server.execute(f"analyze {change.wanted.name}")
    server.commit()
    erasing.vacuum_after_erasure(server, prefix, readers.TENANT)
    return done


def _previous(
    server: Server, target: PostgresqlTarget, held: Mapping[registry.Name, Held], snapshot: Snapshot
) -> str | None:
    """The publication that the server has. PostgresqlError where it is another fleet's."""
    schema = f"{target.schema_prefix}published"
    if (schema, "publication") not in held:
        return None
    rows = server.rows(
        f"select publication_id, fleet, published_at > {literal(snapshot.published_at.isoformat())}::timestamptz"
        f" from {quoted(schema, 'publication')}"
    )
    server.commit()
    for publication_id, fleet, is_newer in rows:
        if fleet != snapshot.fleet:
            raise PostgresqlError(
                f"{server.place}: the schemas {target.schema_prefix}marts and {schema} hold the fleet {fleet!r},"
                f" expected {snapshot.fleet!r}. Give this fleet its own schemas: publication.postgresql.schema_prefix"
            )
        if is_newer:
            raise PostgresqlError(
                f"{server.place}: it has the later publication {publication_id}, which another run made. Run again"
            )
        return str(publication_id)
    return None


def _changes(
    snapshot: Snapshot,
    server: Server,
    target: PostgresqlTarget,
    marts: Mapping[str, Mart],
    held: Mapping[registry.Name, Held],
    *,
    tonight: date,
) -> Iterator[_Change]:
    """Every table of the snapshot with what is to change of it. Writes nothing."""
    connection = snapshot.connection
    ((own,),) = connection.execute("select current_database()").fetchall()
    tables = [
        *published_tables.tables(connection, own).values(),
        published_tables.publication_table(connection, own),
    ]
    present = set(
        server.rows("select n.nspname, c.relname from pg_class as c join pg_namespace as n on n.oid = relnamespace")
    )
    for wanted in shapes.wanted_tables(connection, tables, target.schema_prefix, marts):
        name = (wanted.schema, wanted.table.name)
        before = held.get(name)
        if before is None and name in present:
            raise PostgresqlError(
                f"{server.place}: {wanted.name} is there and Wattledger did not make it. Rename it, or set"
                " publication.postgresql.schema_prefix"
            )
        fresh = snapshots.fingerprints(snapshot, wanted.table)
        dates = snapshots.changed(fresh, before.loaded if before else {})
        retyped, mended = [], None
        if before is not None:
            columns = shapes.columns_of(server, *name)
            retyped = shapes.retyped_columns(wanted, columns)
            is_as_made = not retyped and wanted.types.keys() <= columns.keys()
            mended = comparing.differing(snapshot, server, wanted, dates, tonight, is_as_made=is_as_made)
            dates += mended.dates if mended else []
        has_key = before.has_key if before is not None and before.key == str(wanted.key) else bool(wanted.key.columns)
        if has_key and dates:
            has_key = shapes.keeps_its_key(connection, wanted, wanted.chosen(dates))
        yield _Change(wanted, before, fresh, dates, has_key, retyped, mended)
    server.commit()


def _shape(server: Server, change: _Change) -> None:
    """Make room for the rows of a table that is there: in short transactions that change nothing that readers see."""
    held, wanted = change.held, change.wanted
    if held is None:
        return
    if held.has_key and (held.key != str(wanted.key) or not change.has_key):
        shapes.unkey(server, wanted.schema, wanted.table.name)
    present = shapes.columns_of(server, wanted.schema, wanted.table.name)
    server.commit()
    theirs = sorted((present.keys() & wanted.types.keys()) - held.columns.keys())
    if theirs:
        raise PostgresqlError(
            f"{server.place}: {wanted.name} has a column {theirs[0]!r} that Wattledger did not make. Rename it"
        )
    shapes.missing_columns(server, wanted, present)


def _load(snapshot: Snapshot, server: Server, prefix: str, change: _Change, done: Loaded) -> None:
    """Replace the rows of the changed dates; nothing of it is visible before the commit."""
    wanted, held = change.wanted, change.held
    if held is None:
        shapes.create(server, wanted)
    elif change.dates:
        server.execute(f"delete from {wanted.name} where {wanted.chosen(change.dates)}")
    if change.retyped:
        shapes.retype(server, wanted, change.retyped)
    arriving = [on for on in change.dates if on in change.fresh]
    # A date of intervals at a time keeps memory flat through a first load of months.
    portions = [[on] for on in arriving] if wanted.table.is_fine_grained else [arriving] if arriving else []
    rows = sum(_copy(snapshot.connection, server, wanted, portion) for portion in portions)
    had_key = held is not None and held.has_key and held.key == str(wanted.key)
    had_key = had_key and not set(change.retyped) & set(wanted.key.columns)
    shapes.finish(server, wanted, is_new=held is None, has_key=change.has_key and not had_key)
    server.together(shapes.comment_statements(server, wanted))
    columns: dict[str, str | None] = dict.fromkeys(wanted.types)
    for column, since in (held.columns if held else {}).items():
        if column not in columns:
            columns[column] = since or snapshot.code_version
            if since is None:
                comment = shapes.deprecated_comment(wanted.table.name, snapshot.code_version)
                server.execute(f"comment on column {wanted.name}.{quoted(column)} is {literal(comment)}")
    after = Held(str(wanted.key), change.has_key, None, columns, change.fresh)
    if after != held:
        registry.record(server, prefix, (wanted.schema, wanted.table.name), after)
    if wanted.key.columns and not change.has_key and (held is None or held.has_key):
        done.notices.append(
            f"{wanted.table.schema}.{wanted.table.name} has no key any more in PostgreSQL: two rows share it, a part of"
            f" it is NULL, or a name is longer than {shapes.KEY_BYTES:,} bytes. Its rows are all there"
        )
    if change.mended:
        done.notices.append(
            f"{wanted.table.schema}.{wanted.table.name}: another hand changed {change.mended}; they were loaded again"
        )
    if change.dates:
        done.rows[f"{wanted.table.schema}.{wanted.table.name}"] = rows
        done.dates |= {on for on in change.dates if on is not None}


def _copy(connection: duckdb.DuckDBPyConnection, server: Server, wanted: Wanted, dates: Collection[date | None]) -> int:
    query = f"select {wanted.selected()} from {wanted.table} where {wanted.chosen(dates)}"
    # A reader that an error leaves open would keep this process from ever opening the file again.
    with closing(connection.sql(query).to_arrow_reader(BATCH_ROWS)) as batches:
        return server.copy(wanted.schema, wanted.table.name, batches)


def _deprecate_table(server: Server, prefix: str, name: registry.Name, held: Held, version: str) -> None:
    """A table that the publication has no more stays for a version, empty."""
    if held.deprecated_in is not None:
        return
    comment = f"Deprecated: no publication has this table since version {version}. The next minor version drops it."
    server.execute(f"delete from {quoted(*name)}", f"comment on table {quoted(*name)} is {literal(comment)}")
    registry.record(server, prefix, name, Held(held.key, held.has_key, version, held.columns, {}))


def _tidy(server: Server, prefix: str, held: Mapping[registry.Name, Held], version: str, done: Loaded) -> None:
    """Drop what an older minor version deprecated. What others still use, such as a view on it, stays."""
    for name, table in held.items():
        relation = quoted(*name)
        if table.deprecated_in is not None:
            is_over = _minor(table.deprecated_in) != _minor(version)
            if is_over and _dropped(server, relation, f"drop table {relation}", done):
                registry.forget(server, prefix, name)
            continue
        for column, since in list(table.columns.items()):
            statement = f"alter table {relation} drop column {quoted(column)}"
            is_over = since is not None and _minor(since) != _minor(version)
            if is_over and _dropped(server, relation, statement, done):
                del table.columns[column]
                registry.record(server, prefix, name, table)
    server.commit()


def _dropped(server: Server, relation: str, statement: str, done: Loaded) -> bool:
    try:
        server.briefly(relation, statement)
    except Exception as refusal:
        if not isinstance(refusal, PostgresqlError) and getattr(refusal, "sqlstate", None) != "2BP01":
            raise
        done.notices.append(f"{statement}: not done, because others use it. Drop it yourself when they do not")
        return False
    return True


def _minor(version: str) -> tuple[str, ...]:
    return tuple(version.split(".")[:2])
