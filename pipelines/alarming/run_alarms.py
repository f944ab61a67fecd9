"""The alarms of one run: that it failed, and each of its checks that failed or warned.

Texts are those that the run prints: what a check found, and its remedy. Add here another kind of thing that a run shows
to be wrong. Keep out what the tables of a publication show (`ledger_alarms`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from pipelines.alarming.alarm import JOULES_PER_KWH, Alarm
from pipelines.alarming.run_outcome import Found, Outcome
from pipelines.booking.alarms import ALARMS
from pipelines.fleet.targets.alarm_rules import Kind

RUN: Kind = "run"
RUN_REMEDY = (
    "do what the line names (`wattledger help NAME` has each); the next run books what is due. What was published"
    " before stays"
)
# Checks of which `ledger_alarms` has each row as an alarm of its own.
OF_TABLES = frozenset({"costs_are_usual"})
_SILENT = "sources_speak"
_OF_SOURCES = re.compile(rf"(source|requests)_\w+_answers|benchmark_\w+_is_read|grid_files_are_sound|{_SILENT}")
_DRIFT = frozenset({*(alarm.name for alarm in ALARMS), "cross_checks_agree", "token_cross_checks_agree"} - {_SILENT})
_REMEDY = "What to do: "
# Of a run of which no source answered (`pipelines.landing.telemetry_assets`).
_FIRST_REASON = "every source failed; the first reason: "
# Columns of a check's rows that add up to what is affected, and what a unit of it is in USD or J.
_USD = {"difference_usd": 1.0}
_JOULES = {"kwh": JOULES_PER_KWH, "energy_joules": 1.0, "doubted_joules": 1.0}


def run_alarms(outcome: Outcome, held_back: Collection[str]) -> Iterator[Alarm]:
    """What of a run is an alarm. `held_back` are the invariants that hold a date back: the date is an alarm then."""
    if not outcome.is_success and not _is_an_outage(outcome):
        lines = outcome.failures or ("for a reason that Dagster did not record",)
        yield Alarm(RUN, RUN, "error", "the run failed", "\n".join(lines), RUN_REMEDY)
    for check in outcome.checks:
        if not check.passed and check.name not in OF_TABLES and check.name not in held_back:
            yield _of_check(check)


def _is_an_outage(outcome: Outcome) -> bool:
    """Whether the run failed for nothing else than what the alarm of a source has."""
    of_sources = [
        one.text for one in outcome.checks if not one.passed and one.is_error and kind_of(one.name) == "source"
    ]
    reasons = [line.rpartition(_FIRST_REASON)[2] for line in outcome.failures if _FIRST_REASON in line]
    return 0 < len(outcome.failures) == len(reasons) and all(any(why in text for text in of_sources) for why in reasons)


def kind_of(check: str) -> Kind:
    """Whether a check is about a source, about what changed at one, or about figures."""
    if _OF_SOURCES.fullmatch(check):
        return "source"
    return "drift" if check in _DRIFT else "check"


def check_name(check: Found) -> str:
    """What the alarm of a check is called: several tables may have a check of one name."""
    return f"{check.table} {check.name}"


def _of_check(check: Found) -> Alarm:
    lines = check.text.splitlines()
    stated = [line.strip().removeprefix(_REMEDY) for line in lines if line.strip().startswith(_REMEDY)]
    which = "\n".join(line.rstrip() for line in lines if not line.strip().startswith(_REMEDY))
    return Alarm(
        kind_of(check.name),
        check_name(check),
        "error" if check.is_error else "warning",
        f"the check {check.name} of {check.table} {'failed' if check.is_error else 'warned'}",
        which or f"Expected: {check.description}",
        stated[0] if stated else check.remedy,
        usd=_sum(check, _USD),
        joules=_sum(check, _JOULES),
        amount_of="in these rows",
    )


def _sum(check: Found, units: dict[str, float]) -> float | None:
    """What the rows of a check add up to in the first of these columns; None where they lack it, or are not all."""
    lines = [line.strip("| ").split(" | ") for line in check.rows.splitlines()]
    names, rows = lines[0] if lines else [], lines[2:]
    column = next((name for name in units if name in names), None)
    if column is None or len(rows) != check.rows_found or any(len(row) != len(names) for row in rows):
        return None
    try:
        return sum(float(row[names.index(column)]) for row in rows) * units[column]
    except ValueError:
        return None
