"""What the fleet costs: the headline of the newest date, the cost and energy of a million tokens, its parts and bases.

Add here a figure in dollars. Keep out advice and its savings.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from pipelines.report.axes import numeric, of_dates
from pipelines.report.charts import Line, lines, plot
from pipelines.report.figures import Drawn, Figure, Row
from pipelines.report.markup import MONEY, NAME, RATIO, TEXT, UNKNOWN, YES_NO, named, number, ratio, table
from pipelines.report.sentences import SAME, amount, change, counted, in_doubt, metered, percent, total

# What a tile shows: column, unit, digits, and whether more of it is better (None: neither).
TILES: dict[str, tuple[str, str, int, bool | None]] = {
    "Cost of the day": ("cost_usd", "USD", 2, False),
    "Cost per million output tokens, with what served none": ("cost_usd_per_output_mtok", "USD", 2, False),
    "Energy per output token": ("joules_per_output_token", "J", 2, False),
    "Idle energy": ("idle_energy_ratio", "", 1, False),
    "Output tokens": ("output_mtok", "million", 1, True),
    "Electricity": ("facility_kwh", "kWh", 1, False),
    "CO2e, location-based": ("location_kgco2e", "kg", 1, False),
}
LOWER_BOUNDS = {
    "cost_usd": "is_cost_complete",
    "cost_usd_per_output_mtok": "is_cost_complete",
    "location_kgco2e": "is_carbon_complete",
}
LINES = {"fleet": "whole fleet", "others": "other models"}


def _headline(found: Sequence[Row]) -> Drawn:
    now, before = found[0], {row["date"]: row for row in found[1:]}
    day, week = (before.get(date.fromordinal(now["date"].toordinal() - days), {}) for days in (1, 7))
    tiles = []
    for title, (column, unit, digits, is_better) in TILES.items():
        value = ratio(now[column]) if column.endswith("_ratio") else number(now[column], digits)
        least = "≥ " if now[column] is not None and column in LOWER_BOUNDS and not now[LOWER_BOUNDS[column]] else ""
        tiles.append(
            f'<li><span class="what">{title}</span><span class="value">{least}{value}'
            f" <small>{unit}</small></span>{_sure(now, column)}"
            f"{_difference(now, day.get(column), 'day', is_better, column)}"
            f"{_difference(now, week.get(column), 'week', is_better, column)}</li>"
        )
    price = "cost_usd_per_output_mtok"
    sentence = (
        f"On {now['date']} the fleet cost {_least(now)}<b>{amount(now['cost_usd'], 'USD')}</b>{_without_others(now)}"
        " and served"
        f" {amount(now['output_mtok'], 'million output tokens', 1)}: <b>{amount(now[price], 'USD')}</b> per million,"
        f" {_changed(now, day.get(price), 'day', 'the day before')} and"
        f" {_changed(now, week.get(price), 'week', 'a week before')};"
        f" {ratio(now['idle_energy_ratio'])} of the {metered(now['meter_scope'])}' energy was idle."
    )
    sentence += in_doubt(now["doubt_reasons"])
    columns = {"figure": TEXT, "unit": TEXT, **{str(row["date"]): 3 for row in found}}
    numbers = [
        (title, unit or "share of 1", *(row[column] for row in found)) for title, (column, unit, _, _) in TILES.items()
    ]
    return Drawn(sentence, f'<ul class="tiles">{"".join(tiles)}</ul>', table("Headline figures", columns, numbers))


def _without_others(row: Row) -> str:
    """The part of the cost that `wattledger run` prints, where hosting and the like come on top."""
    cost, accelerators = row["cost_usd"], row["accelerator_cost_usd"]
    if not cost or not accelerators or abs(cost - accelerators) < 0.005:
        return ""
    return f" ({amount(accelerators, 'USD')} of it for accelerators and their electricity)"


def _least(row: Row) -> str:
    """`at least` before a cost in which a price is missing."""
    return "at least " if row["cost_usd"] is not None and not row["is_cost_complete"] else ""


def _changed(now: Row, before: float | None, period: str, against: str) -> str:
    """How the price of the date differs, in words."""
    price = "cost_usd_per_output_mtok"
    band = (now[f"{period}_bands"] or {}).get(price)
    if band is not None and before and now[price] is not None and SAME <= abs(now[price] / before - 1) <= band:
        return f"no more unlike {against} than usual"
    return change(now[price], before, against)


def _sure(now: Row, column: str) -> str:
    """The 95 % interval of a tile, from what its meters and stated inputs may err by."""
    if now[column] is None:
        return ""
    if column == "output_mtok":
        return f'<span class="change">counted{"" if now["doubt_reasons"] else ": exact"}</span>'
    error_ratio = (now["error_ratios"] or {}).get(column)
    if error_ratio is None:
        return '<span class="change">interval not known</span>'
    shown = f"{100 * error_ratio * now[column]:.1f} points" if column.endswith("_ratio") else percent(error_ratio)
    return f'<span class="change">±\N{NO-BREAK SPACE}{shown} (95 %)</span>'


def _difference(now: Row, before: float | None, period: str, is_better: bool | None, column: str) -> str:
    """How a figure differs from the day or the week before; coloured where it differs by more than it usually does."""
    value, against = now[column], f"{period} before"
    if value is None or before is None or before == 0:
        return f'<span class="change">{against}: unknown</span>'
    share = (value - before) / abs(before)
    if abs(share) < SAME:
        return f'<span class="change">{against}: same</span>'
    is_share = column.endswith("_ratio")
    moved = value - before if is_share else share
    band = (now[f"{period}_bands"] or {}).get(column)
    if is_share:
        shown = f"{100 * moved:+,.1f} points".replace("-", "−")
    else:
        shown = ("+" if share > 0 else "−") + percent(abs(share))
    if band is not None and abs(moved) <= band:
        usual = f"{100 * band:,.1f} points" if is_share else percent(band)
        return f'<span class="change">{against}: {shown}, as usual (±\N{NO-BREAK SPACE}{usual})</span>'
    style = "" if is_better is None or band is None else " better" if (share > 0) == is_better else " worse"
    arrow = "▲" if share > 0 else "▼"
    return f'<span class="change{style}">{against}: {arrow} {shown}</span>'


def _over_time(found: Sequence[Row]) -> Drawn:
    names = list(dict.fromkeys((row["line"], row["model"]) for row in found))
    dates = sorted({row["date"] for row in found})
    (left, right), (bottom, top) = plot()
    x = of_dates(dates, left, right)
    pictures = []
    for column, unit, title in (
        ("cost_usd_per_output_mtok", "USD", "Cost per million output tokens, with what served none"),
        ("kwh_per_output_mtok", "kWh", "Energy per million output tokens"),
    ):
        if all(row[column] is None for row in found):
            continue
        drawn = []
        for line, model in names:
            of_name = {row["date"]: row[column] for row in found if (row["line"], row["model"]) == (line, model)}
            every = [date.fromordinal(at) for at in range(dates[0].toordinal(), dates[-1].toordinal() + 1)]
            points = [(on.toordinal(), of_name.get(on), f"{of_name.get(on) or 0:,.4g} {unit} on {on}") for on in every]
            own = next((row["colour"] for row in found if model and row["model"] == model), None)
            drawn.append(
                Line(model or LINES[line], points, is_emphasised=line == "fleet", series=0 if line == "fleet" else own)
            )
        y = numeric([value for line in drawn for _, value, _ in line.points if value is not None], bottom, top)
        scale = ", log scale" if y.is_log else ""
        pictures.append(
            f'<div class="panel"><h4>{title}</h4>'
            + lines(
                drawn, x, y, x_title="date (UTC)", y_title=f"{unit} per million{scale}",
                description=f"Lines: {title.lower()} in {unit}, per date, for {len(names)} lines. The table has the"
                " same numbers.",
            )
            + "</div>"
        )  # fmt: skip
    fleet = [row for row in found if row["line"] == "fleet"]
    numbers = table(
        "Cost and energy per million output tokens",
        {
            "model": NAME, "date": TEXT, "USD per million output tokens, with what served none": 3,
            "kWh per million output tokens": 3, "J per output token": 3, "USD": MONEY,
            "million output tokens": 3, "all prices known": YES_NO,
        },
        [
            (
                row["model"] or LINES[row["line"]], row["date"], row["cost_usd_per_output_mtok"],
                row["kwh_per_output_mtok"], row["joules_per_output_token"], row["cost_usd"], row["output_mtok"],
                row["is_cost_complete"],
            )
            for row in found
        ],
    )  # fmt: skip
    return Drawn(_over_time_sentence(found, fleet), f'<div class="panels">{"".join(pictures)}</div>', numbers)


def _over_time_sentence(found: Sequence[Row], fleet: Sequence[Row]) -> str:
    last = fleet[-1]
    price = "cost_usd_per_output_mtok"
    text = (
        f"On {last['date']} a million output tokens cost the fleet {_least(last)}<b>{amount(last[price], 'USD')}</b>"
        f" and {amount(last['kwh_per_output_mtok'], 'kWh')} of its {metered(last['meter_scope'])}"
        f" ({amount(last['joules_per_output_token'], 'J')} per token)"
    )
    priced = [row for row in fleet if row[price] is not None]
    if len(priced) > 1:
        low, high = (choose(priced, key=lambda row: row[price]) for choose in (min, max))
        text += (
            f"; in {counted(len(priced), 'date')} the cost was lowest on {low['date']} ({amount(low[price], 'USD')})"
            " and"
            f" highest on {high['date']} ({amount(high[price], 'USD')})"
        )
    newest = [
        row for row in found
        if row["line"] == "model" and row["date"] == last["date"] and row["cost_usd_per_output_mtok"] is not None
    ]  # fmt: skip
    if len(newest) > 1:
        cheap, dear = (choose(newest, key=lambda row: row[price]) for choose in (min, max))
        text += (
            f"; on {last['date']} by model from {amount(cheap[price], 'USD')} ({named(cheap['model'])}) to"
            f" {amount(dear[price], 'USD')} ({named(dear['model'])})"
        )
    return text + "."


def _models(found: Sequence[Row]) -> Drawn:
    cost = total(found, "cost_usd")
    first = max(found, key=lambda row: row["cost_usd"] or 0)
    silent = [row for row in found if not row["output_mtok"] and not row["model"].startswith("__")]
    lost = total(silent, "cost_usd")
    sentence = (
        f"In the last 28 dates the fleet cost <b>{amount(cost, 'USD', 0)}</b>, the largest part for"
        f" {named(first['model'])}"
        f" ({amount(first['cost_usd'], 'USD', 0)})"
        if cost
        else f"What the fleet cost in the last 28 dates is {UNKNOWN}"
    )
    if silent:
        sentence += f"; {counted(len(silent), 'model')} served no token and cost <b>{amount(lost, 'USD', 0)}</b>" + (
            f", {percent(lost / cost)} of all" if lost and cost else ""
        )
    columns = {
        "model": NAME, "known USD": MONEY, "USD per million output tokens, all parts": 3, "million output tokens": 3,
        "kWh": 1, "J per output token": 3, "idle energy": RATIO, "idle time": RATIO, "kg CO2e": 1,
        "all prices known": TEXT, "in doubt on some date": TEXT,
    }  # fmt: skip
    numbers = [
        (
            row["model"], *_of_tokens(row), row["facility_kwh"],
            "" if _serves_none(row) else row["joules_per_output_token"], row["idle_energy_ratio"],
            row["idle_time_ratio"], row["location_kgco2e"],
            "shared among models" if cost and row["model"] == "__unallocated__" and row["cost_usd"] is None
            else "yes" if row["is_cost_complete"] else "no", row["doubt_reasons"] or "",
        )
        for row in found
    ]  # fmt: skip
    return Drawn(sentence + ".", table("Models", columns, numbers))


def _serves_none(row: Row) -> bool:
    """Whether it is known that there were no tokens, so that nothing can be divided by them."""
    return bool(row["output_mtok"] == 0) or row["model"] == "__unallocated__"


def _of_tokens(row: Row) -> tuple[object, object, object]:
    """Cost, price and tokens; empty where free accelerators have none of their own."""
    if row["model"] == "__unallocated__":
        return "" if row["cost_usd"] is None else row["cost_usd"], "", ""
    return row["cost_usd"], "" if _serves_none(row) else row["cost_usd_per_output_mtok"], row["output_mtok"]


HEADLINE = Figure(
    "headline",
    "The newest date against the day and the week before",
    "cost: every part of the fleet's cost that has a price (accelerators, electricity, cooling, hosting, operations,"
    " demand charge, and an internal carbon price where one is stated, which is on no bill), also of what served"
    " nothing, over all output tokens. The tables that `run` prints and model_daily have accelerators and their"
    " electricity alone (capacity, energy, cooling, overhead); here the other parts come on top."
    " Electricity, and CO2e by the grid's factor: accelerators and hosts, × PUE. Energy per token and idle energy: the"
    " booked meters of the scope with the most energy (accelerators alone, or whole servers), idle time included. A"
    " week before is the same weekday. ± is the 95 % interval by the error of meters and stated inputs (hosts, PUE,"
    " grid factors), which is the same on each date. A change is usual within 1.96 standard deviations of the changes"
    " of the last 28 dates; without a colour there are too few of them.",
    "No date is published yet.",
    _headline,
)
OVER_TIME = Figure(
    "cost_and_energy_over_time",
    "Cost and energy per million output tokens",
    "cost: all parts with a price, and what no model holds by GPU-time. Energy: the booked meters (accelerators alone,"
    " or whole servers), idle time included, of the meter scope with the most energy, where tokens were counted. The"
    " six models with the highest cost have lines of their own; the whole fleet includes models without tokens. At"
    " most 28 dates.",
    "No date is published yet.",
    _over_time,
)
MODELS = Figure(
    "models",
    "Models in the last 28 dates",
    "cost: all parts with a price, and free accelerators by GPU-time; so it is more than what `run` prints"
    " (accelerators and their electricity). kWh and CO2e: accelerators and hosts,"
    " × PUE. J per token and idle energy: the booked meters (accelerators alone, or whole servers).",
    "No model was booked.",
    _models,
)
