"""One alarm: what happened, to which thing, since when, how much, and what to do.

Add here what every alarm has. Keep out what raises one (`run_alarms`, `ledger_alarms`) and how it is written
(`messages`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime, time
from typing import Any

from pipelines.fleet.targets.alarm_rules import Kind, Receiver, Severity

# The gravest first.
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True)
class Alarm:
    """`kind` and `name` are what an alarm is known by from night to night. `what` is one sentence, `which` are lines
    with the things it is about. `usd` and `joules` are None where the amount is not known."""

    kind: Kind
    name: str
    severity: Severity
    what: str
    which: str = ""
    remedy: str = ""
    since: str = ""
    amount_of: str = ""
    usd: float | None = None
    joules: float | None = None

    @property
    def key(self) -> tuple[str, str]:
        """What it is known by."""
        return self.kind, self.name

    def since_at(self, at: datetime) -> Alarm:
        """The alarm, with this time where it has none of its own."""
        return self if self.since else replace(self, since=at.astimezone(UTC).isoformat(timespec="seconds"))

    @property
    def how_much(self) -> str:
        """The amount with its units; empty where it is not known."""
        parts = []
        if self.usd is not None:
            parts.append(f"{self.usd:,.2f} USD")
        if self.joules is not None:
            parts.append(f"{self.joules:,.0f} J ({self.joules / JOULES_PER_KWH:,.1f} kWh)")
        text = " and ".join(parts)
        return f"{text} {self.amount_of}".rstrip() if text else ""

    def to_json(self) -> dict[str, Any]:
        """The alarm as JSON has it, without what is not known."""
        known = {key: held for key, held in asdict(self).items() if held not in ("", None)}
        return known if self.how_much else {key: held for key, held in known.items() if key != "amount_of"}


def of_json(held: dict[str, Any]) -> Alarm:
    """The alarm that `to_json` wrote."""
    return Alarm(**{key: held[key] for key in held.keys() & Alarm.__dataclass_fields__.keys()})


def since_date(on: date) -> str:
    """The first moment of a UTC date, as an alarm has it."""
    return datetime.combine(on, time(), UTC).isoformat(timespec="seconds")


def is_for(receiver: Receiver, alarm: Alarm) -> bool:
    """Whether a receiver gets the alarm."""
    return SEVERITIES.index(alarm.severity) <= SEVERITIES.index(receiver.least_severity) and (
        not receiver.kinds or alarm.kind in receiver.kinds
    )
