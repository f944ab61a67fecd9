"""Drift alarms as asset checks: what a person should look at although the day was booked. They warn and stop nothing.

Add an alarm here when something can change at a source that leaves the book balanced but wrong or empty. Each is one
query over the dates that the run landed; its rows are what is wrong, the first column says where. Keep out what must
stop a publication: that is `checks`, or a dbt test.
"""

from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

import dagster as dg
import duckdb

from pipelines.fleet import catalog
from pipelines.fleet.fleet_file import Fleet
from pipelines.warehouse import database, findings
from pipelines.warehouse.asset_keys import asset_key

ROWS_SHOWN = 50

# The days that the run landed, and per family of a source those on which it gave samples, that day or the one before.
RUN_DAYS = """
    run_days as (
        select distinct cast(window_start_at as date) as date from raw.landings
        where asset = 'raw/telemetry' and run_id = $run_id and window_end_at - window_start_at = interval 1 day
    ),
    family_days as (
        select distinct series.source, series.metric, cast(chunks.chunk_start_at as date) as date
        from raw.series_chunks as chunks
        join raw.series as series on series.series_id = chunks.series_id
        where chunks.samples > 0
            and chunks.chunk_start_at >= (select min(date) from run_days) - interval 1 day
            and chunks.chunk_start_at < (select max(date) from run_days) + interval 1 day
    ),
"""


class Alarm(NamedTuple):
    """`query` yields a row per finding; RUN_DAYS comes before it. `$run_id` is the run, `$energy_counters` and
    `$process_starts` are the catalogue's metrics. `expected` and `remedy` are told with the rows."""

    asset: tuple[str, str]
    name: str
    description: str
    query: str
    expected: str
    remedy: str


ALARMS = (
    Alarm(
        ("raw", "series"),
        "families_stay",
        "No metric family of a source vanished or appeared from one day to the next.",
        """
        source_days as (select distinct source, date from family_days),
        changes as (
            select source, metric, date + 1 as date, 'vanished' as change from family_days
            union all
            select source, metric, date, 'appeared' as change from family_days
        )
        select source || ' ' || metric as family, changes.date, change
        from changes
        join run_days using (date)
        join source_days as today using (source, date)
        join source_days as yesterday on yesterday.source = changes.source and yesterday.date = changes.date - 1
        anti join family_days as same
            on same.source = changes.source and same.metric = changes.metric
            and same.date = case change when 'vanished' then changes.date else changes.date - 1 end
        order by all
        """,
        "the same metric families as on the day before",
        "see whether the exporter was updated or switched off; a renamed family needs a row in"
        " dbt_project/seeds/metric_catalog.csv",
    ),
    Alarm(
        ("raw", "series_chunks"),
        "sources_speak",
        "No source fell silent before the end of a day.",
        """
        spoken as (
            select source, cast(chunk_start_at as date) as date, max(last_at) as last_at
            from raw.series_chunks where chunk_start_at >= (select min(date) from run_days) group by all
        )
        select sources.source, run_days.date, spoken.last_at as last_sample_at
        from fleet.sources as sources
        cross join run_days
        left join spoken using (source, date)
        where last_at is null
            or last_at < cast(date + 1 as timestamptz) - to_seconds(greatest(3 * coalesce(interval_seconds, 0), 600))
        order by all
        """,
        "samples up to the end of the day",
        "see whether the source, its exporters and its scraper run; what comes late is landed and booked by the next"
        " run",
    ),
    Alarm(
        ("marts", "energy_ledger"),
        "power_has_a_model",
        "At most 1 % of a day's energy, by scope of its meters, is of devices that nobody is known to use.",
        """
        devices as (
            select date, meter_scope, node, meter, sum(energy_joules) as joules,
                sum(case when model = '__unknown__' then energy_joules end) as orphan_joules
            from marts.energy_ledger join run_days using (date) group by date, meter_scope, node, meter
        ),
        shares as (
            -- Joules of a board and of a whole node are not added.
            select *, sum(orphan_joules) over (partition by date, meter_scope)
                / sum(joules) over (partition by date, meter_scope) as orphan_ratio
            from devices
        )
        select meter, node, date, round(orphan_joules / 3.6e6, 3) as kwh
        from shares where orphan_joules > 0 and orphan_ratio > 0.01
        order by kwh desc, meter, date
        """,
        "at most 1 % of a day's energy without a known user",
        "name who uses these devices: pod labels, or `engines` and `assignments` in the fleet file",
    ),
    Alarm(
        ("marts", "unmetered_devices"),
        "devices_have_power",
        "Every device that reports activity or memory has a meter of its power.",
        """
        devices as (
            select source, count(distinct device_uuid) as devices, min(date) as first_date, max(date) as last_date
            from marts.unmetered_devices join run_days using (date) group by source
        )
        select source, devices, first_date, last_date from devices order by devices desc, source
        """,
        "a power or energy series of every device that reports activity or memory",
        "land their power as well (DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION or another family of docs/sources), or that of"
        " their nodes; until then their energy, CO2 and cost are NULL in deployment_usage",
    ),
    Alarm(
        ("marts", "token_ledger"),
        "tokens_have_power",
        "No engine moved tokens without a device that is known to be its own.",
        """
        orphans as (
            select engine, model, date, sum(tokens) as tokens
            from marts.token_ledger join run_days using (date)
            where not has_power and token_class in ('input', 'output') group by all
        )
        select engine, model, date, tokens from orphans where tokens > 0 order by tokens desc, engine, date
        """,
        "a device with power for every engine that moves tokens",
        "land the power of the devices of this engine, or tie them to it with `engines.pods` or `assignments` in the"
        " fleet file",
    ),
    Alarm(
        ("raw", "power_samples"),
        "energy_counters_move",
        "No energy counter stood still all day.",
        """
        counters as (
            select series.source, series.metric, series.labels, cast(chunks.chunk_start_at as date) as date,
                sum(chunks.samples) as samples,
                min(chunks.first_value) = max(chunks.last_value) and sum(chunks.falls) = 0 as is_still
            from raw.series_chunks as chunks
            join raw.series as series on series.series_id = chunks.series_id
            where series.metric in $energy_counters and chunks.samples > 0
                and chunks.chunk_start_at >= (select min(date) from run_days)
            group by all
        )
        select source, metric, labels, date, samples from counters join run_days using (date)
        where is_still and samples >= 10 order by all
        """,
        "a counter that rises",
        "see whether the board or its exporter hangs; its gauge is booked where there is one",
    ),
    Alarm(
        ("raw", "token_samples"),
        "clocks_agree",
        "No sample is stamped later than it was landed, and no engine started after it was first seen.",
        """
        future as (
            select chunks.source || ' is stamped ahead of its landing' as what,
                cast(chunks.chunk_start_at as date) as date, max(chunks.last_at) - max(landings.landed_at) as ahead
            from raw.series_chunks as chunks
            join raw.landings as landings
                on landings.source = chunks.source and landings.window_start_at <= chunks.chunk_start_at
                and landings.window_end_at > chunks.chunk_start_at and landings.run_id = $run_id
            group by all having max(chunks.last_at) > max(landings.landed_at) + interval 1 minute
        ),
        starts as (
            select series.source || ' ' || series.labels || ' started after its first sample' as what,
                cast(chunks.chunk_start_at as date) as date, to_timestamp(chunks.first_value) - chunks.first_at as ahead
            from raw.series_chunks as chunks
            join raw.series as series on series.series_id = chunks.series_id
            where series.metric in $process_starts and chunks.first_value > epoch(chunks.first_at) + 60
        )
        select what, date, ahead from (select * from future union all select * from starts)
        join run_days using (date) order by all
        """,
        "no sample later than its landing, no start later than its first sample",
        "set the clock of that host or exporter (NTP)",
    ),
)


def drift_alarms(fleet: Fleet) -> dg.AssetChecksDefinition:
    """All alarms in one step, after the marts are built."""

    @dg.multi_asset_check(
        name="drift_alarms",
        specs=[dg.AssetCheckSpec(a.name, asset=asset_key(fleet, *a.asset), description=a.description) for a in ALARMS],
        pool="warehouse",
        can_subset=True,
    )
    def alarms(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        with (
            database.writing(fleet.warehouse, "drift alarms"),
            closing(database.connect(fleet.warehouse, read_only=True)) as connection,
        ):
            for alarm in ALARMS:
                if dg.AssetCheckKey(asset_key(fleet, *alarm.asset), alarm.name) in context.selected_asset_check_keys:
                    yield _answer(connection, asset_key(fleet, *alarm.asset), alarm, context.run.run_id)

    return alarms


def _answer(
    connection: duckdb.DuckDBPyConnection, asset: dg.AssetKey, alarm: Alarm, run_id: str
) -> dg.AssetCheckResult:
    told: str | None = None
    metadata: dict[str, dg.RawMetadataValue] = {"findings": 0}
    try:
        names, rows = ask(connection, alarm, run_id)
        if rows:
            told = findings.report(
                [findings.row(names, row) for row in rows[: findings.SHOWN]], len(rows), alarm.expected, alarm.remedy
            )
            metadata = {"findings": len(rows), "rows": _table(names, rows)}
    except duckdb.Error as refusal:  # an alarm that cannot be asked warns as well; the book stands without it
        told = f"could not be asked: {refusal}"
    return dg.AssetCheckResult(
        passed=told is None,
        asset_key=asset,
        check_name=alarm.name,
        severity=dg.AssetCheckSeverity.WARN,
        description=told,
        metadata=metadata,
    )


def ask(connection: duckdb.DuckDBPyConnection, alarm: Alarm, run_id: str) -> tuple[list[str], list[tuple[object, ...]]]:
    """Column names and rows of what an alarm finds in the days that a run landed."""
    known = {
        "run_id": run_id,
        "energy_counters": catalog.metrics(quantity="energy", kind="counter"),
        "process_starts": catalog.metrics(quantity="process_start"),
    }
    used = {name: value for name, value in known.items() if f"${name}" in RUN_DAYS + alarm.query}
    answer = connection.execute(f"with {RUN_DAYS} {alarm.query.strip()}", used)
    return [column[0] for column in answer.description], answer.fetchall()


def _table(names: list[str], rows: list[tuple[object, ...]]) -> dg.MarkdownMetadataValue:
    lines = [names, ["---"] * len(names), *rows[:ROWS_SHOWN]]
    return dg.MarkdownMetadataValue("\n".join(f"| {' | '.join(map(str, line))} |" for line in lines))
