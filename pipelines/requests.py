"""Assets of what users asked for: the requests of gateways, logs and load tests.

An asset here is thin: it decides what to land and calls `request_landing`. Add one when something else is known of
single requests.
"""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from pipelines import request_landing
from pipelines.fleet import Fleet
from pipelines.telemetry import POOL, TelemetryConfig, answered, daily, opened


def check_name(source: str) -> str:
    """The check that says whether a source of requests answered."""
    return f"requests_{source}_answers"


def request_assets(fleet: Fleet) -> list[dg.AssetsDefinition]:
    """raw.requests, with a check per source of the fleet file."""
    key = dg.AssetKey(["raw", "requests"])

    @dg.asset(
        key=key,
        group_name="raw",
        kinds={"duckdb"},
        check_specs=[
            dg.AssetCheckSpec(
                check_name(source.name),
                asset=key,
                description=f"Every day that the run asked {source.name} for was answered in full.",
            )
            for source in fleet.requests
        ],
        partitions_def=daily(fleet),
        backfill_policy=dg.BackfillPolicy.single_run(),
        pool=POOL,
    )
    def requests(context: dg.AssetExecutionContext, config: TelemetryConfig) -> Iterator[Any]:
        """One row per request, as a gateway, a log or a load test said it, with its tokens counted in one way.

        Landed per source and UTC day. A source that fails costs its own check, not the day.
        """
        window = context.partition_time_window
        start, end = window.start.date(), window.end.date()
        results = {}
        with opened(fleet, "requests") as connection:
            for source in fleet.requests:
                results[source.name] = request_landing.land(
                    connection, source.collector(), start, end, run_id=context.run_id, force=config.force
                )
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
        for name, mine in results.items():
            yield answered(check_name(name), key, mine)
        if landed and all(result.outcome == "failed" for result in landed):
            raise dg.Failure(f"every source of requests failed; the last one said: {landed[-1].detail}")

    return [requests]
