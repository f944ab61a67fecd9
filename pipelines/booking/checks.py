"""Great Expectations suites as asset checks: on summaries of each landed series, and on the marts.

Add an expectation here if its failure deserves a line of its own. Never check sample by sample (a day has millions),
nor types: those are dbt contracts. What must hold inside a model is a dbt test.
"""

import importlib
import os
import threading
from collections.abc import Callable
from datetime import date
from typing import TYPE_CHECKING, Any

import dagster as dg
import pandas as pd

from pipelines.fleet import catalog
from pipelines.fleet.fleet_file import Fleet
from pipelines.warehouse import database, due_dates, findings
from pipelines.warehouse.asset_keys import asset_key

if TYPE_CHECKING:
    import duckdb
    from great_expectations.expectations.expectation import Expectation

SERIES_ARE_HEALTHY, RATIOS_ARE_SOUND = "series_are_healthy", "ratios_lie_between_zero_and_one"
# Of all dates that wait for publication, those of earlier runs too.
OF_WHAT_IS_UNPUBLISHED = (SERIES_ARE_HEALTHY, RATIOS_ARE_SOUND)
RATIOS = (
    *("matched_ratio", "idle_energy_ratio", "idle_time_ratio", "coverage_ratio"),
    *("hourly_carbon_ratio", "energy_error_ratio"),
)

# The columns that name a row of a summary, and what to do about a bad value of a column.
KEYS = ("table_name", "source", "metric", "series_id", "date", "hour_start_at", "site", "model", "device_type")
REPORT = "report these rows to the maintainers; their joules are still booked exactly once"
REMEDIES = {
    "rejected_ratio": "find out why this exporter reports invalid values (negative, NaN, sentinels)",
    "longest_gap_hours": "find out why this series had no samples: check its exporter, its pod and its scraper",
    "falls_per_day": "find out why this counter restarts so often: its process restarts, or two processes share a name",
}

Summary = Callable[["duckdb.DuckDBPyConnection", str], pd.DataFrame]


def asset_checks(fleet: Fleet) -> list[dg.AssetChecksDefinition]:
    """Two checks: of the landed series and of the booked marts. Both warn."""
    return [
        _check(
            fleet,
            ["raw", "series_chunks"],
            SERIES_ARE_HEALTHY,
            landed_series,
            healthy_series,
            remedy="; ".join(f"{column}: {remedy}" for column, remedy in REMEDIES.items()),
        ),
        _check(
            fleet,
            ["marts", "model_daily"],
            RATIOS_ARE_SOUND,
            booked_models,
            sound_models,
            remedy=REPORT,
        ),
    ]


def _check(
    fleet: Fleet,
    asset: list[str],
    name: str,
    summary: Summary,
    expectations: "Callable[[], list[Expectation]]",
    *,
    remedy: str,
) -> dg.AssetChecksDefinition:
    severity = dg.AssetCheckSeverity.WARN

    @dg.asset_check(
        asset=asset_key(fleet, *asset),
        name=name,
        description=" ".join(f"{summary.__doc__} {expectations.__doc__}".split()),
        metadata={"remedy": remedy},
        pool="warehouse",
    )
    def check(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        with (
            database.writing(fleet.warehouse, name),
            database.connect(fleet.warehouse, read_only=True) as connection,
        ):
            frame = summary(connection, context.run.run_id)
        failures = [] if frame.empty else unmet(frame, name, expectations())
        texts = dg.MarkdownMetadataValue("\n".join(f"- {failure}" for failure in failures))
        return dg.AssetCheckResult(
            passed=not failures,
            severity=severity,
            description="\n".join(failures) or None,
            metadata={"rows": len(frame), "unmet": len(failures), **({"expectations": texts} if failures else {})},
        )

    return check


def prefetch() -> threading.Thread:
    """Start the import of Great Expectations, which takes two seconds, while dbt books."""
    # Its analytics would use the network; an air-gapped site has none.
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    # Both threads import this package: one that finds it half-way imported by the other one fails.
    importlib.import_module("sqlalchemy.orm")
    thread = threading.Thread(target=importlib.import_module, args=("great_expectations",), daemon=True)
    thread.start()
    return thread


def unmet(frame: pd.DataFrame, name: str, expectations: "list[Expectation]") -> list[str]:
    """One text per expectation that the frame fails: the column, what was expected, and the rows."""
    prefetch().join()
    import great_expectations as gx  # noqa: PLC0415 (two seconds that only a run of checks should pay)
    from great_expectations.data_context.types.base import ProgressBarsConfig  # noqa: PLC0415

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    asset = context.data_sources.add_pandas("summaries").add_dataframe_asset(name)
    batch = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": frame})
    outcome = batch.validate(gx.ExpectationSuite(name=name, expectations=expectations), result_format="COMPLETE")
    return [_failure(result, frame) for result in outcome.results if not result.success]


def landed_series(connection: "duckdb.DuckDBPyConnection", run_id: str) -> pd.DataFrame:
    """For each series that this run landed: the share of rejected samples, the longest gap, falls of counters."""
    return connection.sql(
        """
        select series.source, series.metric, chunks.series_id,
            sum(rejects) / sum(samples + rejects) as rejected_ratio,
            max(longest_gap_seconds) / 3600 as longest_gap_hours,
            max(falls) filter (where series.metric ilike '%total%' and not list_contains(?, series.metric))
                as falls_per_day
        from raw.landings as landings
        join raw.series_chunks as chunks
            on chunks.source = landings.source and chunks.chunk_start_at >= landings.window_start_at
            and chunks.chunk_start_at < landings.window_end_at
        join raw.series as series on series.series_id = chunks.series_id
        where landings.run_id = ?
        group by all
        """,
        # RAPL's counter restarts after 262 kJ, about 50 times a day: that is normal.
        params=[catalog.metrics(meter_scope="module"), run_id],
    ).df()


def healthy_series() -> "list[Expectation]":
    """Most series report most of the time. The book handles some gaps and restarts; beyond these limits check why."""
    from great_expectations.expectations.core.expect_column_values_to_be_between import (  # noqa: PLC0415
        ExpectColumnValuesToBeBetween,
    )

    return [
        ExpectColumnValuesToBeBetween(column="rejected_ratio", min_value=0, max_value=0.05, mostly=0.95),
        ExpectColumnValuesToBeBetween(column="longest_gap_hours", min_value=0, max_value=6, mostly=0.8),
        ExpectColumnValuesToBeBetween(column="falls_per_day", min_value=0, max_value=48, mostly=0.95),
    ]


def booked_models(connection: "duckdb.DuckDBPyConnection", run_id: str) -> pd.DataFrame:
    """Per model and hour, model and day, fleet and day: ratios are between 0 and 1, energy is not negative."""
    tables = []
    for table in ("model_hourly", "model_daily", "fleet_daily"):
        known = {row[0] for row in connection.execute(f"describe marts.{table}").fetchall()}
        ratios = [f"{ratio if ratio in known else 'null'}::double as {ratio}" for ratio in RATIOS]
        keys = [f"{key if key in known else 'null'} as {key}" for key in ("hour_start_at", "model", "device_type")]
        tables.append(
            f"select '{table}' as table_name, date, site, {', '.join(keys)}, {', '.join(ratios)},"
            f" idle_static_ratio, energy_joules::double as energy_joules from marts.{table}"
            " where date >= $first and date < $end"
        )
    first, end = _booked_dates(connection)
    return connection.sql(" union all ".join(tables), params={"first": first, "end": end}).df()


def sound_models() -> "list[Expectation]":
    """Ratios are between 0 and 1 (a millionth above is rounding). idle_static_ratio may be above 1: a bare board draws
    less than its loaded reference."""
    from great_expectations.expectations.core.expect_column_values_to_be_between import (  # noqa: PLC0415
        ExpectColumnValuesToBeBetween,
    )

    return [
        ExpectColumnValuesToBeBetween(column="energy_joules", min_value=0),
        ExpectColumnValuesToBeBetween(column="idle_static_ratio", min_value=0),
        *(ExpectColumnValuesToBeBetween(column=name, min_value=0, max_value=1.000001) for name in RATIOS),
    ]


def _booked_dates(connection: "duckdb.DuckDBPyConnection") -> list[date]:
    """The dates that are booked and not yet published; all dates where none waits for publication."""
    first, end = due_dates.dates_to_publish(connection, date.max, date.min)
    return [first, end] if first < end else [date.min, date.max]


def _failure(result: Any, frame: pd.DataFrame) -> str:
    """One failed expectation: `rejected_ratio: 2 rows`, the rows by their keys, what was expected, what to do."""
    config, found = result.expectation_config, result.result
    column = config.kwargs.get("column")
    if "unexpected_count" not in found:
        return f"{column}: {result.exception_info or 'could not be evaluated'}"
    limits = {key: config.kwargs[key] for key in ("min_value", "max_value") if config.kwargs.get(key) is not None}
    least, most = limits.get("min_value"), limits.get("max_value")
    expected = f"{least:g} to {most:g}" if len(limits) == 2 else f"at least {least:g}" if limits else "a value"
    share = config.kwargs.get("mostly", 1)
    keys = [name for name in frame.columns if name in KEYS]
    rows = frame.loc[found["unexpected_index_list"], [*keys, column]].sort_values(column, ascending=False)
    lines = [
        findings.row(rows.columns, row) for row in rows.head(findings.SHOWN).astype(object).itertuples(index=False)
    ]
    return f"{column}: " + findings.report(
        lines,
        found["unexpected_count"],
        expected + (f" in {share:.0%} of the rows" if share < 1 else ""),
        REMEDIES.get(column, REPORT),
    )
