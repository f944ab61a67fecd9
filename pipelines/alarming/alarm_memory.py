"""What is known of alarms from run to run: which last, since when, and what each receiver got of them.

It is `alarms.json` in the fleet's data folder, and no table: a publication is about figures. Add here what must outlive
a run. Keep out what is sent (`messages`) and to whom (`delivery`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from pathlib import Path

from collectors.durable_files import write_whole
from pipelines.alarming.alarm import SEVERITIES, Alarm, is_for, of_json
from pipelines.fleet.targets.alarm_rules import Receiver, Severity

FILE = "alarms.json"
VERSION = 1


@dataclass
class Known:
    """An alarm that lasts, or that is over and of which a receiver has not learned yet. `sent` has the severity with
    which each receiver got it."""

    alarm: Alarm
    over_at: str = ""
    sent: dict[str, Severity] = field(default_factory=dict)


@dataclass(frozen=True)
class Changes:
    """What a receiver has not got yet, or with a lower severity; what is over, as the receiver got it; and what lasts.
    `before` are alarms as the receiver got them, with another severity than they have now."""

    new: tuple[Alarm, ...]
    over: tuple[Alarm, ...]
    lasting: tuple[Alarm, ...]
    before: tuple[Alarm, ...] = ()


class AlarmMemory:
    """The alarms of a fleet. `digests` has the UTC date of each receiver's newest list of what lasts; `run_ended_at` is
    when the newest run ended whose alarms these are."""

    def __init__(
        self, known: Iterable[Known] = (), digests: dict[str, str] | None = None, run_ended_at: str = ""
    ) -> None:
        self.known = {one.alarm.key: one for one in known}
        self.digests = dict(digests or {})
        self.run_ended_at = run_ended_at

    def is_newer(self, ended_at: datetime, now: datetime) -> bool:
        """Whether a run ended before the one whose alarms these are; not where that was by a clock that was ahead."""
        return bool(self.run_ended_at) and ended_at < datetime.fromisoformat(self.run_ended_at) <= now

    @property
    def lasting(self) -> list[Alarm]:
        """The alarms that are not over, the gravest first."""
        return _ordered(one.alarm for one in self.known.values() if not one.over_at)

    def take(self, raised: Sequence[Alarm], is_over: Callable[[Alarm], bool], at: datetime) -> None:
        """Take what a run raised: an alarm that lasts keeps its beginning, and one that is not raised any more is over
        where the run could have raised it."""
        for alarm in raised:
            before = self.known.get(alarm.key)
            if before is None or (before.over_at and not before.sent):
                self.known[alarm.key] = Known(alarm.since_at(at))
            else:
                before.alarm = replace(alarm, since=before.alarm.since)
                before.over_at = ""
        still = {alarm.key for alarm in raised}
        for key, one in self.known.items():
            if key not in still and not one.over_at and is_over(one.alarm):
                one.over_at = at.astimezone(UTC).isoformat(timespec="seconds")

    def changes(self, receiver: Receiver) -> Changes:
        """What a receiver is to learn."""
        mine = [one for one in self.known.values() if not one.over_at and is_for(receiver, one.alarm)]
        new, lasting = list[Alarm](), list[Alarm]()
        before, over = list[Alarm](), list[Alarm]()
        for one in mine:
            severity = one.sent.get(receiver.name)
            is_news = severity is None or SEVERITIES.index(one.alarm.severity) < SEVERITIES.index(severity)
            (new if is_news else lasting).append(one.alarm)
            if severity is not None and severity != one.alarm.severity:
                before.append(replace(one.alarm, severity=severity))
        for one in self.known.values():
            if one.over_at and receiver.name in one.sent:
                over.append(replace(one.alarm, severity=one.sent[receiver.name]))
        return Changes(*(tuple(_ordered(alarms)) for alarms in (new, over, lasting, before)))

    def was_sent(self, receiver: Receiver, changes: Changes, on: date | None) -> None:
        """Note that a receiver took its changes, and with `on` the list of what lasts."""
        for alarm in (*changes.new, *changes.lasting):
            self.known[alarm.key].sent[receiver.name] = alarm.severity
        for alarm in changes.over:
            del self.known[alarm.key].sent[receiver.name]
        if on is not None:
            self.digests[receiver.name] = on.isoformat()

    def forget(self, receivers: Sequence[Receiver]) -> None:
        """Forget what is over and was sent, and receivers that the fleet file has no more."""
        names = {receiver.name for receiver in receivers}
        for one in self.known.values():
            one.sent = {name: severity for name, severity in one.sent.items() if name in names}
        self.known = {key: one for key, one in self.known.items() if not one.over_at or one.sent}
        self.digests = {name: on for name, on in self.digests.items() if name in names}

    def write(self, path: Path) -> None:
        """Write the file, whole."""
        held = {
            "version": VERSION,
            "run_ended_at": self.run_ended_at,
            "alarms": [
                {**one.alarm.to_json(), "over_at": one.over_at or None, "sent": one.sent} for one in self.known.values()
            ],
            "digests": self.digests,
        }
        write_whole(path, (json.dumps(held, indent=1, ensure_ascii=False) + "\n").encode(errors="replace"))


def read(path: Path) -> AlarmMemory:
    """The alarms of the file; none where there is none yet. ValueError for one that cannot be read."""
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        return AlarmMemory(
            [Known(of_json(one), one.get("over_at") or "", dict(one["sent"])) for one in held["alarms"]],
            held["digests"],
            held["run_ended_at"],
        )
    except FileNotFoundError:
        return AlarmMemory()
    except (ValueError, KeyError, TypeError, AttributeError) as wrong:
        raise ValueError(f"{path} cannot be read ({type(wrong).__name__}: {wrong})") from wrong


def _ordered(alarms: Iterable[Alarm]) -> list[Alarm]:
    return sorted(alarms, key=lambda alarm: (SEVERITIES.index(alarm.severity), *alarm.key))
