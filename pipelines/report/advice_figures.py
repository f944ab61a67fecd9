"""What to do next, and what it saves: the one change to follow per deployment, and the accelerators that are free.

Add here a figure on which an operator acts. Keep out the choice of the change (`pipelines.analysis.preference`).
"""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.analysis import lookback
from pipelines.report import trial_steps
from pipelines.report.advice_words import next_step, what_to_do, why
from pipelines.report.charts import Bar, bars
from pipelines.report.figures import Drawn, Figure, Row
from pipelines.report.markup import MONEY, NAME, RATIO, TEXT, named, number, table, text
from pipelines.report.sentences import amount, counted, listed, percent, total

# USD of the hours of freed accelerators that are saved at once, at a date, and never.
HANDED_BACK = ("avoidable_now_usd_month", "avoidable_later_usd_month", "not_avoidable_usd_month")
SURE = ("high", "medium")
NO_CHANGE = (trial_steps.TRY_IT, "keep", "insufficient_data")
DOUBTED = "engine_without_energy"  # a free board that may be in use
SAVINGS = (
    "saving_kwh_month", "saving_kgco2e_month", "saving_energy_usd_month", "avoidable_now_usd_month",
    "avoidable_later_usd_month", "not_avoidable_usd_month", "saving_kwh_month_if_nodes_off",
    "risk_ratio",
)  # fmt: skip
MONTH_DAYS = 730 / 24  # as in the savings
STEPS = 5  # on top of the page; the table has all


def _is_now(row: Row) -> str:
    """What runs now, as HTML: `1 engine, 8 × a100-sxm4-80gb`."""
    engines = f"{counted(round(row['current_replicas']), 'engine')}, " if row["current_replicas"] else ""
    return f"{engines}{number(row['current_gpus'], 0)} × {named(row['device_type'] or 'accelerators')}"


def saving(row: Row) -> str:
    """What a month of the change saves, as HTML: the electricity, then what handing back accelerators adds at once, at
    the end of a commitment, or never."""
    if row["kind"] == "move":
        return f"frees {counted(round(row['move_frees_gpus'] or 0), 'more GPU')}, and saves no energy by itself"
    now, later, never = (row[column] for column in HANDED_BACK)
    if row["saving_kwh_month"] is None and not (now or later or never):
        return "what it saves is unknown"
    span = (
        f", likely {number(row['saving_low'], 0)} to {number(row['saving_high'], 0)} kWh"
        if row["saving_low"] is not None and row["saving_high"] is not None
        else ""
    )
    energy = (
        f"{number(row['saving_kwh_month'], 0)} kWh ({amount(row['saving_energy_usd_month'], 'USD', 0)}) a month{span}"
    )
    added = [f"<b>{amount(now, 'USD', 0)} more</b> once freed GPUs are handed back"] if now else []
    if later:
        added.append(
            f"{amount(later, 'USD', 0)} more from {row['avoidable_from']} on, when no commitment pays for them"
        )
    kept = f"; {amount(never, 'USD', 0)} of freed GPUs are paid on" if never else ""
    basis = f" (GPUs: {text(row['avoidable_basis'])})" if later or never else ""
    return ", and ".join([f"saves {energy}", *added]) + kept + basis


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
    they = "it" if gpus == 1 else "they"
    priced = "an unknown amount" if released is None else f"<b>{amount(released, 'USD', 0)}</b>"
    return (
        f"<p>In addition {counted(gpus, 'accelerator')} {'is' if gpus == 1 else 'are'} free, whose hours are worth"
        f" {priced} a month: that is saved once {they} can be handed back"
        ' (<a href="#free-boards">free accelerators</a>).</p>'
    )


def _steps(found: Sequence[Row], day_usd: float | None) -> str:
    changes = [row for row in found if row["kind"] not in NO_CHANGE]
    if not found:
        return "<p>No deployment was booked in the last 28 dates, so there is no advice.</p>"
    if not changes:
        return f"<p>{_no_change(found)}</p>{trial_steps.steps(found)}"
    steps = "".join(
        f"<li><b>{what_to_do(row)}</b> (now {_is_now(row)}): {saving(row)}. {why(row)} Confidence:"
        f" {row['confidence'] or 'unknown'}. {next_step(row)}</li>"
        for row in changes[:STEPS]
    )
    more = (
        f'<p><a href="#advice">{counted(len(changes) - STEPS, "more change")}</a></p>' if len(changes) > STEPS else ""
    )
    return f"<p>{_summary(changes, day_usd)}</p><ol>{steps}</ol>{more}{trial_steps.steps(found)}"


def _no_change(found: Sequence[Row]) -> str:
    kept = [row for row in found if row["kind"] == "keep"]
    unsure = [row for row in found if row["kind"] == "insufficient_data"]
    text = f"<b>Change nothing</b> of {counted(len(kept), 'deployment')}: no less would do." if kept else ""
    if unsure:
        reasons = sorted({lookback.words(row["reason_code"]) for row in unsure})
        text += f" <b>No advice yet</b> for {counted(len(unsure), 'deployment')}: {listed(reasons)}."
    return text.strip() or "<b>Change nothing</b> yet."


def _summary(changes: Sequence[Row], day_usd: float | None) -> str:
    """What the changes save together, the greater amount first."""
    if total(changes, "saving_now_usd_month") is None:
        return f"{counted(len(changes), 'change')} would help; what that saves is unknown."
    month_usd = day_usd * MONTH_DAYS if day_usd else None
    released = _released(changes, month_usd)
    electricity = _electricity(changes, is_first=not released)
    scale = " Of hosting and operations nothing is counted as saved." if month_usd else ""
    return f"{released}{' ' if released else ''}{electricity}{_not_now(changes)}{scale}"


def _released(changes: Sequence[Row], month_usd: float | None) -> str:
    usd = total(changes, "avoidable_now_usd_month")
    if not usd:
        return ""
    share = ""
    if month_usd:
        costs = f"{amount(month_usd, 'USD', 0)} in a month like the newest date"
        # Of a date on which little ran, more may be saved than it cost.
        of_all = f", {percent(usd / month_usd)} of what" if usd <= month_usd else ";"
        share = (
            f"{of_all} the whole fleet costs {'(' if usd <= month_usd else ''}{costs}{')' if usd <= month_usd else ''}"
        )
    freed = round(sum(row["freed_gpus"] or 0 for row in changes if row["avoidable_now_usd_month"]))
    is_all = not any(row[column] for row in changes if row["avoidable_now_usd_month"] for column in HANDED_BACK[1:])
    return (
        f"Handing back {'' if is_all else 'some of '}{counted(freed, 'freed GPU')} saves"
        f" <b>{amount(usd, 'USD', 0)}</b> a month{share}{_sure(changes, 'avoidable_now_usd_month')}."
    )


def _not_now(changes: Sequence[Row]) -> str:
    """What of the freed accelerators is saved at a date, and what never."""
    later, never = (total(changes, column) for column in HANDED_BACK[1:])
    dates = [row["avoidable_from"] for row in changes if row["avoidable_from"] is not None]
    line = f" Another <b>{amount(later, 'USD', 0)}</b> a month follow once commitments end" if later else ""
    line += f", all of it from {max(dates)} on." if later else ""
    if never:
        line += (
            f" {amount(never, 'USD', 0)} of freed GPUs are paid on: they are owned, committed without an end, or beside"
            " GPUs in use."
        )
    return line


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
    saving = [row for row in changes if row[column]]
    sure = [row for row in saving if row["confidence"] in SURE]
    if len(sure) == len(saving):
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
        f" {amount(total(changes, 'avoidable_now_usd_month'), 'USD', 0)} of GPU hours once freed GPUs are handed back."
        f"{_not_now(changes)}"
        if changes
        else _no_change(found)
    ) + trial_steps.sentence(found)
    drawn = [
        Bar(
            row["deployment"],
            [
                (series, row[column] or 0, f"{row[column] or 0:,.2f} USD a month")
                for series, column in enumerate(("saving_energy_usd_month", "avoidable_now_usd_month"))
            ],
            f"{'unknown' if row['saving_now_usd_month'] is None else format(row['saving_now_usd_month'], ',.0f')}"
            f" ({row['confidence'] or 'unknown'})",
        )
        for row in changes[:12]
    ]
    picture = bars(
        drawn, ("electricity, at once", "GPU hours, once handed back"), unit="USD a month saved (confidence)",
        description="Bars: what each change saves in a month at once, in USD. The table has the same numbers.",
    ) if drawn else ""  # fmt: skip
    columns = {
        "deployment": NAME, "what to do": TEXT, "GPUs": NAME, "kWh": 0,
        "kg CO2e": 0, "USD for electricity": MONEY, "USD handed back now": 0, "USD at a date": TEXT,
        "USD paid on": 0, "kWh with nodes off": 0, "time short": RATIO, "confidence": TEXT,
    }  # fmt: skip
    lines = [
        (
            row["deployment"], f"{row['kind']}: {row['reason_code'] or 'unknown'}".replace("_", " "),
            _gpus(row), *(_saved(row, column) for column in SAVINGS),
            _supported(row),
        )
        for row in found
    ]  # fmt: skip
    return Drawn(
        sentence, picture + table("The change to follow, per deployment, and what it saves in a month", columns, lines)
    )


def _saved(row: Row, column: str) -> object:
    """A saving; empty where a deployment stays, nothing is freed or waits for a date, or no host becomes empty."""
    is_none = row["kind"] in NO_CHANGE or column == "saving_kwh_month_if_nodes_off"
    is_none = is_none or (column in HANDED_BACK and not row["freed_gpus"])
    if row[column] is None:
        return "" if is_none else None
    return _at_a_date(row) if column == "avoidable_later_usd_month" else row[column]


def _gpus(row: Row) -> str:
    """How many of which accelerator the deployment has, and how many it needs after the change."""
    now, then = (
        number(row[column], 0) if row[column] is not None else "?" for column in ("current_gpus", "recommended_gpus")
    )
    if row["kind"] == trial_steps.TRY_IT:
        return f"{now} {row['device_type'] or ''}; try {trial_steps.size(row)}"
    return f"{now if row['kind'] in NO_CHANGE or now == then else f'{now} → {then}'} {row['device_type'] or ''}".strip()


def _at_a_date(row: Row) -> str:
    """What a commitment still pays for, and from which date it can be handed back; empty where there is nothing."""
    if not row["avoidable_later_usd_month"]:
        return ""
    return f"{row['avoidable_later_usd_month']:,.0f} from {row['avoidable_from'] or 'a date that is not known'}"


def _supported(row: Row) -> str:
    """The confidence that the smaller size is enough, and what it rests on."""
    known = (row["confidence"], (row["evidence_basis"] or "").replace("_", " "))
    return ": ".join(one for one in known if one)


def _free_boards(found: Sequence[Row]) -> Drawn:
    free = [row for row in found if row["reason_code"] != DOUBTED]
    gpus, doubted = (sum(row["gpus_now"] for row in rows) for rows in (free, [row for row in found if row not in free]))
    cost, released = total(free, "cost_usd_month"), total(free, "saving_usd_month_if_released")
    mean = total(free, "gpus_mean")
    on_average = "" if mean is None else f" ({mean:,.1f} on average in the last 28 dates)"
    sentence = (
        f"{counted(gpus, 'accelerator')} {'is' if gpus == 1 else 'are'} free{on_average} and cost"
        f"{'s' if gpus == 1 else ''} <b>{amount(cost, 'USD', 0)}</b> a month; the hours of those that are"
        f" unallocated are worth {amount(released, 'USD', 0)} a month, saved once they can be handed back; switching"
        f" them off saves {amount(total(free, 'saving_kwh_month_if_switched_off'), 'kWh', 0)}."
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


ADVICE = Figure(
    "advice",
    "Advice with savings and next steps",
    "one change per deployment, from the last 28 dates; a month has 730 hours. kWh are at the facility's meter (×"
    " PUE); likely is the 95 % interval of the coming 30 days, from how the dates differ and resemble each other or,"
    " where watts are a reference and not measured, from its error of 30 %."
    " Freed GPUs stay on until they are handed back,"
    " which saves USD on top: now, once a commitment ends, or not at all (owned, committed without an end, or beside"
    " GPUs that stay in use). All changes together give back each hour once. kWh with nodes off are saved instead of"
    " kWh, where nodes are left without a pod and are switched off (–: no node becomes empty). Time short is the share"
    " of those dates in which the smaller size would have been too small (–: not shown by evidence). What is only to be"
    " tried has no saving. Confidence is that the smaller size is enough, not that of the amount. Hosting and"
    " operations are not counted as saved.",
    "No advice: no deployment was booked in the last 28 dates.",
    _advice,
)
FREE_BOARDS = Figure(
    "free_boards",
    "Free accelerators",
    "accelerators that no model holds at the end of the newest date: the price of their hours and of their own"
    " electricity (× PUE), without their hosts; a month has 730 hours. Spare: kept free on purpose. Engine without"
    " energy: an engine on the node reports tokens and no board of its own is known, so these may be its boards. USD if"
    " handed back is at the rate of the type: nothing of it is saved while a commitment pays for them, or while the"
    " site rents whole nodes of which another board is in use.",
    "No accelerator is free: a model holds each of them, or no meter shows one.",
    _free_boards,
)
