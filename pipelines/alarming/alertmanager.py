"""Alarms as Alertmanager's alerts: it groups, silences and repeats them, and forgets those that are not posted again.

Add here a label or an annotation. Labels are what an alert is known by: nothing that changes from night to night is
one. Keep out how alerts are sent (`receivers`).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from pipelines.alarming.alarm import Alarm
from pipelines.alarming.alarm_memory import Changes
from pipelines.fleet.targets.alarm_rules import Kind, Severity

# Every run posts all that lasts again. Three nights without a run, and the heartbeat has been missing for two.
LASTING_HOURS = 72
TEST_MINUTES = 5
NAMES: dict[Kind, str] = {
    "run": "WattledgerRunFailed",
    "source": "WattledgerSourceIncomplete",
    "held_back": "WattledgerDateHeldBack",
    "check": "WattledgerCheckFailed",
    "drift": "WattledgerDrift",
    "cost": "WattledgerCostUnusual",
    "budget": "WattledgerBudget",
    "advice": "WattledgerAdvice",
}
TEST = "WattledgerTest"
# As rules of Prometheus call them, by which an Alertmanager routes.
SEVERITIES: dict[Severity, str] = {"error": "critical", "warning": "warning", "info": "info"}


def alerts(fleet: str, changes: Changes, at: datetime) -> Iterator[dict[str, Any]]:
    """All alerts of a fleet: what is new or lasts, and the end of what is over or had another severity."""
    ends_at = at + timedelta(hours=LASTING_HOURS)
    for alarm in (*changes.new, *changes.lasting):
        yield _alert(fleet, alarm, NAMES[alarm.kind], ends_at)
    for alarm in (*changes.over, *changes.before):
        yield _alert(fleet, alarm, NAMES[alarm.kind], at)


def test_alert(fleet: str, alarm: Alarm, at: datetime) -> dict[str, Any]:
    """An alert that ends by itself."""
    return _alert(fleet, alarm, TEST, at + timedelta(minutes=TEST_MINUTES))


def _alert(fleet: str, alarm: Alarm, alertname: str, ends_at: datetime) -> dict[str, Any]:
    annotations = {
        "summary": f"fleet {fleet}: {alarm.what}",
        "description": alarm.which,
        "how_much": alarm.how_much,
        "what_to_do": alarm.remedy,
    }
    return {
        "labels": {
            "alertname": alertname,
            "fleet": fleet,
            "kind": alarm.kind,
            "name": alarm.name,
            "severity": SEVERITIES[alarm.severity],
        },
        "annotations": {name: text for name, text in annotations.items() if text},
        "startsAt": alarm.since,
        "endsAt": ends_at.astimezone(UTC).isoformat(timespec="seconds"),
    }
