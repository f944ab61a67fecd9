"""How many bytes files take on the disk, and whether there is room for more.

Add here what is asked of a file system. Keep out which files are whose (`layers`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

# Of what a copy needs by its size: a file system keeps some for itself.
MARGIN_RATIO = 1.05


class TooLittleRoom(Exception):
    """The disk has too little room for a copy; the message has both sizes."""


def bytes_of(paths: Iterable[Path]) -> int:
    """Bytes of the files at and below these paths; a file with several names (hard links) counts once."""
    seen: dict[tuple[int, int], int] = {}
    for path in paths:
        for found in _files(path):
            try:
                state = found.lstat()
            except FileNotFoundError:
                continue  # another process removed it meanwhile
            seen[state.st_dev, state.st_ino] = state.st_size
    return sum(seen.values())


def freed_by(paths: Iterable[Path]) -> int:
    """Bytes that removing these folders frees: of a file that another folder shares, none."""
    names: dict[tuple[int, int], int] = {}
    states = {}
    for path in paths:
        for found in _files(path):
            state = found.lstat()
            key = (state.st_dev, state.st_ino)
            names[key] = names.get(key, 0) + 1
            states[key] = state
    return sum(state.st_size for key, state in states.items() if state.st_nlink <= names[key])


def require(folder: Path, needed_bytes: int, what: str) -> None:
    """TooLittleRoom unless the disk of `folder` has so many bytes free."""
    free = shutil.disk_usage(folder).free
    needed = int(needed_bytes * MARGIN_RATIO)
    if free < needed:
        raise TooLittleRoom(f"{what} needs {shown(needed)} of free disk, {folder} has {shown(free)}. Make room first")


def shown(size: float) -> str:
    """Bytes as a person reads them: `147.2 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(size) < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def _files(path: Path) -> Iterable[Path]:
    if path.is_symlink() or path.is_file():
        yield path
        return
    for at, _, names in os.walk(path):
        yield from (Path(at, name) for name in names)
