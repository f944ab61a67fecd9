"""Waiting for what a process of a test is about to do.

Add here a way to wait. Keep out processes: those are in `tests.servers`.
"""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_for(is_there: Callable[[], object], seconds: float = 60) -> None:
    """Wait until it is; AssertionError after so many seconds."""
    deadline = time.monotonic() + seconds
    while not is_there():
        assert time.monotonic() < deadline, f"not there after {seconds:g} s"
        time.sleep(0.2)
