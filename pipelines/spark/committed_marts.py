"""The marts that Spark built, as readers find them: one file lists the folders of the lake that hold each mart.

    <lake>/marts/_committed.json                     the folders of every mart; replacing this file switches them all
    <lake>/marts/<run_id>/<mart>/date=<date>/        what one run wrote; a committed folder is never written again

Add here how committed marts are found, read and brought back into the warehouse. Keep out how they are built
(`driver`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import duckdb

from collectors.durable_files import write_whole
from pipelines.warehouse import database

# A run replaces months of the marts in MONTHLY, and dates of the marts in no list. In COPIED it replaces the windows
# that overlap its dates, and copies the others into its own folder: they are few. It computes the marts in REMADE
# whole: they have no dates, or need a whole lookback.
MONTHLY = {
    "figure_intervals": "month",
    "model_monthly": "month",
    "cost_daily": "billing_month",
    "cost_reconciliation_daily": "billing_month",
    "cost_reconciliation_monthly": "billing_month",
    "focus_cost_and_usage": "billing_month",
    "rack_economics_daily": "billing_month",
    "tenant_daily": "billing_month",
    "token_class_cost_daily": "billing_month",
}
# Of these also the months of the dates whose lookback has a date of the run.
OF_LOOKBACK = frozenset({"token_class_cost_daily"})
LOOKBACK_DAYS = 28  # curve_lookback_days of dbt_project.yml
COPIED = frozenset({"load_test_phases", "run_windows"})
REMADE = frozenset(
    {
        "accelerator_prices",
        "benchmark_efficiency",
        "configuration_history",
        "cost_anomalies_daily",
        "cost_change_daily",
        "deployment_usage",
        "doubts",
        "efficiency_curve",
        "efficiency_curve_daily",
        "free_boards",
        "held_back_tables",
        "list_price_comparison",
        "model_footprints",
        "partial_load_cost",
        "phase_energy",
        "phase_fit",
        "phase_pools_hourly",
        "platform_comparison",
        "platform_crossover",
        "platform_partial_load",
        "platform_results",
        "recoverable_energy",
        "scenario_results",
        "slo_capacity",
        "token_prices",
    }
)


@dataclass(frozen=True)
class Committed:
    """The columns and folders of every committed mart.

    `columns` has (name, Spark type) in the contract's order. `folders` has partition value -> folder, relative to the
    lake; a mart without partitions has one folder, under the value "".
    """

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
        contents = {"run_id": self.run_id, "columns": self.columns, "folders": self.folders}
        write_whole(lake / "marts" / "_committed.json", json.dumps(contents, indent=1).encode())


def partition_column(mart: str) -> str | None:
    """The column by which a mart is divided into folders; None for a mart of one folder."""
    return None if mart in COPIED | REMADE else MONTHLY.get(mart, "date")


def committed_rows(lake: Path, mart: str) -> str:
    """A DuckDB query for the committed rows of a mart, its columns in the contract's order."""
    made = Committed.of(lake)
    column = partition_column(mart)
    kinds = dict(made.columns[mart])
    if not made.folders[mart]:
        # Spark's timestamp is DuckDB's timestamptz; for all other types DuckDB accepts Spark's names.
        ours = {name: "timestamptz" if kind == "timestamp" else kind for name, kind in kinds.items()}
        nulls = ", ".join(f'cast(null as {kind}) as "{name}"' for name, kind in ours.items())
        return f"select {nulls} where false"
    files = ", ".join(database.literal(lake / folder / "*.parquet") for folder in made.folders[mart].values())
    typed = f", hive_partitioning = true, hive_types = {{{column}: date}}" if column else ""
    listed = ", ".join(f'"{name}"' for name in kinds)
    return f"select {listed} from read_parquet([{files}]{typed})"


def bring_back(connection: duckdb.DuckDBPyConnection, lake: Path, start: date, end: date) -> dict[str, int]:
    """Replace the marts of a warehouse by the committed ones, in one transaction; rows brought, by mart.

    Of a mart with a folder per date, only the dates [start, end) are replaced. These rows are then published like rows
    that DuckDB booked; but DuckDB does not know what they were made from, and makes its own.
    """
    rows = {}
    with database.transaction(connection):
        connection.execute("delete from raw.made_from").fetchall()
        for mart in Committed.of(lake).columns:
            query = committed_rows(lake, mart)
            where = f"where date >= date '{start}' and date < date '{end}'" if partition_column(mart) == "date" else ""
            connection.execute(f"delete from marts.{mart} {where}")
            connection.execute(f"insert into marts.{mart} by name select * from ({query}) {where}")
            rows[mart] = connection.execute(f"select count(*) from marts.{mart} {where}").fetchall()[0][0]
    return rows
