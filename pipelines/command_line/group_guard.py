"""Ends a process group when the process that started it is gone without having ended it: `kill -9`, or no memory left.

`process_group` runs this file as a program of its own, in a session of its own, so that no signal to the group or the
terminal reaches it. Its standard input is a pipe from that process: a byte means that the group has ended, an end
without one that the process was killed. It holds the locks of that process until then. Only the standard library is
imported: it lives as long as the group.
"""

import os
import signal
import sys
import time
from pathlib import Path

POLL_SECONDS = 0.1
KILLED_SECONDS = 2.0


def guard(group: int, grace_seconds: float) -> None:
    """Wait for the pipe, then end the group, and kill what has not ended after `grace_seconds`."""
    if os.read(0, 1):
        return
    # What is killed holds its files for a moment.
    for number, seconds in ((signal.SIGTERM, grace_seconds), (signal.SIGKILL, KILLED_SECONDS)):
        try:
            os.killpg(group, number)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + seconds
        while lives(group):
            if time.monotonic() >= deadline:
                break
            time.sleep(POLL_SECONDS)
        else:
            return


def lives(group: int) -> bool:
    """Whether a process of the group runs. One that has ended counts no more, though its parent has not asked for its
    status yet, as in a container without an init."""
    stats = [*Path("/proc").glob("[0-9]*/stat")]
    if not stats:  # macOS
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
        return True
    for path in stats:
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
            state, _, of_group = text.rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue
        if int(of_group) == group and state != "Z":
            return True
    return False


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    guard(int(sys.argv[1]), float(sys.argv[2]))
