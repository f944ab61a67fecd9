"""What of a PostgreSQL database is ours, and which rows it has: kept beside the tables, in the schema `wattledger`.

    tables     each table that Wattledger made, its key, and since which version no publication has it
    columns    the same for each column
    loaded     per table and date (NULL for a table without dates) the fingerprint of the rows that were loaded

Add here what a publisher must know about the last one. Keep out the tables that readers open. A table or column that
is not in the registry is another person's: nothing here changes or drops it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from pipelines.publishing.postgresql.server import Server, quoted
from pipelines.publishing.snapshots import Fingerprints
from pipelines.warehouse.database import literal

SCHEMA = "wattledger"
Name = tuple[str, str]  # schema (with the prefix) and table


@dataclass
class Held:
    """A table of ours as the server has it: its columns with the version that deprecated each, and its fingerprints."""

    key: str
    has_key: bool
    deprecated_in: str | None = None
    columns: dict[str, str | None] = field(default_factory=dict)
    loaded: Fingerprints = field(default_factory=dict)


def prepare(server: Server, prefix: str, schemas: Collection[str]) -> None:
    """Create the schemas and the registry where they are missing."""
    present = {name for (name,) in server.rows("select nspname from pg_namespace")}
    own = f"{prefix}{SCHEMA}"
    for schema in (*schemas, own):
        if schema not in present:
            server.execute(f"create schema {quoted(schema)}")
    if not server.rows(f"select 1 from pg_tables where schemaname = {literal(own)} and tablename = 'loaded'"):
        name = "schema_name text not null, table_name text not null"
        version = "deprecated_in text"
        server.execute(
            f"create table {quoted(own)}.tables"
            f" ({name}, key text not null, has_key boolean not null, {version}, primary key (schema_name, table_name))",
            f"create table {quoted(own)}.columns"
            f" ({name}, column_name text, {version}, primary key (schema_name, table_name, column_name))",
            f"create table {quoted(own)}.loaded ({name}, date date, fingerprint text not null)",
            f"comment on table {quoted(own)}.loaded is 'What Wattledger loaded. Delete rows of a table here, and the"
            " next publication loads their dates again.'",
        )
    server.commit()


def read(server: Server, prefix: str) -> dict[Name, Held]:
    """Our tables that exist. What a person dropped is forgotten."""
    own = quoted(f"{prefix}{SCHEMA}")
    server.execute(
        *(
            f"delete from {own}.{table} as r where not exists (select from pg_tables as t"
            " where t.schemaname = r.schema_name and t.tablename = r.table_name)"
            for table in ("tables", "columns", "loaded")
        )
    )
    found = {
        (schema, table): Held(key, has_key, deprecated_in)
        for schema, table, key, has_key, deprecated_in in server.rows(
            f"select schema_name, table_name, key, has_key, deprecated_in from {own}.tables"
        )
    }
    for schema, table, column, deprecated_in in server.rows(
        f"select schema_name, table_name, column_name, deprecated_in from {own}.columns"
    ):
        if (schema, table) in found:
            found[schema, table].columns[column] = deprecated_in
    for schema, table, on, fingerprint in server.rows(
        f"select schema_name, table_name, date, fingerprint from {own}.loaded"
    ):
        if (schema, table) in found:
            found[schema, table].loaded[on] = fingerprint
    server.commit()
    return found


def record(server: Server, prefix: str, name: Name, held: Held) -> None:
    """Write what the server now has of a table, in the transaction that loads it."""
    own = quoted(f"{prefix}{SCHEMA}")
    named = f"{literal(name[0])}, {literal(name[1])}"
    forget(server, prefix, name)
    columns = ", ".join(f"({named}, {literal(column)}, {_or_null(since)})" for column, since in held.columns.items())
    server.execute(
        f"insert into {own}.tables values"
        f" ({named}, {literal(held.key)}, {str(held.has_key).lower()}, {_or_null(held.deprecated_in)})",
        f"insert into {own}.columns values {columns}",
    )
    if held.loaded:
        loaded = ", ".join(f"({named}, {_or_null(on)}, {literal(seen)})" for on, seen in held.loaded.items())
        server.execute(f"insert into {own}.loaded values {loaded}")


def forget(server: Server, prefix: str, name: Name) -> None:
    """Remove a table from the registry."""
    own = quoted(f"{prefix}{SCHEMA}")
    chosen = f"schema_name = {literal(name[0])} and table_name = {literal(name[1])}"
    server.execute(*(f"delete from {own}.{table} where {chosen}" for table in ("tables", "columns", "loaded")))


def _or_null(value: object) -> str:
    return "null" if value is None else literal(value)
