"""Schema finance of a publication: the views of dbt_project/models/finance, computed from what it publishes.

A warehouse may hold dates that a publication holds back, so the tables are made from the publication's own marts. Add
here how a view becomes a table. Keep out what a column means: that is the view's SQL.
"""

from __future__ import annotations

import duckdb

from pipelines.publishing import published_tables
from pipelines.publishing.published_tables import FINANCE

# Where the views' tables are found: the marts and the advice in the publication, what the fleet file states in the
# warehouse.
_READ = ("target.marts", "target.published", "warehouse.fleet")


def write(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the tables anew in the attached `target` by the views of the attached `warehouse`; drop those that have no
    view any more."""
    views = connection.execute(
        "select view_name, sql from duckdb_views() where database_name = 'warehouse' and schema_name = ? order by all",
        [FINANCE],
    ).fetchall()
    connection.execute(f"create schema if not exists target.{FINANCE}")
    held = connection.execute(
        "select table_name from duckdb_tables() where database_name = 'target' and schema_name = ?", [FINANCE]
    ).fetchall()
    for (name,) in set(held) - {(name,) for name, _ in views}:
        connection.execute(f'drop table target.{FINANCE}."{name}"')
    if not views:
        return
    before = connection.execute("select current_setting('search_path')").fetchall()[0][0]
    connection.execute(f"set search_path = '{','.join(_READ)}'")
    try:
        for name, sql in views:
            query = sql.partition(" AS ")[2].rstrip(";\n ")
            # In an order, so that what did not change has the same bytes.
            connection.execute(
                f'create or replace table target.{FINANCE}."{name}" as select * from ({query}) order by all'
            ).fetchall()
    finally:
        connection.execute(f"set search_path = '{before}'")
    made = published_tables.tables(connection, "target").values()
    published_tables.copy_comments(connection, [table for table in made if table.schema == FINANCE])
