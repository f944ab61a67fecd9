"""Sends what each receiver has not got yet, all at once and within their seconds, and keeps what was taken.

A run calls `after_run` at its end, whatever became of it; nothing here raises, and what a receiver does not take is one
line, and is sent by the next run. Add here when something is sent. Keep out how (`receivers`) and in which words
(`messages`).
"""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from pipelines.alarming import alarm_memory, alertmanager, receivers
from pipelines.alarming.alarm import Alarm
from pipelines.alarming.alarm_memory import AlarmMemory, Changes
from pipelines.alarming.ledger_alarms import QUERIES, Published, published_alarms
from pipelines.alarming.messages import Message
from pipelines.alarming.run_alarms import RUN, check_name, run_alarms
from pipelines.alarming.run_outcome import Outcome
from pipelines.fleet.fleet_file import Fleet
from pipelines.fleet.targets.alarm_rules import AlertmanagerReceiver, AnyReceiver, MessageReceiver

# No receiver is called so.
HEARTBEAT = "heartbeat URL"
HEARTBEAT_SECONDS = 10.0
# Beyond a receiver's own seconds: what its last step may take.
SPARE_SECONDS = 0.5
LOCK_SECONDS = 10.0
AGAIN = "the next run sends it again"
UNREAD = "publication"
UNREAD_REMEDY = (
    "docs/operations.md has what to do with a damaged publication; else report the line. Until then no alarm of a held-"
    "back date, a budget, a cost or advice is sent or over"
)

Sending = Callable[[], None]


def after_run(fleet: Fleet, outcome: Outcome, now: datetime | None = None) -> list[str]:
    """Send what a run changed, and the heartbeat after a good one; a line per receiver that did not take it."""
    if not fleet.alarms.are_sent:
        return []
    at = now or datetime.now(UTC)
    try:
        path = fleet.root / alarm_memory.FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock", timeout=LOCK_SECONDS):
            return _after_run(fleet, outcome, at)
    except Timeout:
        return [_sends_already(fleet)]
    except Exception as failure:  # a run's figures and status do not depend on what alarms do
        return [_not_sent(failure)]


def send_test(fleet: Fleet, now: datetime | None = None) -> list[tuple[str, str | None]]:
    """Send a test to each receiver, and a heartbeat: the name of each, and why it did not take it."""
    at = now or datetime.now(UTC)
    sendings = {
        receiver.name: (_test_to(fleet, receiver, at), receiver.timeout_seconds) for receiver in fleet.alarms.receivers
    }
    sendings |= _heartbeat(fleet)
    reasons = _sent(sendings)
    return [(name, reasons.get(name)) for name in sendings]


def _after_run(fleet: Fleet, outcome: Outcome, at: datetime) -> list[str]:
    path = fleet.root / alarm_memory.FILE
    lines = []
    try:
        memory = alarm_memory.read(path)
    except ValueError as wrong:
        lines.append(_started_anew(wrong))
        memory = AlarmMemory()
    if memory.is_newer(outcome.ended_at, at):
        return lines  # Dagster's sensors may learn of a run before they learn of an earlier one
    memory.run_ended_at = outcome.ended_at.astimezone(UTC).isoformat()
    raised, is_over, published = _raised(fleet, outcome)
    memory.take(raised, is_over, at)
    todo: dict[str, tuple[AnyReceiver, Changes, bool]] = {}
    sendings: dict[str, tuple[Sending, float]] = {}
    for receiver in fleet.alarms.receivers:
        changes = memory.changes(receiver)
        is_digest = isinstance(receiver, MessageReceiver) and receiver.digest and _is_due(memory, receiver, at)
        sending = _sending(fleet, receiver, changes, is_digest, at)
        if sending is not None:
            todo[receiver.name] = (receiver, changes, is_digest)
            sendings[receiver.name] = (sending, receiver.timeout_seconds)
    if outcome.is_good and _misses_no_night(fleet, published, outcome.began_at or at):
        sendings |= _heartbeat(fleet)
    refused = _sent(sendings)
    for name, (receiver, changes, is_digest) in todo.items():
        if name not in refused:
            memory.was_sent(receiver, changes, at.astimezone(UTC).date() if is_digest else None)
    memory.forget(fleet.alarms.receivers)
    lines += [_not_taken(name, reason) for name, reason in refused.items()]
    try:
        memory.write(path)
    except OSError as failure:  # a full disk, most of all: what was sent was worth it
        lines.append(_not_kept(path, failure))
    return lines


def _misses_no_night(fleet: Fleet, published: Published | None, at: datetime) -> bool:
    """Whether the newest date that was over when the run began is published. Of a run by hand on older dates it may not
    be, and then a heartbeat would hide a night that never began."""
    days = fleet.days(at.astimezone(UTC).date())
    if not days:
        return True
    newest = published.newest_date if published is not None else None
    return newest is not None and newest >= days[-1]


def _raised(fleet: Fleet, outcome: Outcome) -> tuple[list[Alarm], Callable[[Alarm], bool], Published | None]:
    """The alarms after a run, whether one that it did not raise is over (only where the run could have raised it), and
    what is published; None where that cannot be read."""
    published, unread = None, []
    if outcome.remedies is not None:
        try:
            published = published_alarms(fleet, outcome.remedies)
        except Exception as failure:  # a damaged file, or a column that an older version did not have
            unread.append(_unread(failure))
    found = [*run_alarms(outcome, published.held_back if published else ()), *unread]
    if published is not None:
        found = [
            replace(
                alarm,
                usd=published.usual_usd,
                joules=published.usual_joules,
                amount_of="on the newest published date",
            )
            if alarm.kind in ("run", "source") and alarm.usd is None and alarm.joules is None
            else alarm
            for alarm in found
        ] + list(published.alarms)
    muted = {*fleet.alarms.muted}
    raised = [one for one in found if not muted & {one.name, *one.name.split()}]
    asked = {check_name(check) for check in outcome.checks}

    def is_over(alarm: Alarm) -> bool:
        if alarm.kind == RUN:
            return outcome.is_success
        if alarm.kind in QUERIES:
            return published is not None
        if alarm.name == UNREAD:
            return published is not None
        return alarm.name in asked or (outcome.is_success and outcome.is_whole)

    return raised, is_over, published


def _sending(fleet: Fleet, receiver: AnyReceiver, changes: Changes, is_digest: bool, at: datetime) -> Sending | None:
    """What sends its changes to a receiver; None where there is nothing to send."""
    if isinstance(receiver, AlertmanagerReceiver):
        posted = [*alertmanager.alerts(fleet.fleet, changes, at)]
        return (lambda: receivers.send_alerts(receiver, posted)) if posted else None
    listed = changes.lasting if is_digest else ()
    if not (changes.new or changes.over or listed):
        return None
    message = _message(fleet, at, new=changes.new, over=changes.over, lasting=listed)
    return lambda: receivers.send_message(receiver, message)


def _test_to(fleet: Fleet, receiver: AnyReceiver, at: datetime) -> Sending:
    what = f"this is a test of the receiver {receiver.name}"
    alarm = Alarm("run", "test", "info", what, "", "nothing: it has arrived").since_at(at)
    if isinstance(receiver, AlertmanagerReceiver):
        return lambda: receivers.send_alerts(receiver, [alertmanager.test_alert(fleet.fleet, alarm, at)])
    message = _message(fleet, at, test=[alarm])
    return lambda: receivers.send_message(receiver, message)


def _message(fleet: Fleet, at: datetime, **alarms: object) -> Message:
    command = f"wattledger alarms --fleet {shlex.quote(str(fleet.path))}"
    return Message(fleet.fleet, fleet.synthetic, at.astimezone(UTC), command, **alarms)  # type: ignore[arg-type]


def _heartbeat(fleet: Fleet) -> dict[str, tuple[Sending, float]]:
    alarms = fleet.alarms
    if alarms.heartbeat_url is None and alarms.heartbeat_url_env is None:
        return {}
    return {HEARTBEAT: (lambda: receivers.send_heartbeat(alarms, HEARTBEAT_SECONDS), HEARTBEAT_SECONDS)}


def _is_due(memory: AlarmMemory, receiver: AnyReceiver, at: datetime) -> bool:
    return memory.digests.get(receiver.name) != at.astimezone(UTC).date().isoformat()


def _sent(sendings: Mapping[str, tuple[Sending, float]]) -> dict[str, str]:
    """Send everything at once; the reason of each that was not taken. One that does not come back in its seconds is
    left to itself: its thread ends with this process."""
    reasons: dict[str, str] = {}
    done: set[str] = set()

    def send(name: str, sending: Sending) -> None:
        try:
            sending()
        except receivers.NotTaken as refusal:
            reasons[name] = str(refusal)
        except Exception as failure:  # whatever a receiver does, the others get theirs
            reasons[name] = f"{type(failure).__name__}: {' '.join(str(failure).split())}"
        done.add(name)

    began = time.monotonic()
    threads = {
        name: threading.Thread(target=send, args=(name, sending), name=f"alarms to {name}", daemon=True)
        for name, (sending, _) in sendings.items()
    }
    for thread in threads.values():
        thread.start()
    for name, thread in threads.items():
        seconds = sendings[name][1]
        thread.join(max(0.0, began + seconds + SPARE_SECONDS - time.monotonic()))
    return {
        name: reasons.get(name, f"no answer within {seconds:g} s")
        for name, (_, seconds) in sendings.items()
        if name in reasons or name not in done
    }


def _not_taken(name: str, reason: str) -> str:
    receiver = "the heartbeat's URL" if name == HEARTBEAT else f"the receiver {name}"
    return f"alarms: {receiver} did not take it ({reason}); {AGAIN}"


def _started_anew(wrong: ValueError) -> str:
    return f"alarms: {wrong}; it begins anew, and all that lasts is sent again"


def _sends_already(fleet: Fleet) -> str:
    return f"alarms: another run of {fleet.fleet} is sending its own; {AGAIN}"


def _not_kept(path: Path, failure: OSError) -> str:
    return f"alarms: {path} cannot be written ({failure.strerror or failure}): what was sent now, {AGAIN}"


def _unread(failure: Exception) -> Alarm:
    reason = f"{type(failure).__name__}: {' '.join(str(failure).split())}"
    return Alarm("check", UNREAD, "warning", "what is published cannot be read for alarms", reason, UNREAD_REMEDY)


def _not_sent(failure: Exception) -> str:
    return f"alarms could not be sent ({type(failure).__name__}: {' '.join(str(failure).split())}); {AGAIN}"
