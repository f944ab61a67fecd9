"""What to do next, and what it saves: the one change to follow per deployment, and the accelerators that are free.

Add here a figure on which an operator acts. Keep out the choice of the change (`pipelines.analysis.preference`).
"""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.report.charts import Bar, bars
from pipelines.report.figures import Drawn, Figure, Row
from pipelines.report.markup import MONEY, NAME, RATIO, TEXT, named, number, table, text
from pipelines.report.sentences import amount, counted, listed, percent, total

SURE = ("high", "medium")
NO_CHANGE = ("keep", "insufficient_data")
DOUBTED = "engine_without_energy"  # a free board that may be in use
SAVINGS = (
    "saving_kwh_month", "saving_kgco2e_month", "saving_energy_usd_month", "saving_usd_month_if_released",
    "saving_kwh_month_if_nodes_off", "risk_ratio",
)  # fmt: skip
MONTH_DAYS = 730 / 24  # as in the savings
STEPS = 5  # on top of the page; the table has all

# What to do, and how; {deployment}, {now}, {then} and the like are filled in.
WHAT_TO_DO = {
    "spin_down": ("Stop {deployment}", "It served no token from {since} to {until}."),
    "fewer_replicas": (
        "Run fewer engines of {deployment}: {then} GPUs instead of {now}",
        "They carry all demand seen from {since} to {until}.",
    ),
    "fewer_gpus": (
        "Run {deployment} on {then} GPUs instead of {now}",
        "Fewer GPUs per engine carry all demand seen from {since} to {until}.",
    ),
    "smaller_device": (
        "Move {deployment} to {device}",
        "A smaller accelerator carries all demand seen from {since} to {until}.",
    ),
    "newer_device": ("Move {deployment} to {device}", "It takes fewer joules there."),
    "power_cap": ("Lower the power limit of {deployment} to {watts} W", "It worked under that limit before."),
    "sleep_outside_hours": ("Unload {deployment} in the hours without requests", "The same hours were idle each week."),
    "sleep_when_idle": ("Unload {deployment} whenever it is idle for long", "Its gaps are longer than a reload costs."),
    "colocate": ("Let {deployment} share accelerators with {others}", "Their loads fit together."),
    "keep": ("Leave {deployment} as it is", "{reason}."),
    "insufficient_data": ("No advice for {deployment}", "{reason}."),
}
NEXT_STEP = {
    "high": "Do it now.",
    "medium": "Do it for one engine first, and look at its waiting requests for a day.",
    "low": "Try it before you rely on it: run one engine that way for a week and compare with its SLO.",
}
# Where there is no other engine that serves meanwhile.
ONE_ENGINE = {
    "medium": "It is the only engine: change it when few requests come, and look at its waiting requests for a day.",
    "low": "Try it before you rely on it. It is the only engine: start the new one beside it and compare with its SLO.",
}
# What a size rests on where no load was measured on it.
THEORY = {
    "bandwidth_floor": "computed from their memory bandwidth, not measured",
    "published_benchmark": "by a published benchmark, not measured here",
}


def what_to_do(row: Row) -> str:
    """The change as a sentence without its full stop, as HTML."""
    return WHAT_TO_DO[row["kind"]][0].format(**_filled(row))


def why(row: Row) -> str:
    """Why, as a sentence, as HTML."""
    reason = WHAT_TO_DO[row["kind"]][1].format(**_filled(row))
    theory = THEORY.get(row["evidence_basis"])
    return f"{reason.removesuffix('.')}: {theory}." if theory else reason


def next_step(row: Row) -> str:
    """How to go about it, by the confidence of the advice."""
    steps = NEXT_STEP | ONE_ENGINE if row["current_replicas"] == 1 else NEXT_STEP
    return steps.get(row["confidence"], "")


def _is_now(row: Row) -> str:
    """What runs now, as HTML: `1 engine, 8 × a100-sxm4-80gb`."""
    engines = f"{counted(round(row['current_replicas']), 'engine')}, " if row["current_replicas"] else ""
    return f"{engines}{number(row['current_gpus'], 0)} × {named(row['device_type'] or 'accelerators')}"


def saving(row: Row) -> str:
    """What a month of the change saves, as HTML: the electricity at once, then what handing back accelerators adds."""
    if row["saving_kwh_month"] is None and not row["saving_usd_month_if_released"]:
        return "what it saves is unknown"
    span = (
        f", likely {number(row['saving_low'], 0)} to {number(row['saving_high'], 0)} kWh"
        if row["saving_low"] is not None and row["saving_high"] is not None
        else ""
    )
    energy = (
        f"{number(row['saving_kwh_month'], 0)} kWh ({amount(row['saving_energy_usd_month'], 'USD', 0)}) a month{span}"
    )
    if not row["saving_usd_month_if_released"]:
        return f"saves {energy}"
    return (
        f"saves {energy}, and <b>{amount(row['saving_usd_month_if_released'], 'USD', 0)} more</b>"
        f" once the {number(row['freed_gpus'], 0)} freed GPUs are handed back"
    )


def next_steps(
    found: Sequence[Row], free: Sequence[Row] = (), day_usd: float | None = None, alarms: Sequence[Row] = ()
) -> str:
    """The top of the page, as HTML: what the fleet should do next and what that saves; `free` are free accelerators,
    `day_usd` is the whole cost of the newest date."""
    return _steps(found, day_usd) + _free_line(free) + _alarm_line(alarms)


def _alarm_line(alarms: Sequence[Row]) -> str:
    if not alarms:
        return ""
    first = alarms[0]
    return (
        f"<p><b>{counted(len(alarms), 'alarm')}</b>, the newest: {text(first['alarm'])},"
        f' {named(first["what"] or "the fleet")}: {text(first["found"])} (<a href="#alarms">alarms</a>).</p>'
    )


def _free_line(free: Sequence[Row]) -> str:
    unallocated = [row for row in free if row["reason_code"] == "unallocated"]
    gpus, released = sum(row["gpus_now"] for row in unallocated), total(unallocated, "saving_usd_month_if_released")
    if not gpus:
        return ""
    them = "it" if gpus == 1 else "them"
    saved = "saves an unknown amount" if released is None else f"saves <b>{amount(released, 'USD', 0)} more</b> a month"
    return (
        f"<p>In addition {counted(gpus, 'accelerator')} {'is' if gpus == 1 else 'are'} free: handing {them} back"
        f" {saved}"
        ' (<a href="#free-boards">free accelerators</a>).</p>'
    )


def _steps(found: Sequence[Row], day_usd: float | None) -> str:
    changes = [row for row in found if row["kind"] not in NO_CHANGE]
    if not found:
        return "<p>No deployment was booked in the last 28 dates, so there is no advice.</p>"
    if not changes:
        return f"<p>{_no_change(found)}</p>"
    steps = "".join(
        f"<li><b>{what_to_do(row)}</b> (now {_is_now(row)}): {saving(row)}. {why(row)} Confidence:"
        f" {row['confidence'] or 'unknown'}. {next_step(row)}</li>"
        for row in changes[:STEPS]
    )
    more = (
        f'<p><a href="#advice">{counted(len(changes) - STEPS, "more change")}</a></p>' if len(changes) > STEPS else ""
    )
    return f"<p>{_summary(changes, day_usd)}</p><ol>{steps}</ol>{more}"


def _no_change(found: Sequence[Row]) -> str:
    kept = [row for row in found if row["kind"] == "keep"]
    unsure = [row for row in found if row["kind"] == "insufficient_data"]
    text = f"<b>Change nothing</b> of {counted(len(kept), 'deployment')}: no less would do." if kept else ""
    if unsure:
        reasons = sorted({(row["reason_code"] or "reason unknown").replace("_", " ") for row in unsure})
        text += (
            f" <b>No advice</b> for {counted(len(unsure), 'deployment')} ({listed(reasons)}): their data is not enough."
        )
    return text.strip()


def _summary(changes: Sequence[Row], day_usd: float | None) -> str:
    """What the changes save together, the greater amount first."""
    if total(changes, "most_usd_month") is None:
        return f"{counted(len(changes), 'change')} would help; what that saves is unknown."
    month_usd = day_usd * MONTH_DAYS if day_usd else None
    released = _released(changes, month_usd)
    electricity = _electricity(changes, is_first=not released)
    scale = " Of hosting and operations nothing is counted as saved." if month_usd else ""
    return f"{released}{' ' if released else ''}{electricity}{scale}"


def _released(changes: Sequence[Row], month_usd: float | None) -> str:
    usd = total(changes, "saving_usd_month_if_released")
    if not usd:
        return ""
    freed = round(sum(row["freed_gpus"] or 0 for row in changes if row["saving_usd_month_if_released"]))
    share = ""
    if month_usd:
        costs = f"{amount(month_usd, 'USD', 0)} in a month like the newest date"
        # Of a date on which little ran, more may be saved than it cost.
        of_all = f", {percent(usd / month_usd)} of what" if usd <= month_usd else ";"
        share = (
            f"{of_all} the whole fleet costs {'(' if usd <= month_usd else ''}{costs}{')' if usd <= month_usd else ''}"
        )
    return (
        f"Handing back {counted(freed, 'freed GPU')} saves <b>{amount(usd, 'USD', 0)}</b> a month{share}"
        f"{_sure(changes, 'saving_usd_month_if_released')}."
    )


def _electricity(changes: Sequence[Row], *, is_first: bool) -> str:
    line = (
        f"{'' if is_first else 'At once '}{counted(len(changes), 'change')} would save"
        f" <b>{amount(total(changes, 'saving_energy_usd_month'), 'USD', 0)}</b> of electricity a month"
        f" ({amount(total(changes, 'saving_kwh_month'), 'kWh', 0)},"
        f" {amount(total(changes, 'saving_kgco2e_month'), 'kg CO2e', 0)})"
        f"{_sure(changes, 'saving_energy_usd_month') if is_first else ''}."
    )
    column = "saving_kwh_month_if_nodes_off"
    if total(changes, column) is None:
        return line
    off = sum((row["saving_kwh_month"] if row[column] is None else row[column]) or 0 for row in changes)
    return f"{line} Switching off the nodes that become empty as well makes it {amount(off, 'kWh', 0)}."


def _sure(changes: Sequence[Row], column: str) -> str:
    """How much of a saving the lookback supports well; nothing where it does so for all of it."""
    sure = [row for row in changes if row["confidence"] in SURE]
    if len(sure) == len(changes):
        return ""
    usd = total(sure, column)
    if not usd:
        return ", none of it with at least medium confidence"
    return f"; {amount(usd, 'USD', 0)} of it with at least medium confidence: begin there"


def _advice(found: Sequence[Row]) -> Drawn:
    changes = [row for row in found if row["kind"] not in NO_CHANGE]
    sentence = (
        f"{counted(len(changes), 'deployment')} of {len(found):,} should change, which saves"
        f" {amount(total(changes, 'saving_energy_usd_month'), 'USD', 0)} of electricity a month at once and"
        f" {amount(total(changes, 'saving_usd_month_if_released'), 'USD', 0)} of GPU hours once the freed GPUs are"
        " handed back."
        if changes
        else _no_change(found)
    )
    drawn = [
        Bar(
            row["deployment"],
            [
                (series, row[column] or 0, f"{row[column] or 0:,.2f} USD a month")
                for series, column in enumerate(("saving_energy_usd_month", "saving_usd_month_if_released"))
            ],
            f"{'unknown' if row['most_usd_month'] is None else format(row['most_usd_month'], ',.0f')}"
            f" ({row['confidence'] or 'unknown'})",
        )
        for row in changes[:12]
    ]
    picture = bars(
        drawn, ("electricity, at once", "GPU hours, once handed back"), unit="USD a month saved (confidence)",
        description="Bars: what each change saves in a month, in USD. The table has the same numbers.",
    ) if drawn else ""  # fmt: skip
    columns = {
        "deployment": NAME, "what to do": TEXT, "accelerator": NAME, "GPUs now": 0, "GPUs then": 0, "kWh": 0,
        "kg CO2e": 0, "USD for electricity": MONEY, "USD if handed back": 0, "kWh with nodes off": 0,
        "time short": RATIO, "enough because": TEXT, "confidence": TEXT,
    }  # fmt: skip
    lines = [
        (
            row["deployment"], f"{row['kind']}: {row['reason_code'] or 'unknown'}".replace("_", " "),
            row["device_type"], row["current_gpus"], _saved(row, "recommended_gpus"),
            *(_saved(row, column) for column in SAVINGS),
            (row["evidence_basis"] or "").replace("_", " "), row["confidence"] or "",
        )
        for row in found
    ]  # fmt: skip
    return Drawn(
        sentence, picture + table("The change to follow, per deployment, and what it saves in a month", columns, lines)
    )


def _saved(row: Row, column: str) -> object:
    """A saving; empty for a deployment that should stay, and for hosts of which none becomes empty."""
    is_none = row["kind"] in NO_CHANGE or column == "saving_kwh_month_if_nodes_off"
    return "" if row[column] is None and is_none else row[column]


def _free_boards(found: Sequence[Row]) -> Drawn:
    free = [row for row in found if row["reason_code"] != DOUBTED]
    gpus, doubted = (sum(row["gpus_now"] for row in rows) for rows in (free, [row for row in found if row not in free]))
    cost, released = total(free, "cost_usd_month"), total(free, "saving_usd_month_if_released")
    mean = total(free, "gpus_mean")
    on_average = "" if mean is None else f" ({mean:,.1f} on average in the last 28 dates)"
    sentence = (
        f"{counted(gpus, 'accelerator')} {'is' if gpus == 1 else 'are'} free{on_average} and cost"
        f"{'s' if gpus == 1 else ''} <b>{amount(cost, 'USD', 0)}</b> a month; handing back those that are"
        f" unallocated saves {amount(released, 'USD', 0)} a month, switching them off"
        f" {amount(total(free, 'saving_kwh_month_if_switched_off'), 'kWh', 0)}."
    )
    if doubted:
        sentence += f" {counted(doubted, 'more accelerator')} may be in use: an engine on the node has no joules."
    columns = {
        "accelerator": NAME, "site": NAME, "free now": 0, "mean free": 1, "these since (UTC)": TEXT, "W each": 1,
        "USD/month": MONEY, "why": TEXT, "fits on them": NAME, "kWh/month if switched off": 1,
        "USD/month if handed back": MONEY,
    }  # fmt: skip
    lines = [
        (
            row["device_type"], row["site"], row["gpus_now"], row["gpus_mean"], row["all_free_since_at"],
            row["watts_per_gpu"],
            row["cost_usd_month"], (row["reason_code"] or "").replace("_", " "), row["fitting_deployment"] or "none",
            row["saving_kwh_month_if_switched_off"], row["saving_usd_month_if_released"],
        )
        for row in found
    ]  # fmt: skip
    return Drawn(sentence, table("Free accelerators", columns, lines))


def _filled(row: Row) -> dict[str, str]:
    return {
        "deployment": named(row["deployment"]),
        "now": number(row["current_gpus"], 0),
        "then": number(row["recommended_gpus"], 0),
        "device": named(row["recommended_device_type"] or "another accelerator"),
        "watts": number(row["recommended_power_limit_watts"], 0),
        "others": named(row["shares_with"] or "others"),
        "since": f"{row['lookback_start_at']:%Y-%m-%d}",
        "until": f"{row['as_of_date']:%Y-%m-%d}",
        "reason": (row["reason_code"] or "reason unknown").replace("_", " ").capitalize(),
    }


ADVICE = Figure(
    "advice",
    "Advice with savings and next steps",
    "one change per deployment, from the last 28 dates; a month has 730 hours. kWh are at the facility's meter (×"
    " PUE); likely is the 95 % interval, from how the dates differ. Freed GPUs stay on until they are handed back,"
    " which saves the USD of that column on top. kWh with nodes off are saved instead of kWh, where nodes are left"
    " without a pod and are switched off (–: no node becomes empty). Time short is the share of those dates in which"
    " the smaller size would have been too small; a bandwidth floor is computed, not seen. Confidence is that the"
    " smaller size is enough, not that of the amount. Hosting and operations are not counted as saved.",
    "No advice: no deployment was booked in the last 28 dates.",
    _advice,
)
FREE_BOARDS = Figure(
    "free_boards",
    "Free accelerators",
    "accelerators that no model holds at the end of the newest date: the price of their hours and of their own"
    " electricity (× PUE), without their hosts; a month has 730 hours. Spare: kept free on purpose. Engine without"
    " energy: an engine on the node reports tokens and no board of its own is known, so these may be its boards.",
    "No accelerator is free: a model holds each of them, or no meter shows one.",
    _free_boards,
)
