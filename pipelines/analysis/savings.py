"""What a month of following one recommendation saves, and what more would follow under a condition, stated in its name.

The saving itself has one meaning in both tables: pods are scaled down or moved and nothing else happens. The
accelerators that they leave stay on without a model, the nodes and their hosts stay on unchanged. Add here what a
saving consists of. Keep out what is recommended (`right_sizing`, `consolidation`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from pipelines.analysis import sleep
from pipelines.analysis.day_intervals import coming_ratio_interval

HOURS_PER_MONTH = 730
REFERENCE_ERROR_RATIO = 0.3  # of watts that are a device type's reference and not measured
# Which columns of the measured days show how sure a saving is: those of parked watts, of all watts, of the demand.
PARKED, MEAN, DEMAND = ("parked_joules", "parked_gpu_seconds"), ("joules", "gpu_seconds"), ("tokens", "seconds")
FOLLOWS = {
    "fewer_replicas": PARKED,
    "fewer_gpus": PARKED,
    "colocate": PARKED,
    "move": PARKED,
    "sleep_outside_hours": PARKED,
    "sleep_when_idle": PARKED,
    "spin_down": MEAN,
    "newer_device": DEMAND,
    "smaller_device": DEMAND,
}
# Accelerators that then hold no pod. A move frees as many as it takes: none, and no watts.
FREEING = ("spin_down", "fewer_replicas", "fewer_gpus", "colocate", "move")
COLUMNS = [
    "freed_gpus", "freed_gpus_on_empty_nodes", "saving_watts", "saving_kwh_month", "saving_energy_usd_month",
    "saving_kgco2e_month", "saving_low", "saving_high", "saving_interval_basis", "saving_kwh_month_if_nodes_off",
    "saving_energy_usd_month_if_nodes_off", "saving_kgco2e_month_if_nodes_off", "saving_usd_month_if_released",
]  # fmt: skip


def with_savings(rows: pd.DataFrame, days: pd.DataFrame) -> pd.DataFrame:
    """`rows` (one per recommendation, with the columns of deployment_usage) with COLUMNS.

    Of each: `is_change`, `current_gpus`, `freed_gpus`, `freed_gpus_on_empty_nodes` (nodes that are left without any
    pod), and `saved_watts` of a change that is not of FREEING. `days` per `usage` and date: `joules`, `gpu_seconds`,
    `parked_joules`, `parked_gpu_seconds`, `tokens`, `seconds`; its `date` is a date or a number of days.

    The work of a freed accelerator moves to those that stay, so it saves what it draws *parked*; all that it draws
    where its model is spun down.
    """
    rows = rows.copy()  # as one block: many columns follow
    gpus, freed, emptied = (
        rows[name].astype(float) for name in ("current_gpus", "freed_gpus", "freed_gpus_on_empty_nodes")
    )
    mean = rows["mean_watts"].astype(float) / gpus
    each = sleep.parked_watts(rows.assign(gpus=gpus)).where(rows["kind"] != "spin_down", mean)
    pue = rows["pue"].astype(float)
    host = mean * (rows["facility_per_device_ratio"].astype(float) / pue - 1)
    # Of an accelerator that others hold, too, it is unknown what it draws without this model.
    is_shared = (gpus % 1 != 0) | (gpus < rows["current_replicas"].astype(float))
    unloaded = (each - sleep.bare_watts(rows)).clip(lower=0).mask(is_shared)
    is_freeing = rows["kind"].isin(FREEING)
    # Who only takes in others frees nothing and saves nothing.
    watts = (unloaded * freed).mask(freed == 0, 0.0).where(is_freeing, rows["saved_watts"].astype(float))
    watts = watts.where(rows["is_change"])
    kwh = watts * HOURS_PER_MONTH / 1000 * pue
    # What stays on at bare watts beside the empty nodes is not known everywhere.
    left = (unloaded * (freed - emptied)).where(freed > emptied, 0.0)
    nodes_off = ((each + host) * emptied + left) * HOURS_PER_MONTH / 1000 * pue
    nodes_off = nodes_off.where(rows["is_change"] & (emptied > 0))
    # Electricity within the rate of a GPU-hour is paid as before; without a rate it is paid by the tariff.
    tariff = rows["usd_per_kwh"].astype(float) * rows["charged_energy_ratio"].astype(float).fillna(1.0)
    intensity = rows["gco2e_per_kwh"].astype(float) / 1000
    made = rows.assign(
        freed_gpus=freed.where(rows["is_change"]),
        freed_gpus_on_empty_nodes=emptied.where(rows["is_change"]),
        saving_watts=watts,
        saving_kwh_month=kwh,
        saving_energy_usd_month=kwh * tariff,
        saving_kgco2e_month=kwh * intensity,
        saving_kwh_month_if_nodes_off=nodes_off,
        saving_energy_usd_month_if_nodes_off=nodes_off * tariff,
        saving_kgco2e_month_if_nodes_off=nodes_off * intensity,
        saving_usd_month_if_released=(freed * rows["usd_per_gpu_hour"].astype(float) * HOURS_PER_MONTH).where(
            rows["is_change"] & (freed > 0)
        ),
        watts_each=each,
    )
    by_usage = dict(list(days.groupby("usage")))
    ends = pd.DataFrame(
        [_interval(row, by_usage.get(row["usage"])) for row in made.to_dict("records")],
        columns=["saving_low", "saving_high", "saving_interval_basis"],
        index=made.index,
    ).astype({"saving_low": float, "saving_high": float, "saving_interval_basis": object})
    return pd.concat([made.drop(columns="watts_each"), ends], axis=1).copy()


def _interval(row: dict[str, Any], days: pd.DataFrame | None) -> tuple[float, float, str | None]:
    """Ends of saving_kwh_month in the coming month and their basis: what the days lead to expect, and how wrong
    references may be."""
    saving = row["saving_kwh_month"]
    if not np.isfinite(saving):
        return np.nan, np.nan, None
    if row["kind"] == "power_cap":
        low, high = (saving * row[f"saved_watts_{end}"] / row["saved_watts"] for end in ("low", "high"))
        return max(low, 0.0), high, row["saved_watts_interval_basis"]
    parts = FOLLOWS[row["kind"]]
    bare = 0.0 if parts == DEMAND else row["idle_watts_bare"]
    whole = row["demand_tokens_per_second_mean"] if parts == DEMAND else row["watts_each"]
    is_freeing = row["kind"] in FREEING
    if not (is_freeing or whole > bare):
        return np.nan, np.nan, None
    if parts == PARKED and row["parked_watts_basis"] != "intervals_without_tokens":
        coming, reach, basis = whole, (REFERENCE_ERROR_RATIO * whole,) * 2, "reference_error"
    elif days is None:
        return np.nan, np.nan, None
    else:
        numerators, denominators = (days[part].to_numpy(float) for part in parts)
        expected, low, high, basis = coming_ratio_interval(numerators, denominators, _numbered(days["date"]))
        ratio = numerators.sum() / denominators.sum() if denominators.sum() > 0 else np.nan
        # Of parked watts that were measured above the mean, the mean counts: its days scatter in proportion.
        coming = expected * whole / ratio
        reach = ((expected - low) * whole / ratio, (high - expected) * whole / ratio)
    below, above = np.hypot(reach, REFERENCE_ERROR_RATIO * bare)
    # Loading is a small part of what sleep saves, and taken to be unsure in proportion.
    each = row["freed_gpus"] * HOURS_PER_MONTH / 1000 * row["pue"] if is_freeing else saving / (whole - bare)
    low, high = each * (coming - below - bare), each * (coming + above - bare)
    return (max(low, 0.0), max(high, 0.0), basis) if np.isfinite(low) else (np.nan, np.nan, basis)


def _numbered(dates: pd.Series) -> np.ndarray:
    """Dates as whole numbers of days."""
    is_number = pd.api.types.is_numeric_dtype(dates)
    numbers: np.ndarray = (
        dates.to_numpy(int) if is_number else pd.to_datetime(dates).to_numpy().astype("datetime64[D]").astype(int)
    )
    return numbers
