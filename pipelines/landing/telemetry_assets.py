"""Assets of what comes in: telemetry by source and day, the fleet file's tables, grid intensity, run windows.

An asset here is thin: it decides what to land and calls a module `…_landing`. Add one when something new comes in.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from typing import Any

import dagster as dg
import duckdb

from collectors.samples import Window
from pipelines.fleet import catalog
from pipelines.fleet.fleet_file import Fleet
from pipelines.landing import (
    fleet_landing,
    grid_landing,
    landing_days,
    price_landing,
    stores,
)
from pipelines.landing.lake import LakeError
from pipelines.landing.telemetry_landing import Landing
from pipelines.warehouse import database, findings
from pipelines.warehouse.asset_keys import asset_key
from pipelines.warehouse.partitions import POOL, daily
from pipelines.warehouse.raw_tables import FLEET_TABLES, create_tables
from pipelines.warehouse.tenants import tenant_names

TELEMETRY_TABLES = {
    "power_samples": "One row per sample of power, energy counters, activity and memory, as the source reported it.",
    "token_samples": "One row per sample of token counters, requests and latency buckets, as the source reported it.",
    "series": "One row per series of a source: its metric and labels.",
    "series_chunks": "One row per series and landed stretch of a UTC day, with the facts counted while it streamed in.",
    "landings": "One row per attempt to land a source's window: the audit.",
    "unfilled_dates": "One row per date and server without samples up to the end of the date: due, or given up.",
    "unknown_families": "One row per metric family that a source holds and the catalogue does not know.",
    "unknown_devices": "One row per device of such a family of power or energy, by what its labels name.",
}
GRID_INTENSITY = "One row per zone, source and stretch of time: grams of CO2e per kWh, average and marginal."
MODEL_PRICES = "One row per list of prices and model on it: USD per million tokens, with source and validity."
# What to do where a source is not read whole.
FAILED_SOURCE = (
    "the line has the reason; `wattledger check` asks the source again. The other sources are landed, and the next run"
    " asks for what is missing. A source that has fewer rows than before never replaces them, except with `run --force`"
)
FAILED_GRID = (
    "the line has the reason: check the file, or the API and its token; where an hour has no value, the yearly factor"
    " of the zone is used"
)
FAILED_FILE = "the line has the file and the row: correct it, and run again; until then the rows before it stay"
OUTCOMES = ("landed", "unchanged", "empty", "refused_fewer", "failed", "given_up")
PRICE_CHECK = "price_lists_are_sound"
GPU_PRICE_CHECK = "gpu_price_lists_are_sound"


class TelemetryConfig(dg.Config):
    """`force` lets an answer with fewer rows replace what is held."""

    force: bool = False


def check_name(source: str) -> str:
    """The name of the check that a source answered."""
    return f"source_{source}_answers"


def telemetry_assets(fleet: Fleet) -> list[dg.AssetsDefinition]:
    """Everything upstream of dbt."""
    landings = asset_key(fleet, "raw", "landings")

    @dg.multi_asset(
        name="telemetry",
        specs=[
            dg.AssetSpec(asset_key(fleet, "raw", table), description=what, group_name="raw", kinds={"duckdb"})
            for table, what in TELEMETRY_TABLES.items()
        ],
        check_specs=[
            dg.AssetCheckSpec(
                check_name(source.name),
                asset=landings,
                description=f"Every window that the run asked {source.name} for was answered in full.",
                metadata={"remedy": FAILED_SOURCE},
            )
            for source in fleet.sources
        ],
        partitions_def=daily(fleet),
        backfill_policy=dg.BackfillPolicy.single_run(),
        pool=POOL,
    )
    def telemetry(context: dg.AssetExecutionContext, config: TelemetryConfig) -> Iterator[Any]:
        """Land every source of the fleet file, day by day. If one fails, only its own check fails, not the day."""
        window = context.partition_time_window
        stores.validate(fleet)
        start, end = window.start.date(), window.end.date()
        try:
            results, metadata = stores.within_limits(fleet, landed, fleet, start, end, context.run_id, config.force)
        except LakeError as refusal:
            raise dg.Failure(str(refusal)) from None
        for table in TELEMETRY_TABLES:
            yield dg.MaterializeResult(asset_key=asset_key(fleet, "raw", table), metadata=metadata[table])
        for source in fleet.sources:
            mine = [result for result in results if result.source == source.name]
            yield answered(check_name(source.name), landings, mine)
        asked = [result for result in results if result.outcome != "given_up"]
        if asked and all(result.outcome == "failed" for result in asked):
            raise dg.Failure(f"every source failed; the first reason: {asked[0].detail}")

    rates_key = asset_key(fleet, "fleet", "cost_rates")

    @dg.multi_asset(
        name="fleet",
        specs=[
            dg.AssetSpec(
                asset_key(fleet, "fleet", table),
                description=f"The fleet file's {table}.",
                group_name="fleet",
                kinds={"duckdb"},
            )
            for table in FLEET_TABLES
        ],
        check_specs=[
            dg.AssetCheckSpec(
                GPU_PRICE_CHECK,
                asset=rates_key,
                description="Every list of GPU prices was read whole.",
                metadata={"remedy": FAILED_FILE},
            )
        ],
        pool=POOL,
    )
    def fleet_tables() -> Iterator[Any]:
        """The fleet file as tables, replaced whole."""
        with opened(fleet, "fleet file") as connection:
            rows, rejected = fleet_landing.write_fleet(connection, fleet)
        for table, count in rows.items():
            key = asset_key(fleet, "fleet", table)
            yield dg.MaterializeResult(asset_key=key, metadata={"dagster/row_count": count})
        yield dg.AssetCheckResult(
            passed=not rejected,
            asset_key=rates_key,
            check_name=GPU_PRICE_CHECK,
            severity=dg.AssetCheckSeverity.WARN,
            description="; ".join(rejected) or None,
            metadata={"rows": rows["cost_rates"], "refused": len(rejected)},
        )

    grid_key = asset_key(fleet, "raw", "grid_intensity")

    @dg.multi_asset(
        name="grid_intensity",
        specs=[dg.AssetSpec(grid_key, description=GRID_INTENSITY, group_name="raw", kinds={"duckdb"})],
        check_specs=[
            dg.AssetCheckSpec(
                name,
                asset=grid_key,
                description=f"{', '.join(sources)}: answered in full, no row was rejected.",
                metadata={"remedy": FAILED_GRID},
            )
            for name, sources in _grid_checks(fleet).items()
        ],
        partitions_def=daily(fleet),
        backfill_policy=dg.BackfillPolicy.single_run(),
        pool=POOL,
    )
    def grid_intensity(context: dg.AssetExecutionContext, config: TelemetryConfig) -> Iterator[Any]:
        """Land the files and APIs of grid intensity. If one fails, its check fails: yearly factors replace it."""
        window = context.partition_time_window
        start, end = window.start.date(), window.end.date()
        # Before the warehouse is locked: an API may need its whole time limit.
        answers = grid_landing.answers_of(fleet, start, end)
        run = {"run_id": context.run_id, "force": config.force}
        with opened(fleet, "grid intensity") as connection:
            results = grid_landing.land_grid(connection, fleet, start, end, answers=answers, **run)
        yield dg.MaterializeResult(asset_key=grid_key, metadata={"rows": sum(result.rows for result in results)})
        for name, sources in _grid_checks(fleet).items():
            mine = [result for result in results if result.source in sources]
            yield answered(name, grid_key, mine)

    prices_key = asset_key(fleet, "raw", "model_prices")

    @dg.multi_asset(
        name="model_prices",
        specs=[dg.AssetSpec(prices_key, description=MODEL_PRICES, group_name="raw", kinds={"duckdb"})],
        check_specs=[
            dg.AssetCheckSpec(
                PRICE_CHECK,
                asset=prices_key,
                description="Every list of prices was read whole.",
                metadata={"remedy": FAILED_FILE},
            )
        ],
        pool=POOL,
    )
    def model_prices() -> Iterator[Any]:
        """Land the fleet's lists of prices, each whole. If one cannot be read, its check fails."""
        with opened(fleet, "prices") as connection:
            troubles = price_landing.land_prices(connection, fleet.prices.files)
        yield dg.MaterializeResult(asset_key=prices_key, metadata={"lists": len(fleet.prices.files)})
        yield dg.AssetCheckResult(
            passed=not troubles,
            asset_key=prices_key,
            check_name=PRICE_CHECK,
            description="; ".join(troubles) or None,
            metadata={"lists": len(fleet.prices.files), "refused": len(troubles)},
        )

    return [telemetry, fleet_tables, grid_intensity, model_prices]


def landed(
    fleet: Fleet, start: date, end: date, run_id: str, force: bool
) -> tuple[list[Landing], dict[str, dict[str, Any]]]:
    """Land the UTC days [start, end) of every source; what became of each window, and each table's metadata."""
    silent = landing_days.silent_sources(fleet, start)
    with opened(fleet, "landing") as connection:
        results = landing_days.land_days(connection, fleet, start, end, run_id=run_id, force=force, silent=silent)
        return results, _telemetry_metadata(connection, fleet, start, end, results)


@contextmanager
def opened(fleet: Fleet, purpose: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """The fleet's warehouse with all its tables, which only this process writes in the `with` block."""
    with database.writing(fleet.warehouse, purpose), database.connect(fleet.warehouse) as connection:
        create_tables(connection)
        tenant_names.take_back(connection, fleet.snapshot)
        yield connection


def _grid_checks(fleet: Fleet) -> dict[str, list[str]]:
    """Name of each check of grid intensity -> the sources that it looks at: one per API, one for all files."""
    checks = {check_name(source.name): [source.name] for source in fleet.grid_intensity.sources}
    files = [name for file in fleet.grid_intensity.files for name in grid_landing.names_of(file)]
    return {**checks, **({"grid_files_are_sound": files} if files else {})}


def answered(check: str, asset: dg.AssetKey, results: list[Landing]) -> dg.AssetCheckResult:
    """Passes where every window was answered in full; an answer of which rows were rejected is a warning."""
    unanswered = [result for result in results if not result.is_answered]
    given_up = [result for result in results if result.outcome == "given_up"]
    wrong = [*unanswered, *given_up] if unanswered else [result for result in results if result.detail]
    metadata: dict[str, Any] = {"windows": len(results), "rows": sum(result.rows for result in results)}
    if wrong:
        metadata["unanswered"] = dg.MarkdownMetadataValue(
            findings.markdown(
                ["window", "outcome", "status", "url", "detail"],
                ((landing_days.shown(r.window), r.outcome, r.status or "", r.url or "", r.detail) for r in wrong[:50]),
            )
        )
    return dg.AssetCheckResult(
        passed=not wrong,
        asset_key=asset,
        check_name=check,
        severity=dg.AssetCheckSeverity.ERROR if unanswered or not wrong else dg.AssetCheckSeverity.WARN,
        description="; ".join(_by_reason(wrong)[:3]) or None,
        metadata=metadata,
    )


def _telemetry_metadata(
    connection: duckdb.DuckDBPyConnection, fleet: Fleet, start: date, end: date, results: list[Landing]
) -> dict[str, dict[str, Any]]:
    families = catalog.families()
    counts: Counter[str] = Counter()
    for metric, rows in connection.execute(
        "select metric, sum(samples + rejects) from raw.series_chunks join raw.series using (series_id)"
        " where chunk_start_at >= ? and chunk_start_at < ? group by metric",
        [Window.of_day(start).start_at, Window.of_day(end).start_at],
    ).fetchall():
        if metric in families:
            counts[families[metric].stream] += int(rows)
    unknown = connection.execute("select source, metric, series from raw.unknown_families order by all").fetchall()
    per_source = []
    for source in fleet.sources:
        mine = [result for result in results if result.source == source.name]
        outcomes = Counter(result.outcome for result in mine)
        counted = [outcomes[outcome] for outcome in OUTCOMES]
        per_source.append([source.name, len(mine), *counted, sum(result.rows for result in mine)])
    shared = {"window": f"[{start}, {end})", "synthetic": fleet.synthetic}
    tables: dict[str, dict[str, Any]] = {table: dict(shared) for table in TELEMETRY_TABLES}
    tables["power_samples"]["dagster/partition_row_count"] = counts["power"]
    tables["token_samples"]["dagster/partition_row_count"] = counts["tokens"]
    tables["landings"]["sources"] = dg.MarkdownMetadataValue(
        findings.markdown(
            ["source", "windows", *(outcome.replace("_", " ") for outcome in OUTCOMES), "rows"], per_source
        )
    )
    tables["unknown_families"]["dagster/row_count"] = len(unknown)
    if unknown:
        tables["unknown_families"]["families"] = dg.MarkdownMetadataValue(
            findings.markdown(["source", "metric", "series"], unknown)
        )
    return tables


def _by_reason(results: list[Landing]) -> list[str]:
    """The outcomes with their reasons; where several windows have the same one, the first and how many more."""
    windows: dict[str, list[str]] = {}
    for result in results:
        reason = f"{result.outcome}: {landing_days.why(result)}"
        windows.setdefault(reason, []).append(landing_days.shown(result.window))
    return [
        f"{same[0]} {reason}{f' (and {len(same) - 1} more windows)' if len(same) > 1 else ''}"
        for reason, same in windows.items()
    ]
