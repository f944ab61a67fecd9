"""published.right_sizing: which deployments could be served with less, made anew from the marts of every run.

Add here what carries usage from the marts to a recommendation and back. Keep out what is recommended, and why
(`analysis.sizes`, `analysis.right_sizing`).
"""

from __future__ import annotations

from contextlib import closing

import dagster as dg
import duckdb
import pandas as pd

from pipelines.advice import power_limits, shared_columns
from pipelines.advice.shared_columns import CONFIDENCE, IS_PREFERRED, SAVING_COLUMNS
from pipelines.analysis import power_caps, right_sizing, sizes
from pipelines.fleet.fleet_file import Fleet
from pipelines.publishing import pictures
from pipelines.warehouse import database
from pipelines.warehouse.asset_keys import asset_key
from pipelines.warehouse.computed_tables import write_table

READ = (
    *("benchmark_efficiency", "deployment_usage", "model_footprints", "model_intervals", "pressure_hourly"),
    *power_limits.READ,
)
TABLE_COMMENT = (
    "One row per site, deployment, model, device type, meter scope, role and change of size that the evidence of the"
    " lookback allows; where it allows none, one row of kind keep or insufficient_data. Follow, and add up, the rows"
    " with is_preferred of this table and of published.consolidation. How each is computed: docs/recommendations.md."
)
_CHANGE = " NULL: nothing is known to be enough."
# Name -> type, description.
COLUMNS = {
    "recommendation_id": ("varchar", "Hash of date, kind, names and recommended device type: same row, same id."),
    "as_of_date": ("date", "Newest booked UTC date: the lookback ends with it."),
    "kind": (
        "varchar",
        "`fewer_replicas`, `fewer_gpus` (a smaller tensor-parallel size), `smaller_device`, `newer_device`,"
        " `power_cap`, `sleep_outside_hours`, `spin_down` (no token in the whole lookback), `keep` (right as it is),"
        " `insufficient_data`.",
    ),
    **dict.fromkeys(sizes.KEYS, ("varchar", "As in deployment_usage.")),
    "current_gpus": ("double", "Accelerators held now. NULL: not known."),
    "recommended_gpus": ("double", f"Accelerators that are enough.{_CHANGE}"),
    "current_replicas": ("double", "Engines now. NULL: not known."),
    "recommended_replicas": ("double", f"Engines that are enough.{_CHANGE}"),
    "current_gpus_per_replica": ("double", "Accelerators of an engine now. NULL: not known."),
    "recommended_gpus_per_replica": ("double", f"Accelerators of an engine then; NULL where none is left.{_CHANGE}"),
    "recommended_device_type": ("varchar", f"Device type then; NULL where none is left.{_CHANGE}"),
    "current_power_limit_watts": ("double", "Power limit of each accelerator now. NULL: another kind."),
    "recommended_power_limit_watts": ("double", "Power limit that is enough. NULL: another kind."),
    "idle_hours_per_week": ("double", "Hours of the local week to sleep through. NULL: another kind."),
    **SAVING_COLUMNS,
    "risk_ratio": (
        "double",
        "Share of the intervals of the lookback whose demand was above the recommended capacity, 0-1. NULL: nothing"
        " changes.",
    ),
    "confidence": CONFIDENCE,
    "reason_code": ("varchar", "Why: docs/recommendations.md lists the codes of each kind."),
    "evidence_basis": (
        "varchar",
        "What says that the recommended size is enough: `requests_within_slo`, `histogram_within_slo`,"
        " `highest_observed`, `lower_limit_within_slo`, `lower_limit_seen`, `published_benchmark`, `bandwidth_floor`,"
        " `no_demand`, `idle_hours`. NULL: nothing"
        " changes.",
    ),
    "recommended_capacity_tokens_per_second": (
        "double",
        "Tokens per second that the recommended size serves. NULL: nothing changes.",
    ),
    "evidence": (
        "varchar",
        "JSON: the inputs of the row by the names of their columns, to six digits; what is not known is left out.",
    ),
    "backtest_recommended_gpus": (
        "double",
        "Accelerators that the first three quarters of the lookback alone recommended for this change. NULL: none.",
    ),
    "backtest_short_ratio": (
        "double",
        "Share of the intervals of the last quarter in which those were too few, 0-1. NULL: as there.",
    ),
    "backtest_held": ("boolean", "Whether that is 0.01 or less. NULL: as there."),
    "lookback_start_at": ("timestamptz", "As in deployment_usage."),
    "lookback_end_at": ("timestamptz", "As in deployment_usage."),
    "exclusive_group_id": (
        "varchar",
        "site/deployment/model/role: rows of one group exclude one another, here and in published.consolidation.",
    ),
    "held_back_dates": ("varchar", "As in deployment_usage: dates of the lookback that count as without telemetry."),
    "is_complete": ("boolean", "As in deployment_usage."),
    "is_preferred": IS_PREFERRED,
}

# A date that is held back is evidence of nothing.
NOT_HELD_BACK = "date not in (select date from marts.held_back_dates)"
# As stg_device_types has it.
_FIGURES = ("gpus", "memory_gib", "memory_bandwidth_gb_per_second", "idle_watts_bare", "power_limit_watts")
_DEVICE_TYPES = f"""
    select device_type, {", ".join(f"coalesce(stated.{name}, seed.{name}) as {name}" for name in _FIGURES)}
    from reference.device_types as seed full join fleet.device_types as stated using (device_type)
"""
_USAGE = f"""
with pressure as (
    select site, deployment, model, role, count(*) as hours,
        sum(intervals)::double as pressure_intervals, sum(queued_intervals)::double as queued_intervals,
        case when count(preemptions) > 0 then count(*) filter (where preemptions > 0) end as preempted_hours,
        case when count(kv_cache_usage_ratio_max) > 0
            then count(*) filter (where kv_cache_usage_ratio_max >= 0.9) end as full_cache_hours,
        max(kv_cache_usage_ratio_max) as kv_cache_usage_ratio_max, max(running_requests_max) as running_requests_max,
        bool_or(has_queue_telemetry) as has_queue_telemetry
    from marts.pressure_hourly
    where {NOT_HELD_BACK} and date <= (select max(as_of_date) from marts.deployment_usage)
        and hour_start_at >= (select min(lookback_start_at) from marts.deployment_usage)
    group by all
)
select usage.*, footprints.* exclude (model), pressure.*,
    models.min_replicas, models.cold_start_seconds,
    device_types.memory_gib / coalesce(device_types.gpus, 1) as memory_gib,
    device_types.memory_bandwidth_gb_per_second / coalesce(device_types.gpus, 1) as memory_bandwidth_gb_per_second,
    device_types.idle_watts_bare / coalesce(device_types.gpus, 1) as idle_watts_bare,
    device_types.power_limit_watts / coalesce(device_types.gpus, 1) as power_limit_watts,
    -- The last quarter of the lookback is held back.
    usage.as_of_date + 1 - cast(greatest(usage.span_days // 4, 1) as integer) as held_start_date
from marts.deployment_usage as usage
left join pressure using (site, deployment, model, role)
left join marts.model_footprints as footprints on usage.model = footprints.model
left join fleet.models as models on usage.model = models.model
left join ({_DEVICE_TYPES}) as device_types on usage.device_type = device_types.device_type
order by site, deployment, model, usage.device_type, meter_scope, role
"""
# As the macro moved_tokens() has it; what is not told is not parked.
IS_PARKED = """coalesce(
        case
            when role = 'prefill' then coalesce(matched_total_tokens, matched_computed_input_tokens)
            else coalesce(
                matched_total_tokens, matched_output_tokens + matched_computed_input_tokens, matched_output_tokens
            )
        end = 0,
        false
    )"""
# Few rows, as a table: the planner would take the distinct of a big one to be big.
_SLOTS = """
create or replace temp table slots as
select site, interval_start_at,
    (isodow(local_at) - 1) * 24 + hour(local_at) as slot, cast(local_at as date) as local_date
from (
    select times.site, times.interval_start_at,
        timezone(coalesce(sites.time_zone, 'UTC'), interval_start_at) as local_at
    from (
        select distinct site, interval_start_at from marts.model_intervals
        where date >= (select min(cast(lookback_start_at as date)) from marts.deployment_usage)
    ) as times
    left join fleet.sites as sites on times.site = sites.site
)
"""
_DEMAND = f"""
create or replace temp table demand as
select usage.usage, date, date >= usage.held_start_date as is_held, slots.slot, slots.local_date,
    interval_seconds as seconds,
    (case when role = 'prefill' then matched_total_tokens else matched_output_tokens end)::double / interval_seconds
    as tokens_per_second,
    tokens_per_second * interval_seconds / nullif(matched_gpu_seconds, 0)::double as tokens_per_second_per_gpu,
    {IS_PARKED} as is_parked
from marts.model_intervals as intervals
inner join usage_told as usage using ({", ".join(sizes.KEYS)})
inner join slots using (site, interval_start_at)
where date >= usage.lookback_start_date and date <= usage.as_of_date and {NOT_HELD_BACK}
"""
_TRAINED = """
select usage, quantile_cont(tokens_per_second, 0.99) filter (where not is_held) as train_demand_p99,
    max(tokens_per_second) filter (where not is_held) as train_demand_max,
    count(*) filter (where not is_parked) as busy_intervals,
    count(*) filter (where not is_parked and not is_held) as train_busy_intervals,
    count(*) filter (where not is_parked and is_held) as held_busy_intervals,
    count(*) filter (where is_held) as held_intervals
from demand group by usage
"""
_DAYS = f"""
select usage, date, sum(matched_joules)::double as joules, sum(matched_gpu_seconds)::double as gpu_seconds,
    coalesce(sum(matched_joules) filter (where is_parked), 0)::double as parked_joules,
    coalesce(sum(matched_gpu_seconds) filter (where is_parked), 0)::double as parked_gpu_seconds,
    sum(tokens)::double as tokens, sum(interval_seconds)::double as seconds
from (
    select usage.usage, date, matched_joules, matched_gpu_seconds, interval_seconds,
        case when role = 'prefill' then matched_total_tokens else matched_output_tokens end as tokens,
        {IS_PARKED} as is_parked
    from marts.model_intervals
    inner join usage_told as usage using ({", ".join(sizes.KEYS)})
    where date >= usage.lookback_start_date and date <= usage.as_of_date and {NOT_HELD_BACK}
)
group by usage, date order by usage, date
"""
_HOURS = """
with hours as (
    select usage, slot, local_date, bool_or(is_held) as is_held,
        bool_and(is_parked) as is_quiet, bool_and(is_parked) and sum(seconds) >= 3600 as is_idle,
        count(*) filter (where is_held) as held_intervals,
        count(*) filter (where is_held and not is_parked) as held_busy_intervals
    from demand group by all
)
-- An hour of which a part is missing worked if the rest did; else nobody knows, and it was not seen.
select usage, slot, count(*) filter (where is_idle or not is_quiet) as weeks,
    count(*) filter (where is_idle) as idle_weeks,
    count(*) filter (where not is_held and (is_idle or not is_quiet)) as train_weeks,
    count(*) filter (where is_idle and not is_held) as train_idle_weeks,
    sum(held_intervals)::bigint as held_intervals, sum(held_busy_intervals)::bigint as held_busy_intervals
from hours group by all order by all
"""
_SHORTFALLS = """
select candidate, count(*) as intervals,
    count(*) filter (where tokens_per_second > capacity) as short_intervals,
    count(*) filter (where is_held) as held_intervals,
    count(*) filter (where is_held and tokens_per_second > capacity) as held_short_intervals
from demand inner join sizes_proposed using (usage) group by candidate order by candidate
"""
# What a published model did on each device type at a pace that its users bear: its SLO, else 20 tokens a second.
_BENCHMARKS = """
with published as (
    select footprints.model, device_types.device_type, device_types.valid_from as device_since, accelerators,
        output_tokens_per_second_per_gpu as tokens_per_second_per_gpu, joules_per_output_token
    from marts.benchmark_efficiency as results
    inner join marts.model_footprints as benchmarked on results.model = benchmarked.model
    inner join marts.model_footprints as footprints using (published_model, precision)
    left join fleet.models as models on footprints.model = models.model
    inner join reference.device_types as device_types
        on split_part(device_types.device_type, '-', 1) = lower(results.accelerator) and device_types.gpus = 1
    where results.inter_token_latency_seconds <= coalesce(models.tpot_slo_seconds, 0.05)
)
select model, device_type, device_since, accelerators, max(tokens_per_second_per_gpu) as tokens_per_second_per_gpu,
    min(joules_per_output_token) as joules_per_output_token
from published group by all order by all
"""


def read_usage(connection: duckdb.DuckDBPyConnection) -> pd.DataFrame:
    """One row per deployment, numbered by the index `usage`, with all that recommendations are computed from."""
    usage = connection.execute(_USAGE).df().rename_axis("usage")
    # Whole numbers of which some are not known come masked, and so would every comparison with them.
    masked = [name for name, kind in usage.dtypes.items() if str(kind).startswith("Int")]
    return usage.astype(dict.fromkeys(masked, float))


def read_days(connection: duckdb.DuckDBPyConnection) -> pd.DataFrame:
    """What each date of the lookback says of watts and demand, as `savings.with_savings` reads it; the deployments are
    those of the registered table `usage_told`."""
    return connection.execute(_DAYS).df()


def write_right_sizing(connection: duckdb.DuckDBPyConnection) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Replace published.right_sizing by what the marts allow now, and mark which rows of both tables to follow; returns
    its rows and their backtests."""
    usage = read_usage(connection)
    numbered = usage.reset_index()[["usage", *sizes.KEYS, "as_of_date", "held_start_date"]]
    numbered["lookback_start_date"] = usage["lookback_start_at"].dt.tz_convert("UTC").dt.date
    benchmarks = connection.execute(_BENCHMARKS).df()
    with database.registered(connection, usage_told=numbered):
        connection.execute(_SLOTS).fetchall()
        connection.execute(_DEMAND).fetchall()
        days = read_days(connection)
    try:
        usage = usage.join(connection.execute(_TRAINED).df().set_index("usage"))
        hours = connection.execute(_HOURS).df()
        limits = power_limits.read_evidence(connection, usage, numbered, days)
        proposed = _proposed(usage, benchmarks, limits, "demand_tokens_per_second")
        earlier = _proposed(usage, benchmarks, limits and limits.part(is_held=False), "train_demand")
        earlier["held_saved_watts"] = power_caps.held_savings(usage, limits, earlier)
        tests = right_sizing.backtest(usage, earlier, _shortfalls(connection, earlier), hours)
        rows = right_sizing.recommend(
            usage, proposed, _shortfalls(connection, proposed), hours=hours, days=days, backtests=tests
        )
    finally:
        connection.execute("drop table demand").fetchall()
        connection.execute("drop table slots").fetchall()
    write_table(connection, "published.right_sizing", TABLE_COMMENT, COLUMNS, rows)
    rows["is_preferred"] = rows["recommendation_id"].isin(shared_columns.mark_preferred(connection))
    return rows[list(COLUMNS)], tests


def right_sizing_asset(fleet: Fleet, pool: str) -> dg.AssetsDefinition:
    """published/right_sizing, after the marts that it reads and the plan that its rows are compared with."""
    key = asset_key(fleet, "published", "right_sizing")
    read = [*(asset_key(fleet, "marts", name) for name in READ), asset_key(fleet, "published", "consolidation")]

    @dg.asset(key=key, deps=read, group_name="published", kinds={"duckdb"}, pool=pool)
    def published_right_sizing() -> dg.MaterializeResult[None]:
        """What each deployment could be served with instead, what that saves and how surely; or why nothing changes."""
        with database.writing(fleet.warehouse, "right_sizing"), closing(database.connect(fleet.warehouse)) as held:
            rows, tests = write_right_sizing(held)
            saved = shared_columns.preferred_saving_kwh_month(held)
        label = "synthetic telemetry" if fleet.synthetic else "metered"
        title = f"{fleet.fleet}: GPUs now and recommended ({label})"
        return dg.MaterializeResult(metadata=_metadata(rows, tests, title) | {"saving_kwh_month": saved})

    return published_right_sizing


def _proposed(
    usage: pd.DataFrame, benchmarks: pd.DataFrame, limits: power_caps.Evidence | None, demand: str
) -> pd.DataFrame:
    """Every smaller size and lower limit that would have served a demand, numbered."""
    sized, capped = sizes.candidates(usage, benchmarks, demand), power_caps.candidates(usage, limits, demand)
    if capped.empty:
        return sized
    return (
        pd.concat([sized.drop(columns="candidate"), capped], ignore_index=True).rename_axis("candidate").reset_index()
    )


def _shortfalls(connection: duckdb.DuckDBPyConnection, proposed: pd.DataFrame) -> pd.DataFrame:
    """How many of the lookback's intervals, and of the days held back, each candidate would have been too small for."""
    asked = proposed[["candidate", "usage"]].assign(
        capacity=proposed["recommended_capacity_tokens_per_second"].astype(float)
    )
    with database.registered(connection, sizes_proposed=asked):
        return connection.execute(_SHORTFALLS).df()


def _metadata(rows: pd.DataFrame, tests: pd.DataFrame, title: str) -> dict[str, dg.RawMetadataValue]:
    return {
        "dagster/row_count": len(rows),
        "kinds": {str(kind): int(n) for kind, n in rows["kind"].value_counts().items()},
        "sizes": dg.MarkdownMetadataValue(
            pictures.attempted("sizes", lambda: pictures.sizes_before_and_after(rows, title))
        ),
        "backtest": right_sizing.hit_ratio(tests),
        **({"backtest_hit_ratio": float(tests["backtest_held"].mean())} if len(tests) else {}),
    }
