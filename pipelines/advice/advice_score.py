"""published.advice_given and published.measured_changes: what was advised, and what the changes saved by the meters.

Both are appended to (`warehouse.advice_history`). Add here what carries advice and changes into them. Keep out how a
change is found (int_advised_changes), how it is measured (`analysis.measured_savings`) and what became of which advice
(finance.advice_score).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import dagster as dg
import duckdb
import numpy as np
import pandas as pd

from pipelines.advice import advised
from pipelines.analysis import measured_savings
from pipelines.analysis.preference import TABLES as ADVICE
from pipelines.analysis.savings import HOURS_PER_MONTH
from pipelines.fleet.fleet_file import Fleet
from pipelines.warehouse import advice_history, database
from pipelines.warehouse.asset_keys import asset_key

READ = ("changes", "change_hours")
NOTHING_TO_DO = ("keep", "insufficient_data")
_JOULES_PER_KWH = 3.6e6
# What identifies a row, beside what may be otherwise a second time.
_SAME = {
    "advice_given": ("recommendation_id", ["given_at"]),
    "measured_changes": ("change_id", ["measured_at", "as_of_date"]),
}


def write_score(connection: duckdb.DuckDBPyConnection, now: datetime | None = None) -> tuple[int, int]:
    """Append today's advice to follow and the changes that are measured anew; returns how many rows of each."""
    now = now or datetime.now(UTC)
    advice_history.create(connection)
    given = _append(connection, "advice_given", _advice(connection).assign(given_at=now), "given_at")
    changes = _measured(connection).assign(measured_at=now)
    return given, _append(connection, "measured_changes", changes, "measured_at")


def _advice(connection: duckdb.DuckDBPyConnection) -> pd.DataFrame:
    columns = list(advice_history.TABLES["advice_given"][1])
    parts = []
    for table in ADVICE:
        found = connection.execute(
            f"select * from published.{table} where is_preferred and not list_contains(?, kind)", [list(NOTHING_TO_DO)]
        ).df()
        parts.append(found.reindex(columns=[name for name in columns if name != "given_at"]))
    return pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)


def _measured(connection: duckdb.DuckDBPyConnection) -> pd.DataFrame:
    changes = advised.read(connection, "changes")
    hours = advised.read(connection, "change_hours")
    columns = [name for name in advice_history.TABLES["measured_changes"][1] if name != "measured_at"]
    rows = [
        {**change, **_of_hours(change, of)}
        for change in changes.to_dict("records")
        if len(of := hours[hours["change_id"] == change["change_id"]])
    ]
    return pd.DataFrame(rows, columns=columns)


def _of_hours(change: Mapping[str, Any], hours: pd.DataFrame) -> dict[str, Any]:
    """What the hours before and after a change show."""
    sides = {"before": hours[~hours["is_after"]], "after": hours[hours["is_after"]]}
    saving = measured_savings.measured(hours)
    # What is off has no electricity of its own: it is priced as before.
    priced = next((of for of in (sides["after"], sides["before"]) if of["facility_kwh"].sum() > 0), sides["after"])
    pue = _ratio(_JOULES_PER_KWH * priced["facility_kwh"].sum(), priced["joules"].sum() + priced["host_joules"].sum())
    each = HOURS_PER_MONTH / 1000 * pue
    tariff = _ratio(priced["energy_usd"].sum(min_count=1), priced["facility_kwh"].sum())
    charged = _ratio(priced["charged_energy_usd"].sum(min_count=1), priced["energy_usd"].sum())
    kwh = saving.watts * each
    return {
        "as_of_date": hours["date"].max(),
        **{f"days_{side}": of["date"].nunique() for side, of in sides.items()},
        "saving_watts": saving.watts,
        "saving_kwh_month": kwh,
        "saving_low": saving.low * each,
        "saving_high": saving.high * each,
        "adjusted_for": saving.adjusted_for or None,
        **{
            f"{name}_{side}": _ratio(of[part].sum(min_count=1), of[whole].sum())
            for side, of in sides.items()
            for name, part, whole in (
                ("queued_ratio", "queued_intervals", "pressure_intervals"),
                ("good_request_ratio", "good_requests", "requests"),
            )
        },
        **{f"paid_gpus_{side}": of["paid_gpu_seconds"].mean() / 3600 for side, of in sides.items()},
        "realised_energy_usd_month": kwh * tariff * (1.0 if np.isnan(charged) else charged),
        "realised_capacity_usd_month": _capacity_usd_month(change, sides["before"], sides["after"]),
    }


def _capacity_usd_month(change: Mapping[str, Any], before: pd.DataFrame, after: pd.DataFrame) -> float:
    """USD of a month that left the bill with accelerators which the change freed."""
    gpus = [side["paid_gpu_seconds"].mean() / 3600 for side in (before, after)]
    usd = [side["paid_usd"].mean() for side in (before, after)]
    left = gpus[0] - gpus[1]
    freed = change["gpus_before"] - change["gpus_after"]
    if np.isnan(left) or np.isnan(usd[0] - usd[1]):
        return float("nan")
    if left < 0.5 or freed <= 0:
        return 0.0
    return float(max(usd[0] - usd[1], 0.0) * min(freed / left, 1.0) * HOURS_PER_MONTH)


def _ratio(numerator: float, denominator: float) -> float:
    return float(numerator / denominator) if denominator else float("nan")


def _append(connection: duckdb.DuckDBPyConnection, table: str, rows: pd.DataFrame, stamp: str) -> int:
    """Append the rows that differ from the newest one of the same; returns their number."""
    columns = advice_history.TABLES[table][1]
    key, unlike = _SAME[table]
    listed = ", ".join(f'cast("{name}" as {kind}) as "{name}"' for name, (kind, _) in columns.items())
    compared = [name for name in columns if name not in unlike]
    with database.registered(connection, rows_found=rows[list(columns)]):
        ((count,),) = connection.execute(
            f"insert into published.{table} select * from (select {listed} from rows_found) as found where not exists ("
            f" select 1 from published.{table} as held where held.{key} = found.{key}"
            f" and held.{stamp} = (select max({stamp}) from published.{table} as newest"
            f" where newest.{key} = found.{key})"
            + "".join(f" and held.{name} is not distinct from found.{name}" for name in compared)
            + ")"
        ).fetchall()
    return int(count)


def advice_score_asset(fleet: Fleet, manifest: Mapping[str, Any], pool: str) -> dg.AssetsDefinition:
    """published/advice_given and published/measured_changes, after the advice and what the changes are found in."""
    advice = [asset_key(fleet, "published", name) for name in ADVICE]
    read = [asset_key(fleet, *table) for table in advised.tables_read(manifest, READ)]
    descriptions = {
        "advice_given": "What was advised, date by date; appended to, never computed again.",
        "measured_changes": "What each change of a deployment saved, by its own meters; appended to.",
    }
    keys = {name: asset_key(fleet, "published", name) for name in descriptions}

    @dg.multi_asset(
        name="advice_score",
        specs=[
            dg.AssetSpec(keys[name], deps=[*advice, *read], description=text, group_name="published", kinds={"duckdb"})
            for name, text in descriptions.items()
        ],
        pool=pool,
    )
    def advice_score() -> Iterator[dg.MaterializeResult[None]]:
        with database.writing(fleet.warehouse, "advice_score"), database.connect(fleet.warehouse) as held:
            given, changes = write_score(held)
        for name, rows in (("advice_given", given), ("measured_changes", changes)):
            yield dg.MaterializeResult(asset_key=keys[name], metadata={"rows_appended": rows})

    return advice_score
