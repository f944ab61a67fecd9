"""Thirty booked days of a big fleet, invented: `python -m bench.answers --warehouse FILE --gpus 10000 --days 30`.

Curves, sizing and packing read marts, and their cost grows with history. So this history is written into the marts of
a warehouse that the job has created, and the job then runs on top of it. Add a column here when one of them starts to
read it. Keep out what is timed: that is the job (`product`).
"""

from __future__ import annotations

import argparse
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path

import duckdb

from bench.fleet_day import GPUS_PER_NODE
from pipelines.warehouse import database

# (GPUs per replica, replicas) of every twelve deployments: 80 GPUs.
SHAPES = ((4, 1), (1, 2), (2, 1), (2, 2), (4, 1), (4, 2), (8, 1), (8, 2), (1, 4), (8, 2), (4, 1), (8, 1))
MODELS = 17 * len(SHAPES)  # so that a model has one shape
DEVICE_TYPES = ("h100-sxm5-80gb", "a100-sxm4-80gb", "h200-sxm5-141gb")


def model_lines() -> list[str]:
    """The `models:` of the fleet file, sized so that each fits the shape it is deployed in with room to spare."""
    return [
        "models:",
        *(
            f"  - {{name: model-{n}, weights_gib: {SHAPES[n % len(SHAPES)][0] * 24}, kv_bytes_per_token: 65536,"
            " context_tokens: 16384, cold_start_seconds: 180}"
            for n in range(MODELS)
        ),
    ]


def write_history(connection: duckdb.DuckDBPyConnection, gpus: int, end: date, days: int) -> int:
    """Insert the `days` before `end` of gpus / 80 * 12 deployments into the marts; returns the rows of intervals.

    A deployment in twenty serves nothing; the others follow their own hours and weekdays, at 5 to 100 tokens per second
    and accelerator.
    """
    deployments = gpus * len(SHAPES) // sum(a * b for a, b in SHAPES)
    shapes = ", ".join(f"({n}, {a}, {b})" for n, (a, b) in enumerate(SHAPES))
    kinds = ", ".join(f"({n}, '{device_type}')" for n, device_type in enumerate(DEVICE_TYPES))
    connection.execute(
        f"""
        create or replace temp table deployments as
        select i, 'team-' || i % 40 as namespace, 'team-' || i % 40 || '/deployment-' || i as deployment,
            'model-' || i % {MODELS} as model, 'west' as site, device_type, width, replicas, width * replicas as gpus,
            -- Uniform in [0, 1), and nothing that a random number generator's next version would change.
            (i * 7919 % 1009) / 1009.0 as peak, (i * 104729 % 997) / 997.0 as phase, i % 20 = 7 as is_idle,
            sum(width * replicas) over (partition by device_type order by i) - width * replicas as first_gpu
        from range({deployments}) as r(i)
        join (values {shapes}) as shapes(shape, width, replicas) on shape = i % {len(SHAPES)}
        join (values {kinds}) as kinds(kind, device_type) on kind = i % {len(DEVICE_TYPES)}
        """
    ).fetchall()
    (rows,) = connection.execute(
        f"""
        insert into marts.model_intervals by name
        with intervals as (
            select d.*, n, timestamptz '{end - timedelta(days)} 00:00:00+00' + to_seconds(n * 300) as interval_start_at,
                case when is_idle then 0 else
                    (5 + 95 * peak) * (0.25 + 0.75 * (0.5 - 0.5 * cos(6.283185307 * (n / 288.0 + phase))))
                    * case when (n // 288) % 7 >= 5 then 0.6 else 1 end
                    * (0.8 + 0.4 * (hash(i, n) % 1000) / 1000.0)
                end as load
            from deployments as d, range({days} * 288) as r(n)
        )
        select cast(interval_start_at as date) as date, interval_start_at, 300 as interval_seconds, site, deployment,
            model, device_type, 'board' as meter_scope, 'unified' as role, replicas as engines,
            gpus * 300 as matched_gpu_seconds,
            gpus * 300 * (110 + dynamic_watts) as matched_joules,
            gpus * 300 * dynamic_watts as matched_productive_joules,
            gpus * 300 * load * prompt as matched_computed_input_tokens, gpus * 300 * load as matched_output_tokens,
            gpus * 300 * load * (1 + 2 * prompt) as matched_total_tokens
        from (
            select *, 1 + hash(n, i) % 1000 / 500.0 as prompt,
                300 * load / (load + 25) * (0.98 + 0.04 * (hash(n, i, 1) % 1000) / 1000.0) as dynamic_watts
            from intervals
        )
        """
    ).fetchall()[0]
    connection.execute(
        """
        insert into marts.model_daily by name
        select date, site, deployment, split_part(deployment, '/', 1) as namespace, model, device_type, meter_scope,
            role,
            sum(matched_gpu_seconds) as gpu_seconds, sum(matched_gpu_seconds) as covered_seconds,
            sum(matched_gpu_seconds) as known_seconds,
            coalesce(sum(matched_gpu_seconds) filter (where matched_output_tokens > 0), 0) as active_seconds,
            sum(matched_joules) as energy_joules, sum(matched_joules) as matched_joules,
            sum(matched_productive_joules) as productive_joules,
            sum(matched_productive_joules) as matched_productive_joules,
            sum(matched_joules - matched_productive_joules) as idle_joules,
            sum(matched_joules - matched_productive_joules) filter (where matched_output_tokens > 0)
                as idle_floor_joules,
            sum(matched_joules) filter (where matched_output_tokens = 0) as parked_joules,
            sum(110 * matched_gpu_seconds) as reference_idle_joules,
            0 as asleep_joules, 0 as unallocated_joules, 0 as unknown_joules,
            sum(matched_joules) * 1.2 / 3.6e6 as facility_energy_kwh,
            sum(matched_joules) * 1.2 / 3.6e6 * 200 as location_gco2e,
            sum(matched_joules) * 1.2 / 3.6e6 * 0.12 as energy_cost_usd,
            sum(matched_gpu_seconds) / 3600 * 2 as capacity_cost_usd,
            sum(matched_gpu_seconds) / 3600 * 2 + sum(matched_joules) * 1.2 / 3.6e6 * 0.12 as compute_cost_usd,
            sum(matched_output_tokens) as output_tokens, sum(matched_total_tokens) as total_tokens,
            sum(matched_output_tokens) as matched_output_tokens, sum(matched_total_tokens) as matched_total_tokens,
            1 as coverage_ratio, 1 as matched_ratio, '1' as method_version
        from marts.model_intervals group by all
        """
    ).fetchall()
    # Who holds which board: only for the newest date.
    connection.execute(
        f"""
        insert into marts.energy_ledger by name
        select intervals.date, intervals.interval_start_at, 300 as interval_seconds,
            intervals.interval_start_at as claim_start_at, 300 as covered_seconds, 300 as active_seconds,
            0 as unknown_seconds, 300 as gpu_seconds, d.site,
            format('{{}}-{{}}', d.device_type, board // {GPUS_PER_NODE}) as node,
            format('GPU-{{}}-{{}}', d.device_type, board) as meter, 'board' as meter_scope,
            format('GPU-{{}}-{{}}', d.device_type, board) as device_uuid, d.device_type,
            format('{{}}-{{}}', d.deployment, (board - first_gpu) // width) as engine, d.deployment, d.namespace,
            d.model, 'unified' as role, 'active' as state, 'exclusive' as attribution_method, true as is_matched,
            true as has_token_telemetry, matched_joules / gpus as energy_joules
        from (select *, unnest(range(first_gpu::bigint, (first_gpu + gpus)::bigint)) as board from deployments) as d
        join marts.model_intervals as intervals on intervals.deployment = d.deployment and intervals.date = ?
        """,
        [end - timedelta(1)],
    ).fetchall()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.answers", description=__doc__.partition("\n")[0])
    parser.add_argument("--warehouse", type=Path, required=True)
    parser.add_argument("--gpus", type=int, required=True)
    parser.add_argument("--days", type=int, required=True)
    parser.add_argument("--end", type=date.fromisoformat, required=True)
    options = parser.parse_args()
    with closing(database.connect(options.warehouse)) as connection:
        print(write_history(connection, options.gpus, options.end, options.days))


if __name__ == "__main__":
    main()
