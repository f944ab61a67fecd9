"""published.right_sizing: which deployments could be served with less, made anew from the marts of every run.

Add here what carries usage from the marts to a recommendation and back. Keep out what is recommended, and why
(`analysis.sizes`, `analysis.right_sizing`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg
import duckdb
import pandas as pd

from pipelines.advice import advised, shared_columns
from pipelines.advice.shared_columns import AVOIDABLE_COLUMNS, CONFIDENCE, IS_PREFERRED, MOVE_COLUMNS, SAVING_COLUMNS
from pipelines.analysis import power_caps, right_sizing, sizes, trials, variants
from pipelines.fleet.fleet_file import Fleet
from pipelines.publishing import parts, pictures
from pipelines.warehouse import database
from pipelines.warehouse.asset_keys import asset_key
from pipelines.warehouse.computed_tables import write_table

READ = ("usage", "intervals", "days", "loads", "hours", "benchmarks", "measured_sizes", *shared_columns.READ)
DEMAND = ("usage", "date", "is_held", "is_pressed", "tokens_per_second", "tokens_per_second_per_gpu")
TABLE_COMMENT = (
    "One row per site, deployment, model, device type, meter scope, role and change of size that the evidence of the"
    " lookback allows; where it allows none, one row of kind try_it, keep or insufficient_data. Follow, and add up, the"
    " rows with is_preferred of this table and of published.consolidation. How: docs/recommendations."
    " [start here: advice]"
)
_CHANGE = " NULL: nothing is known to be enough."
# Name -> type, description.
COLUMNS = {
    "recommendation_id": ("varchar", "Hash of date, kind, names and recommended device type: same row, same id."),
    "as_of_date": ("date", "Newest booked UTC date: the lookback ends with it."),
    "kind": (
        "varchar",
        "`fewer_replicas`, `fewer_gpus` (a smaller tensor-parallel size), `smaller_device`, `newer_device`,"
        " `power_cap`, `sleep_outside_hours`, `spin_down` (no token in the whole lookback), `try_it` (only data sheets"
        " show that a smaller size may be enough, or it may be too slow, or a copy in fewer bits fits, or no lower"
        " power limit was ever seen: an experiment, and no saving), `keep` (right as it is), `insufficient_data`.",
    ),
    **dict.fromkeys(sizes.KEYS, ("varchar", "As in deployment_usage.")),
    "current_gpus": ("double", "Accelerators held now. NULL: not known."),
    "recommended_gpus": ("double", f"Accelerators that are enough.{_CHANGE}"),
    "current_replicas": ("double", "Engines now. NULL: not known."),
    "recommended_replicas": ("double", f"Engines that are enough.{_CHANGE}"),
    "current_gpus_per_replica": ("double", "Accelerators of an engine now. NULL: not known."),
    "recommended_gpus_per_replica": ("double", f"Accelerators of an engine then; NULL where none is left.{_CHANGE}"),
    "recommended_device_type": ("varchar", f"Device type then; NULL where none is left.{_CHANGE}"),
    "current_power_limit_watts": (
        "double",
        "Power limit of each accelerator now, where a lower one is recommended or to be tried. NULL: another kind.",
    ),
    "recommended_power_limit_watts": ("double", "Power limit that is enough. NULL: another kind."),
    "idle_hours_per_week": ("double", "Hours of the local week to sleep through. NULL: another kind."),
    "trial_replicas": ("double", "Engines of the size to try. NULL: another kind, or a power limit is tried."),
    "trial_gpus_per_replica": ("double", "Accelerators of an engine of the size to try. NULL as there."),
    "trial_precision": (
        "varchar",
        "Bits of the weights of the copy to try, `int8` or `int4`. NULL: another kind, or the model is tried as it is.",
    ),
    "trial_weights_gib": ("double", "GiB of that copy's weights, of its parameters (seed). NULL as there."),
    "trial_kv_bytes_per_token": (
        "double",
        "Bytes of its KV cache per token: today's, or half of them for a cache of 8 bits instead of 16. NULL as there.",
    ),
    "trial_power_limit_watts": (
        "double",
        "Power limit of each accelerator to try: 0.8 of today's. NULL: another kind, or a size is tried.",
    ),
    "trial_days": (
        "double",
        "Days after which the trial can be assessed: at least 7, at most 28, and enough for 300 intervals with a demand"
        " above capacity_low_tokens_per_second (with any, where only the pace is in doubt); 1 of one replica less"
        " (no_load_was_too_much); of a power limit, for 12 intervals at each load that has the tokens. NULL: another"
        " kind.",
    ),
    **SAVING_COLUMNS,
    **AVOIDABLE_COLUMNS,
    **MOVE_COLUMNS,
    "risk_ratio": (
        "double",
        "Share of the intervals of the lookback whose demand was above the recommended capacity, 0-1; for a smaller"
        " engine those, too, in which requests waited, and hours with a preemption or a full KV cache. NULL: nothing"
        " changes, or the capacity is not shown by evidence.",
    ),
    "confidence": CONFIDENCE,
    "reason_code": ("varchar", "Why: docs/recommendations/reason_codes.md lists the codes."),
    "evidence_basis": (
        "varchar",
        "Why the recommended size is enough: `requests_within_slo`, `histogram_within_slo`,"
        " `highest_observed`, `measured_on_size` (a load test, or a deployment, of the model on that size),"
        " `scaled_by_bandwidth` (the engine's own best in proportion to the memory bandwidth),"
        " `lower_limit_within_slo`, `lower_limit_seen`, `published_benchmark`, `no_demand`, `idle_hours`. Of"
        " `try_it` `bandwidth_floor` (data sheets alone) or `scaled_by_bandwidth` (enough, but maybe too slow). NULL:"
        " nothing changes.",
    ),
    "recommended_capacity_tokens_per_second": (
        "double",
        "Tokens per second that the recommended size serves. NULL: nothing changes, or no evidence shows it.",
    ),
    "capacity_low_tokens_per_second": (
        "double",
        "The same at least, as evidence shows; of `try_it` for the size to try. NULL: another kind, or not known.",
    ),
    "capacity_high_tokens_per_second": (
        "double",
        "The most that a published result, or the engine's own rate per running request and its best interval, leave"
        " possible for that size. NULL: another kind, or not known.",
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


def write_right_sizing(connection: duckdb.DuckDBPyConnection) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Replace published.right_sizing by what the marts allow now, and mark which rows of both tables to follow; returns
    its rows and their backtests."""
    usage = advised.usage(connection)
    demand = advised.read(connection, "intervals", DEMAND)
    days, hours = (advised.read(connection, name) for name in ("days", "hours"))
    evidence = advised.read(connection, "benchmarks"), advised.read(connection, "measured_sizes")
    loads = advised.read(connection, "loads")
    limits = power_caps.evidence(usage, days, loads, demand)
    proposed = trials.planned(_proposed(usage, evidence, limits, "demand_tokens_per_second"), demand)
    earlier = _proposed(usage, evidence, limits and limits.part(is_held=False), "train_demand")
    earlier["held_saved_watts"] = power_caps.held_savings(usage, limits, earlier)
    tests = right_sizing.backtest(usage, earlier, right_sizing.shortfalls(earlier, demand), hours)
    fewer_bits = trials.planned(variants.candidates(usage), demand)
    rows = right_sizing.recommend(
        usage,
        proposed,
        right_sizing.shortfalls(proposed, demand),
        hours=hours,
        days=days.dropna(subset="seconds"),
        backtests=tests,
        experiments=pd.concat([fewer_bits, trials.lower_limits(usage, days, loads)], ignore_index=True),
    )
    rows = shared_columns.trusted(connection, rows)
    write_table(connection, "published.right_sizing", TABLE_COMMENT, COLUMNS, shared_columns.without_split(rows))
    rows["is_preferred"] = rows["recommendation_id"].isin(shared_columns.mark_preferred(connection))
    return rows[[name for name in COLUMNS if name in rows]], tests


def right_sizing_asset(fleet: Fleet, manifest: Mapping[str, Any], pool: str) -> dg.AssetsDefinition:
    """published/right_sizing, after the tables that it reads and the plan that its rows are compared with."""
    key = asset_key(fleet, "published", "right_sizing")
    read = [
        asset_key(fleet, *table) for table in (*advised.tables_read(manifest, READ), ("published", "consolidation"))
    ]

    @dg.asset(key=key, deps=read, check_specs=[parts.spec(key)], group_name="published", kinds={"duckdb"}, pool=pool)
    def published_right_sizing() -> Iterator[Any]:
        """What each deployment could be served with instead, what that saves and how surely; or why nothing changes."""
        with database.writing(fleet.warehouse, "right_sizing"), database.connect(fleet.warehouse) as held:
            rows, tests = write_right_sizing(held)
            saved = shared_columns.preferred_saving_kwh_month(held)
        title = f"{fleet.fleet}: GPUs now and recommended ({fleet.telemetry})"
        made = parts.Parts()
        yield dg.MaterializeResult(metadata=_metadata(rows, tests, title, made) | {"saving_kwh_month": saved})
        yield made.result(key)

    return published_right_sizing


def _proposed(
    usage: pd.DataFrame,
    evidence: tuple[pd.DataFrame, pd.DataFrame],
    limits: power_caps.Evidence | None,
    demand: str,
) -> pd.DataFrame:
    """Every smaller size and lower limit that would have served a demand, numbered. `evidence`: benchmarks and measured
    sizes."""
    benchmarks, measured = evidence
    sized, capped = sizes.candidates(usage, benchmarks, demand, measured), power_caps.candidates(usage, limits, demand)
    if capped.empty:
        return sized
    return (
        pd.concat([sized.drop(columns="candidate"), capped], ignore_index=True).rename_axis("candidate").reset_index()
    )


def _metadata(rows: pd.DataFrame, tests: pd.DataFrame, title: str, made: parts.Parts) -> dict[str, dg.RawMetadataValue]:
    return {
        "dagster/row_count": len(rows),
        "kinds": {str(kind): int(n) for kind, n in rows["kind"].value_counts().items()},
        "sizes": dg.MarkdownMetadataValue(made.picture("sizes", lambda: pictures.sizes_before_and_after(rows, title))),
        "backtest": right_sizing.hit_ratio(tests),
        **({"backtest_hit_ratio": float(tests["backtest_held"].mean())} if len(tests) else {}),
    }
