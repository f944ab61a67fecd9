"""Whether a `wattledger run` of a fleet is alive: the system releases its lock however its process ends.

Keep out who may write the warehouse (`database.writing`), and which process runs the nights: `night_lock`.
"""

from __future__ import annotations

import fcntl
import os
import socket
from contextlib import suppress
from pathlib import Path

NAME = "run.lock"
# The tag of Dagster's run: the process and its host.
TAG = "wattledger/process"


def hold(root: Path) -> None:
    """Note that this process runs the fleet whose data is in `root`, until it ends."""
    # Shared: a second run waits for the first one's writing, and both are alive.
    fcntl.flock(os.open(root / NAME, os.O_RDWR | os.O_CREAT, 0o666), fcntl.LOCK_SH)


def own() -> str:
    """The tag of a run of this process."""
    return f"{os.getpid()}@{socket.gethostname()}"


def is_alive(root: Path, tag: str) -> bool:
    """Whether the process of a run with this tag is alive. Of another host, or container, the lock alone is seen."""
    pid, _, host = tag.partition("@")
    is_elsewhere = host != socket.gethostname()
    return _is_held(root / NAME) and (is_elsewhere or Path(f"/proc/{pid}").exists() or not Path("/proc").exists())


def _is_held(path: Path) -> bool:
    if not path.exists():
        return False
    seen = os.open(path, os.O_RDWR)
    try:
        with suppress(BlockingIOError):
            fcntl.flock(seen, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
        return True
    finally:
        os.close(seen)
