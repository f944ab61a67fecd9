"""A command and all that it starts, ended together: `dagster dev` leaves the runs that it started to themselves.

A code server waits for its run, and a run that no daemon watches goes on for most of a minute: the warehouse is locked.
A daemon whose `dev` was killed would go on booking, beside that of the next `dev`: so the command runs under a process
that outlives this one (`group_guard`). Add here how such a command is started and stopped. Keep out which command: that
is `instance`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from pipelines.command_line import group_guard

# A supervisor waits ten seconds before it kills: docker stop, for example.
GRACE_SECONDS = 8.0
POLL_SECONDS = 0.1


def run_together(command: Sequence[str], grace_seconds: float = GRACE_SECONDS) -> int:
    """Run a command in a process group of its own until it ends; returns its exit status. A signal that ends this
    process ends the group first: what has not ended after `grace_seconds`, or at a second signal, is killed. The
    command inherits the locks of this process. Where this process is killed itself, the group ends as by a signal, and
    holds the locks until then."""
    received: list[int] = []
    signals = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup
        signals.append(signal.SIGHUP)
    for one in signals:
        # A shell that starts this process in the background has it ignore SIGINT; Dagster would ignore SIGTERM, too.
        # Nothing is raised: that could be between the start of the command and its assignment here.
        signal.signal(one, lambda number, _: received.append(number))
    guard = subprocess.Popen(  # noqa: S603 (our own command)
        [sys.executable, group_guard.__file__, str(grace_seconds), *command],
        stdin=subprocess.PIPE,
        close_fds=False,
        start_new_session=True,
    )
    passed_on = 0
    while guard.poll() is None:
        for _ in received[passed_on:]:
            passed_on += 1
            with suppress(BrokenPipeError):
                os.write(guard.stdin.fileno(), b".")  # type: ignore[union-attr]
        time.sleep(POLL_SECONDS)
    # Only where the guard was killed is anything left.
    with suppress(ProcessLookupError):
        os.killpg(guard.pid, signal.SIGKILL)
    return 0 if received else guard.returncode
