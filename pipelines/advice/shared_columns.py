"""What both tables of recommendations share: columns of one meaning, and the mark of the one row to follow.

Add here a column or a step that both tables have. Keep out what is recommended (`right_sizing_table`,
`consolidation_table`) and the rule of the mark (`analysis.preference`).
"""

from __future__ import annotations

import duckdb
import pandas as pd
import pyarrow as pa

from pipelines.advice import advised
from pipelines.analysis import avoidable, moves, preference
from pipelines.analysis.right_sizing import joined
from pipelines.analysis.sizes import KEYS, TRY_IT
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
    "saving_low": (
        "double",
        "Lower end of the 95 % interval of what the coming 30 days save, as 730 hours of kWh. saving_kwh_month, the"
        " mean of the lookback, is outside where its days grew or changed at a date. NULL: not known"
        " (saving_interval_basis), or nothing changes.",
    ),
    "saving_high": ("double", "Upper end of it. NULL as there."),
    "saving_interval_basis": (
        "varchar",
        "`coming_days`: what the dates of the lookback lead to expect of the coming 30 days: their level, weekdays,"
        " growth or a break, and that a day resembles the day before. `reference_error`: parked watts are a reference"
        " of the device type, 30 % off either way; dates contribute nothing. `effective_days` (a power cap): how the"
        " dates of both limits differ, counted as fewer where a day resembles the day before; `student_t`: the same"
        " with fewer than 7 dates, each counted. `too_few_days`: no interval, as fewer than 14 dates are known (a power"
        " cap: 1.5 independent ones). Bare idle watts are a reference, too: 30 % of them is part of each but that of a"
        " power cap. NULL: no saving is known.",
    ),
    "saving_kwh_month_if_nodes_off": ("double", f"Facility kWh of 730 hours that are saved{_NODES_OFF}"),
    "saving_energy_usd_month_if_nodes_off": ("double", f"USD of the energy that is saved{_NODES_OFF}"),
    "saving_kgco2e_month_if_nodes_off": ("double", f"Location-based kg of CO2e that are saved{_NODES_OFF}"),
    "saving_usd_month_if_released": (
        "double",
        "USD of the GPU-hours of freed_gpus for 730 hours at the mean price of the lookback, if they are handed back"
        " and no longer paid, or given to a model that would need others. When that is possible is in the columns of"
        " avoidable_…. GPU-hours alone: energy is in the columns above. NULL: no rate is known, or no accelerator is"
        " freed.",
    ),
}
_REPLAYED = " NULL: no such sleep was replayed, or "
WAITING_COLUMNS = {
    "waiting_requests_ratio_low": (
        "double",
        "Share of the requests of the lookback, 0-1, that would have waited for the model to wake up, at least: one of"
        f" each start.{_REPLAYED}its engines count no requests (waiting_tokens_ratio).",
    ),
    "waiting_requests_ratio_high": (
        "double",
        f"The same, at most: all that ended in the hours in which a start falls.{_REPLAYED}as there.",
    ),
    "waiting_tokens_ratio": (
        "double",
        "Share of the tokens, 0-1, of the intervals in which a start falls: at most so many waited."
        f"{_REPLAYED}tokens are not known.",
    ),
}
_FOLLOWED = " NULL: not known, nothing is freed, or it is no row to follow."
# Of the rows to follow, all of them taken together.
AVOIDABLE_COLUMNS = {
    "avoidable_now_usd_month": (
        "double",
        "USD of 730 GPU-hours of those freed_gpus that can be handed back at once: no commitment pays for them, and"
        " the whole node is empty where the site rents by the node. All rows to follow together give back each hour"
        " once." + _FOLLOWED,
    ),
    "avoidable_later_usd_month": (
        "double",
        "The same of those that a commitment pays for until it ends (avoidable_from)." + _FOLLOWED,
    ),
    "avoidable_from": (
        "date",
        "Local date of the site from which all of avoidable_later_usd_month is saved: the end of the last of these"
        " commitments. NULL: none of it waits for a date.",
    ),
    "not_avoidable_usd_month": (
        "double",
        "The same of those that are paid on: owned ones (what is written off), those of a commitment without an end,"
        " and those beside accelerators that stay in use." + _FOLLOWED,
    ),
    "avoidable_basis": (
        "varchar",
        "How the freed accelerators are paid for, with their number: `8 on demand; 8 committed until 2027-01-01`. NULL:"
        " nothing is freed, or it is no row to follow.",
    ),
    "saving_now_usd_month": (
        "double",
        "USD that a month costs less at once, as far as it is known: avoidable_now_usd_month and"
        " saving_energy_usd_month. Advice is in its order. NULL: nothing of it is known, or it is no row to follow.",
    ),
}
# Of the rows to follow, all of them taken together.
MOVE_COLUMNS = {
    "move_to_node": (
        "varchar",
        "Node on which all its engines start, as many accelerators as the row leaves it (of try_it: the trial). No"
        " deployment is on it once the rows to follow are followed, and it is smaller than move_frees_node. NULL: no"
        " such node, or it is no row to follow.",
    ),
    "move_frees_node": (
        "varchar",
        "Node of its engines now: empty once they moved, so that a site that rents by the node hands it back instead of"
        " move_to_node. NULL as there.",
    ),
    "move_frees_gpus": (
        "double",
        "Accelerators of move_frees_node less those of move_to_node: so many more are on empty nodes. Their hours are"
        " in avoidable_… of the rows that free accelerators; of try_it they are counted nowhere. NULL as there.",
    ),
    "move_after": (
        "varchar",
        "Deployments, site to role, that leave move_to_node: their row is followed first. NULL as there, or it is empty"
        " already.",
    ),
}
CONFIDENCE = (
    "varchar",
    "How well the lookback supports that what is recommended is enough. `high`: 21 days and more, 0.95 of the GPU"
    " time covered, and either no demand (or hours idle in each week) or a load that was seen to keep the model's"
    " SLO; where less has to serve the demand, queues are reported, too. `low`: fewer than 14 days, or only"
    " the memory bandwidth shows that it is enough. `medium`: what is neither. One step lower where, of three followed"
    " pieces of advice of the kind and more, fewer than half were realised (finance.advice_score). How exact the saving"
    " is: saving_low and saving_high. NULL: nothing changes.",
)
IS_PREFERRED = (
    "boolean",
    "The one row of its exclusive_group_id to follow, over right_sizing and consolidation together: over these,"
    " savings add up. A change before none, then the greatest saving_kwh_month, then"
    " saving_usd_month_if_released; rows of one colocation_id together or not at all.",
)
_FACTS = (
    *("recommendation_id", "exclusive_group_id", *KEYS, "kind", "current_gpus", "recommended_gpus", "freed_gpus"),
    *("saving_kwh_month", "saving_energy_usd_month", "saving_usd_month_if_released"),
)
# What each table alone has, and the other one as NULL.
_OWN_FACTS = {
    "right_sizing": "null::varchar as colocation_id, trial_replicas * trial_gpus_per_replica as trial_gpus",
    "consolidation": "colocation_id, null::double as trial_gpus",
}
_TOGETHER = AVOIDABLE_COLUMNS | MOVE_COLUMNS
_MOVE_RANKS = {"move": 0, "fewer_gpus": 1, "fewer_replicas": 1, TRY_IT: 2}  # an experiment takes no node from a change
READ = ("boards", "capacity_prices")
LEAST_FOLLOWED = 3
_LOWER = {"high": "medium", "medium": "low", "low": "low"}


def mark_preferred(connection: duckdb.DuckDBPyConnection) -> set[str]:
    """Mark the rows to follow in both tables, whichever of them was written last, and write what is avoidable of them
    together; returns their recommendation_id."""
    parts = []
    for name in _tables(connection):
        facts = f"select {', '.join(_FACTS)}, {_OWN_FACTS[name]} from published.{name}"
        parts.append(connection.execute(facts).df().assign(table=name))
    rows = pd.concat(parts, ignore_index=True)
    chosen = rows[preference.preferred(rows)]
    boards, prices = (advised.read(connection, name) for name in READ)
    chosen = _moved(chosen.assign(holder=joined(chosen, KEYS)), boards)
    followed = chosen.assign(move_to_node=chosen["move_to_node"].mask(chosen["kind"] == TRY_IT))
    split = avoidable.split(followed, boards, prices).merge(chosen[["recommendation_id", *MOVE_COLUMNS]])
    columns = ", ".join(f"{name} = made.{name}" for name in _TOGETHER)
    nothing = ", ".join(f"{name} = null" for name in _TOGETHER)
    with database.registered(connection, rows_made=_typed(split)), database.transaction(connection):
        for name in _tables(connection):
            connection.execute(f"update published.{name} set is_preferred = false, {nothing}").fetchall()
            connection.execute(
                f"update published.{name} as advice set is_preferred = true, {columns} from rows_made as made"
                " where advice.recommendation_id = made.recommendation_id"
            ).fetchall()
    return set(chosen["recommendation_id"])


def trusted(connection: duckdb.DuckDBPyConnection, rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with a confidence one step lower where advice of their kind was followed LEAST_FOLLOWED times and more, and
    fewer than half of these were realised by the meters."""
    views = connection.execute("select view_name from duckdb_views() where schema_name = 'finance'").fetchall()
    if ("advice_score",) not in views:
        return rows
    followed = connection.execute(
        "select advice from finance.advice_score where outcome in ('realised', 'unclear', 'gone_wrong') group by advice"
        " having count(*) >= ? and count(*) filter (where outcome = 'realised') < 0.5 * count(*)",
        [LEAST_FOLLOWED],
    ).fetchall()
    failing = rows["kind"].isin([kind for (kind,) in followed])
    return rows.assign(confidence=rows["confidence"].mask(failing, rows["confidence"].map(_LOWER)))


def _moved(chosen: pd.DataFrame, boards: pd.DataFrame) -> pd.DataFrame:
    """The rows to follow with MOVE_COLUMNS: to which nodes that others leave they move, or their trial starts."""
    movers = chosen[chosen["kind"].isin(_MOVE_RANKS)]
    gpus = movers["trial_gpus"].where(movers["kind"] == TRY_IT, movers["recommended_gpus"]).astype(float)
    movers = movers.assign(gpus_then=gpus, rank=movers["kind"].map(_MOVE_RANKS))
    leavers = chosen.loc[chosen["kind"] == "spin_down", "holder"]
    found = moves.found(movers, leavers, boards).astype(object)
    return chosen.join(found)


def without_split(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows as they are first written: what is avoidable of them, and where they move, shows once those of both tables
    are known."""
    return rows.assign(**dict.fromkeys(_TOGETHER))


def _typed(split: pd.DataFrame) -> pa.Table:
    """With the types of the columns, also where all values of one are missing."""
    kinds = {"double": pa.float64(), "date": pa.date32(), "varchar": pa.string()}
    arrays = {"recommendation_id": pa.array(split["recommendation_id"].tolist(), pa.string())}
    for name, (kind, _) in _TOGETHER.items():
        values = [None if pd.isna(value) else value for value in split[name]]
        arrays[name] = pa.array(values, kinds[kind])
    return pa.table(arrays)


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
    current = {name for name, columns in found if {"is_preferred", "freed_gpus", *_TOGETHER} <= set(columns)}
    return [name for name in preference.TABLES if name in current]
