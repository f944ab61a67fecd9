"""Drift alarms as asset checks: what a person should look at although the day was booked. They warn and stop nothing;
one that makes every figure of the fleet unknown is an error of the run.

Add an alarm here when something can change at a source that leaves the book balanced but wrong or empty. Each is one
query (sql/<name>.sql) over the dates that the run landed, or booked where it landed none; its rows are what is wrong,
the first column is where. No dbt models: their days are those of a Dagster run and not of a booking, each has columns
of its own, and a model or a dbt test costs every booking a tenth of a second, a query a hundredth. Keep out what must
stop a publication: that is `checks`, or a dbt test.
"""

from collections.abc import Iterator
from typing import NamedTuple

import dagster as dg
import duckdb

from pipelines.fleet.fleet_file import Fleet
from pipelines.warehouse import database, findings, statements
from pipelines.warehouse.asset_keys import asset_key

ROWS_SHOWN = 50


class Alarm(NamedTuple):
    """The query sql/<name>.sql yields a row per finding in the days of the table `run_days`; `$run_id` is the run.
    `expected` and `remedy` are shown with the rows. `is_error`: the run is not green with such a row."""

    asset: tuple[str, str]
    name: str
    description: str
    expected: str
    remedy: str
    is_error: bool = False


ALARMS = (
    Alarm(
        ("raw", "series"),
        "no_series_is_refused",
        "No series was left out of the book because a model cannot take a value of its labels or samples.",
        "values that every model can take",
        "mend this label or value at its exporter, and report the row to the maintainers; the next booking tries the"
        " series again",
    ),
    Alarm(
        ("raw", "series"),
        "families_stay",
        "No metric family of a source vanished or appeared from one day to the next.",
        "the same metric families as on the day before",
        "see whether the exporter was updated or switched off; a renamed family needs a row in"
        " dbt_project/seeds/metric_catalog.csv",
    ),
    Alarm(
        ("raw", "series_chunks"),
        "sources_speak",
        "No source fell silent before the end of a day.",
        "samples up to the end of the day",
        "see whether the source, its exporters and its scraper run; each run asks a server again for such a date, until"
        " it is whole or `relanding.give_up_days` are over, and books what has come",
    ),
    Alarm(
        ("marts", "energy_ledger"),
        "power_has_a_model",
        "At most 1 % of a day's energy, by scope of its meters, is of devices without a known user.",
        "at most 1 % of a day's energy without a known user",
        "add the line in `write` to the fleet file, with the engine in place of ENGINE; for a pod that serves no LLM"
        " `engines: [{engine: namespace/pod, work: training}]` (or embeddings, batch, other). Without a line: where"
        " `held_by` names an engine, scrape its page of metrics; else the device's exporter was silent while its user"
        " changed",
    ),
    Alarm(
        ("marts", "unmetered_devices"),
        "devices_have_power",
        "Every device that reports activity or memory has a meter of its power.",
        "a power or energy series of every device that reports activity or memory",
        "land their power as well (DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION or another family of docs/sources), or that of"
        " their nodes; until then their energy, CO2 and cost are NULL in deployment_usage",
    ),
    Alarm(
        ("raw", "unknown_families"),
        "devices_of_unknown_families_are_booked",
        "No unknown family of power or energy names a device that no booked meter measures.",
        "a booked meter of every device that a family of power or energy names",
        "add rows to metric_catalog.csv and label_catalog.csv, see dbt_project/seeds/README.md; or leave the family out"
        " with `matchers` of the source, such as '__name__!=\"…\"'",
    ),
    Alarm(
        ("marts", "energy_ledger"),
        "boards_of_a_node_speak",
        "No board fell silent while others of its node went on.",
        "power of every board of a node until the last of them",
        "see whether the board fell off the bus (nvidia-smi, dmesg), or left the exporter's list",
    ),
    Alarm(
        ("marts", "token_ledger"),
        "tokens_have_power",
        "No engine moved tokens, or waited beside a free device, without a device that is known to be its own.",
        "a device with power for every engine that moves tokens",
        "add the line in `write` to the fleet file: it ties a device of its node to the engine, or states that it has"
        " none (`accelerators: false`, for an engine on a CPU). Where it runs on accelerators that no line names, land"
        " their power",
    ),
    Alarm(
        ("marts", "model_hourly"),
        "engines_are_whole",
        "At most a tenth of an engine's energy is without its tokens, and at most a tenth of its tokens without the"
        " energy of all its boards.",
        "an engine's tokens and the energy of all its boards over the same time, but for a tenth",
        "see whether the engine, the exporter of its boards or their scrapes were down; what comes late is booked by"
        " the next run",
    ),
    Alarm(
        ("raw", "power_samples"),
        "energy_counters_move",
        "No energy counter stayed constant all day.",
        "a counter that rises",
        "see whether the board or its exporter hangs. While its board works, another meter of it is booked, or these"
        " seconds are unknown (`refuted_meter` in marts.doubts); while nothing shows that it works, 0 J are booked",
    ),
    Alarm(
        ("raw", "series_chunks"),
        "power_and_tokens_meet",
        "Some power and some tokens of the fleet were measured at the same time.",
        "power and tokens of one time",
        "where they are whole hours apart, a log is of a clock in another zone: state `time_zone` for its file, or"
        " `time_unit` and `starts_at`; else land the power of the time at which the tokens were made",
        is_error=True,
    ),
    Alarm(
        ("raw", "token_samples"),
        "clocks_agree",
        "No sample is stamped later than it was landed, and no engine started after it was first seen.",
        "no sample later than its landing, no start later than its first sample",
        "set the clock of that host or exporter (NTP)",
    ),
)


def drift_alarms(fleet: Fleet) -> dg.AssetChecksDefinition:
    """All alarms in one step, after the marts are built."""

    @dg.multi_asset_check(
        name="drift_alarms",
        specs=[
            dg.AssetCheckSpec(
                a.name,
                asset=asset_key(fleet, *a.asset),
                description=a.description,
                metadata={"expected": a.expected, "remedy": a.remedy},
            )
            for a in ALARMS
        ],
        pool="warehouse",
        can_subset=True,
    )
    def alarms(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        with (
            database.writing(fleet.warehouse, "drift alarms"),
            database.connect(fleet.warehouse, read_only=True) as connection,
        ):
            for alarm in ALARMS:
                if dg.AssetCheckKey(asset_key(fleet, *alarm.asset), alarm.name) in context.selected_asset_check_keys:
                    yield _answer(connection, asset_key(fleet, *alarm.asset), alarm, context.run.run_id)

    return alarms


def _answer(
    connection: duckdb.DuckDBPyConnection, asset: dg.AssetKey, alarm: Alarm, run_id: str
) -> dg.AssetCheckResult:
    description: str | None = None
    metadata: dict[str, dg.RawMetadataValue] = {"expected": alarm.expected}
    try:
        names, rows = ask(connection, alarm, run_id)
        metadata["rows_found"] = len(rows)
        if rows:
            description = findings.report(
                [findings.row(names, row) for row in rows[: findings.SHOWN]], len(rows), alarm.expected, alarm.remedy
            )
            metadata["rows"] = dg.MarkdownMetadataValue(findings.markdown(names, rows[:ROWS_SHOWN]))
    except duckdb.Error as refusal:  # an alarm whose query fails warns as well; the book is valid without it
        description = f"could not be asked: {refusal}"
    return dg.AssetCheckResult(
        passed=description is None,
        asset_key=asset,
        check_name=alarm.name,
        severity=dg.AssetCheckSeverity.ERROR if alarm.is_error else dg.AssetCheckSeverity.WARN,
        description=description,
        metadata=metadata,
    )


def ask(connection: duckdb.DuckDBPyConnection, alarm: Alarm, run_id: str) -> tuple[list[str], list[tuple[object, ...]]]:
    """Column names and rows of what an alarm finds in the days that a run landed, or only booked."""
    connection.execute(statements.read(__file__, "run_days"), {"run_id": run_id})
    query = statements.read(__file__, alarm.name)
    answer = connection.execute(query, {"run_id": run_id} if "$run_id" in query else None)
    return [column[0] for column in answer.description], answer.fetchall()
