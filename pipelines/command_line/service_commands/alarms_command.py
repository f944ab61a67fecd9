"""The command `alarms`: what lasts, and a test of all receivers; and the alarm of a run that ended before its steps.

Add here what a person sees of alarms. Keep out what raises and sends them (`pipelines.alarming`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from collectors.samples import printable
from pipelines.fleet.fleet_file import Fleet
from pipelines.warehouse import mistakes, refusals


def alarms(fleet: Fleet, options: argparse.Namespace) -> int:
    """Print what lasts, or test the receivers; returns the exit status."""
    return _test(fleet) if options.test else _list(fleet)


@contextmanager
def failure_alarmed(fleet: Fleet, options: argparse.Namespace) -> Iterator[None]:
    """Send the alarm of a run that an error ends outside of its steps; a question that only a person asks, with dates
    of its own, is none."""
    try:
        yield
    except Exception as failure:
        is_asked = options.start or options.end or options.rebuild or options.adopt
        if fleet.alarms.are_sent and not (isinstance(failure, refusals.QuestionError) and is_asked):
            from pipelines.alarming.delivery import after_run  # noqa: PLC0415 (Dagster takes a second)
            from pipelines.alarming.run_outcome import Outcome  # noqa: PLC0415

            is_ours = isinstance(failure, refusals.QuestionError)
            reason = str(failure) if is_ours else mistakes.explained(failure, fleet) or mistakes.unexplained(failure)
            print_lines(after_run(fleet, Outcome(datetime.now(UTC), False, (reason,), is_whole=False)))
        raise


def print_lines(lines: list[str]) -> None:
    """Print what receivers did not take. The exit status is that of the run."""
    for line in lines:
        print(line, file=sys.stderr)


def _test(fleet: Fleet) -> int:
    if not fleet.alarms.are_sent:
        raise refusals.QuestionError(
            f"{fleet.path}: alarms has no receivers and no heartbeat_url: nothing leaves this machine (docs/alarms.md)"
        )
    from pipelines.alarming.delivery import send_test  # noqa: PLC0415 (Dagster takes a second)

    results = send_test(fleet)
    for name, reason in results:
        print(f"{name}: taken" if reason is None else f"{name}: NOT taken: {reason}")
    return 1 if any(reason is not None for _, reason in results) else 0


def _list(fleet: Fleet) -> int:
    from pipelines.alarming import alarm_memory  # noqa: PLC0415
    from pipelines.alarming.messages import described, what_to_do  # noqa: PLC0415

    try:
        memory = alarm_memory.read(fleet.root / alarm_memory.FILE)
    except ValueError as wrong:
        raise refusals.QuestionError(f"{wrong}. Move it away: the next run sends all that lasts again") from None
    if not memory.lasting:
        print(f"fleet {fleet.fleet}: no alarm")
        return 0
    print(f"fleet {fleet.fleet}: {len(memory.lasting)} alarm{'' if len(memory.lasting) == 1 else 's'}")
    for alarm in memory.lasting:
        print(f"\n{described(alarm)}{what_to_do(alarm)}\n  Name: {printable(alarm.name)}")
    return 0
