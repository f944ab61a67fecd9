"""Files that survive a crash of the host, and that a reader sees whole or not at all.

Add here how a local file is written. Keep out what is in it, and stores that are not local.
"""

from __future__ import annotations

import os
from pathlib import Path


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
