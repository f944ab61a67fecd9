"""Two tables of the terminal: what to do about each deployment, and the unallocated accelerators.

Add a column here when an operator acts on it. Keep out formulas, and the choice of the row to follow
(`pipelines.analysis.preference`).
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from pipelines.analysis import lookback
from pipelines.analysis.lookback import SHORT_LOOKBACK
from pipelines.command_line.text_tables import RATIO, TEXT, explained, narrowed, table

# The rows to follow, what saves most USD at once first; the rest by name.
_ADVICE = """
with advice as (
    select deployment, kind, reason_code, null as shares_with, current_gpus, recommended_gpus, saving_kwh_month,
        saving_kgco2e_month, saving_energy_usd_month, saving_kwh_month_if_nodes_off, avoidable_now_usd_month,
        avoidable_later_usd_month, avoidable_from, risk_ratio, confidence, saving_now_usd_month,
        trial_replicas, trial_gpus_per_replica, trial_gpus_per_replica < current_gpus_per_replica as is_smaller_engine,
        move_to_node, trial_power_limit_watts, trial_precision
    from published.right_sizing where is_preferred
    union all
    select deployment, kind, reason_code, shares_with, current_gpus, recommended_gpus, saving_kwh_month,
        saving_kgco2e_month, saving_energy_usd_month, saving_kwh_month_if_nodes_off, avoidable_now_usd_month,
        avoidable_later_usd_month, avoidable_from, risk_ratio, confidence, saving_now_usd_month, null, null, null,
        move_to_node, null, null
    from published.consolidation where is_preferred
)
select deployment,
    case
        when kind in ('keep', 'insufficient_data') then format('{}: {}', kind, replace(reason_code, '_', ' '))
        when trial_precision is not null
            then format('{}: {} on {:.0f} GPU', kind, trial_precision, trial_gpus_per_replica)
                || if(trial_gpus_per_replica = 1, '', 's')
        when is_smaller_engine then format('{}: engine on {:.0f} GPUs', kind, trial_gpus_per_replica)
        when trial_power_limit_watts is not null then format('{}: limit of {:.0f} W', kind, trial_power_limit_watts)
        when trial_replicas is not null then format('{}: {:.0f} engines', kind, trial_replicas)
        when shares_with is not null then format('{} with {}', kind, shares_with)
        else kind
    end || coalesce(format(' at {}', move_to_node), ''),
    * exclude (
        deployment, kind, reason_code, shares_with, avoidable_from, saving_now_usd_month, trial_replicas,
        trial_gpus_per_replica, is_smaller_engine, move_to_node,
        trial_power_limit_watts, trial_precision
    )
        replace (
            case
                when avoidable_later_usd_month > 0
                    then format('{:.2f} from {}', avoidable_later_usd_month, avoidable_from)
            end as avoidable_later_usd_month
        )
from advice
order by saving_now_usd_month desc nulls last, saving_kwh_month desc nulls last, deployment, kind
"""
_LOOKBACK = """
select min(cast(lookback_start_at as date)), max(as_of_date) from published.right_sizing
"""
_FREE = """
select format('{} at {}', device_type, site), gpus_now, strftime(timezone('UTC', all_free_since_at), '%Y-%m-%d %H:%M'),
    watts_per_gpu, cost_usd_month,
    case reason_code
        when 'spare' then 'spare: kept on purpose'
        when 'engine_without_energy' then 'may be in use: an engine on its node has no joules'
        else coalesce(fitting_deployment, 'none')
    end,
    saving_kwh_month_if_switched_off, saving_usd_month_if_released
from marts.free_boards
where gpus_now > 0
order by cost_usd_month desc nulls last, device_type, site, is_spare, reason_code
"""

_ADVICE_COLUMNS = {
    "deployment": TEXT,
    "what to do": TEXT,
    "GPUs": 0,
    "GPUs then": 0,
    "kWh/month": 1,
    "kgCO2e/month": 1,
    "USD for kWh": 2,
    "kWh if nodes off": 1,
    "USD released now": 2,
    "USD at a date": TEXT,
    "time short": RATIO,
    "confidence": TEXT,
}
# Of the first page; the table by its name has all.
FIRST = ("deployment", "what to do", "GPUs", "kWh/month", "USD released now")
_SUMMED = ("GPUs", "GPUs then", "kWh/month", "kgCO2e/month", "USD for kWh", "USD released now")
_ADVICE_MEANINGS = {
    "what to do": "the one change to follow for this deployment; at a node: a smaller one that other advice empties",
    "GPUs, GPUs then": "accelerators that the deployment has now, and after the change",
    "kWh/month": "facility electricity that the change alone saves; freed accelerators stay on without a model",
    "USD for kWh": "the price of those kWh",
    "kWh if nodes off": "saved instead, if nodes without any remaining pod are switched off with their hosts",
    "USD released now": "saved in addition, once freed accelerators are handed back: those that no commitment pays for,"
    " and no other model keeps on their node",
    "USD at a date": "saved in addition from that date on, when the last of their commitments ends",
    "time short": "share of those days in which the smaller size would have been too small; 0 % without requests, –"
    " where nothing changes",
    "confidence": "how well those days support the change (docs/recommendations/confidence.md)",
}
_KINDS = {
    "spin_down": "stop all engines, because no token was served",
    "fewer_replicas": "run fewer engines",
    "fewer_gpus": "run each engine on fewer accelerators",
    "smaller_device": "use a smaller type of accelerator",
    "newer_device": "use a newer type of accelerator",
    "power_cap": "lower the power limit of the accelerators",
    "sleep_outside_hours": "unload the model in the hours without requests",
    "sleep_when_idle": "unload the model whenever it has been idle for long",
    "colocate": "share accelerators with the named deployments",
    "move": "start it, as it is, on a smaller node that other advice empties, so that its own node can be handed back",
    "try_it": "an experiment without a saving yet: a smaller size that only data sheets allow or that may be too slow,"
    " a copy in fewer bits, or a lower power limit (its steps are in the report)",
    "keep": "change nothing, for the reason in the row",
    "insufficient_data": "no advice, for the reason in the row"
    f" ({SHORT_LOOKBACK.replace('_', ' ')}: {lookback.words(SHORT_LOOKBACK)})",
}
_FREE_COLUMNS = {
    "free accelerators": TEXT,
    "GPUs": 0,
    "since (UTC)": TEXT,
    "W each": 1,
    "USD/month": 2,
    "fits on them": TEXT,
    "kWh/month if off": 1,
    "USD/month if released": 2,
}
_FREE_MEANINGS = {
    "since (UTC)": "since when all of these same accelerators have been free",
    "W each": "mean watts of one of them since then",
    "USD/month": "price of their hours and of their own electricity, without hosts",
    "fits on them": "a deployment that could run one more engine there",
    "… if off, if released": "what a month saves if they are switched off, or handed back, at the rate: once no"
    " commitment and no other board of a rented node keeps them",
}


def advice(connection: duckdb.DuckDBPyConnection, headings: Sequence[str] = tuple(_ADVICE_COLUMNS)) -> str:
    """What to do about each deployment, with the total; empty without any."""
    rows = connection.execute(_ADVICE).fetchall()
    if not rows:
        return ""
    ((start, end),) = connection.execute(_LOOKBACK).fetchall()
    columns = list(_ADVICE_COLUMNS)
    known = {name: [row[place] for row in rows if row[place] is not None] for place, name in enumerate(columns)}
    total = ["all", "", *(sum(known[name]) if name in _SUMMED and known[name] else None for name in columns[2:])]
    title = f"advice from the days {start} to {end}; a month is 730 hours"
    kinds = [str(row[1]).partition(" ")[0].rstrip(":") for row in rows]
    shown = {kind: meaning for kind, meaning in _KINDS.items() if kind in kinds}
    # The legend explains each kind right after `what to do`, the column of kinds.
    meanings = {name: meaning for name, meaning in _ADVICE_MEANINGS.items() if {*name.split(", ")} <= {*headings}}
    legend = explained({"what to do": _ADVICE_MEANINGS["what to do"], **shown, **meanings})
    return "\n".join([title, table(*narrowed(_ADVICE_COLUMNS, [*rows, total], headings)), legend])


def free_boards(connection: duckdb.DuckDBPyConnection) -> str:
    """Accelerators that are unallocated now; empty without any."""
    rows = connection.execute(_FREE).fetchall()
    return "\n".join([table(_FREE_COLUMNS, rows), explained(_FREE_MEANINGS)]) if rows else ""
