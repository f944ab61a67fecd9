"""How far the numbers of the page are known: coverage, held-back dates, alarms, and what is estimated.

Add here what a reader should know before quoting a number.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.report.figures import Drawn, Figure, Row
from pipelines.report.markup import NAME, RATIO, TEXT, named, ratio, table, text
from pipelines.report.sentences import counted

WHAT_IS_KNOWN = {
    "coverage_ratio": "accelerator time with power readings, of the time that models held",
    "matched_ratio": "energy in intervals whose tokens were counted too (that of free accelerators is not)",
    "unknown_energy_ratio": "energy whose use is unknown",
    "priced_ratio": "accelerator time with all its prices",
    "carbon_known_ratio": "energy with a grid factor",
    "hourly_carbon_ratio": "electricity with the hour's own grid factor (the rest: a yearly one)",
    "energy_error_ratio": "error of the meters, ±",
}
WHAT = {
    "meter": "read from",
    "idle floor": "idle floor from",
    "host power": "host power from",
    "claim": "user known by",
}


def _coverage(found: Sequence[Row]) -> Drawn:
    newest, weeks = found[0], found[-1]
    sentence = (
        f"{weeks['published_dates']} of {counted(weeks['dates'], 'date')} are published; in them power was read for"
        f" {ratio(weeks['coverage_ratio'])} of the accelerator time, {ratio(weeks['priced_ratio'])} of it has a price,"
        f" and {ratio(weeks['unknown_energy_ratio'])} of the energy has an unknown use."
    )
    columns = {"what": TEXT, f"{newest['first_date']}": RATIO, f"{weeks['first_date']} to {weeks['last_date']}": RATIO}
    numbers = [(meaning, newest[column], weeks[column]) for column, meaning in WHAT_IS_KNOWN.items()]
    return Drawn(sentence, table("What is known", columns, numbers))


def _held_back(found: Sequence[Row]) -> Drawn:
    dates = {row["date"] for row in found if row["date"] is not None}
    sentence = (
        f"<b>{counted(len(dates), 'date')}</b> {'is' if len(dates) == 1 else 'are'} held back because"
        f" {counted(len(found), 'rule')} {'does' if len(found) == 1 else 'do'} not hold; what was published of"
        " them before stays."
    )
    columns = {
        "date": TEXT,
        "rule that does not hold": TEXT,
        "tables": TEXT,
        "rows": 0,
        "earlier rows": TEXT,
        "what to do": TEXT,
    }
    numbers = [
        (
            row["date"] or "whole table", row["invariant"].replace("_", " "), row["tables"], row["broken_rows"],
            "stay published" if row["is_published"] else "none published", row["remedy"],
        )
        for row in found
    ]  # fmt: skip
    return Drawn(sentence, table("Held back", columns, numbers))


def _alarms(found: Sequence[Row]) -> Drawn:
    kinds = sorted({row["alarm"] for row in found})
    counts = " and ".join(f"{sum(row['alarm'] == kind for row in found):,} × {text(kind)}" for kind in kinds)
    columns = {"date": TEXT, "alarm": TEXT, "where": NAME, "found": TEXT}
    numbers = [(row["date"], row["alarm"], row["what"] or "the fleet", row["found"]) for row in found]
    first = found[0]
    newest = f"the newest is of {first['date']}: {named(first['what'] or 'the fleet')}, {text(first['found'])}"
    return Drawn(f"In the last 28 dates: {counts}; {newest}.", table("Alarms", columns, numbers))


def _estimates(found: Sequence[Row]) -> Drawn:
    share = {(row["what"], row["basis"]): row["energy_ratio"] for row in found}
    assumed = sum(share.get(("host power", basis)) or 0 for basis in ("assumed_watts", "assumed_ratio"))
    sentence = (
        f"{ratio(share.get(('meter', 'counter'), 0))} of the newest date's energy was read from energy counters; for"
        f" {ratio(share.get(('idle floor', 'device_type_reference'), 0))} the idle floor (the power without requests)"
        f" is a reference of the device type. The power of the host is stated in the fleet file for"
        f" {ratio(share.get(('host power', 'stated_watts'), 0))}, and for"
        f" {ratio(assumed)} it is assumed, by the power limits of the accelerators and what they draw."
    )
    columns = {"what": TEXT, "basis": TEXT, "kWh of accelerators": 2, "share": RATIO}
    numbers = [
        (WHAT[row["what"]], row["basis"].replace("_", " "), row["device_kwh"], row["energy_ratio"]) for row in found
    ]
    return Drawn(sentence, table("Estimates", columns, numbers))


COVERAGE = Figure(
    "quality",
    "Coverage",
    "shares of time, energy or electricity of all sites; a share that is not known is never counted as 0.",
    "No date is published yet.",
    _coverage,
)
HELD_BACK = Figure(
    "held_back",
    "Held-back dates",
    "dates and tables that break a rule of the book; readers see their earlier rows, or none.",
    "No date and no table is held back: every check of the book passed.",
    _held_back,
)
ALARMS = Figure(
    "alarms",
    "Alarms",
    "budgets that this month's forecast exceeds, costs far from their usual ones, meters that two sources read more"
    " than 5 % apart, and wall meters whose host is not known. A cost has a usual one after 14 dates, and a meter is"
    " compared where it has two sources. What a run warned about its sources is in its output and in Dagster.",
    "No alarm in the last 28 dates: no budget that will be exceeded, no unusual cost where 14 dates are before it, no"
    " meter that its two sources read differently, and no wall meter whose host is not known.",
    _alarms,
)
ESTIMATES = Figure(
    "estimates",
    "What is estimated",
    "energy of the newest date at the booked meters, each joule once per kind of estimate; a reference or a stated"
    " value is an"
    " estimate.",
    "The newest date has no metered energy.",
    _estimates,
)
