"""The tables that advice computes, empty: what reads them in SQL (dbt_project/models/finance) needs them to exist.

Add a table here when SQL of the dbt project reads it. Keep out rows: a table's own module writes them.
"""

from __future__ import annotations

import duckdb
import pandas as pd

from pipelines.advice import consolidation_table, cost_forecasts, right_sizing_table
from pipelines.warehouse.computed_tables import Columns, write_table

TABLES: dict[str, tuple[str, Columns]] = {
    "marts.budget_monthly": (cost_forecasts.BUDGET_COMMENT, cost_forecasts.BUDGET_COLUMNS),
    "marts.cost_forecast": (cost_forecasts.FORECAST_COMMENT, cost_forecasts.FORECAST_COLUMNS),
    "published.consolidation": (consolidation_table.TABLE_COMMENT, consolidation_table.COLUMNS),
    "published.right_sizing": (right_sizing_table.TABLE_COMMENT, right_sizing_table.COLUMNS),
}


def create(connection: duckdb.DuckDBPyConnection) -> None:
    """Create those that are missing, and anew those of an older version: the run that follows fills all of them."""
    rows = connection.execute(
        "select schema_name || '.' || table_name, list(column_name order by column_index) from duckdb_columns()"
        " where database_name = current_database() group by all"
    ).fetchall()
    held = dict(rows)
    for name, (comment, columns) in TABLES.items():
        if held.get(name) != list(columns):
            write_table(connection, name, comment, columns, pd.DataFrame(columns=list(columns)))
