"""A command of ours beside this process: started, looked at, and ended together with all that it started.

Add here how it is ended. Keep out which command: that is `nights`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

# A supervisor waits ten seconds before it kills: docker stop, for example.
GRACE_SECONDS = 6.0
POLL_SECONDS = 0.1


class ChildProcess:
    """A command in a process group of its own."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self._started = subprocess.Popen(command, env=environ, process_group=0)  # noqa: S603 (our own command)

    def status(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._started.poll()

    def end(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """End it; what has not ended after so many seconds is killed."""
        self._signal(signal.SIGTERM)
        deadline = time.monotonic() + grace_seconds
        while self._started.poll() is None and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        self._signal(signal.SIGKILL)
        self._started.wait()

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._started.pid, number)
