"""Which process runs a fleet's nights: `dev` and `serve` may be open beside each other, and one of them does.

Whoever holds the lock runs the daily schedule. The system releases it when its process ends, however that ends. Add
here how it is taken and seen. Keep out what is run: that is Dagster's schedule (`pipelines.code_location`) and
`pipelines.serving.nights`.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from collectors.durable_files import open_way

NAME = "nights.lock"
DEV, SERVE = "dev", "serve"


class Holder(NamedTuple):
    """The process that runs the nights: its command (`dev`, `serve`), its id and host, and since when."""

    command: str
    pid: int
    host: str
    since: str

    def __str__(self) -> str:
        return f"`wattledger {self.command}` (process {self.pid} on {self.host}, since {self.since})"


def take(root: Path, command: str) -> bool:
    """Whether this process, and the children that inherit its files, now runs the nights of the fleet whose data is in
    `root`: until it ends."""
    open_way(root)
    held = _locked(root / NAME)
    if held is None:
        return False
    os.truncate(held, 0)
    since = datetime.now(UTC).isoformat(timespec="seconds")
    holder = Holder(command, os.getpid(), socket.gethostname(), since)
    os.pwrite(held, json.dumps(holder._asdict()).encode(), 0)
    os.set_inheritable(held, True)
    return True


def holder(root: Path) -> Holder | None:
    """Who runs the nights at this moment; None where no process has taken them."""
    path = root / NAME
    if not path.exists():
        return None
    free = _locked(path)
    if free is not None:
        os.close(free)
        return None
    with suppress(OSError, ValueError, TypeError):
        return Holder(**json.loads(path.read_text(encoding="utf-8")))
    return Holder("dev or serve", 0, "unknown", "unknown")


def _locked(path: Path) -> int | None:
    held = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as refusal:
        os.close(held)
        if refusal.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise
        return None
    return held
