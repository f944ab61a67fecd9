"""Tables that are appended to and never computed again: primary data, in the warehouse and in each publication.

Whichever of the two was lost takes them from the other. Add here what holds for all of them. Keep out their columns:
`closings`, `advice_history`.
"""

from __future__ import annotations

from collections.abc import Mapping

import duckdb

from pipelines.warehouse import database

# Name of a table -> its comment, and name of a column -> SQL type, description.
Tables = Mapping[str, tuple[str, Mapping[str, tuple[str, str]]]]
# Without a database before its name a schema is one of the connection's own.
_OF_SCHEMA = "? in (database_name || '.' || schema_name, if(database_name = current_database(), schema_name, null))"


def create(connection: duckdb.DuckDBPyConnection, tables: Tables, at: str = "published") -> None:
    """Create the tables where they are missing, in the schema `at`; those that are there get today's descriptions."""
    connection.execute(f"create schema if not exists {at}")
    there = held(connection, tables, at)
    described = _described(connection, at)
    for name, (comment, columns) in tables.items():
        if name not in there:
            listed = ", ".join(f"{column} {kind}" for column, (kind, _) in columns.items())
            connection.execute(f"create table {at}.{name} ({listed})")
        if described.get((name, "")) != comment:
            connection.execute(f"comment on table {at}.{name} is {database.literal(comment)}")
        for column, (_, text) in columns.items():
            if described.get((name, column)) != text:
                connection.execute(f"comment on column {at}.{name}.{column} is {database.literal(text)}")


def _described(connection: duckdb.DuckDBPyConnection, at: str) -> dict[tuple[str, str], str | None]:
    """Table and column -> its comment, in the schema `at`; of a table itself the column is empty."""
    rows = connection.execute(
        f"select table_name, '', comment from duckdb_tables() where {_OF_SCHEMA}"
        f" union all select table_name, column_name, comment from duckdb_columns() where {_OF_SCHEMA}",
        [at, at],
    ).fetchall()
    return {(table, column): comment for table, column, comment in rows}


def bring(connection: duckdb.DuckDBPyConnection, tables: Tables, source: str, target: str) -> bool:
    """Append to the tables of the schema `target` the rows of `source` that they lack; False where neither has one of
    them, as both are older than these tables."""
    there = held(connection, tables, source)
    if not there and not held(connection, tables, target):
        return False
    create(connection, tables, target)
    for name, (_, columns) in tables.items():
        if name in there:
            listed = ", ".join(columns)
            connection.execute(
                f"insert into {target}.{name} ({listed})"
                f" select {listed} from {source}.{name} except all select {listed} from {target}.{name}"
            ).fetchall()
    return True


def held(connection: duckdb.DuckDBPyConnection, tables: Tables, at: str) -> set[str]:
    """Those of the tables that the schema has; without a database before its name it is one of the connection's own."""
    rows = connection.execute(f"select table_name from duckdb_tables() where {_OF_SCHEMA}", [at]).fetchall()
    return {name for (name,) in rows} & tables.keys()
