"""The month: what it cost and will have cost, whether its budgets hold, and who pays.

Add here a figure of a month; all of them read schema finance alone. Keep out figures of dates: those are in
`cost_figures` and `finance_figures`.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.report.charts import Bar, bars
from pipelines.report.figures import Drawn, Figure, Row
from pipelines.report.markup import MONEY, NAME, RATIO, TEXT, YES_NO, named, number, table
from pipelines.report.sentences import amount, counted, listed, percent

STATES = {"open": "is open", "closed": "is closed", "adjusted": "is closed and changed since"}


def _month(found: Sequence[Row]) -> Drawn:
    now = found[0]
    least = "" if now["is_cost_complete"] else "at least "
    sentence = (
        f"{now['month']:%B %Y} {STATES[now['status']]}, {percent(now['booked_ratio'])} of it booked. It cost"
        f" {least}<b>{amount(now['closed_cost_usd'], 'USD')}</b>"
    )
    if now["status"] == "open" and now["forecast_usd"] is not None:
        sentence += f" so far, and will have cost <b>{amount(now['forecast_usd'], 'USD')}</b> at its end"
    idle = _idle_ratio(now)
    sentence += "." if idle is None else f"; {percent(idle)} of what is known of it paid for idle accelerators."
    if now["adjustment_usd"]:
        sentence += f" {amount(now['adjustment_usd'], 'USD')} of it are changes of earlier months that were closed."
    tiles = [
        ("Cost of the month so far" if now["status"] == "open" else "Cost of the month", "closed_cost_usd", "USD", 2),
        ("Expected at its end", "forecast_usd", "USD", 2),
        ("Idle cost", "idle_cost_usd", "USD", 2),
        ("Electricity", "facility_energy_kwh", "kWh", 1),
        ("CO2e, location-based", "location_kgco2e", "kg", 1),
    ]
    shown = "".join(
        f'<li><span class="what">{title}</span><span class="value">{number(now[column], digits)}'
        f" <small>{unit}</small></span></li>"
        for title, column, unit, digits in tiles
        if now[column] is not None
    )
    columns = {
        "month": TEXT, "status": TEXT, "booked": RATIO, "charged USD": MONEY, "of it adjustments USD": MONEY,
        "known USD": MONEY, "idle USD": MONEY, "idle": RATIO, "expected USD": MONEY, "all prices known": YES_NO,
    }  # fmt: skip
    numbers = [
        (
            f"{row['month']:%Y-%m}", row["status"], row["booked_ratio"], row["closed_cost_usd"], row["adjustment_usd"],
            row["known_cost_usd"], row["idle_cost_usd"], _idle_ratio(row), row["forecast_usd"], row["is_cost_complete"],
        )
        for row in found
    ]  # fmt: skip
    return Drawn(sentence, f'<ul class="tiles">{shown}</ul>', table("Months", columns, numbers))


def _idle_ratio(row: Row) -> float | None:
    known, idle = row["known_cost_usd"], row["idle_cost_usd"]
    return idle / known if known and idle is not None else None


def _budgets(found: Sequence[Row]) -> Drawn:
    exceeded = [row for row in found if row["expected_overrun_usd"]]
    known = [row for row in found if row["forecast_usd"] is not None]
    if exceeded:
        of = [f"{named(row['budget'])} by {amount(row['expected_overrun_usd'], 'USD')}" for row in exceeded[:3]]
        more = [f"{len(exceeded) - 3} more"] if len(exceeded) > 3 else []
        sentence = (
            f"{len(exceeded)} of {counted(len(found), 'budget')} will be exceeded: <b>{listed([*of, *more])}</b>."
        )
    elif known:
        sentence = f"{'The budget holds' if len(known) == 1 else f'{len(known)} budgets hold'}."
    else:
        sentence = "Whether the budgets hold is not known yet: fewer than 14 days are booked."
    columns = {
        "month": TEXT, "budget": NAME, "of": TEXT, "name": NAME, "budget USD": MONEY, "spent USD": MONEY,
        "spent": RATIO, "expected USD": MONEY, "too much USD": MONEY,
    }  # fmt: skip
    numbers = [
        (
            f"{row['month']:%Y-%m}", row["budget"], row["scope"], row["name"], row["budget_usd"], row["spent_usd"],
            row["spent_usd"] / row["budget_usd"] if row["budget_usd"] else None, row["forecast_usd"],
            "" if row["expected_overrun_usd"] == 0 else row["expected_overrun_usd"],
        )
        for row in found
    ]  # fmt: skip
    return Drawn(sentence, table("Budgets", columns, numbers))


def _payers(found: Sequence[Row]) -> Drawn:
    month = f"{found[0]['month']:%B %Y}"
    total = sum(row["closed_cost_usd"] for row in found)
    first = found[0]
    sentence = (
        f"Of the <b>{amount(total, 'USD')}</b> of {month} {named(_payer(first))} pays"
        f" {amount(first['closed_cost_usd'], 'USD')}"
        + (f" ({percent(first['closed_cost_usd'] / total)})." if total else ".")
    )
    picture = bars(
        [
            Bar(
                _payer(row),
                [(0, row["closed_cost_usd"], f"{row['closed_cost_usd']:,.2f} USD")],
                f"{row['closed_cost_usd']:,.0f}",
                "",
            )
            for row in found
        ],
        ["charged"],
        unit=f"USD of {month}",
        description="Bars: what each payer is charged with in USD. The table has the same numbers.",
    )
    columns = {
        "payer": NAME, "USD": MONEY, "share": RATIO, "million output tokens": 3, "kWh of accelerators": 1,
        "kg CO2e": 1, "all prices known": YES_NO,
    }  # fmt: skip
    numbers = [
        (
            _payer(row), row["closed_cost_usd"], row["closed_cost_usd"] / total if total else None, row["output_mtok"],
            row["energy_kwh"], row["location_kgco2e"], row["is_cost_complete"],
        )
        for row in found
    ]  # fmt: skip
    return Drawn(sentence, picture, table("Who pays", columns, numbers))


def _payer(row: Row) -> str:
    return row["payer"] or "all others"


MONTH = Figure(
    "months",
    "What the month costs",
    "all sites, every part of the cost that has a price, fully loaded; each site's own calendar month. Charged is what"
    " a closed month was closed with; of an open one what is booked so far, with changes of earlier months that were"
    " closed. Expected: what the month will have cost if contracts run on and the load is that of its weekdays."
    " Idle cost: idle electricity, idle time, free accelerators and unused commitments.",
    "No month has a cost: no accelerator has a price.",
    _month,
)
BUDGETS = Figure(
    "budgets",
    "Whether the budgets hold",
    "a site's cost is all that it pays, a team's or model's is what the budget's basis gives to it. Budgets may contain"
    " each other.",
    "The fleet file states no budget.",
    _budgets,
)
PAYERS = Figure(
    "payers",
    "Who pays",
    "every part of the cost, fully loaded, by the team of the requests, else of the deployment. Free accelerators have"
    " what no team carries.",
    "No month has a cost.",
    _payers,
)
