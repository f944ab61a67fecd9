"""The headline as text: per model what a token cost, per deployment what to do, as `make run` prints it.

Add a column here when a newcomer should see it first. Keep out formulas: ratios here are sums over sums of columns that
the marts already hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from pipelines import warehouse
from pipelines.fleet import Fleet
from pipelines.publication import DATABASE

MISSING = "–"
TEXT, RATIO = -1, -2
SHOWN_ROWS = 40  # of a table; a big fleet's others are in the published tables
# Of a model's joules, the share that has tokens beside it: below this, J/token speaks for too little of them.
WELL_MATCHED = 0.9
UNMATCHED = (
    "* less than 90 % of this model's energy was measured while its tokens were counted (matched_ratio): its J/token is"
    " that of the rest"
)

# Joules of a board and of a whole node are two quantities. Tokens without power (scope none) join what their model has.
_OF_SCOPES = """
scoped as (
    select *, coalesce(
        nullif(meter_scope, 'none'), min(nullif(meter_scope, 'none')) over (partition by model), 'none') as scope
    from marts.model_daily
),
by_scope as (
    select model, scope,
        -- Idle days count: they have joules and no tokens.
        sum(matched_joules) / nullif(sum(matched_total_tokens), 0) as joules_per_total_token,
        sum(matched_joules) / nullif(sum(matched_output_tokens), 0) as joules_per_output_token,
        sum(idle_joules) / nullif(sum(productive_joules + idle_joules), 0) as idle_energy_ratio,
        1 - sum(active_seconds) / nullif(sum(known_seconds), 0) as idle_time_ratio,
        sum(reference_idle_joules) / nullif(sum(energy_joules), 0) as idle_static_ratio,
        sum(energy_joules) / 3.6e6 as energy_kwh,
        sum(location_gco2e) / 1000 as location_kgco2e,
        sum(fully_loaded_cost_usd) as fully_loaded_cost_usd,
        sum(matched_fully_loaded_cost_usd) * 1e6 / nullif(sum(matched_output_tokens), 0)
            as fully_loaded_cost_usd_per_output_mtok,
        sum(matched_joules) / nullif(sum(energy_joules), 0) as matched_ratio
    from scoped
    group by model, scope
)
"""
_MODELS = f"""
with {_OF_SCOPES}
select
    case when (select count(distinct scope) from by_scope where energy_kwh > 0) > 1
        then format('{{}} ({{}})', model, scope) else model end as model,
    * exclude (model, scope)
from by_scope
order by starts_with(model, '__'), energy_kwh desc
"""

_FACILITY = f"""
with {_OF_SCOPES}
select string_agg(distinct scope, ', ' order by scope), (select sum(facility_energy_kwh) from marts.fleet_daily)
from by_scope where energy_kwh > 0 having count(distinct scope) > 1
"""

# A month of each, biggest saving first; the rest by name.
_SIZES = """
select deployment,
    case when kind in ('keep', 'insufficient_data') then format('{} ({})', kind, reason_code) else kind end as advice,
    current_gpus, recommended_gpus, saving_kwh_month, saving_kgco2e_month, saving_energy_usd_month,
    saving_usd_month_if_released, risk_ratio, confidence
from published.right_sizing where is_preferred
order by saving_kwh_month desc nulls last, deployment
"""

_SHARED = """
select deployment, shares_with, current_gpus, recommended_gpus, saving_kwh_month, saving_kgco2e_month,
    saving_energy_usd_month, saving_usd_month_if_released, risk_ratio, confidence
from published.consolidation where kind = 'colocate'
order by shares_with, deployment
"""

_HELD_BACK = """
select date, string_agg(distinct invariant, ', ' order by invariant),
    date in (select date from marts.model_daily) as is_published
from marts.held_back_dates group by date order by date
"""

_WINDOWS = f"""
with {_OF_SCOPES}
select windows.window_id, windows.mean_watts,
    windows.joules_per_total_token, models.joules_per_total_token as period_joules_per_total_token,
    windows.joules_per_output_token, models.joules_per_output_token as period_joules_per_output_token,
    windows.reason_code
from marts.run_windows as windows
left join by_scope as models on windows.model = models.model and windows.meter_scope = models.scope
order by windows.start_at, windows.window_id
"""


# Of each table: column, digits after the point (RATIO: a percentage; TEXT as it is).
_TOKEN_COLUMNS = {
    "model": TEXT,
    "J/total token": 4,
    "J/output token": 4,
    "idle energy": RATIO,
    "idle time": RATIO,
    "idle static": RATIO,
    "kWh": 1,
    "kgCO2e": 1,
    "USD": 2,
    "USD/Mtok output": 2,
}
_SIZE_COLUMNS = {
    "deployment": TEXT,
    "what to do": TEXT,
    "GPUs": 0,
    "then": 0,
    "kWh/month": 1,
    "kgCO2e": 1,
    "USD": 2,
    "if released": 2,
    "risk": RATIO,
    "confidence": TEXT,
}
_SHARED_COLUMNS = {name if name != "what to do" else "or shares with": digits for name, digits in _SIZE_COLUMNS.items()}
_WINDOW_COLUMNS = {
    "run window": TEXT,
    "mean W": 2,
    "J/total token": 4,
    "period": 4,
    "J/output token": 4,
    "period ": 4,
    "judged": TEXT,
}


def headline(fleet: Fleet) -> str:
    """What a token took per model, what to do about each deployment, and the run windows, over everything that is
    published. FileNotFoundError before that."""
    path = fleet.published / DATABASE
    if not path.exists():
        raise FileNotFoundError(f"nothing is published for fleet {fleet.fleet} yet: run `make run` first")
    with closing(warehouse.connect(path, read_only=True)) as connection:
        first, last = connection.execute("select min(date), max(date) from marts.model_daily").fetchall()[0]
        models = connection.execute(_MODELS).fetchall()
        facility = connection.execute(_FACILITY).fetchall()
        tables = [
            _models(models),
            *(_facility(*row) for row in facility),
            _table(_SIZE_COLUMNS, connection.execute(_SIZES).fetchall()),
            _table(_SHARED_COLUMNS, connection.execute(_SHARED).fetchall()),
            _table(_WINDOW_COLUMNS, connection.execute(_WINDOWS).fetchall()),
        ]
        held_back = connection.execute(_HELD_BACK).fetchall()
    label = "SYNTHETIC telemetry: nothing here was measured" if fleet.synthetic else "measured telemetry"
    return "\n\n".join(
        [
            f"fleet {fleet.fleet}, {first} to {last}: {label}",
            *([_held_back(held_back)] if held_back else []),
            *filter(None, tables),
            f"tables: {_shown(path)} (schemas marts, published)",
        ]
    )


def _held_back(rows: Sequence[Sequence[Any]]) -> str:
    lines = [
        f"held back: {on} ({invariants}); it {'is as it was published before' if is_published else 'is not published'}"
        for on, invariants, is_published in rows[:SHOWN_ROWS]
    ]
    return "\n".join([*lines, f"… and {len(rows) - SHOWN_ROWS:,} more"] if len(rows) > SHOWN_ROWS else lines)


def _models(rows: Sequence[Sequence[Any]]) -> str:
    """The table of models; J/token of what is badly matched has an asterisk, and a line below says why."""
    marked = [row[-1] is not None and row[-1] < WELL_MATCHED for row in rows]
    table = _table(_TOKEN_COLUMNS, [row[:-1] for row in rows], marked)
    has_mark = any(mark and row[2] is not None for mark, row in zip(marked, rows, strict=True))
    return f"{table}\n{UNMATCHED}" if has_mark else table


def _facility(scopes: str, facility_kwh: float | None) -> str:
    total = "" if facility_kwh is None else f": {facility_kwh:,.1f} kWh for all the fleet"
    return f"kWh of different meters ({scopes}) are not added; their total is in facility energy{total}"


def _table(columns: Mapping[str, int], rows: Sequence[Sequence[Any]], marked: Sequence[bool] = ()) -> str:
    """Rows as text under their columns; empty without rows. J/token of rows that are `marked` has an asterisk."""
    if not rows:
        return ""
    shown = rows[:SHOWN_ROWS]
    cells = [[_cell(value, digits) for value, digits in zip(row, columns.values(), strict=True)] for row in shown]
    for line, is_marked in zip(cells, marked, strict=False):
        for place, name in enumerate(columns):
            if is_marked and name.startswith("J/") and line[place] != MISSING:
                line[place] += "*"
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    lines = [list(columns), ["-" * width for width in widths], *cells]
    texts = [digits == TEXT for digits in columns.values()]
    told = [
        "  ".join(
            cell.ljust(width) if is_text else cell.rjust(width)
            for cell, width, is_text in zip(line, widths, texts, strict=True)
        ).rstrip()
        for line in lines
    ]
    return "\n".join([*told, f"… and {len(rows) - SHOWN_ROWS:,} more"] if len(rows) > SHOWN_ROWS else told)


def _cell(value: Any, digits: int) -> str:
    if value is None:
        return MISSING
    if digits == TEXT:
        return str(value)
    return f"{value:.1%}" if digits == RATIO else f"{value:,.{digits}f}"


def _shown(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
