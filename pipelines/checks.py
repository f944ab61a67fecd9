"""Great Expectations suites as asset checks: on summaries per series of what landed, and on the marts.

Add an expectation here that a person would want to see fail on its own line. Never sample by sample (a day has
millions), and no types: those are dbt contracts. What must hold inside a model is a dbt test.
"""

import importlib
import os
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import date
from typing import TYPE_CHECKING, Any

import dagster as dg
import pandas as pd

from pipelines import booking, warehouse
from pipelines.fleet import Fleet
from pipelines.keys import asset_key

if TYPE_CHECKING:
    import duckdb
    from great_expectations.expectations.expectation import Expectation

# A balance is exact up to what one rounding per piece leaves: 1e-6 of what was metered.
BALANCE_TOLERANCE_RATIO = 1e-6
ACCOUNTS = {
    "energy_minus_accounts_joules": "energy_joules - productive_joules - idle_joules - unknown_joules",
    "idle_minus_accounts_joules": "idle_joules - idle_floor_joules - parked_joules - asleep_joules"
    " - unallocated_joules",
}
RATIOS = ("matched_ratio", "idle_energy_ratio", "idle_time_ratio", "coverage_ratio", "hourly_carbon_ratio")

Summary = Callable[["duckdb.DuckDBPyConnection", str], pd.DataFrame]


def asset_checks(fleet: Fleet) -> list[dg.AssetChecksDefinition]:
    """Three checks: what landed (warns), the accounts and the balance (stop the publication)."""
    return [
        _check(fleet, ["raw", "series_chunks"], "series_are_healthy", landed_series, healthy_series, is_blocking=False),
        _check(fleet, ["marts", "model_daily"], "accounts_add_up", booked_models, sound_models, is_blocking=True),
        _check(fleet, ["marts", "reconciliation_daily"], "book_balances", balances, closed_balances, is_blocking=True),
    ]


def _check(
    fleet: Fleet,
    asset: list[str],
    name: str,
    summary: Summary,
    expectations: "Callable[[], list[Expectation]]",
    *,
    is_blocking: bool,
) -> dg.AssetChecksDefinition:
    severity = dg.AssetCheckSeverity.ERROR if is_blocking else dg.AssetCheckSeverity.WARN

    @dg.asset_check(
        asset=asset_key(fleet, *asset), name=name, description=summary.__doc__, blocking=is_blocking, pool="warehouse"
    )
    def check(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        with (
            warehouse.writing(fleet.warehouse, name),
            closing(warehouse.connect(fleet.warehouse, read_only=True)) as connection,
        ):
            frame = summary(connection, context.run.run_id)
        if frame.empty:
            return dg.AssetCheckResult(passed=True, severity=severity, metadata={"rows": 0})
        failures = unmet(frame, name, expectations())
        return dg.AssetCheckResult(
            passed=not failures,
            severity=severity,
            description="; ".join(failures) or None,
            metadata={"rows": len(frame), "unmet": dg.MarkdownMetadataValue("\n".join(f"- {f}" for f in failures))},
        )

    return check


def prefetch() -> threading.Thread:
    """Import Great Expectations beside something that waits (dbt runs in its own process): it takes two seconds."""
    # Its analytics would ask the network; an air-gapped site has none.
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    thread = threading.Thread(target=importlib.import_module, args=("great_expectations",), daemon=True)
    thread.start()
    return thread


def unmet(frame: pd.DataFrame, name: str, expectations: "list[Expectation]") -> list[str]:
    """One line per expectation that the frame does not meet: column, what was expected, how many rows, an example."""
    prefetch().join()
    import great_expectations as gx  # noqa: PLC0415 (two seconds that only a run of checks should pay)
    from great_expectations.data_context.types.base import ProgressBarsConfig  # noqa: PLC0415

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    asset = context.data_sources.add_pandas("summaries").add_dataframe_asset(name)
    batch = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": frame})
    outcome = batch.validate(gx.ExpectationSuite(name=name, expectations=expectations))
    return [_line(result) for result in outcome.results if not result.success]


def landed_series(connection: "duckdb.DuckDBPyConnection", run_id: str) -> pd.DataFrame:
    """Per series that this run landed: the share of rejected samples, the longest silence, falls of counters."""
    return connection.sql(
        """
        select series.source, series.metric, chunks.series_id,
            sum(rejects) / sum(samples + rejects) as rejected_ratio,
            max(longest_gap_seconds) / 3600 as longest_gap_hours,
            max(falls) filter (where series.metric ilike '%total%') as falls_per_day
        from raw.landings as landings
        join raw.series_chunks as chunks
            on chunks.source = landings.source and chunks.chunk_start_at >= landings.window_start_at
            and chunks.chunk_start_at < landings.window_end_at
        join raw.series as series on series.series_id = chunks.series_id
        where landings.run_id = ?
        group by all
        """,
        params=[run_id],
    ).df()


def healthy_series() -> "list[Expectation]":
    """Most series answer most of the time. Some trouble is normal and the book copes with it; this tells too much."""
    from great_expectations import expectations as gxe  # noqa: PLC0415

    return [
        gxe.ExpectColumnValuesToBeBetween(column="rejected_ratio", min_value=0, max_value=0.05, mostly=0.95),
        gxe.ExpectColumnValuesToBeBetween(column="longest_gap_hours", min_value=0, max_value=6, mostly=0.8),
        gxe.ExpectColumnValuesToBeBetween(column="falls_per_day", min_value=0, max_value=48, mostly=0.95),
    ]


def booked_models(connection: "duckdb.DuckDBPyConnection", run_id: str) -> pd.DataFrame:
    """Per model and date: energy is the sum of its accounts, ratios lie between 0 and 1, nothing is negative."""
    known = {row[0] for row in connection.execute("describe marts.model_daily").fetchall()}
    ratios = [ratio for ratio in RATIOS if ratio in known]
    accounts = [f"cast({expression} as double) as {name}" for name, expression in ACCOUNTS.items()]
    return connection.sql(
        f"""
        select date, model, device_type, cast(energy_joules as double) as energy_joules,
            {", ".join([*accounts, *ratios])}
        from marts.model_daily where date >= ? and date < ?
        """,
        params=_booked_dates(connection),
    ).df()


def sound_models() -> "list[Expectation]":
    """The accounts of the ledger are exact; ratios are ratios."""
    from great_expectations import expectations as gxe  # noqa: PLC0415

    return [
        gxe.ExpectColumnValuesToNotBeNull(column="model"),
        gxe.ExpectColumnValuesToBeBetween(column="energy_joules", min_value=0),
        *(gxe.ExpectColumnValuesToBeBetween(column=name, min_value=0, max_value=0) for name in ACCOUNTS),
        *(gxe.ExpectColumnValuesToBeBetween(column=name, min_value=0, max_value=1) for name in RATIOS),
    ]


def balances(connection: "duckdb.DuckDBPyConnection", run_id: str) -> pd.DataFrame:
    """Per meter and date: what was metered and what was booked differ by at most a millionth."""
    return connection.sql(
        """
        select date, site, meter, cast(difference_joules as double) as difference_joules,
            case when coalesce(metered_joules, 0) > 0
                then abs(cast(difference_joules as double)) / cast(metered_joules as double)
                when difference_joules = 0 then 0 else 1 end as difference_ratio
        from marts.reconciliation_daily where date >= ? and date < ?
        """,
        params=_booked_dates(connection),
    ).df()


def closed_balances() -> "list[Expectation]":
    """Every metered joule is booked once."""
    from great_expectations import expectations as gxe  # noqa: PLC0415

    return [
        gxe.ExpectColumnValuesToNotBeNull(column="meter"),
        gxe.ExpectColumnValuesToBeBetween(column="difference_ratio", min_value=0, max_value=BALANCE_TOLERANCE_RATIO),
    ]


def _booked_dates(connection: "duckdb.DuckDBPyConnection") -> list[date]:
    """The dates that were booked and not yet published; all of them where nothing waits."""
    first, end = booking.dates_to_publish(connection, date.max, date.min)
    return [first, end] if first < end else [date.min, date.max]


def _line(result: Any) -> str:
    config = result.expectation_config
    limits = {key: config.kwargs[key] for key in ("min_value", "max_value", "mostly") if key in config.kwargs}
    found = result.result
    wanted = ", ".join(f"{key} {value:g}" for key, value in limits.items()) or "not null"
    if "unexpected_count" not in found:
        return f"{config.kwargs.get('column')}: {result.exception_info or 'could not be evaluated'}"
    examples = ", ".join(str(value) for value in found.get("partial_unexpected_list", [])[:3])
    rows = f"{found['unexpected_count']} of {found['element_count']} rows"
    return f"{config.kwargs['column']}: expected {wanted}; {rows} are not" + (
        f", such as {examples}" if examples else ""
    )
