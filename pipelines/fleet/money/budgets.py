"""What finance states of months: what a team, model or site may cost, and the currency beside USD.

Add a key here for what a budget or a rate states. Keep out what was spent and what a month will cost (SQL,
`analysis.month_end`), and the conversion (dbt_project/macros/finance.sql).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from pipelines.fleet.grid_zones import nearest
from pipelines.fleet.values import Dated, GivenName, Name, Part, Positive

SCOPES = ("team", "model", "site")
Basis = Literal["variable", "usage", "allocation", "fully_loaded"]


class Budget(Dated):
    """USD per month for one team, model or site, on one basis of the cost.

    A budget is of whole months of the site's own time zone. Of one name, the entry with the newest `valid_from` counts.
    """

    budget: Name
    team: GivenName | None = None
    model: GivenName | None = None
    site: GivenName | None = None
    usd_per_month: Positive
    basis: Basis = "fully_loaded"

    @model_validator(mode="after")
    def _of_one(self) -> Budget:
        stated = [scope for scope in SCOPES if getattr(self, scope) is not None]
        if len(stated) != 1:
            raise ValueError(f"got {' and '.join(stated) or 'none of them'}, expected exactly one of team, model, site")
        return self

    @model_validator(mode="after")
    def _of_whole_months(self) -> Budget:
        for key in ("valid_from", "valid_to"):
            on = getattr(self, key)
            if on is not None and on.day != 1:
                raise ValueError(f"{key}: got {on}, expected the first day of a month: a budget is of whole months")
        return self

    @property
    def scope(self) -> str:
        """What the budget is of: team, model or site."""
        return next(scope for scope in SCOPES if getattr(self, scope) is not None)

    def row(self) -> dict[str, Any]:
        """The budget as a row of fleet.budgets."""
        return {**self.model_dump(), "scope": self.scope, "scope_name": getattr(self, self.scope)}


class CurrencyRate(Part):
    """What one unit of the currency is in USD, for all of a month."""

    month: Annotated[str, Field(pattern=r"^\d{4}-(0[1-9]|1[0-2])$")]
    usd_per_unit: Positive


class ReportingCurrency(Part):
    """A currency beside USD, with a rate for each month that is reported in it."""

    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")]
    rates: tuple[CurrencyRate, ...] = ()

    @model_validator(mode="after")
    def _one_rate_a_month(self) -> ReportingCurrency:
        if self.currency == "USD":
            raise ValueError("currency: got USD, in which every amount is anyway, expected another one such as EUR")
        if not self.rates:
            raise ValueError(
                f"rates: got none, expected one per month: {{month: 2026-11, usd_per_unit: what one {self.currency}"
                " is in USD}"
            )
        twice = [month for month, count in Counter(rate.month for rate in self.rates).items() if count > 1]
        if twice:
            raise ValueError(f"rates: got two of {twice[0]}, expected one rate per month")
        return self

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rates as rows of fleet.currency_rates."""
        for rate in self.rates:
            month = date.fromisoformat(f"{rate.month}-01")
            yield {"currency": self.currency, "month": month, "usd_per_unit": rate.usd_per_unit}


# Where a name is added that a budget is to be of.
_REMEDY = {"team": "teams, engines or assignments", "model": "models", "site": "sites"}


def unknown_scopes(
    budgets: Sequence[Budget], known: Mapping[str, Collection[str]], canonical: Mapping[str, str]
) -> Iterator[str]:
    """A line per budget of a team, model or site that the fleet file does not have, with the nearest that it has.
    Nothing is lost: the budget stays, and telemetry may name it. `canonical`: alias -> model."""
    for n, budget in enumerate(budgets):
        name = getattr(budget, budget.scope)
        if name in known[budget.scope]:
            continue
        if budget.scope == "model" and name in canonical:
            fix = f"it is an alias of {canonical[name]!r}, whose cost counts: write that"
        else:
            fix = f"{nearest(name, known[budget.scope])}. Correct it, or add it under {_REMEDY[budget.scope]}"
        yield (
            f"budgets[{n}].{budget.scope} ({budget.budget}): got {name!r}, which the fleet file does not have, so"
            f" nothing may count against {budget.usd_per_month:g} USD a month; {fix}"
        )


def double_budgets(budgets: Sequence[Budget]) -> Iterator[str]:
    """A line per second entry of one name and one `valid_from`."""
    seen: dict[tuple[str, Any], int] = {}
    for n, budget in enumerate(budgets):
        first = seen.setdefault((budget.budget, budget.valid_from), n)
        if first != n:
            yield (
                f"budgets[{n}] ({budget.budget} from {budget.valid_from}): budgets[{first}] has the same name and"
                " valid_from, expected another name, or the month from which the new amount counts"
            )
