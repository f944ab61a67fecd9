"""What both tables of recommendations share: columns of one meaning, and the mark of the one row to follow.

Add here a column or a step that both tables have. Keep out what is recommended (`right_sizing_table`,
`consolidation_table`) and the rule of the mark (`analysis.preference`).
"""

from __future__ import annotations

import duckdb
import pandas as pd

from pipelines.analysis import preference
from pipelines.warehouse import database

_NOT_KNOWN = " NULL: not known, or nothing changes."
_NODES_OFF = (
    " if, besides following the advice, the nodes that it leaves without any pod are switched off: what their freed"
    " accelerators draw now and their hosts' power are saved, too. In consolidation those are the nodes that the whole"
    " plan leaves empty. NULL: not known, or no node falls empty."
)
SAVING_COLUMNS = {
    "freed_gpus": (
        "double",
        "Accelerators that hold no pod of it then. 0: it changes how they work, or takes in others. NULL: nothing"
        " changes.",
    ),
    "freed_gpus_on_empty_nodes": (
        "double",
        "Those of freed_gpus whose whole node holds no pod then, as far as the row knows which they are. NULL: nothing"
        " changes.",
    ),
    "saving_watts": (
        "double",
        "Mean watts that the accelerators draw less, within meter_scope: a freed accelerator stays on without a model"
        " and draws the bare idle watts of its device type (idle_watts_bare). NULL: not known (no bare idle watts of"
        " the device type, or a meter of more than the board), or nothing changes.",
    ),
    "saving_kwh_month": (
        "double",
        "Facility kWh of 730 hours that are saved if this advice alone is followed: pods are scaled down or moved, the"
        " nodes stay on and their hosts draw what they drew. saving_watts × 730 h × PUE. Given to another model, freed"
        " accelerators draw that model's energy and this is not saved." + _NOT_KNOWN,
    ),
    "saving_energy_usd_month": (
        "double",
        "USD of that energy at the mean tariff of the lookback; 0 where the rate of a GPU-hour holds the electricity."
        + _NOT_KNOWN,
    ),
    "saving_kgco2e_month": ("double", "Location-based kg of CO2e of that energy." + _NOT_KNOWN),
    "saving_low": ("double", "Lower end of the 95 % interval of saving_kwh_month." + _NOT_KNOWN),
    "saving_high": ("double", "Upper end of the 95 % interval of saving_kwh_month." + _NOT_KNOWN),
    "saving_interval_basis": (
        "varchar",
        "How the days of the lookback differ, by `day_bootstrap` (14 days and more) or `student_t`; `reference_error`:"
        " parked watts are a reference of the device type, 30 % off either way; `one_day` (no interval). Bare idle"
        " watts are a reference, too: 30 % of them is part of each. NULL: no saving is known.",
    ),
    "saving_kwh_month_if_nodes_off": ("double", f"Facility kWh of 730 hours that are saved{_NODES_OFF}"),
    "saving_energy_usd_month_if_nodes_off": ("double", f"USD of the energy that is saved{_NODES_OFF}"),
    "saving_kgco2e_month_if_nodes_off": ("double", f"Location-based kg of CO2e that are saved{_NODES_OFF}"),
    "saving_usd_month_if_released": (
        "double",
        "USD of the GPU-hours of freed_gpus for 730 hours, if they are handed back and no longer paid, or given to a"
        " model that would need others. GPU-hours alone: energy is in the columns above. NULL: no rate is known, or no"
        " accelerator is freed.",
    ),
}
CONFIDENCE = (
    "varchar",
    "How well the lookback supports that what is recommended is enough. `high`: 21 days and more, 0.95 of the GPU"
    " time covered, and either no demand (or hours idle in each week) or a load that was seen to keep the model's"
    " SLO; where less has to serve the demand, queues are reported, too. `low`: fewer than 14 days, or only"
    " the memory bandwidth shows that it is enough. `medium`: what is neither. How exact the saving is:"
    " saving_low and saving_high. NULL: nothing changes.",
)
IS_PREFERRED = (
    "boolean",
    "The one row of its exclusive_group_id to follow, over right_sizing and consolidation together: over these,"
    " savings add up. A change before none, then the greatest saving_kwh_month, then"
    " saving_usd_month_if_released; rows of one colocation_id together or not at all.",
)
_FACTS = ("recommendation_id", "exclusive_group_id", "kind", "saving_kwh_month", "saving_usd_month_if_released")


def mark_preferred(connection: duckdb.DuckDBPyConnection) -> set[str]:
    """Mark the rows to follow in both tables, whichever of them was written last; returns their recommendation_id."""
    parts = []
    for name in _tables(connection):
        colocation = "colocation_id" if name == "consolidation" else "null::varchar as colocation_id"
        facts = f"select {', '.join(_FACTS)}, {colocation} from published.{name}"
        parts.append(connection.execute(facts).df().assign(table=name))
    rows = pd.concat(parts, ignore_index=True)
    chosen = rows.loc[preference.preferred(rows), ["recommendation_id"]]
    with database.registered(connection, rows_preferred=chosen), database.transaction(connection):
        for name in _tables(connection):
            connection.execute(
                f"update published.{name} set is_preferred ="
                " recommendation_id in (select recommendation_id from rows_preferred)"
            ).fetchall()
    return set(chosen["recommendation_id"])


def preferred_saving_kwh_month(connection: duckdb.DuckDBPyConnection) -> float:
    """What the rows to follow save together, as far as it is known."""
    sums = [
        connection.execute(f"select sum(saving_kwh_month) from published.{name} where is_preferred").fetchall()[0][0]
        for name in _tables(connection)
    ]
    return float(sum(saved or 0 for saved in sums))


def _tables(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Those of the two tables that exist. A table of an older version does not count: the same run writes it again."""
    found = connection.execute(
        "select table_name, list(column_name) from duckdb_columns()"
        " where schema_name = 'published' and table_name in ('right_sizing', 'consolidation') group by all"
    ).fetchall()
    current = {name for name, columns in found if {"is_preferred", "freed_gpus"} <= set(columns)}
    return [name for name in preference.TABLES if name in current]
