"""How long a publication stays after the next one, and that it is on the disk before readers are sent to it.

Add here what may be deleted and when. Keep out what a publication holds (`publication`, `published_files`).

A reader may have resolved `latest` a moment before the switch, and then open the folder's Parquet files one after the
other for hours. No lock of ours can know of it, least of all on a share. So a publication stays for a time that is
counted from its replacement, not from its own date: the one of last week was current until a minute ago.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

from collectors.durable_files import opened, sync_folder
from pipelines.warehouse.refusals import QuestionError

KEPT = 5  # the newest, whatever their age
KEPT_HOURS = 24.0  # after the next one took its place
MOST_HOURS = 87_600  # ten years
_PUBLICATION = re.compile(r"(\d{8}T\d{12})Z-[0-9a-f]{8}")


def kept_hours() -> float:
    """How many hours a publication stays after its replacement: WATTLEDGER_KEEP_HOURS, else 24."""
    given = os.environ.get("WATTLEDGER_KEEP_HOURS") or KEPT_HOURS
    with suppress(ValueError):
        if 0 <= float(given) <= MOST_HOURS:
            return float(given)
    raise QuestionError(f"WATTLEDGER_KEEP_HOURS: got {given!r}, expected hours such as 24, at most {MOST_HOURS:,}")


def forget_old(folder: Path, current: Path | None, now: datetime, kept: int = KEPT) -> None:
    """Delete the publications of `folder` that nothing keeps."""
    for path in forgettable(folder, current, now, kept):
        remove(path)


def forgettable(folder: Path, current: Path | None, now: datetime, kept: int = KEPT) -> list[Path]:
    """The publications of `folder` that are neither current, nor among the newest `kept`, nor replaced within the last
    hours. Folders with another name are left alone."""
    made = publications(folder)
    limit = now - timedelta(hours=kept_hours())
    older = list(pairwise(made))[: len(made) - kept] if len(made) > kept else []
    return [path for path, successor in older if path.resolve() != current and published_at(successor) < limit]


def publications(folder: Path) -> list[Path]:
    """The publications of a folder, oldest first. Folders with another name are none."""
    return sorted(path for path in folder.iterdir() if _PUBLICATION.fullmatch(path.name) and not path.is_symlink())


def sync(folder: Path) -> None:
    """Open a folder to readers and write its files and names to the disk, deepest first, so that a power failure after
    the switch leaves no empty file. Files that another publication shares (hard links) were written with it."""
    for at, _, names in os.walk(folder, topdown=False):
        opened(Path(at))
        for name in names:
            path = Path(at, name)
            if path.stat().st_nlink == 1:
                opened(path)
                _fsync(path)
        sync_folder(Path(at))


def put(fresh: Path, path: Path) -> None:
    """Bring a file of the same folder into its place, in one step, when it is on the disk."""
    opened(fresh)
    _fsync(fresh)
    fresh.replace(path)
    sync_folder(path.parent)


def remove(path: Path) -> None:
    """Delete a file, a link or a folder."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def published_at(path: Path) -> datetime:
    """When a publication was made, by its folder's name."""
    return datetime.strptime(path.name.partition("Z-")[0], "%Y%m%dT%H%M%S%f").replace(tzinfo=UTC)


def _fsync(path: Path) -> None:
    held = os.open(path, os.O_RDONLY)
    try:
        os.fsync(held)
    finally:
        os.close(held)
