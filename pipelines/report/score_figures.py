"""What became of advice: promised, measured, realised, open and gone wrong.

Add here a column by which advice is assessed. Keep out how a saving is measured (`analysis.measured_savings`) and the
outcomes: they are SQL (finance.advice_score).
"""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.report.figures import Drawn, Figure, Row
from pipelines.report.markup import MONEY, NAME, TEXT, table
from pipelines.report.sentences import amount, counted, total

# Outcome -> its words in the table.
OUTCOMES = {
    "realised": "realised",
    "gone_wrong": "gone wrong",
    "unclear": "unclear: 0 is within the interval",
    "not_measured": "too new to measure",
    "open": "open",
    "withdrawn": "withdrawn: not advised any more",
    "not_advised": "was not advised",
}


def _score(found: Sequence[Row]) -> Drawn:
    by_outcome = {outcome: [row for row in found if row["outcome"] == outcome] for outcome in OUTCOMES}
    followed = [*by_outcome["realised"], *by_outcome["unclear"], *by_outcome["gone_wrong"]]
    sentence = "No advice was followed yet that is measured"
    if followed:
        promised, measured = (total(followed, f"{name}_kwh_per_month") for name in ("promised", "measured"))
        usd = [total(followed, f"realised_{part}_usd_per_month") for part in ("energy", "accelerator")]
        left = None if usd == [None, None] else sum(one or 0.0 for one in usd)
        sentence = (
            f"{counted(len(followed), 'piece')} of advice {'was' if len(followed) == 1 else 'were'} followed:"
            f" {amount(promised, 'kWh', 0)} a month promised, <b>{amount(measured, 'kWh', 0)}</b> measured, and"
            f" {amount(left, 'USD', 0)} a month left the bill; {len(by_outcome['gone_wrong'])} went wrong"
        )
    sentence += f"; {len(by_outcome['open'])} open"
    if by_outcome["not_advised"]:
        sentence += f"; {counted(len(by_outcome['not_advised']), 'change')} not advised"
    columns = {
        "deployment": NAME, "advice": TEXT, "outcome": TEXT, "changed": TEXT, "promised kWh/month": TEXT,
        "measured kWh/month": TEXT, "energy USD/month": MONEY, "accelerators USD/month": MONEY, "service": TEXT,
    }  # fmt: skip
    lines = [
        (
            row["deployment"], _advice(row), OUTCOMES[row["outcome"]], _changed(row), _interval(row, "promised"),
            _interval(row, "measured"), _if_changed(row, "realised_energy_usd_per_month"),
            _if_changed(row, "realised_accelerator_usd_per_month"), _service(row),
        )
        for row in found
    ]  # fmt: skip
    return Drawn(f"{sentence}.", table("What became of advice", columns, lines))


def _advice(row: Row) -> str:
    """What was advised, from its first evening to its last."""
    if row["advice"] is None:
        return "none"
    first, last = row["first_advised_on"], row["last_advised_on"]
    return f"{row['advice'].replace('_', ' ')}, {first if first == last else f'{first} to {last}'}"


def _changed(row: Row) -> str:
    """What changed, from when on."""
    return "" if row["changed_on"] is None else f"{row['what_changed'].replace('_', ' ')}, {row['changed_on']}"


def _interval(row: Row, name: str) -> str:
    """`58 (44 to 72)`; empty where there is nothing to promise or measure."""
    value, low, high = (row[f"{name}_kwh_per_month{end}"] for end in ("", "_low", "_high"))
    if value is None:
        return ""
    ends = "no interval" if low is None or high is None else f"{low:,.0f} to {high:,.0f}"
    return f"{value:,.0f} ({ends})"


def _if_changed(row: Row, column: str) -> float | str | None:
    return "" if row["changed_on"] is None else row[column]


def _service(row: Row) -> str:
    """How many requests waited and kept the SLO, before and after; empty where it is not known of either."""
    shown = []
    for name, words in (("queued_ratio", "waited"), ("good_request_ratio", "within the SLO")):
        sides = [row[f"{name}_{side}"] for side in ("before", "after")]
        if sides != [None, None]:
            before, after = ("–" if share is None else f"{100 * share:.1f} %" for share in sides)
            shown.append(f"{words} {before} → {after}")
    return "; ".join(shown)


SCORE = Figure(
    "score",
    "What became of advice",
    "each piece of advice from the first evening on which it was given to the last, and each change of a deployment in"
    " the last 91 dates that lasted a week. Measured: kWh at the facility's meter (× PUE) of 730 hours that its own"
    " accelerators, and those that it left, drew less than expected for the same tokens, hours and weekdays; with its"
    " 95 % interval. USD: of that energy, and of accelerators that left the bill. Gone wrong: it saved less than"
    " nothing, requests waited in one hundredth more of the intervals, or one hundredth fewer kept the SLO. Service:"
    " share of the intervals in which requests waited, and of the requests within the SLO, before and after.",
    "No advice was given yet, and no deployment changed.",
    _score,
)
