"""Which period's prices are exported, and each model's price by token class; why one is absent.

Add here what a price needs to be understood. Keep out how a file is written (`files`) and what was exported before
(`last_export`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal

import duckdb

from pipelines.fleet.fleet_file import Fleet
from pipelines.fleet.places import fleet_option
from pipelines.named_figures import figures_in_doubt
from pipelines.warehouse.refusals import QuestionError

BASES = ("fully_loaded", "allocation")
# Token class -> what the files' readers call it.
CACHED, WITHOUT_TOKENS = "cached_input", "none"
CLASSES = {"computed_input": "input", "output": "output", CACHED: "cached input"}
ACTUAL, TARGET = "actual", "target"
# More digits than a meter has, and fewer than a double's last ones.
_DIGITS = 12
_PERIODS = """
select start_date, max(end_date) as end_date
from marts.token_prices where period = ? and basis = ? group by start_date order by start_date
"""
_STATES = """
select bool_and(status <> 'open'), max(closed_at)::date, min(booked_ratio) from finance.months where month = ?
"""
_CLOSED = "select max(month) from (select month from finance.months group by month having bool_and(status <> 'open'))"
_HELD_BACK = "select max(held_back_dates) from marts.token_prices where period = 'lookback' and basis = ?"
_PRICES = """
select
    model, token_class, tokens, cost_usd, utilisation_ratio, is_capacity_lower_bound, is_cost_complete,
    variable_usd_per_mtok is not null as is_variable_known,
    own_usd_per_mtok / 1e6 as own_usd_per_token,
    (variable_usd_per_mtok + (full_usd_per_mtok - variable_usd_per_mtok) / ?) / 1e6 as target_usd_per_token
from marts.token_prices where period = ? and start_date = ? and basis = ? order by model, token_class
"""
# Models of whose dollars in these months a hundredth or more is of sites whose bill contradicts them.
_DOUBTED_MONEY = """
select model from finance.unit_cost where month >= date_trunc('month', ?) and month < ?
group by model
having sum(known_cost_usd) filter (where doubt_reasons like '%bill_differs%') >= 0.01 * sum(known_cost_usd)
"""


@dataclass(frozen=True)
class Period:
    """A billing month or the lookback; dates [start, end)."""

    kind: str
    start: date
    end: date
    state: str

    def __str__(self) -> str:
        last = self.end - timedelta(days=1)
        name = f"month {self.start:%Y-%m}" if self.kind == "month" else f"{(self.end - self.start).days} dates"
        return f"{name}, {self.start} to {last}, {self.state}"


@dataclass(frozen=True)
class Price:
    """What a token of a class costs in USD. A price that is not known is None, never 0, and `reasons` has why, by the
    utilisation that it is asked for. Where the newest is `in_doubt`, that of the export `priced_on` may be here."""

    tokens: Decimal | None = None
    utilisation_ratio: float | None = None
    is_lower_bound: bool = False
    usd: dict[str, float] | None = None
    reasons: dict[str, str] | None = None
    in_doubt: str = ""
    priced_on: str | None = None

    def at(self, utilisation: str) -> float | None:
        """USD per token at ACTUAL or TARGET utilisation."""
        return (self.usd or {}).get(utilisation)

    def reason(self, utilisation: str) -> str:
        """Why it has no price there; empty if it has one."""
        return (self.reasons or {}).get(utilisation, "")


@dataclass(frozen=True)
class Model:
    """A model's prices by token class, and the USD of its dates without a token, which they do not earn back."""

    name: str
    prices: dict[str, Price]
    without_tokens_usd: Decimal | None
    is_cost_complete: bool

    def has_prices(self, utilisation: str) -> bool:
        """Whether any class has a price there."""
        return any(price.at(utilisation) is not None for price in self.prices.values())

    @property
    def priced_on(self) -> str | None:
        """The export that its prices are of; None: this one."""
        return next((price.priced_on for price in self.prices.values() if price.priced_on), None)


@dataclass(frozen=True)
class Export:
    """What one export has: a period's prices on a basis, at the period's utilisation and at a target."""

    fleet: str
    is_synthetic: bool
    publication_id: str
    exported_on: date
    period: Period
    basis: str
    target_utilisation_ratio: float
    models: tuple[Model, ...]


def read(
    connection: duckdb.DuckDBPyConnection,
    fleet: Fleet,
    *,
    month: date | None,
    is_lookback: bool,
    basis: str,
    target_utilisation_ratio: float,
    exported_on: date,
) -> Export:
    """The prices of a month, of the lookback, or of the newest closed month, if there is one. QuestionError where the
    publication has none."""
    if not connection.execute(
        "select count(*) from duckdb_tables() where schema_name = 'marts' and table_name = 'token_prices'"
    ).fetchall()[0][0]:
        raise QuestionError(
            f"the publication of fleet {fleet.fleet} has no prices of tokens, an older version made it:"
            f" run `wattledger run{fleet_option(fleet.path)}` first"
        )
    if month is None and not is_lookback:
        ((month,),) = connection.execute(_CLOSED).fetchall()
    period = _period(connection, month, basis)
    ((publication_id, is_synthetic),) = connection.execute(
        "select publication_id, is_synthetic from published.publication"
    ).fetchall()
    dates = "(from marts.model_daily where date >= ? and date < ?)"
    in_doubt = figures_in_doubt.of_models(connection, dates, [period.start, period.end])
    of_money = _doubted_money(connection, period)
    rows = connection.execute(_PRICES, [target_utilisation_ratio, period.kind, period.start, basis]).fetchall()
    return Export(
        fleet.fleet,
        is_synthetic,
        publication_id,
        exported_on,
        period,
        basis,
        target_utilisation_ratio,
        tuple(
            _model(name, rows, ", ".join(filter(None, [str(in_doubt.get(name, "")), of_money.get(name)])))
            for name in dict.fromkeys(row[0] for row in rows)
        ),
    )


def _doubted_money(connection: duckdb.DuckDBPyConnection, period: Period) -> dict[str, str]:
    """Model -> the reason for which its dollars of the period's months are in doubt."""
    try:
        models = connection.execute(_DOUBTED_MONEY, [period.start, period.end]).fetchall()
    except (duckdb.BinderException, duckdb.CatalogException):  # a publication that was made before
        return {}
    return {model: "bill_differs" for (model,) in models}


def _period(connection: duckdb.DuckDBPyConnection, month: date | None, basis: str) -> Period:
    kind = "lookback" if month is None else "month"
    found = dict(connection.execute(_PERIODS, [kind, basis]).fetchall())
    if month is None:
        if not found:
            raise QuestionError("no token has a cost yet: nothing is booked, or no model was recognised")
        ((start, end),) = found.items()
        ((booked,),) = connection.execute(
            "select count(distinct date) from marts.model_daily where date >= ? and date < ?", [start, end]
        ).fetchall()
        ((held_back,),) = connection.execute(_HELD_BACK, [basis]).fetchall()
        state = f"{booked} of them booked"
        return Period(kind, start, end, state if held_back is None else f"{state}, held back: {held_back}")
    if month not in found:
        months = ", ".join(f"{start:%Y-%m}" for start in found) or "none"
        raise QuestionError(f"month {month:%Y-%m} has no price of a token. Months that have one: {months}")
    ((is_closed, closed_on, booked_ratio),) = connection.execute(_STATES, [month]).fetchall()
    share = "an unknown share" if booked_ratio is None else f"{booked_ratio:.1%}"
    state = f"closed on {closed_on}" if is_closed else "open"
    if booked_ratio != 1:  # of the fleet's first month, too
        state += f", {share} of it booked"
    return Period(kind, month, found[month], state)


def _model(name: str, rows: list[tuple[object, ...]], doubt: str) -> Model:
    of_model = {row[1]: row for row in rows if row[0] == name}
    without = of_model.pop(WITHOUT_TOKENS, None)
    return Model(
        name,
        {token_class: _price(token_class, of_model.get(token_class), doubt) for token_class in CLASSES},
        None if without is None else without[3],  # type: ignore[arg-type]
        all(row[6] for row in of_model.values()),
    )


def _price(token_class: str, row: tuple[object, ...] | None, doubt: str) -> Price:
    if row is None:
        why = f"the period has no {CLASSES[token_class]} tokens"
        if token_class == CACHED:
            why += ", or the engine does not report its cache"
        return Price(reasons={ACTUAL: why, TARGET: why})
    _, _, tokens, _, utilisation, is_lower_bound, _, is_variable_known, own, target = row
    if doubt:
        why = f"a hundredth of it or more is in doubt ({doubt}; what to do is in marts.doubts)"
        return Price(tokens, utilisation, bool(is_lower_bound), {}, {ACTUAL: why, TARGET: why}, why)  # type: ignore[arg-type]
    reasons = {}
    if own is None:
        reasons = dict.fromkeys((ACTUAL, TARGET), "no part of its cost has a known price (cost_rates, sites[].tariff)")
    elif target is None and not is_variable_known:
        reasons = {TARGET: "its variable cost is not known: no meter, or no tariff"}
    elif target is None:
        reasons = {TARGET: "its utilisation is not known: no capacity in marts.slo_capacity, or shared accelerators"}
    usd = {ACTUAL: own, TARGET: target}
    known = {at: float(f"{value:.{_DIGITS}g}") for at, value in usd.items() if value is not None}
    return Price(tokens, utilisation, bool(is_lower_bound), known, reasons)  # type: ignore[arg-type]


def is_pattern(name: str) -> bool:
    """Whether LiteLLM takes a model's name for a pattern: its price would be that of every model that has none."""
    return "*" in name


def notes(export: Export, utilisation: str) -> Iterator[str]:
    """One line for each price that is absent, and for what a reader must know of one that is there."""
    for model in export.models:
        if all(price.tokens is None and not price.usd for price in model.prices.values()) and (
            model.without_tokens_usd is not None
        ):
            yield f"{model.name}: no price, it served no token; it cost {model.without_tokens_usd:.2f} USD"
            continue
        if model.priced_on:
            (why,) = {price.in_doubt for price in model.prices.values() if price.priced_on}
            yield f"{model.name}: its prices are those of {model.priced_on}. The newest is not exported: {why}"
        for token_class, price in model.prices.items():
            if why := price.reason(utilisation):
                yield f"{model.name}: no price of {CLASSES[token_class]}: {why}"
        if not model.has_prices(utilisation):
            continue
        if is_pattern(model.name):
            yield f"{model.name}: not in LiteLLM's files, which would take it for a pattern of models"
        if not model.is_cost_complete:
            yield f"{model.name}: some of its cost has no known price, so these prices are too low"
        if model.without_tokens_usd is not None:
            yield (
                f"{model.name}: its dates without a token cost {model.without_tokens_usd:.2f} USD,"
                " which are in no price"
            )
        if utilisation == TARGET and any(price.is_lower_bound for price in model.prices.values()):
            yield f"{model.name}: its capacity is a lower bound, so the price at the target may be lower still"
