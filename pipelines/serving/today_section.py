"""Today so far as a section of the report, and a page of its own where nothing is published yet.

Add here what a reader of the page sees of the running day. Keep out how a value is written (`pipelines.report.markup`)
and the published page: `serve` shows it with this section at its head, its file stays as it is.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pipelines.report
from pipelines.report.markup import NAME, RATIO, TEXT, named, table, text
from pipelines.report.page import MAIN, POLICY
from pipelines.serving.metrics import is_valid
from pipelines.today.today_file import Today

_COLUMNS = {
    "Model": NAME, "J per token": 3, "J per output token": 3, "Mean W": 0, "W now": 0, "Output tokens": 0,
    "Idle energy (estimate)": RATIO, "CO2e, kg (estimate)": 1, "Compute, USD (estimate)": 2,
    "USD per million output tokens (estimate)": 2, "In doubt": TEXT,
}  # fmt: skip

# The reserved name of accelerators that no model holds: tokens do not apply.
FREE = "__unallocated__"


def with_today(page: str | None, today: Today | None, fleet: str, now: datetime) -> str:
    """The published page with today at its head; without a page, today alone."""
    section = _section(today, now)
    if page is not None and page.count(MAIN) == 1:
        return page.replace(MAIN, MAIN + section)
    style = (Path(pipelines.report.__file__).parent / "page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"><link rel="icon" href="data:,">'
        f"<title>Fleet {text(fleet)}, today</title><style>{style}</style></head><body>"
        f"<header><h1>Fleet <bdi>{text(fleet)}</bdi></h1><p>Nothing is published yet: the first night does it.</p>"
        f"{MAIN}{section}</main></body></html>\n"
    )


def _section(today: Today | None, now: datetime) -> str:
    head = '<section id="today" aria-labelledby="today-title"><h2 id="today-title">Today so far</h2>'
    if today is None:
        return f"{head}<p>No tick was made yet.</p></section>"
    if not is_valid(today, now):
        return (
            f"{head}<p>The newest tick is of {today.asked_until_at:%Y-%m-%d %H:%M} UTC, so nothing of it is shown.</p>"
            "</section>"
        )
    problems = "".join(f"<li>{text(line)}</li>" for line in today.problems())
    return (
        f"{head}<p>{today.on} from 00:00 to {today.closed_until_at:%H:%M} UTC, tick of"
        f" {today.asked_until_at:%H:%M:%S}. Joules, watts and tokens are those of the later booking, unless samples"
        " arrive late. What is marked as an estimate depends on the rest of the day: it is settled when the day is"
        " booked.</p>"
        f"{f'<ul>{problems}</ul>' if problems else ''}{_models(today)}{_differences(today)}</section>"
    )


def _models(today: Today) -> str:
    rows = [
        (
            today.name_of(one),
            one.joules_per_total_token if one.output_tokens else "",
            one.joules_per_output_token if one.output_tokens else "",
            one.mean_watts,
            one.newest_interval_watts,
            "" if one.model == FREE else one.output_tokens,
            one.estimated_idle_energy_ratio,
            None if one.estimated_location_gco2e is None else one.estimated_location_gco2e / 1000,
            one.estimated_compute_cost_usd,
            one.estimated_compute_cost_usd_per_output_mtok if one.output_tokens else "",
            str(one.doubt or ""),
        )
        for one in today.models
    ]
    return (
        table("Models today; joules and watts at their meters", _COLUMNS, rows)
        if rows
        else "<p>No closed interval yet.</p>"
    )


def _differences(today: Today) -> str:
    if not today.differences:
        return ""
    lines = "; ".join(
        f"{text(one.figure)} {text(f'{one.greatest_ratio:.2%}' if one.greatest_ratio else 'none')}"
        + (f" ({named(one.model)}, {one.on})" if one.greatest_ratio else "")
        for one in today.differences
    )
    dates = max(one.dates for one in today.differences)
    return (
        f"<p>Greatest difference between the last tick and the booking, over {dates} date{'' if dates == 1 else 's'}:"
        f" {lines}.</p>"
    )
