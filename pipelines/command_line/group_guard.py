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

POLL_SECONDS = 0.1
KILLED_SECONDS = 2.0


def guard(group: int, grace_seconds: float) -> None:
    """Wait for the pipe, then end the group, and kill what has not ended after `grace_seconds`."""
    if os.read(0, 1):
        return
    try:
        os.killpg(group, signal.SIGTERM)
        deadline = time.monotonic() + grace_seconds
        while time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
            os.killpg(group, 0)
        os.killpg(group, signal.SIGKILL)
        # What is killed holds its files for a moment; in a container without an init its entry stays for good.
        deadline = time.monotonic() + KILLED_SECONDS
        while time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
            os.killpg(group, 0)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    guard(int(sys.argv[1]), float(sys.argv[2]))
