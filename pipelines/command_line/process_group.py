"""A command and all that it starts, ended together: `dagster dev` leaves the runs that it started to themselves.

A code server waits for its run, and a run that no daemon watches goes on for most of a minute: the warehouse is locked.
A daemon whose `dev` was killed would go on booking, beside that of the next `dev`: `group_guard` ends it. Add here how
such a command is started and stopped. Keep out which command: that is `instance`.
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
    command inherits the locks of this process. Where this process is killed itself, its guard does the same to the
    group, and holds the locks until then."""
    received: list[int] = []
    signals = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup
        signals.append(signal.SIGHUP)
    for one in signals:
        # A shell that starts this process in the background has it ignore SIGINT; Dagster would ignore SIGTERM, too.
        # Nothing is raised: that could be between the start of the command and its assignment here.
        signal.signal(one, lambda number, _: received.append(number))
    started = subprocess.Popen(command, close_fds=False, process_group=0)  # noqa: S603 (our own command)
    guard = subprocess.Popen(  # noqa: S603
        [sys.executable, group_guard.__file__, str(started.pid), str(grace_seconds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        close_fds=False,
        start_new_session=True,
    )
    while started.poll() is None and not received:
        time.sleep(POLL_SECONDS)
    if received:
        _signal(started, signal.SIGTERM)
        deadline = time.monotonic() + grace_seconds
        while _is_alive(started) and time.monotonic() < deadline and len(received) == 1:
            time.sleep(POLL_SECONDS)
    _signal(started, signal.SIGKILL)
    with suppress(BrokenPipeError):
        guard.communicate(b"\n")
    return 0 if received else started.wait()


def _is_alive(started: subprocess.Popen[bytes]) -> bool:
    if started.poll() is not None:
        # Those that it left to this process, where this process is a container's first.
        with suppress(ChildProcessError):
            os.waitpid(-started.pid, os.WNOHANG)
    return _signal(started, 0)


def _signal(started: subprocess.Popen[bytes], number: int) -> bool:
    """Signal the group; whether it has a process."""
    try:
        os.killpg(started.pid, number)
    except ProcessLookupError:
        return False
    return True
