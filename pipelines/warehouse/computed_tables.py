"""Tables that Python computes from the marts: written whole, in one transaction, each column with type and comment.

Add here what holds for all of them. Keep out a table's columns: these are in the module that computes it.
"""

from __future__ import annotations

from collections.abc import Mapping

import duckdb
import pandas as pd

from pipelines.warehouse import database

# The computed tables of schema marts. `upgrades` drops any other table there that dbt does not make.
COMPUTED_MARTS = frozenset({"budget_monthly", "cost_forecast", "efficiency_fit"})
# Name of a column -> SQL type, description.
Columns = Mapping[str, tuple[str, str]]


def write_table(
    connection: duckdb.DuckDBPyConnection, name: str, comment: str, columns: Columns, rows: pd.DataFrame
) -> None:
    """Replace the table `name` (schema.table) by these `columns` of `rows`, in this order."""
    listed = ", ".join(f'cast("{column}" as {kind}) as "{column}"' for column, (kind, _) in columns.items())
    with database.transaction(connection):
        connection.execute(f"create schema if not exists {name.partition('.')[0]}")
        with database.registered(connection, rows_computed=rows[list(columns)]):
            connection.execute(f"create or replace table {name} as select {listed} from rows_computed").fetchall()
        connection.execute(f"comment on table {name} is {database.literal(comment)}")
        for column, (_, description) in columns.items():
            connection.execute(f'comment on column {name}."{column}" is {database.literal(description)}')
