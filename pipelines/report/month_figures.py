"""The month: what it cost and will have cost, whether its budgets hold, and who pays.

Add here a figure of a month; all of them read schema finance alone. Keep out figures of dates: those are in
`cost_figures` and `finance_figures`.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.publishing.bridge_steps import STEPS
from pipelines.report.charts import Bar, bars, waterfall
from pipelines.report.figures import Drawn, Figure, Row
from pipelines.report.markup import MONEY, NAME, RATIO, TEXT, YES_NO, named, number, table
from pipelines.report.month_trees import ANCHOR, EXPLAINED
from pipelines.report.sentences import amount, counted, in_doubt, listed, percent

# Figures without an interval, and why.
UNSURE = {
    "idle_cost_usd": "no interval: activity has no stated error",
    "closed_cost_in_currency": "as unsure as in USD",
}
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
    sentence += in_doubt(now["doubt_reasons"])
    tiles = [
        ("Cost of the month so far" if now["status"] == "open" else "Cost of the month", "closed_cost_usd", "USD", 2),
        ("Expected at its end", "forecast_usd", "USD", 2),
        ("Idle cost", "idle_cost_usd", "USD", 2),
        ("Electricity", "facility_energy_kwh", "kWh", 1),
        ("CO2e, location-based", "location_kgco2e", "kg", 1),
    ]
    if now["currency"]:
        tiles.insert(1, (f"The same in {now['currency']}", "closed_cost_in_currency", now["currency"], 2))
    shown = "".join(
        f'<li><span class="what">{_linked(title, column)}</span><span class="value">{number(now[column], digits)}'
        f" <small>{unit}</small></span>{_interval(now, column, digits)}</li>"
        for title, column, unit, digits in tiles
        if now[column] is not None
    )
    columns = {
        "month": TEXT, "status": TEXT, "booked": RATIO, "charged USD": MONEY, "of it adjustments USD": MONEY,
        "known USD": MONEY, "idle USD": MONEY, "idle share of the cost": RATIO, "expected USD": MONEY,
        "all prices known": YES_NO,
    }  # fmt: skip
    numbers = [
        (
            f"{row['month']:%Y-%m}", row["status"], row["booked_ratio"], row["closed_cost_usd"], row["adjustment_usd"],
            row["known_cost_usd"], row["idle_cost_usd"], _idle_ratio(row), row["forecast_usd"], row["is_cost_complete"],
        )
        for row in found
    ]  # fmt: skip
    return Drawn(sentence, f'<ul class="tiles">{shown}</ul>', table("Months", columns, numbers))


def _interval(row: Row, column: str, digits: int) -> str:
    """The interval of a tile, or why there is none."""
    low, high = row.get(f"{column}_low"), row.get(f"{column}_high")
    if low is not None and low == high:
        known = "exact"
    elif low is not None and high is not None:
        level = "80 %" if column == "forecast_usd" else "95 %"
        known = f"{number(low, digits)} to {number(high, digits)} ({level})"
        if column == "facility_energy_kwh" and row["metered_ratio"] is not None:
            known += f"; {percent(row['metered_ratio'])} metered"
    else:
        known = UNSURE.get(column, "interval not known")
    return f'<span class="change">{known}</span>'


def _linked(title: str, column: str) -> str:
    """The title of a tile, with a link to the tree of its figure."""
    name = {"idle_cost_usd": "idle_cost_ratio"}.get(column, column)
    return f'<a href="#{ANCHOR.format(name)}">{title}</a>' if name in EXPLAINED else title


def _idle_ratio(row: Row) -> float | None:
    known, idle = row["known_cost_usd"], row["idle_cost_usd"]
    return idle / known if known and idle is not None else None


def _budgets(found: Sequence[Row]) -> Drawn:
    exceeded = [row for row in found if row["expected_overrun_usd"]]
    # What is known of a cost may be less than it is: a budget holds where each price is known.
    kept = [row for row in found if row["expected_overrun_usd"] == 0 and row["is_cost_complete"]]
    if exceeded:
        of = [f"{named(row['budget'])} by {amount(row['expected_overrun_usd'], 'USD')}" for row in exceeded[:3]]
        more = [f"{len(exceeded) - 3} more"] if len(exceeded) > 3 else []
        verb = "will be" if any(row["is_in_progress"] for row in exceeded) else "was" if len(exceeded) == 1 else "were"
        sentence = f"{len(exceeded)} of {counted(len(found), 'budget')} {verb} exceeded: <b>{listed([*of, *more])}</b>."
    elif kept:
        sentence = f"{'The budget holds' if len(kept) == 1 else f'{len(kept)} budgets hold'}."
    elif all(row["is_cost_complete"] is False for row in found):
        sentence = "Whether the budgets hold is not known: a price is missing."
    else:
        sentence = "Whether the budgets hold is not known yet: fewer than 14 days are booked."
    columns = {
        "month": TEXT, "budget": NAME, "of": TEXT, "name": NAME, "budget USD": MONEY, "spent USD": MONEY,
        "spent": RATIO, "expected USD": MONEY, "too much USD": MONEY,
    }  # fmt: skip
    numbers = [
        (
            f"{row['month']:%Y-%m}", row["budget"], row["scope"], row["name"], row["budget_usd"], row["spent_usd"],
            row["spent_usd"] / row["budget_usd"] if row["budget_usd"] and row["spent_usd"] is not None else None,
            row["forecast_usd"],
            "" if row["expected_overrun_usd"] == 0 else row["expected_overrun_usd"],
        )
        for row in found
    ]  # fmt: skip
    return Drawn(sentence, table("Budgets", columns, numbers))


# What finance.chargeback calls a cost whose team is not known, and accelerators without a model.
WITHOUT_TEAM = frozenset({"No team", "Free accelerators"})


def _payers(found: Sequence[Row]) -> Drawn:
    month = f"{found[0]['month']:%B %Y}"
    total = sum(row["closed_cost_usd"] for row in found)
    first = found[0]
    sentence = (
        f"Of the <b>{amount(total, 'USD')}</b> of {month} {named(_payer(first))} pays"
        f" {amount(first['closed_cost_usd'], 'USD')}"
        + (f" ({percent(first['closed_cost_usd'] / total)})." if total else ".")
    )
    if {row["payer"] for row in found} <= WITHOUT_TEAM:
        sentence = (
            f"No team is known for the <b>{amount(total, 'USD')}</b> of {month}: <code>teams</code> of the fleet file"
            " names the team of each namespace."
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


def _bridge(found: Sequence[Row]) -> Drawn:
    (row,) = found
    change = row["after_usd"] - row["before_usd"]
    steps = {column: row[column] for column in STEPS if abs(row[column]) >= 0.005}
    of = f"{row['month']:%B %Y}" if row["is_of_whole_months"] else f"the days of {row['month']:%B %Y} that are booked"
    than = (
        f"{row['compared_month']:%B}" if row["is_of_whole_months"] else f"the same days of {row['compared_month']:%B}"
    )
    if not steps:
        sentence = f"{of[0].upper()}{of[1:]} cost as much as {than}: <b>{amount(row['after_usd'], 'USD')}</b>."
    else:
        largest = sorted(steps, key=lambda column: -abs(steps[column]))[:2]
        because = listed([f"{STEPS[column]} ({steps[column]:+,.2f} USD)" for column in largest])
        more = "more" if change >= 0 else "less"
        sentence = (
            f"{of[0].upper()}{of[1:]} cost <b>{amount(abs(change), 'USD')}</b> {more} than {than}"
            f" ({amount(row['after_usd'], 'USD')} against {amount(row['before_usd'], 'USD')}): {because}."
        )
    if not row["is_cost_complete"]:
        sentence += " A price is missing for a part of it."
    picture = waterfall(
        [(STEPS[column], usd) for column, usd in steps.items()],
        unit="USD",
        description="Bars: what the month's cost changed by, each beginning where the one above it ends. The table has"
        " the same numbers.",
    )
    numbers = [
        (f"{row['compared_month']:%B %Y}", row["before_usd"]),
        *((STEPS[column], row[column]) for column in STEPS),
        (f"{row['month']:%B %Y}", row["after_usd"]),
    ]
    return Drawn(sentence, picture, table("From month to month", {"what": TEXT, "USD": MONEY}, numbers))


def _restated(found: Sequence[Row]) -> Drawn:
    at = found[0]["restated_at"]
    costs = [row for row in found if row["figure"] == "cost"]
    of = costs or found
    parts = [
        f"{row['month']:%B} by {row['change']:+,.2f} {row['unit']} ({row['reason']})"
        for row in sorted(of, key=lambda row: -abs(row["change"]))[:3]
    ]
    what = "cost" if costs else found[0]["figure"]
    sentence = f"On {at:%Y-%m-%d} the published {what} changed: <b>{listed(parts)}</b>."
    columns = {
        "month": TEXT, "figure": TEXT, "unit": TEXT, "why": TEXT, "first date": TEXT, "last date": TEXT, "dates": 0,
        "before": 2, "after": 2, "change": 2,
    }  # fmt: skip
    numbers = [
        (
            f"{row['month']:%Y-%m}", row["figure"], row["unit"], row["reason"], f"{row['first_date']}",
            f"{row['last_date']}", row["dates"], row["before"], row["after"], row["change"],
        )
        for row in found
    ]  # fmt: skip
    return Drawn(sentence, table("What was restated", columns, numbers))


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
BRIDGE = Figure(
    "bridge",
    "What changed against the month before",
    "every part of the cost, fully loaded. Whole months are compared with each other; a month in progress with the same"
    " days of the month before. Each step is at the prices and the work per token of the month before it; idleness is"
    " idle electricity, idle time, free accelerators and unused commitments.",
    "",
    _bridge,
)
RESTATED = Figure(
    "restatements",
    "What was restated",
    "figures of dates that were published before, as the newest publication that changed any of them did:"
    " finance.restatements has all of them, by date, site and model. A month to date is no restatement.",
    "",
    _restated,
)
PAYERS = Figure(
    "payers",
    "Who pays",
    "every part of the cost, fully loaded, by the team of the requests, else of the deployment. Free accelerators have"
    " what no team carries.",
    "No month has a cost.",
    _payers,
)
