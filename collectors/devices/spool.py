"""The spool: a folder of Parquet files in which agents leave samples until a landing takes them in.

Add here the layout of the folder and what both ends do with it. Keep out how files are written (`spool_writer`) and
read (`spool_collector`), where samples come from (`nvml`, `exposition`) and when they are taken (`agent`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from fsspec.implementations.local import LocalFileSystem

from collectors import file_systems
from collectors.durable_files import sync_folder, write_whole
from collectors.limits import DEFAULTS

_T = TypeVar("_T")
# What the agent saw and did not keep travels in the file's metadata, as JSON {metric: number of series}.
UNKNOWN_KEY = b"wattledger_unknown_families"
# Of its families of power and energy also some labels, as JSON {metric: [labels as in the column, …]}.
UNKNOWN_LABELS_KEY = b"wattledger_unknown_labels"

# Writing takes milliseconds: a file that is still unfinished after this long will never be finished.
UNFINISHED_SECONDS = 3600


def host_folder(host: str) -> str:
    """The folder of one host's files, whatever characters its name holds."""
    return "host=" + quote(host, safe="")


class Spool:
    """The folder of the files: any URL that fsspec or pyarrow know. ImportError or ValueError for another one.

    A request that a store does not answer within `answer_seconds` raises TimeoutError; its thread is left behind.
    A file is `host=<host>/date=<UTC day of all its rows>/<start>-<token>-<sequence>.parquet`.
    """

    def __init__(self, path: str | Path, answer_seconds: float = DEFAULTS.answer_seconds) -> None:
        self._requests = file_systems.Requests(answer_seconds) if file_systems.is_remote(str(path)) else None
        self.fs, root = self._answer(partial(file_systems.file_system, str(path)))
        self.root = root.rstrip("/") or root
        self.is_local = isinstance(self.fs, LocalFileSystem)

    def put(self, name: str, payload: bytes) -> None:
        """Write one file so that a reader sees it whole or not at all, and so that it survives a crash of the host."""
        path = f"{self.root}/{name}"
        if not self.is_local:
            self._answer(partial(self.fs.makedirs, path.rpartition("/")[0], exist_ok=True))
            self._answer(partial(self.fs.pipe_file, path, payload))
            return
        write_whole(Path(path), payload)
        sync_folder(Path(path).parent.parent)

    def files(self, day: date) -> list[str]:
        """Paths of the day's files, sorted by host, start of the agent and sequence."""
        self.fs.invalidate_cache()
        return sorted(path for host in self.hosts() for path in self._parquet_files(f"{host}/date={day.isoformat()}"))

    def days(self) -> list[date]:
        """The UTC days of which any file is here, sorted."""
        self.fs.invalidate_cache()
        found = set()
        for host in self.hosts():
            for folder in self._listed(host):
                day = _day_of(folder)
                if day is not None and day not in found and self._parquet_files(folder):
                    found.add(day)
        return sorted(found)

    def end_process(self, status: int) -> None:
        """End this process at once where a request still has no answer: it would wait for it. Else do nothing."""
        if self._requests is not None:
            self._requests.end_process(status)

    def payload(self, path: str) -> bytes:
        """One file. FileNotFoundError where another landing has removed it."""
        whole: bytes = self._answer(partial(self.fs.cat_file, path))
        return whole

    def remove(self, path: str) -> None:
        """Remove one file, and its day's folder once that is empty: a spool's listing must not grow with its age."""
        self._answer(partial(self.fs.rm_file, path))
        if self.is_local and _day_of(Path(path).parent.name) != datetime.now(UTC).date():
            try:
                Path(path).parent.rmdir()
            except OSError:
                return  # not empty

    def discard_unfinished(self, host: str) -> None:
        """Remove what a killed agent of this host left half-written; not what another may be writing right now."""
        if not self.is_local:
            return
        for path in Path(self.root, host_folder(host)).glob("date=*/.*.tmp"):
            if path.stat().st_mtime < time.time() - UNFINISHED_SECONDS:
                path.unlink(missing_ok=True)

    def hosts(self) -> list[str]:
        """The folders of the hosts, sorted."""
        return [path for path in self._listed(self.root) if _last(path).startswith("host=")]

    def _parquet_files(self, folder: str) -> list[str]:
        names = self._listed(folder)
        return [path for path in names if path.endswith(".parquet") and not _last(path).startswith(".")]

    def _listed(self, folder: str) -> list[str]:
        try:
            return sorted(self._answer(partial(self.fs.ls, folder, detail=False)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _answer(self, ask: Callable[[], _T]) -> _T:
        return ask() if self._requests is None else self._requests.answer(ask)


def _day_of(folder: str) -> date | None:
    try:
        return date.fromisoformat(_last(folder).removeprefix("date="))
    except ValueError:
        return None


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]
