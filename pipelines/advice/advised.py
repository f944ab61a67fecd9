"""What advice is computed from, as dbt makes it: the models int_advised_… (dbt_project/models/advice/inputs).

Add here how such a model is read. Keep out formulas of its figures (they are in the model) and of advice
(`pipelines.analysis`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import pandas as pd

from pipelines.warehouse import lineage


def read(connection: duckdb.DuckDBPyConnection, name: str, columns: Sequence[str] = ("*",)) -> pd.DataFrame:
    """The rows of a model, sorted by all columns; the column `usage` numbers deployments."""
    listed = ", ".join(columns)
    return connection.execute(f"select {listed} from intermediate.int_advised_{name} order by all").df()


def tables_read(manifest: Mapping[str, Any], names: Sequence[str]) -> list[tuple[str, str]]:
    """Schema and name of the tables that these models read: what is computed from the models comes after them."""
    return lineage.tables_read(manifest, [f"int_advised_{name}" for name in names])


def usage(connection: duckdb.DuckDBPyConnection) -> pd.DataFrame:
    """One row per deployment, numbered by the index `usage`, with all that recommendations are computed from."""
    found = read(connection, "usage").set_index("usage").sort_index()
    # A column of integers and NULLs arrives in a masked type of pandas, and every comparison with it would be masked.
    masked = [name for name, kind in found.dtypes.items() if str(kind).startswith("Int")]
    return found.astype(dict.fromkeys(masked, float))
