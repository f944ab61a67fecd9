"""The end of a command: its process ends without freeing, one by one, what the system takes back at once.

Dagster and dbt leave millions of objects. Where Python ends it looks through them several times and frees each, which
took 2.6 of the 35 processor seconds of a day of the demo (docs/bench.md). Nothing waits for that: files and connections
are closed where they were opened. Threads are joined before, and what others have registered with `atexit` is called
before: it is called last in, first out, so import this module before any other. Keep out what a command does.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys

_noted: list[int] = []


def noted(status: int) -> int:
    """The exit status of a command that is over: the process will end with it."""
    _noted.append(status)
    return status


def _end() -> None:
    """End the process, if its command is over. Where an output cannot be written Python ends it, and reports that."""
    if not _noted:
        return
    logging.shutdown()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return
    os._exit(_noted[-1])


atexit.register(_end)
