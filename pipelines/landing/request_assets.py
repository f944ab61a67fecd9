"""Assets of what was asked and what others measured: requests of gateways, logs and load tests, published benchmarks.

An asset here is thin: it decides what to land and calls `request_landing` or `benchmarks`. Add one when something else
is known of single requests. Keep out telemetry: that is `telemetry_assets`.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import dagster as dg

from pipelines.fleet.fleet_file import Fleet
from pipelines.landing import benchmark_landing, relanding, request_landing
from pipelines.landing.telemetry_assets import (
    FAILED_FILE,
    FAILED_SOURCE,
    TelemetryConfig,
    answered,
    opened,
)
from pipelines.warehouse import sealed_dates
from pipelines.warehouse.asset_keys import asset_key
from pipelines.warehouse.partitions import POOL, daily

REQUESTS = "One row per request, as a gateway, a log or a load test reported it, with its tokens counted in one way."


def check_name(source: str) -> str:
    """The name of the check that a source of requests answered."""
    return f"requests_{source}_answers"


def request_assets(fleet: Fleet) -> list[dg.AssetsDefinition]:
    """raw.requests and raw.benchmark_results, with a check per source of the fleet file."""
    key = asset_key(fleet, "raw", "requests")
    results_key = asset_key(fleet, "raw", "benchmark_results")

    @dg.multi_asset(
        name="requests",
        specs=[dg.AssetSpec(key, description=REQUESTS, group_name="raw", kinds={"duckdb"})],
        check_specs=[
            dg.AssetCheckSpec(
                check_name(source.name),
                asset=key,
                description=f"Every day that the run asked {source.name} for was answered in full.",
                metadata={"remedy": FAILED_SOURCE},
            )
            for source in fleet.requests
        ],
        partitions_def=daily(fleet),
        backfill_policy=dg.BackfillPolicy.single_run(),
        pool=POOL,
    )
    def requests(context: dg.AssetExecutionContext, config: TelemetryConfig) -> Iterator[Any]:
        """Land each source's requests per UTC day, and those of earlier days that failed. If a source fails, only its
        own check fails, not the day. This holds even if all sources fail: the book needs only telemetry."""
        window = context.partition_time_window
        start, end = window.start.date(), window.end.date()
        results = {}
        with opened(fleet, "requests") as connection:
            open_from = sealed_dates.open_from(connection)
            start = max(start, open_from)
            for source in fleet.requests if start < end else ():
                failed = relanding.failed(connection, fleet, source.name, start, request_landing.ASSET)
                again = [(on, on + timedelta(days=1)) for on in failed if on >= open_from]
                results[source.name] = [
                    landing
                    for first, last_end in ((start, end), *again)
                    for landing in request_landing.land(
                        connection,
                        source.collector(),
                        first,
                        last_end,
                        run_id=context.run_id,
                        bad_rows_ratio=source.limits.bad_rows_ratio,
                        force=config.force,
                    )
                ]
                results[source.name] += request_landing.given_up(connection, fleet, source.name, start, context.run_id)
        landed = [result for mine in results.values() for result in mine]
        rejected = sorted({result.detail for result in landed if result.is_answered and result.detail})
        yield dg.MaterializeResult(
            metadata={
                "dagster/partition_row_count": sum(result.rows for result in landed if result.is_answered),
                **(
                    {"rejected": dg.MarkdownMetadataValue("\n".join(f"- {line}" for line in rejected))}
                    if rejected
                    else {}
                ),
            }
        )
        for source in fleet.requests:
            yield answered(check_name(source.name), key, results.get(source.name, []))

    @dg.asset(
        key=results_key,
        group_name="raw",
        kinds={"duckdb"},
        check_specs=[
            dg.AssetCheckSpec(
                f"benchmark_{benchmark.name}_is_read",
                asset=results_key,
                description=f"The files of {benchmark.name} are what {benchmark.kind} publishes.",
                metadata={"remedy": FAILED_FILE},
            )
            for benchmark in fleet.benchmarks
        ],
        pool=POOL,
    )
    def benchmark_results() -> Iterator[Any]:
        """One row per published result of other people's benchmarks, in one vocabulary, replaced whole.

        Files that cannot be read fail their own check, and keep their earlier rows. The asset does not fail, not
        even where no file can be read: the energy book needs none of them.
        """
        with opened(fleet, "benchmark results") as connection:
            readings = benchmark_landing.write_benchmark_results(connection, fleet)
        yield dg.MaterializeResult(metadata={"dagster/row_count": sum(reading.rows for reading in readings)})
        for reading in readings:
            yield dg.AssetCheckResult(
                passed=reading.failure is None and reading.rejected is None,
                asset_key=results_key,
                check_name=f"benchmark_{reading.name}_is_read",
                severity=dg.AssetCheckSeverity.ERROR if reading.failure else dg.AssetCheckSeverity.WARN,
                description=reading.failure or reading.rejected,
                metadata={"rows": reading.rows},
            )

    return [requests, benchmark_results]
