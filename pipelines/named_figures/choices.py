"""Which rows of the published tables a headline figure is asked of: a month, and one team, model or site of it.

Add here what one may choose by. Keep out figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from pipelines.warehouse.database import literal
from pipelines.warehouse.refusals import QuestionError

# What schema finance calls the rows that the tables of schema marts name by a word of their own.
NAMES_OF_MARTS = {
    "Unknown model": ("__unknown__",),
    "Unknown site": ("__unknown__",),
    "Free accelerators": ("__unallocated__", "__remainder__"),
    "Unused commitment": ("__unused_commitment__",),
    "Unmetered accelerators": ("__unmetered__",),
}
# Columns of a table that name its month, team and model; None where it has none.
_KEYS = {
    "finance.chargeback": ("month", "payer", "model"),
    "finance.commitments": ("month", None, None),
    "finance.months": ("month", None, None),
    "finance.carbon": ("month", "team", "model"),
    "finance.cost": ("month", "team", "model"),
    "marts.focus_cost_and_usage": ("billing_month", "x_Team", "x_Model"),
    "marts.model_monthly": ("month", "team", "model"),
}
_OTHERS = ("billing_month", "team", "model")


@dataclass(frozen=True)
class Choice:
    """A month, and of it one team, model or site; None: all of them."""

    month: date
    team: str | None = None
    model: str | None = None
    site: str | None = None

    def condition(self, table: str, *, has_month: bool = True) -> str:
        """The condition on a table's rows. QuestionError where the table has no team or model to choose by."""
        month, team, model = _KEYS.get(table, _OTHERS)
        site = "BillingAccountId" if table == "marts.focus_cost_and_usage" else "site"
        is_finance = table.startswith("finance.")
        found = [f"{month} = date '{self.month}'"] if has_month else []
        for what, column, name in (("team", team, self.team), ("model", model, self.model), ("site", site, self.site)):
            if name is None:
                continue
            if column is None:
                raise QuestionError(f"{table} has no {what}: leave --{what} out")
            found.append(f"{column} = {literal(name)}" if is_finance else _of_marts(column, what, name))
        return " and ".join(found) or "true"

    def __str__(self) -> str:
        of = [
            f"{what} {name}"
            for what, name in (("site", self.site), ("team", self.team), ("model", self.model))
            if name is not None
        ]
        return ", ".join([f"{self.month:%Y-%m}", *of])


def _of_marts(column: str, what: str, name: str) -> str:
    if what == "team" and name == "No team":
        return f"{column} is null"
    names = NAMES_OF_MARTS.get(name, (name,))
    if what == "team" and name in NAMES_OF_MARTS:  # what no model holds has no team there
        return f"{column} is null and " + _of_marts("x_Model" if column == "x_Team" else "model", "model", name)
    return f"{column} in ({', '.join(literal(one) for one in names)})"
