"""published.sleep_after: what sleeping after so many idle seconds would have saved, by the lookback of every run.

Add here what carries idle time from the marts to this table. Keep out the arithmetic (`analysis.sleep`) and which sleep
is recommended (`right_sizing_table`, `consolidation_table`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg
import duckdb
import pandas as pd

from pipelines.advice import advised
from pipelines.advice.shared_columns import SAVING_COLUMNS, WAITING_COLUMNS
from pipelines.analysis import right_sizing, savings, sleep
from pipelines.analysis.sizes import KEYS
from pipelines.fleet.fleet_file import Fleet
from pipelines.warehouse import database
from pipelines.warehouse.asset_keys import asset_key
from pipelines.warehouse.computed_tables import write_table

READ = ("usage", "intervals", "days")
TABLE_COMMENT = (
    "One row per site, deployment, model, device type, meter scope, role and sleep_after_seconds. What unloading the"
    " model after so many seconds without a token would have saved in the lookback, and how often it would have had to"
    " wake up. A replay of the gaps that were seen, and no advice: that is in published.consolidation and"
    " published.right_sizing. Times shorter than an interval of the grid are not known. [topic: advice]"
)
_NOT_KNOWN = " NULL: reason_code has why."
_SAVING = " NULL: not known (reason_code)."
COLUMNS = {
    "as_of_date": ("date", "Newest booked UTC date: the lookback ends with it."),
    **dict.fromkeys(KEYS, ("varchar", "As in deployment_usage.")),
    "sleep_after_seconds": ("integer", "Seconds without a token after which it would have been unloaded."),
    "known_hours": ("double", f"Hours of the lookback of which it is known whether it was idle.{_NOT_KNOWN}"),
    "asleep_hours": (
        "double",
        "Of them, those that it would have been unloaded. A gap counts from its first to its last interval without a"
        f" token; the true one is up to two intervals longer.{_NOT_KNOWN}",
    ),
    "wakes": (
        "integer",
        "Times that it would have been loaded again, with the wait of at least one request each. A gap that lasts to"
        f" the end of the lookback has none, one that ends without telemetry has one.{_NOT_KNOWN}",
    ),
    "wakes_per_day": ("double", f"The same per 24 known hours.{_NOT_KNOWN}"),
    "waiting_ratio": (
        "double",
        f"Share of the known time in which requests would have waited for it: wakes × cold_start_seconds.{_NOT_KNOWN}",
    ),
    **WAITING_COLUMNS,
    "cold_start_seconds": (
        "double",
        "Seconds that loading takes: of the fleet file, else 300 (cold_start_basis). It draws 0.3 of the power limit.",
    ),
    "cold_start_basis": ("varchar", "`fleet_file`, or `assumed`: the fleet file states no cold_start_seconds."),
    "break_even_seconds": (
        "double",
        "Idle seconds after which unloading pays: a shorter sleep_after_seconds may cost energy. NULL: not known, or it"
        " never pays.",
    ),
    "saving_kwh_month": (
        "double",
        "Facility kWh of 730 hours: parked less bare watts while asleep, less the joules of loading. Below 0 it would"
        f" have cost energy.{_SAVING}",
    ),
    "saving_energy_usd_month": ("double", f"USD of that energy, as in published.consolidation.{_SAVING}"),
    "saving_kgco2e_month": ("double", f"Location-based kg of CO2e of that energy.{_SAVING}"),
    "saving_low": (
        "double",
        "Lower end of the 95 % interval of saving_kwh_month, if the gaps stay as they were: of parked and bare watts."
        " NULL: not known, or loading takes more than is saved.",
    ),
    "saving_high": ("double", "Upper end of it. NULL as there."),
    "saving_interval_basis": SAVING_COLUMNS["saving_interval_basis"],
    "reason_code": (
        "varchar",
        "`ok`; `figures_in_doubt`: savings are not computed; `watts_not_known`: parked watts, or bare ones of a board,"
        " are not known; or why nothing is known, as in docs/recommendations/reason_codes.md.",
    ),
    "lookback_start_at": ("timestamptz", "As in deployment_usage."),
    "lookback_end_at": ("timestamptz", "As in deployment_usage."),
    "held_back_dates": ("varchar", "As in deployment_usage: dates of the lookback that count as without telemetry."),
    "is_complete": ("boolean", "As in deployment_usage."),
}


def write_sleep_after(connection: duckdb.DuckDBPyConnection) -> pd.DataFrame:
    """Replace published.sleep_after by what the marts hold now; returns its rows."""
    usage = advised.usage(connection)
    usage = sleep.with_break_even(usage.assign(refusal=right_sizing.refusals(usage)))
    grid = advised.grid(connection, usage)
    days = advised.read(connection, "days").dropna(subset="seconds")
    rows = savings.with_savings(_slept(usage, sleep.after(usage, grid.idle, grid.asked, grid.seconds)), days)
    is_cost = rows["saving_kwh_month"] < 0
    ends = ["saving_low", "saving_high", "saving_interval_basis"]
    rows[ends] = rows[ends].astype(object).mask(is_cost, None)
    write_table(connection, "published.sleep_after", TABLE_COMMENT, COLUMNS, rows)
    return rows


def _slept(usage: pd.DataFrame, slept: pd.DataFrame) -> pd.DataFrame:
    """One row per deployment and time, as `savings` reads them: nothing is freed."""
    rows = slept.join(usage, on="usage").copy()  # in one block: pandas warns of a table made of a hundred columns
    is_in_doubt = right_sizing.is_in_doubt(rows)
    rows["saved_watts"] = rows["saved_watts"].mask(is_in_doubt)
    unknown = rows["refusal"].where(rows["refusal"].notna() | ~is_in_doubt, right_sizing.IN_DOUBT)
    unknown = unknown.where(unknown.notna() | rows["saved_watts"].notna(), "watts_not_known")
    return rows.assign(
        kind="sleep_when_idle",
        is_change=True,
        current_gpus=rows["gpus"],
        current_replicas=rows["replicas"],
        freed_gpus=0.0,
        freed_gpus_on_empty_nodes=0.0,
        wakes_per_day=rows["wakes"] / (rows["known_hours"] / 24),
        reason_code=unknown.fillna("ok"),
    )


def sleep_after_asset(fleet: Fleet, manifest: Mapping[str, Any], pool: str) -> dg.AssetsDefinition:
    """published/sleep_after, after the tables that it reads."""
    key = asset_key(fleet, "published", "sleep_after")
    read = [asset_key(fleet, *table) for table in advised.tables_read(manifest, READ)]

    @dg.asset(key=key, deps=read, group_name="published", kinds={"duckdb"}, pool=pool)
    def sleep_after() -> dg.MaterializeResult[Any]:
        """What unloading each model after so many idle seconds would have saved, and how often it would have woken."""
        with database.writing(fleet.warehouse, "sleep_after"), database.connect(fleet.warehouse) as held:
            rows = write_sleep_after(held)
        return dg.MaterializeResult(metadata={"dagster/row_count": len(rows)})

    return sleep_after
