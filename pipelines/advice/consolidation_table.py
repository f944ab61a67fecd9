"""published.consolidation: which models could share accelerators or be spun down, planned anew by every run.

Add here what carries a fleet's placement and loads from the marts to a plan and back. Keep out what is planned, and why
(`analysis.packing`, `analysis.consolidation`).
"""

from __future__ import annotations

from contextlib import closing

import dagster as dg
import duckdb
import numpy as np

from pipelines.advice import right_sizing_table
from pipelines.advice.shared_columns import CONFIDENCE, IS_PREFERRED, SAVING_COLUMNS, mark_preferred
from pipelines.analysis import consolidation
from pipelines.analysis.sizes import KEYS
from pipelines.fleet.fleet_file import Fleet
from pipelines.publishing import pictures
from pipelines.warehouse import database
from pipelines.warehouse.asset_keys import asset_key
from pipelines.warehouse.computed_tables import write_table

READ = (
    *("deployment_usage", "energy_ledger", "model_footprints", "model_intervals", "pressure_hourly"),
    "unmetered_devices",
)
TABLE_COMMENT = (
    "One row per site, deployment, model, device type, meter scope and role: what it does in a plan that serves the"
    " lookback's loads with fewer accelerators. Rows of one colocation_id are followed together or not at all. Follow,"
    " and add up, the rows with is_preferred of this table and of published.right_sizing. How: docs/recommendations.md."
)
COLUMNS = {
    "recommendation_id": ("varchar", "Hash of date, kind and names: the same row, the same id."),
    "as_of_date": ("date", "Newest booked UTC date: the lookback ends with it."),
    "kind": (
        "varchar",
        "`spin_down` (no token in the whole lookback), `sleep_when_idle` (unload it once it was idle for"
        " break_even_seconds), `colocate` (its engines share accelerators with those of `shares_with`), `keep` (it"
        " stays where it is; whether its own size may change is in published.right_sizing), `insufficient_data`.",
    ),
    "reason_code": ("varchar", "Why: docs/recommendations.md lists the codes of each kind."),
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
    "risk_ratio": (
        "double",
        "Share of the lookback's intervals in which the accelerators shared would have been asked for more than their"
        " SLO capacity; of a model that sleeps, the share of time in which requests would have waited for it, 0-1."
        " NULL: nothing changes.",
    ),
    "confidence": CONFIDENCE,
    "break_even_seconds": (
        "double",
        "Idle seconds after which unloading pays: joules of loading over parked watts less those without a model. NULL:"
        " not known, or it never pays.",
    ),
    "shares_with": ("varchar", "Deployments on the same accelerators in the plan, site to role. NULL: none."),
    "moves": ("integer", "Engines that would move."),
    "target_node": ("varchar", "Nodes of its engines in the plan. NULL: it shares with nobody."),
    "target_gpu_group": ("varchar", "Accelerators of its engines in the plan, group by group. NULL: as there."),
    "colocation_id": (
        "varchar",
        "Of all rows that share accelerators, directly or through others: they are followed together or not at all."
        " NULL: it shares with nobody.",
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

# Who holds which accelerators: as in the newest interval that the deployment has.
_ENGINES = f"""
with newest as (
    select *, coalesce(device_type, '__unknown__') as known_type
    from marts.energy_ledger where date = (select max(as_of_date) from marts.deployment_usage)
    qualify interval_start_at = max(interval_start_at) over (partition by site, deployment, model, meter_scope, role)
),
engines as (
    select usage.usage, newest.engine,
        list(distinct coalesce(newest.node, '') order by coalesce(newest.node, '')) as nodes,
        string_agg(distinct newest.meter, ',' order by newest.meter) as gpu_group,
        count(distinct newest.meter) as gpus
    from newest
    inner join usage_told as usage
        on {" and ".join(f"newest.{key} = usage.{key}" for key in KEYS if key != "device_type")}
        and newest.known_type = usage.device_type
    group by all
),
-- A board that two engines hold in different company belongs to no group.
boards as (
    select engine, gpu_group, unnest(string_split(gpu_group, ',')) as meter from engines
),
overlapping as (
    select distinct boards.engine from boards
    inner join boards as others on boards.meter = others.meter and boards.gpu_group <> others.gpu_group
)
select engines.usage, engines.engine || ' ' || engines.usage as engine, engines.nodes[1] as node, engines.nodes,
    engines.gpu_group, engines.gpus, overlapping.engine is not null as overlaps
from engines left join overlapping using (engine)
order by engines.usage, engines.engine
"""
_UNKNOWN_NODES = """
select distinct coalesce(node, '') as node from marts.energy_ledger
where date = (select max(as_of_date) from marts.deployment_usage) and model = '__unknown__'
union
-- Nobody knows what would be saved by switching off a node on which such a device works.
select distinct coalesce(node, '') as node from marts.unmetered_devices
where date = (select max(as_of_date) from marts.deployment_usage) and model <> '__unallocated__'
"""
# Of each interval what share of its SLO capacity a deployment's accelerators were asked for.
_LOADS = f"""
select usage.usage::integer as usage,
    date_diff('second', first_at, interval_start_at)::integer // usage.grid_seconds as interval_number,
    ((case when role = 'prefill' then matched_total_tokens else matched_output_tokens end)::double
    / nullif(matched_gpu_seconds, 0)::double / usage.capacity_tokens_per_second_per_gpu)::float as load,
    {right_sizing_table.IS_PARKED}::tinyint as idle
from marts.model_intervals as intervals
inner join usage_told as usage using ({", ".join(KEYS)})
where interval_start_at >= usage.lookback_start_at and interval_start_at < usage.lookback_end_at
    and {right_sizing_table.NOT_HELD_BACK}
"""
_SPAN = """
select min(lookback_start_at), date_diff('second', min(lookback_start_at), max(lookback_end_at)),
    (select max(interval_seconds) from marts.model_intervals)
from marts.deployment_usage
"""


def write_consolidation(connection: duckdb.DuckDBPyConnection) -> consolidation.Consolidation:
    """Replace published.consolidation by a plan for what the marts hold now, and mark which rows of both tables to
    follow; returns the plan.

    InfeasiblePlan says which rule a plan breaks; nothing is written then.
    """
    made = consolidation.consolidate(_read(connection))
    write_table(connection, "published.consolidation", TABLE_COMMENT, COLUMNS, made.rows)
    made.rows["is_preferred"] = made.rows["recommendation_id"].isin(mark_preferred(connection))
    return made


def _read(connection: duckdb.DuckDBPyConnection) -> consolidation.Fleet:
    usage = right_sizing_table.read_usage(connection)
    labels = dict(connection.execute("select model, keep_apart from fleet.models").fetchall())
    usage["keep_apart"] = usage["model"].map(labels)
    ((first_at, seconds, interval_seconds),) = connection.execute(_SPAN).fetchall()
    # Without any interval of known power and tokens there is no load, and no grid to lay it on.
    intervals = (seconds or 0) // interval_seconds if interval_seconds else 0
    load = np.full((len(usage), intervals), np.nan, dtype=np.float32)
    idle = np.full((len(usage), intervals), -1, dtype=np.int8)
    told = usage.reset_index()[
        ["usage", *KEYS, "as_of_date", "lookback_start_at", "lookback_end_at", "capacity_tokens_per_second_per_gpu"]
    ].assign(first_at=first_at, grid_seconds=interval_seconds or 1)
    told["lookback_start_date"] = usage["lookback_start_at"].dt.tz_convert("UTC").dt.date
    with database.registered(connection, usage_told=told):
        found = connection.execute(_LOADS).fetchnumpy()
        engines = connection.execute(_ENGINES).df()
        days = right_sizing_table.read_days(connection)
    at = found["usage"], found["interval_number"]
    load[at] = np.ma.filled(found["load"], np.nan)
    idle[at] = np.ma.filled(found["idle"], -1)
    unknown = frozenset(node for (node,) in connection.execute(_UNKNOWN_NODES).fetchall())
    return consolidation.Fleet(usage, engines, unknown, load, idle, interval_seconds or 1, days)


def consolidation_asset(fleet: Fleet, pool: str) -> dg.AssetsDefinition:
    """published/consolidation, after the marts that it reads."""
    key = asset_key(fleet, "published", "consolidation")
    read = [asset_key(fleet, "marts", name) for name in READ]

    @dg.asset(key=key, deps=read, group_name="published", kinds={"duckdb"}, pool=pool)
    def consolidation_() -> dg.MaterializeResult[None]:
        """Which models could share accelerators or be spun down, what that saves, how far the plan is from the best."""
        with database.writing(fleet.warehouse, "consolidation"), closing(database.connect(fleet.warehouse)) as held:
            made = write_consolidation(held)
        label = "synthetic telemetry" if fleet.synthetic else "metered"
        rows, plan = made.rows, made.plan
        title = f"{fleet.fleet}: GPUs by node, now and in the plan ({label})"
        return dg.MaterializeResult(
            metadata={
                "dagster/row_count": len(rows),
                "kinds": {str(kind): int(n) for kind, n in rows["kind"].value_counts().items()},
                "gpus_that_could_share": f"{plan.gpus_before} now, {plan.gpus_after} in the plan",
                "gap_ratio": plan.gap_ratio,
                "plan_saving_kwh_month": float(rows["saving_kwh_month"].sum()),
                "plan": dg.MarkdownMetadataValue(
                    pictures.attempted("plan", lambda: pictures.consolidation_plan(made.nodes, title))
                ),
            }
        )

    return consolidation_
