"""The five things that the report, the terminal and `serve` open with, in the same words: cost, joules per token,
electricity, what to change first, what is wrong.

All are of the newest month of finance.months, so that no two of them differ by their dates. Keep out every other total:
it has a question of its own further down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date
from typing import NamedTuple

import duckdb

from pipelines.named_figures import figures_in_doubt
from pipelines.named_figures.intervals import ALL
from pipelines.publishing.parts import Parts

SHOWN_MODELS = 3
_MONTH = """
select month, sum(booked_hours) / sum(month_hours), sum(known_cost_usd)::double,
    (sum(idle_cost_usd) / nullif(sum(known_cost_usd), 0))::double,
    case when count(forecast_usd) = count(known_cost_usd) then sum(forecast_usd)::double end,
    bool_and(is_cost_complete),
    sum(facility_energy_kwh)::double
from finance.months where month = (select max(month) from finance.months) group by month
"""
_OF_MONTH = "(select * from marts.model_monthly where month = date '{month}')"
# Joules of boards and of whole nodes are never added: those of the scope with the most of a model's joules.
_JOULES = """
with scopes as (
    select model, meter_scope, sum(energy_joules) as joules, sum(matched_joules) as matched_joules,
        sum(matched_output_tokens) as matched_output_tokens, sum(sum(output_tokens)) over (partition by model) as tokens
    from {rows} where not starts_with(model, '__') group by model, meter_scope
)
select model, (matched_joules / nullif(matched_output_tokens, 0))::double as joules_per_output_token
from scopes where tokens > 0
qualify row_number() over (partition by model order by joules desc nulls last) = 1
order by tokens desc, model
limit {models}
"""
_METERED = f"""
select any_value(metered_ratio) from marts.figure_intervals
where month = ? and site = '{ALL}' and model = '{ALL}' and figure = 'facility_energy_kwh'
"""
_FIRST = """
with advice as (
    select deployment, kind, saving_now_usd_month, saving_kwh_month from published.right_sizing where is_preferred
    union all
    select deployment, kind, saving_now_usd_month, saving_kwh_month from published.consolidation where is_preferred
)
select deployment, kind, saving_now_usd_month::double, saving_kwh_month::double from advice
order by saving_now_usd_month desc nulls last, saving_kwh_month desc nulls last, deployment
limit 1
"""
_HELD_BACK = "select count(distinct date) from marts.held_back_dates"
_EXCEEDED = """
select string_agg(budget, ', ' order by budget) from finance.budgets
where month = (select max(month) from finance.budgets) and expected_overrun_usd > 0
"""


class Thing(NamedTuple):
    """One of the five."""

    name: str
    words: str


def things(connection: duckdb.DuckDBPyConnection, parts: Parts) -> list[Thing]:
    """The five of a publication, or fewer of one that was made by an older version; one that cannot be made is a line
    of text, and a line of `parts`."""
    if not connection.execute("select 1 from duckdb_tables() where schema_name = 'finance' limit 1").fetchall():
        return []
    found = connection.execute(_MONTH).fetchall()
    if not found:
        return []
    ((month, booked, usd, idle, end_usd, is_complete, kwh),) = found
    made: dict[str, Callable[[], str]] = {
        f"cost of {month:%Y-%m}": lambda: _cost(booked, usd, idle, end_usd, "" if is_complete else "≥ "),
        "J per output token": lambda: _joules(connection, month),
        "electricity": lambda: _electricity(connection, month, kwh),
        "change first": lambda: _first(connection),
        "what is wrong": lambda: _wrong(connection, month),
    }
    return [
        Thing(name, parts.attempt(f"line {name!r}", make, lambda line: f"the {line}")) for name, make in made.items()
    ]


def _cost(booked: float, usd: float | None, idle: float | None, end_usd: float | None, least: str) -> str:
    if usd is None:
        return "not known: no price"
    so_far = "" if booked >= 1 else f" so far ({booked:.1%} booked)"
    of_idle = "" if idle is None else f", {idle:.1%} of it idle"
    end = "" if end_usd is None or booked >= 1 else f"; {end_usd:,.2f} at its end"
    return f"{least}{usd:,.2f} USD{so_far}{of_idle}{end}"


def _joules(connection: duckdb.DuckDBPyConnection, month: date) -> str:
    rows = _OF_MONTH.format(month=month)
    in_doubt = figures_in_doubt.of_models(connection, rows)
    shown = []
    for model, joules in connection.execute(_JOULES.format(rows=rows, models=SHOWN_MODELS)).fetchall():
        doubt = in_doubt.get(model)
        mark = "?" if doubt and doubt.concerns("J/output token") else ""
        shown.append(f"{model} {'unknown' if joules is None else f'{joules:,.4f}'}{mark}")
    return ", ".join(shown) or "no model with tokens"


def _electricity(connection: duckdb.DuckDBPyConnection, month: date, kwh: float | None) -> str:
    if kwh is None:
        return "not known: no meter"
    ((metered,),) = connection.execute(_METERED, [month]).fetchall()
    split = "" if metered is None else f": {metered:.1%} of it metered, the rest assumed"
    return f"{kwh:,.1f} kWh with hosts and cooling{split}"


def _first(connection: duckdb.DuckDBPyConnection) -> str:
    found = connection.execute(_FIRST).fetchall()
    if not found:
        return "no advice yet"
    ((deployment, kind, usd, kwh),) = found
    if usd is None and kwh is None:
        return "nothing that saves at once"
    saved = " and ".join(
        amount
        for amount in ("" if usd is None else f"{usd:,.2f} USD", "" if kwh is None else f"{kwh:,.1f} kWh")
        if amount
    )
    return f"{deployment}: {str(kind).replace('_', ' ')}, saves {saved} a month"


def _wrong(connection: duckdb.DuckDBPyConnection, month: date) -> str:
    return "; ".join(_found(connection, month)) or "nothing is held back, in doubt or over its budget"


def _found(connection: duckdb.DuckDBPyConnection, month: date) -> Iterator[str]:
    ((dates,),) = connection.execute(_HELD_BACK).fetchall()
    if dates:
        yield f"{dates} date{'' if dates == 1 else 's'} held back"
    in_doubt = figures_in_doubt.of_models(connection, _OF_MONTH.format(month=month))
    if in_doubt:
        yield f"in doubt: {'; '.join(f'{model} ({doubt})' for model, doubt in in_doubt.items())}"
    ((budgets,),) = connection.execute(_EXCEEDED).fetchall()
    if budgets:
        yield f"over budget at the month's end: {budgets}"
