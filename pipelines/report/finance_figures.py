"""What the cost is made of and whether it adds up: parts on each basis with the remainder, bills, partial load.

Add here a figure that finance people reconcile. Keep out the headline: that is `cost_figures`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from pipelines.report import axes
from pipelines.report.axes import numeric
from pipelines.report.charts import Bar, Line, Mark, bars, lines, plot
from pipelines.report.figures import Drawn, Figure, Row
from pipelines.report.markup import MONEY, NAME, RATIO, TEXT, YES_NO, named, table
from pipelines.report.sentences import amount, listed, percent

OWN_PARTS = 5  # of the cost, with a colour of their own
REMAINDER = "remainder: paid by no model"


def _parts(found: Sequence[Row]) -> Drawn:
    totals: dict[str, float] = {}
    for row in found:
        if row["basis"] == found[0]["basis"]:
            totals[row["part"]] = totals.get(row["part"], 0) + (row["cost_usd"] or 0)
    ranked = sorted(totals, key=lambda part: -totals[part])
    series = [_words(part) for part in ranked[:OWN_PARTS]]
    series += ["other parts"] if len(ranked) > OWN_PARTS else []
    series.append(REMAINDER)
    if not any(totals.values()):
        return Drawn("What the fleet cost is unknown: no part of it has a price.", "")
    drawn, charges = [], []
    for basis, of_basis in groupby(found, key=lambda row: row["basis"]):
        amounts = dict.fromkeys(range(len(series)), 0.0)
        for row in of_basis:
            own = ranked.index(row["part"]) if row["part"] in ranked else len(ranked)
            place = len(series) - 1 if row["is_remainder"] else min(own, OWN_PARTS)
            amounts[place] += row["cost_usd"] or 0
        charged = sum(amounts.values()) - amounts[len(series) - 1]
        charges.append(f"{amount(charged, 'USD', 0)} on {_words(basis)}")
        parts = [(place, value, f"{value:,.2f} USD") for place, value in amounts.items()]
        paid = f"({amounts[len(series) - 1]:,.0f} USD paid by no model)"
        drawn.append(Bar(_words(basis), parts, f"{sum(amounts.values()):,.0f}", paid))
    total = sum(totals.values())
    sentence = (
        f"The fleet cost <b>{amount(total, 'USD', 0)}</b> in the last 28 dates, {percent(totals[ranked[0]] / total)}"
        " of it"
        f" {_words(ranked[0])}. What models are charged of it depends on the basis: {listed(charges)}."
    )
    if not all(row["is_cost_complete"] for row in found):
        sentence += " A price is missing for a part of it, so it is at least that."
    picture = bars(
        drawn, series, unit="USD in the last 28 dates",
        description="Bars: the cost on each basis in USD, by part, with the remainder. The table has the same numbers.",
    )  # fmt: skip
    columns = {"basis": TEXT, "part": TEXT, "paid by": TEXT, "USD": MONEY, "all prices known": YES_NO}
    numbers = [
        (
            _words(row["basis"]), _words(row["part"]), "no model (remainder)" if row["is_remainder"] else "models",
            row["cost_usd"], row["is_cost_complete"],
        )
        for row in found
    ]  # fmt: skip
    return Drawn(sentence, picture, table("Cost by basis and part", columns, numbers))


def _bills(found: Sequence[Row]) -> Drawn:
    month = found[0]["billing_month"]
    compared = [row for row in found if row["billing_month"] == month and row["difference_usd"] is not None]
    if compared:
        first = compared[0]
        billed, computed = (sum(row[column] for row in compared) for column in ("billed_usd", "computed_cost_usd"))
        so_far = "" if all(row["is_booked_whole"] for row in compared) else " so far"
        more = "more" if billed >= computed else "less"
        sentence = (
            f"Bills of {month:%B %Y}{so_far} are <b>{amount(billed, 'USD')}</b>,"
            f" {amount(abs(billed - computed), 'USD')} {more} than what is computed for the same hours; the biggest"
            f" difference is {_words(first['kind'])} at {named(first['site'])}:"
            f" {amount(first['difference_usd'], 'USD')}"
            + (f" ({percent(first['difference_ratio'])})" if first["difference_ratio"] is not None else "")
            + "."
        )
    else:
        sentence = f"Bills of {month:%B %Y} are of other hours than those booked, so they cannot be compared yet."
    columns = {
        "month": TEXT, "site": NAME, "kind": TEXT, "billed USD": MONEY, "computed USD": MONEY, "difference USD": MONEY,
        "difference": RATIO, "billed hours": 0, "booked hours": 0, "whole month": YES_NO,
    }  # fmt: skip
    numbers = [
        (
            f"{row['billing_month']:%Y-%m}", row["site"], _words(row["kind"]), row["billed_usd"],
            row["computed_cost_usd"], row["difference_usd"], _share_of_difference(row), row["billed_hours"],
            row["booked_hours"], row["is_booked_whole"],
        )
        for row in found
    ]  # fmt: skip
    return Drawn(sentence, table("Bills against what is computed", columns, numbers))


def _share_of_difference(row: Row) -> float | None:
    """The difference as a share; none where it is no cent, which is what the table shows beside it."""
    is_none = row["difference_usd"] is not None and abs(row["difference_usd"]) < 0.005
    return 0.0 if is_none else row["difference_ratio"]


def _partial_load(found: Sequence[Row]) -> Drawn:
    (left, right), (bottom, top) = plot()
    x = axes.with_ticks(numeric([0, 1, *(row["capacity_ratio"] for row in found)], left, right), axes.percent)
    y = numeric([row["effective_cost_usd_per_mtok"] for row in found], bottom, top)
    drawn, marks, worst = [], [], None
    for series, (_, of_model) in enumerate(groupby(found, key=lambda row: row["place"])):
        rows = list(of_model)
        points = [
            (row["capacity_ratio"], row["effective_cost_usd_per_mtok"], _load(row))
            for row in rows
            if not row["is_actual"]
        ]
        drawn.append(Line(rows[0]["name"], points, series=rows[0]["colour"]))
        for row in rows:
            if row["is_actual"]:
                shown = f"{row['name']}, the last 28 dates: {_load(row)}"
                marks.append(Mark(row["capacity_ratio"], row["effective_cost_usd_per_mtok"], series, shown))
                if row["price_ratio"] is not None and (worst is None or row["price_ratio"] > worst["price_ratio"]):
                    worst = row
    sentence = "No deployment had a load in the last 28 dates that its capacity is known for."
    if worst is not None:
        at_least = " (at least: the highest load seen)" if worst["is_capacity_lower_bound"] else ""
        full = worst["effective_cost_usd_per_mtok"] / worst["price_ratio"]
        sentence = (
            f"{named(worst['name'])} paid most for unused capacity: in the last 28 dates, at"
            f" {percent(worst['capacity_ratio'])} of the load that its accelerators could carry{at_least}, a million"
            f" {_words(worst['tokens_basis'])} tokens cost"
            f" <b>{amount(worst['effective_cost_usd_per_mtok'], 'USD')}</b>, {worst['price_ratio']:,.1f} times the"
            f" {amount(full, 'USD')} of full accelerators (hours and electricity)."
        )
    picture = lines(
        drawn, x, y, marks=marks, x_title="share of the load that its accelerators could carry",
        y_title="USD per million tokens" + (", log scale" if y.is_log else ""),
        description="Lines: USD per million tokens by load, one line per model; circles are the last 28 dates. The"
        " table has the same numbers.",
    )  # fmt: skip
    columns = {
        "model": NAME, "load": RATIO, "USD per million tokens": 3, "times the full price": 2, "tokens": TEXT,
        "watts": TEXT, "capacity": TEXT, "point": TEXT,
    }  # fmt: skip
    numbers = [
        (
            row["name"], row["capacity_ratio"], row["effective_cost_usd_per_mtok"], row["price_ratio"],
            row["tokens_basis"], _words(row["watts_basis"]),
            _words(row["capacity_basis"]) + (" (at least)" if row["is_capacity_lower_bound"] else ""),
            "the last 28 dates" if row["is_actual"] else "stated load",
        )
        for row in found
    ]  # fmt: skip
    return Drawn(sentence, picture, table("Price by load", columns, numbers))


def _load(row: Row) -> str:
    return (
        f"{row['effective_cost_usd_per_mtok']:,.4g} USD per million tokens at {100 * row['capacity_ratio']:.0f} % load"
    )


def _words(name: str | None) -> str:
    return (name or "unknown").replace("_", " ")


PARTS = Figure(
    "cost_parts",
    "Cost by part and basis, with its remainder",
    "all sites, every part that has a price, an internal carbon price included. Variable: the energy of the work"
    " alone. Usage: also the hours in which a model worked. Allocation: all hours that it claimed. Fully loaded: also"
    " its share of what no model holds. Each bar is the same total; docs/finance.md has the formulas.",
    "No cost: no accelerator has a price in the last 28 dates.",
    _parts,
)
BILLS = Figure(
    "bills",
    "Bills against what is computed",
    "bills of the fleet file against the whole fleet's cost of the same parts, hours and site; an internal carbon"
    " price and"
    " the cost of capital are on no bill.",
    "No bill is stated in the fleet file for the months of these dates.",
    _bills,
)
PARTIAL_LOAD = Figure(
    "partial_load",
    "What a token costs at part of the load",
    "accelerator hours and their electricity, at the load that the deployment's accelerators could carry by its SLO,"
    " or by"
    " the highest load seen (at least). Circles are the load of the last 28 dates. At most seven deployments.",
    "No deployment has a known capacity and tokens, so no load can be compared with it.",
    _partial_load,
)
