"""What a team, model or site may cost in a month: the budgets of the fleet file.

Add a key here for what a budget states. Keep out what was spent and what a month will cost (SQL, `analysis.month_end`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import model_validator

from pipelines.fleet.sources import Dated, GivenName, Name, Positive

SCOPES = ("team", "model", "site")
Basis = Literal["marginal", "usage", "allocation", "fully_loaded"]


class Budget(Dated):
    """USD per month for one team, model or site, on one basis of the cost.

    A budget is of whole months of the site's own time zone. Of one name, the entry with the newest `valid_from` counts.
    """

    budget: Name
    team: GivenName | None = None
    model: GivenName | None = None
    site: GivenName | None = None
    usd_per_month: Positive
    basis: Basis = "allocation"

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


# Where a name is added that a budget is to be of.
_REMEDY = {"team": "teams, engines or assignments", "model": "models", "site": "sites"}


def unknown_scopes(
    budgets: Sequence[Budget], known: Mapping[str, Collection[str]], canonical: Mapping[str, str]
) -> Iterator[str]:
    """A line per budget of a team, model or site that the fleet file does not have. `canonical`: alias -> model."""
    for n, budget in enumerate(budgets):
        name = getattr(budget, budget.scope)
        if name in known[budget.scope]:
            continue
        expected = f"one of the {budget.scope}s {sorted(known[budget.scope])}, or add it under {_REMEDY[budget.scope]}"
        if budget.scope == "model" and name in canonical:
            expected = f"{canonical[name]!r}, of which it is an alias"
        yield f"budgets[{n}].{budget.scope}: got {name!r}, expected {expected}"


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
