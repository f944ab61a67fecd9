"""Runs a command, and ends it together with all that it started: when it is asked to, when the command has ended, and
when the process that asked for it is gone, by `kill -9` or for want of memory.

`process_group` runs this file as a program of its own, in a session and a process group of its own, in which the
command and its children are, too. Its standard input is a pipe: each byte is a signal that the other process got, and
its end is the end of that process. It holds the locks of that process until the group has ended. Only the standard
library is imported: it lives as long as the command.
"""

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

POLL_SECONDS = 0.1
# What is killed holds its files for a moment.
KILLED_SECONDS = 2.0


def run(command: list[str], grace_seconds: float) -> int:
    """Run the command; returns its exit status once nothing of the group is left but this process."""
    started = subprocess.Popen(command, stdin=subprocess.DEVNULL, close_fds=False)  # noqa: S603 (our own command)
    while started.poll() is None and not _is_asked(POLL_SECONDS):
        pass
    if started.poll() is None:
        os.killpg(0, signal.SIGTERM)
        deadline = time.monotonic() + grace_seconds
        # A second one ends the grace.
        while members(started) and time.monotonic() < deadline and not _is_asked_again(POLL_SECONDS):
            pass
    deadline = time.monotonic() + KILLED_SECONDS
    while (left := members(started)) and time.monotonic() < deadline:
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(POLL_SECONDS / 10)
    status = started.wait()
    return status if status >= 0 else 128 - status


def members(started: subprocess.Popen[bytes]) -> list[int]:
    """The processes of this group beside this one. One that has ended counts no more, though its parent has not asked
    for its status, as in a container without an init."""
    started.poll()
    found = []
    stats = [*Path("/proc").glob("[0-9]*/stat")]
    for path in stats:
        with suppress(OSError, ValueError):  # ended meanwhile
            number, _, rest = path.read_text(encoding="utf-8", errors="replace").partition(" (")
            state, _, group = rest.rpartition(")")[2].split()[:3]
            found.append((int(number), int(group), state))
    if not stats:  # macOS
        listed = subprocess.run(["ps", "-A", "-o", "pid=,pgid=,stat="], capture_output=True, text=True, check=False)  # noqa: S607
        found = [(int(one), int(group), state) for one, group, state in map(str.split, listed.stdout.splitlines())]
    own = os.getpgrp()
    return [one for one, group, state in found if group == own and one != os.getpid() and not state.startswith("Z")]


def _is_asked(seconds: float) -> bool:
    """Whether there is a byte, or an end, to read within so many seconds; it is read."""
    return bool(select.select([0], [], [], seconds)[0]) and os.read(0, 1) is not None


def _is_asked_again(seconds: float) -> bool:
    """Whether there is another byte within so many seconds."""
    if not select.select([0], [], [], seconds)[0]:
        return False
    if os.read(0, 1):
        return True
    time.sleep(seconds)  # the pipe has ended, and does not wait
    return False


if __name__ == "__main__":
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # With SIG_IGN the command would ignore them, too. What is ignored here already (nohup) stays so.
        if one != signal.SIGHUP or signal.getsignal(one) != signal.SIG_IGN:
            signal.signal(one, lambda *_: None)
    sys.exit(run(sys.argv[2:], float(sys.argv[1])))
