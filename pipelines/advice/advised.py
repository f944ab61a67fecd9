"""What advice is computed from, as dbt makes it: the models int_advised_… (dbt_project/models/advice/inputs).

Add here how such a model is read. Keep out formulas of its figures (they are in the model) and of advice
(`pipelines.analysis`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pandas as pd

from pipelines.analysis import sleep
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


@dataclass(frozen=True)
class Grid:
    """Deployments (rows, as numbered) by intervals of `seconds` (columns). `load`: tokens per second per GPU over SLO
    capacity, NaN where one of them is not known; `idle`: 1 without any token, 0 with some, -1 where it is unknown.
    `asked` has the tokens of each interval, and by hours of the lookback the requests that ended."""

    load: np.ndarray
    idle: np.ndarray
    asked: sleep.Asked
    seconds: int


def grid(connection: duckdb.DuckDBPyConnection, deployments: pd.DataFrame) -> Grid:
    """The intervals of the lookback; none, of 0 seconds, where none has known power and tokens."""
    facts = ("load_ratio", "is_parked", "tokens", "hour_finished_requests")
    found = read(connection, "intervals", ("usage", "interval_start_at", "seconds", *facts))
    seconds = int(found["seconds"].max()) if len(found) else 0
    first_at, last_at = deployments["lookback_start_at"].min(), deployments["lookback_end_at"].max()
    intervals = int((last_at - first_at).total_seconds()) // seconds if seconds else 0
    load = np.full((len(deployments), intervals), np.nan, dtype=np.float32)
    idle = np.full((len(deployments), intervals), -1, dtype=np.int8)
    tokens = np.full((len(deployments), intervals), np.nan, dtype=np.float32)
    finished = np.full((len(deployments), -(-intervals * seconds // 3600)), np.nan)
    if seconds:
        nth = (found["interval_start_at"] - first_at) // pd.Timedelta(seconds=seconds)
        at = found["usage"].to_numpy(), nth.to_numpy()
        load[at] = found["load_ratio"]
        idle[at] = found["is_parked"]
        tokens[at] = found["tokens"]
        hour = (found["interval_start_at"] - first_at) // pd.Timedelta(hours=1)
        finished[found["usage"].to_numpy(), hour.to_numpy()] = found["hour_finished_requests"]
    return Grid(load, idle, sleep.Asked(tokens, finished), seconds)
