"""published.consolidation: which models could share accelerators or be spun down, planned anew by every run.

Add here what carries a fleet's placement and loads from the marts to a plan and back. Keep out what is planned, and why
(`analysis.packing`, `analysis.consolidation`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg
import duckdb

from pipelines.advice import advised, shared_columns
from pipelines.advice.shared_columns import (
    AVOIDABLE_COLUMNS,
    CONFIDENCE,
    IS_PREFERRED,
    MOVE_COLUMNS,
    SAVING_COLUMNS,
    WAITING_COLUMNS,
    mark_preferred,
    trusted,
    without_split,
)
from pipelines.analysis import consolidation
from pipelines.analysis.sizes import KEYS
from pipelines.fleet.fleet_file import Fleet
from pipelines.publishing import parts, pictures
from pipelines.warehouse import database
from pipelines.warehouse.asset_keys import asset_key
from pipelines.warehouse.computed_tables import write_table

READ = ("usage", "intervals", "days", "engines", *shared_columns.READ)
TABLE_COMMENT = (
    "One row per site, deployment, model, device type, meter scope and role: what it does in a plan that serves the"
    " lookback's loads with fewer accelerators. Rows of one colocation_id are followed together or not at all. Follow,"
    " and add up, the rows with is_preferred of this table and of published.right_sizing. How: docs/recommendations."
    " [topic: advice]"
)
COLUMNS = {
    "recommendation_id": ("varchar", "Hash of date, kind and names: the same row, the same id."),
    "as_of_date": ("date", "Newest booked UTC date: the lookback ends with it."),
    "kind": (
        "varchar",
        "`spin_down` (no token in the whole lookback), `sleep_when_idle` (unload it once it was idle for"
        " break_even_seconds), `colocate` (its engines share accelerators with those of `shares_with`), `move` (as it"
        " is, to a smaller node that is empty then: move_to_node), `keep` (it stays where it is; whether its own size"
        " may change is in published.right_sizing), `insufficient_data`.",
    ),
    "reason_code": ("varchar", "Why: docs/recommendations/reason_codes.md lists the codes."),
    **dict.fromkeys(KEYS, ("varchar", "As in deployment_usage.")),
    "quadrant": (
        "varchar",
        "`high_allocation_low_usage` and so on: high is an allocation_ratio of 0.5 and a usage_ratio of 0.4 or more."
        " Usage is low, too, where even of the highest load ever seen it was less than 0.4. NULL: one of them is not"
        " known.",
    ),
    "allocation_ratio": ("double", "As in deployment_usage."),
    "usage_ratio": (
        "double",
        "Mean demand over the load that it carries within its SLO; 0 where no token was served. NULL: not known, as"
        " long as no load was seen to be too much: the highest load ever seen is no capacity.",
    ),
    "current_gpus": ("double", "Accelerators held now. NULL: not known."),
    "recommended_gpus": (
        "double",
        "Accelerators it would hold in its own name: an engine that joins another's holds none. NULL:"
        " insufficient_data.",
    ),
    "current_replicas": ("integer", "Engines now. NULL: not known."),
    "current_watts": (
        "double",
        "Mean watts of those accelerators over the lookback, within meter_scope. NULL: not known.",
    ),
    **SAVING_COLUMNS,
    **AVOIDABLE_COLUMNS,
    **MOVE_COLUMNS,
    "risk_ratio": (
        "double",
        "Share of the lookback's intervals in which the accelerators shared would have been asked for more than their"
        " SLO capacity, 0-1; of a model that sleeps, waiting_requests_ratio_high (waiting_tokens_ratio where it is"
        " NULL). NULL: nothing changes.",
    ),
    **WAITING_COLUMNS,
    "confidence": CONFIDENCE,
    "break_even_seconds": (
        "double",
        "Idle seconds after which unloading pays: joules of loading over parked watts less those without a model. NULL:"
        " not known, or it never pays.",
    ),
    "shares_with": ("varchar", "Deployments on the same accelerators in the plan, site to role. NULL: none."),
    "moves": ("integer", "Engines that would move."),
    "target_node": ("varchar", "Nodes of its engines in the plan. NULL: it shares with no deployment."),
    "target_gpu_group": ("varchar", "Accelerators of its engines in the plan, group by group. NULL: as there."),
    "colocation_id": (
        "varchar",
        "Of all rows that share accelerators, directly or through others: they are followed together or not at all."
        " NULL: it shares with no deployment.",
    ),
    "plan_id": ("varchar", "Hash of the plan that all rows are of."),
    "gap_ratio": (
        "double",
        "How far the accelerators of all engines that could share are from a proven lower bound, as a share of the"
        " plan: 0 is optimal.",
    ),
    "evidence": (
        "json",
        "The inputs of the row by their columns' names, to six digits; what is not known is left out.",
    ),
    "lookback_start_at": ("timestamptz", "As in deployment_usage."),
    "lookback_end_at": ("timestamptz", "As in deployment_usage."),
    "held_back_dates": ("varchar", "As in deployment_usage: dates of the lookback that count as without telemetry."),
    "is_complete": ("boolean", "As in deployment_usage."),
    "exclusive_group_id": (
        "varchar",
        "site/deployment/model/role: rows of one group exclude one another, here and in published.right_sizing.",
    ),
    "is_preferred": IS_PREFERRED,
}


def write_consolidation(connection: duckdb.DuckDBPyConnection) -> consolidation.Consolidation:
    """Replace published.consolidation by a plan for what the marts hold now, and mark which rows of both tables to
    follow; returns the plan.

    InfeasiblePlan names the rules that a plan breaks; nothing is written then.
    """
    made = consolidation.consolidate(_read(connection))
    write_table(
        connection, "published.consolidation", TABLE_COMMENT, COLUMNS, without_split(trusted(connection, made.rows))
    )
    made.rows["is_preferred"] = made.rows["recommendation_id"].isin(mark_preferred(connection))
    return made


def _read(connection: duckdb.DuckDBPyConnection) -> consolidation.Fleet:
    usage = advised.usage(connection)
    grid = advised.grid(connection, usage)
    engines, days = advised.read(connection, "engines"), advised.read(connection, "days").dropna(subset="seconds")
    unknown = frozenset(node for nodes in engines["unknown_nodes"].dropna() for node in nodes)
    boards = advised.read(connection, "boards")
    found = grid.load, grid.idle, grid.seconds or 1, days, *grid.asked
    return consolidation.Fleet(usage, engines, boards, unknown, *found)


def consolidation_asset(fleet: Fleet, manifest: Mapping[str, Any], pool: str) -> dg.AssetsDefinition:
    """published/consolidation, after the tables that it reads."""
    key = asset_key(fleet, "published", "consolidation")

    @dg.asset(
        key=key,
        deps=[asset_key(fleet, *table) for table in advised.tables_read(manifest, READ)],
        check_specs=[parts.spec(key)],
        group_name="published",
        kinds={"duckdb"},
        pool=pool,
    )
    def consolidation_() -> Iterator[Any]:
        """Which models could share accelerators or be spun down, what that saves, how far the plan is from the best."""
        with database.writing(fleet.warehouse, "consolidation"), database.connect(fleet.warehouse) as held:
            made = write_consolidation(held)
        rows, plan = made.rows, made.plan
        title = f"{fleet.fleet}: GPUs by node, now and in the plan ({fleet.telemetry})"
        made_parts = parts.Parts()
        picture = made_parts.picture("plan", lambda: pictures.consolidation_plan(made.nodes, title))
        yield dg.MaterializeResult(
            metadata={
                "dagster/row_count": len(rows),
                "kinds": {str(kind): int(n) for kind, n in rows["kind"].value_counts().items()},
                "gpus_that_could_share": f"{plan.gpus_before} now, {plan.gpus_after} in the plan",
                "gap_ratio": plan.gap_ratio,
                "plan_saving_kwh_month": float(rows["saving_kwh_month"].sum()),
                "plan": dg.MarkdownMetadataValue(picture),
            }
        )
        yield made_parts.result(key)

    return consolidation_
