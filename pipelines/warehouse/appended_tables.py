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


def create(connection: duckdb.DuckDBPyConnection, tables: Tables, at: str = "published") -> None:
    """Create the tables where they are missing, in the schema `at`."""
    connection.execute(f"create schema if not exists {at}")
    there = held(connection, tables, at)
    for name, (comment, columns) in tables.items():
        if name in there:
            continue
        listed = ", ".join(f"{column} {kind}" for column, (kind, _) in columns.items())
        connection.execute(f"create table {at}.{name} ({listed})")
        connection.execute(f"comment on table {at}.{name} is {database.literal(comment)}")
        for column, (_, described) in columns.items():
            connection.execute(f"comment on column {at}.{name}.{column} is {database.literal(described)}")


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
    rows = connection.execute(
        "select table_name from duckdb_tables() where ? in (database_name || '.' || schema_name,"
        " if(database_name = current_database(), schema_name, null))",
        [at],
    ).fetchall()
    return {name for (name,) in rows} & tables.keys()
