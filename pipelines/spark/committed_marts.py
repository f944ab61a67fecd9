"""The marts that Spark built, as readers find them: one committed file lists the folders of a lake that are the marts.

    <lake>/marts/_committed.json                     which folders are the marts; one put of it switches all of them
    <lake>/marts/<run_id>/<mart>/date=<date>/        what one run wrote; a committed folder is never written again

Add here how committed marts are found, read and brought back into the warehouse. Keep out how they are built
(`driver`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import duckdb

# Marts are replaced by month or by date. Windows may have started on the date before the run, and are few: they are
# copied. Marts that are computed from a whole lookback, or have no dates, are computed whole by every run.
MONTHLY = frozenset({"model_monthly"})
COPIED = frozenset({"load_test_phases", "run_windows"})
REMADE = frozenset(
    {
        "benchmark_efficiency",
        "deployment_usage",
        "efficiency_curve",
        "efficiency_curve_daily",
        "free_boards",
        "held_back_tables",
        "model_footprints",
        "partial_load_cost",
        "phase_energy",
        "phase_fit",
        "phase_pools_hourly",
        "recoverable_energy",
        "slo_capacity",
    }
)


@dataclass(frozen=True)
class Committed:
    """Which folders are the marts: per mart its columns in the contract's order (name, Spark type), and its partitions
    (value -> folder relative to the lake; an unpartitioned mart has the one partition "")."""

    run_id: str = ""
    columns: Mapping[str, list[tuple[str, str]]] = field(default_factory=dict)
    folders: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, lake: Path) -> Committed:
        """The committed marts of a lake; none before the first build."""
        path = lake / "marts" / "_committed.json"
        if not path.exists():
            return cls()
        contents = json.loads(path.read_text(encoding="utf-8"))
        columns = {mart: [(name, kind) for name, kind in listed] for mart, listed in contents["columns"].items()}
        return cls(contents["run_id"], columns, contents["folders"])

    def put(self, lake: Path) -> None:
        """Make these the committed marts, by one rename: a reader sees either the old state or the new one."""
        path = lake / "marts" / "_committed.json"
        fresh = path.with_name(f"{self.run_id}.json")
        contents = {"run_id": self.run_id, "columns": self.columns, "folders": self.folders}
        with fresh.open("w", encoding="utf-8") as file:
            json.dump(contents, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)


def partition_column(mart: str) -> str | None:
    """The column by which a mart is divided into folders; None for a mart of one folder."""
    return None if mart in COPIED | REMADE else "month" if mart in MONTHLY else "date"


def committed_rows(lake: Path, mart: str) -> str:
    """A DuckDB query for the committed rows of a mart, its columns in the contract's order."""
    made = Committed.of(lake)
    column = partition_column(mart)
    kinds = dict(made.columns[mart])
    if not made.folders[mart]:
        # Spark's timestamp is an instant; DuckDB knows its other types by Spark's own names.
        ours = {name: "timestamptz" if kind == "timestamp" else kind for name, kind in kinds.items()}
        nulls = ", ".join(f'cast(null as {kind}) as "{name}"' for name, kind in ours.items())
        return f"select {nulls} where false"
    files = ", ".join(f"'{_quoted(lake / folder)}/*.parquet'" for folder in made.folders[mart].values())
    typed = f", hive_partitioning = true, hive_types = {{{column}: date}}" if column else ""
    listed = ", ".join(f'"{name}"' for name in kinds)
    return f"select {listed} from read_parquet([{files}]{typed})"


def bring_back(connection: duckdb.DuckDBPyConnection, lake: Path, start: date, end: date) -> dict[str, int]:
    """Replace the marts of a warehouse by the committed ones, in one transaction; rows brought, by mart.

    In a mart by date only the dates [start, end) are replaced. They are then published as DuckDB's own rows are.
    """
    rows = {}
    connection.execute("begin")
    try:
        for mart in Committed.of(lake).columns:
            query = committed_rows(lake, mart)
            where = f"where date >= date '{start}' and date < date '{end}'" if partition_column(mart) == "date" else ""
            connection.execute(f"delete from marts.{mart} {where}")
            connection.execute(f"insert into marts.{mart} by name select * from ({query}) {where}")
            rows[mart] = connection.execute(f"select count(*) from marts.{mart} {where}").fetchall()[0][0]
        connection.execute("commit")
    except duckdb.Error:
        connection.execute("rollback")
        raise
    return rows


def _quoted(text: object) -> str:
    return str(text).replace("'", "''")
