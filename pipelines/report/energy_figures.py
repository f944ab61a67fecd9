"""Where the joules go: J/token against load, idle energy by model and kind, and the carbon of each hour.

Add here a figure in joules, kWh or CO2e. Keep out dollars, unless they are of the same kWh.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from pipelines.report.axes import numeric, of_times
from pipelines.report.charts import Bar, Line, Mark, bars, lines, plot
from pipelines.report.figures import Drawn, Figure, Row
from pipelines.report.markup import NAME, TEXT, YES_NO, named, number, table, text
from pipelines.report.sentences import amount, counted, listed, percent, total

ACCOUNTS = {"idle_floor": "idle floor", "parked": "parked", "asleep": "asleep", "unallocated": "no model"}
OTHERS = "other models"
NAMED_CURVES = 3


def _curves(found: Sequence[Row]) -> Drawn:
    (left, right), (bottom, top) = plot()
    x = numeric([row["tokens_per_second_per_gpu"] for row in found], left, right)
    y = numeric([row["joules_per_token"] for row in found], bottom, top)
    drawn, marks, phrases = [], [], []
    for series, (_, of_curve) in enumerate(groupby(found, key=lambda row: row["place"])):
        rows = list(of_curve)
        levels = [row for row in rows if not row["is_newest_date"]]
        points = [(row["tokens_per_second_per_gpu"], row["joules_per_token"], _point(row)) for row in levels]
        drawn.append(Line(rows[0]["name"], points, series=rows[0]["colour"]))
        for row in rows[len(levels) :]:
            marks.append(
                Mark(
                    row["tokens_per_second_per_gpu"], row["joules_per_token"], series,
                    f"{row['name']} on {row['date']}: {_point(row)}",
                )
            )  # fmt: skip
            phrases.append(_against_best(row, next((level for level in levels if level["is_best"]), None)))
    picture = lines(
        drawn, x, y, marks=marks, x_title=f"tokens per second per GPU{_scale(x.is_log)}",
        y_title=f"J per token{_scale(y.is_log)}",
        description="Lines: joules per token at each load, one line per model; circles are the newest date. The table"
        " has the same numbers.",
    )  # fmt: skip
    newest = next((row["date"] for row in found if row["is_newest_date"]), None)
    sentence = (
        f"On {newest}, while it served, {'; '.join(phrases[:NAMED_CURVES])}."
        if phrases
        else "No model served tokens on the newest date, so no curve has a point of it."
    )
    columns = {
        "model": NAME, "accelerator": TEXT, "tokens": TEXT, "tokens per second per GPU": 3, "J per token": 3,
        "intervals": 0, "best load": YES_NO, "knee": YES_NO, "point": TEXT,
    }  # fmt: skip
    numbers = [
        (
            row["name"], row["device_type"] or "", row["tokens_basis"] or "", row["tokens_per_second_per_gpu"],
            row["joules_per_token"], "" if row["intervals"] is None else row["intervals"], row["is_best"],
            row["is_knee"], f"on {row['date']}" if row["is_newest_date"] else "load level",
        )
        for row in found
    ]  # fmt: skip
    return Drawn(sentence, picture, table("J per token against load", columns, numbers))


def _point(row: Row) -> str:
    return f"{row['joules_per_token']:,.4g} J per token at {row['tokens_per_second_per_gpu']:,.4g} tokens/s per GPU"


def _against_best(row: Row, best: Row | None) -> str:
    now = (
        f"{named(row['name'])} took <b>{amount(row['joules_per_token'], 'J')}</b> per token at"
        f" {number(row['tokens_per_second_per_gpu'], 1)} tokens/s per GPU"
    )
    if best is None:
        return f"{now} (no load was seen long enough to be its best)"
    times = row["joules_per_token"] / best["joules_per_token"]
    if times <= 1.005:
        return f"{now}, the best load seen"
    return (
        f"{now}, {times:,.2f} times the {amount(best['joules_per_token'], 'J')} of the best load seen"
        f" ({number(best['tokens_per_second_per_gpu'], 1)} tokens/s per GPU)"
    )


def _idle(found: Sequence[Row]) -> Drawn:
    accounts = list(ACCOUNTS)
    drawn, biggest = [], ("", 0.0, "")
    for _, of_model in groupby(found, key=lambda row: row["place"]):
        rows = list(of_model)
        kwh = sum(row["idle_kwh"] or 0 for row in rows)
        name = rows[0]["model"] or OTHERS
        main = max(rows, key=lambda row: row["idle_kwh"] or 0)
        if kwh > biggest[1] and rows[0]["model"]:
            biggest = (name, kwh, f"{percent((main['idle_kwh'] or 0) / kwh)} of it {ACCOUNTS[main['account']]}")
        drawn.append(
            Bar(
                name,
                [
                    (accounts.index(row["account"]), row["idle_kwh"] or 0, f"{row['idle_kwh'] or 0:,.1f} kWh")
                    for row in sorted(rows, key=lambda row: accounts.index(row["account"]))
                ],
                f"{kwh:,.0f} kWh" if total(rows, "idle_kwh") is not None else "unknown",
            )
        )
    picture = bars(
        drawn, list(ACCOUNTS.values()), unit="idle kWh in the last 28 dates",
        description="Bars: idle electricity in kWh, per model and kind. The table has the same numbers.",
    )  # fmt: skip
    kwh, energy, capacity = (total(found, column) for column in ("idle_kwh", "energy_usd", "capacity_usd"))
    if kwh is None:
        return Drawn("The idle electricity is unknown: no site has a PUE.", "")
    whole = found[0]["fleet_kwh"]
    share = f", {percent(kwh / whole)} of the fleet's {amount(whole, 'kWh', 0)} with hosts and cooling" if whole else ""
    sentence = (
        f"Idle energy was <b>{amount(kwh, 'kWh', 0)}</b> in the last 28 dates{share}: {amount(energy, 'USD', 0)} of"
        f" electricity. The hours in which nothing ran cost <b>{amount(capacity, 'USD', 0)}</b> besides. The model with"
        f" the most is {named(biggest[0])} ({amount(biggest[1], 'kWh', 0)}, {biggest[2]})."
    )
    columns = {
        "model": NAME, "kind": TEXT, "kWh": 1, "GPU-hours": 1, "kg CO2e": 1, "USD electricity": 2,
        "USD accelerator hours": 2,
    }  # fmt: skip
    numbers = [
        (
            row["model"] or OTHERS, ACCOUNTS[row["account"]], row["idle_kwh"], row["idle_gpu_hours"],
            row["idle_kgco2e"], row["energy_usd"], row["capacity_usd"],
        )
        for row in found
    ]  # fmt: skip
    return Drawn(sentence, picture, table("Idle energy", columns, numbers))


def _carbon(found: Sequence[Row]) -> Drawn:
    if all(row["location_kgco2e"] is None or not row["facility_kwh"] for row in found):
        return Drawn("What the fleet emitted is unknown: no hour has a grid factor (zone of the site).", "")
    sites = {row["place"]: row["site"] for row in found}
    (left, right), (bottom, top) = plot()
    x = of_times([row["hour_start_at"] for row in found], left, right)
    panels = []
    for column, unit, title in (
        ("location_kgco2e", "kg CO2e per hour", "Emitted by the fleet"),
        ("grid_gco2e_per_kwh", "g CO2e per kWh", "Intensity of the grid"),
    ):
        drawn = [
            Line(
                site,
                [
                    (at.timestamp(), row[column], f"{row[column] or 0:,.4g} {unit} from {at:%Y-%m-%d %H:%M} UTC")
                    for row in found
                    if row["place"] == place and (at := row["hour_start_at"])
                ],
                has_markers=False,
            )
            for place, site in sites.items()
        ]
        y = numeric([row[column] for row in found if row[column] is not None], bottom, top, may_be_log=False)
        panels.append(
            f'<div class="panel"><h4>{title}</h4>'
            + lines(
                drawn, x, y, x_title="hour (UTC)", y_title=unit,
                description=f"Lines: {unit}, hour by hour, per site. The table has the same numbers.",
            )
            + "</div>"
        )  # fmt: skip
    columns = {
        "hour (UTC)": TEXT, "site": NAME, "kg CO2e": 3, "kWh": 2, "fleet's g CO2e per kWh": 1,
        "grid's g CO2e per kWh": 1, "zone": TEXT, "factor": TEXT,
    }  # fmt: skip
    numbers = [
        (
            row["hour_start_at"], row["site"], row["location_kgco2e"], row["facility_kwh"], row["fleet_gco2e_per_kwh"],
            row["grid_gco2e_per_kwh"], row["zone"], row["carbon_basis"],
        )
        for row in found
    ]  # fmt: skip
    picture = f'<div class="panels">{"".join(panels)}</div>'
    return Drawn(_carbon_sentence(found), picture, table("Carbon by hour", columns, numbers))


def _carbon_sentence(found: Sequence[Row]) -> str:
    known = [row for row in found if row["location_kgco2e"] is not None and row["facility_kwh"]]
    most = max(known, key=lambda row: row["location_kgco2e"])
    emitted, kwh = (sum(row[column] for row in known) for column in ("location_kgco2e", "facility_kwh"))
    sentence = (
        f"In the last {counted(len({row['hour_start_at'].date() for row in known}), 'date')} the fleet emitted"
        f" <b>{amount(emitted, 'kg CO2e', 0)}</b>, most in the hour from {most['hour_start_at']:%Y-%m-%d %H:%M} UTC"
        f" ({amount(most['location_kgco2e'], 'kg')}); its kWh emitted {amount(1000 * emitted / kwh, 'g', 1)} each"
    )
    grid = [row["grid_gco2e_per_kwh"] for row in known if row["grid_gco2e_per_kwh"] is not None]
    bases = sorted({str(row["carbon_basis"]) for row in known})
    if grid and max(grid) > min(grid):
        mean = sum(grid) / len(grid)
        sentence += f", where the grid's mean hour had {amount(mean, 'g', 1)}"
    else:
        sentence += (
            ", as the grid's, which has one factor for all hours: when to run makes no difference in these figures"
        )
    return f"{sentence} (factors: {text(listed([basis.replace('_', ' ') for basis in bases]))})."


def _scale(is_log: bool) -> str:
    return ", log scale" if is_log else ""


CURVES = Figure(
    "efficiency_curves",
    "Energy per token against load",
    "intervals with tokens only; the joules of the deployment's own meters (accelerators, or whole servers), over the"
    " tokens that the table names (output, or output and computed input). Lines are the load levels of the last 28"
    " dates, circles the newest date. At most seven curves, those with the most energy.",
    "No curve: no deployment served tokens with its power metered in the last 28 dates.",
    _curves,
)
IDLE = Figure(
    "idle_energy",
    "Idle energy by model and kind",
    "electricity at the facility's meter (hosts, × PUE) in the last 28 dates. Idle floor: of a model that works, the"
    " power that it would draw without requests. Parked: model loaded, nothing to do. Asleep: weights unloaded. No"
    " model: free accelerators. Accelerator hours: the price of the hours in which nothing ran; for the idle floor"
    " that of the inactive part of active intervals.",
    "No idle energy is booked in the last 28 dates.",
    _idle,
)
CARBON = Figure(
    "carbon_by_hour",
    "Carbon by hour, against the grid's",
    "location-based CO2e of accelerators and hosts, × PUE, by the grid factor of the hour where there is one, else by a"
    " yearly one. At most the five biggest sites.",
    "No hour of the last seven dates is booked.",
    _carbon,
)
