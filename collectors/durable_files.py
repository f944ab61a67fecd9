"""Files that survive a crash of the host, and that a reader sees whole or not at all; and who may read them.

Add here how a local file is written. Keep out what is in it, and stores that are not local.
"""

from __future__ import annotations

import os
from pathlib import Path

# What the umask was before `private_from_here`, octal, for processes that are started then, too.
UMASK_BEFORE = "WATTLEDGER_UMASK_BEFORE"


def private_from_here() -> None:
    """What this process and those that it starts make from now on is their user's alone, unless it is `opened`."""
    os.environ.setdefault(UMASK_BEFORE, f"{os.umask(0o077):o}")
    os.umask(0o077)


def opened(*paths: Path) -> None:
    """Let others do with these files and folders what this user may, as far as the umask before let them."""
    umask = int(os.environ.get(UMASK_BEFORE, "077"), 8)
    for path in paths:
        if not path.is_symlink():
            mine = path.stat().st_mode >> 6 & 0o7
            path.chmod((mine << 6 | mine << 3 | mine) & ~umask)


def open_way(path: Path) -> None:
    """Make a folder and those above it; others may pass through those that were not there, and list none of them."""
    missing = [one for one in (path, *path.parents) if not one.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for one in missing:
        one.chmod(0o700 | (0o011 & ~int(os.environ.get(UMASK_BEFORE, "077"), 8)))


def write_whole(path: Path, payload: bytes) -> None:
    """Write a file by a rename, in a folder that is made if need be: a reader sees the old or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.tmp")
    try:
        with unfinished.open("wb") as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make new names survive a crash of the host; where a share refuses, only the names are made."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)
