"""The folder or prefix that a publication goes to: whole files, one publisher at a time, every failure in one line.

    publishers/<token>.json     who publishes at this moment; gone when it is done

Add here what holds for any file there. Keep out which files a publication has (`table_files`) and when they are
written (`object_store`).
"""

from __future__ import annotations

import json
import logging
import os
import random
import re
import secrets
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.fs
from fsspec.implementations.arrow import ArrowFSWrapper
from fsspec.implementations.local import LocalFileSystem

from collectors import file_systems
from collectors.durable_files import opened, sync_folder, write_whole
from collectors.samples import printable, url_without_secrets

# A publisher that works renews its sign; one that did not for so long is taken for dead.
RENEWAL_SECONDS = 20.0
DEAD_SECONDS = 300.0
_PUBLISHERS = "publishers"
# Stores in which a folder is nothing but a part of a name.
_WITHOUT_FOLDERS = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl"})
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")

logger = logging.getLogger(__name__)


class ObjectStoreError(Exception):
    """The store refused, or is away. The message is one line: place, reason, what to do; no password."""


class Place:
    """A folder or prefix on any file system that fsspec or pyarrow know; paths are relative to it."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.shown = url_without_secrets(self.url)
        with self.refusals("no such kind of store"):
            self.fs, root = file_systems.file_system(self.url)
        self.root = root.rstrip("/")
        self.is_local = isinstance(self.fs, LocalFileSystem)
        protocols = [self.fs.protocol] if isinstance(self.fs.protocol, str) else list(self.fs.protocol)
        protocols.append(getattr(getattr(self.fs, "fs", None), "type_name", ""))
        self._has_folders = not _WITHOUT_FOLDERS & set(protocols)

    @contextmanager
    def refusals(self, what: str) -> Iterator[None]:
        """Turn whatever the store raises (each has its own kinds) into ObjectStoreError."""
        try:
            yield
        except ObjectStoreError:
            raise
        except Exception as refusal:
            words = " ".join(_COLOURS.sub("", str(refusal)).replace("↳", "").split()).replace(self.url, self.shown)
            words = file_systems.secrets_of(self.url).masked(words)
            raise ObjectStoreError(
                f"{self.shown}: {what}: {printable(words[:500]) or type(refusal).__name__}"
            ) from refusal

    def path(self, relative: str) -> str:
        """A path as the file system knows it."""
        return f"{self.root}/{relative}"

    def files(self, folder: str) -> list[str]:
        """The files below a folder, sorted."""
        return sorted(self.sizes(folder))

    def sizes(self, folder: str) -> dict[str, int]:
        """The bytes of each file below a folder. A listing that fails is an error: fsspec's own `find` would return
        less."""
        with self.refusals("cannot be listed"):
            path = self.path(folder)
            if isinstance(self.fs, ArrowFSWrapper):
                chosen = pyarrow.fs.FileSelector(path, allow_not_found=True, recursive=True)
                found = {one.path: one.size for one in self.fs.fs.get_file_info(chosen) if one.is_file}
            else:
                self.fs.invalidate_cache()
                listed = self._listed(path) if self._has_folders else self.fs.find(path, detail=True).values()
                found = {one["name"]: one["size"] for one in listed}
        start = len(self.root.lstrip("/")) + 1
        return {name.lstrip("/")[start:]: size for name, size in found.items() if not name.endswith("/")}

    def _listed(self, path: str) -> Iterator[dict[str, Any]]:
        try:
            entries = self.fs.ls(path, detail=True)
        except FileNotFoundError:
            return
        for entry in entries:
            if entry["type"] == "directory":
                yield from self._listed(entry["name"])
            else:
                yield entry

    def get(self, relative: str) -> bytes | None:
        """A small file; None where there is none."""
        with self.refusals("cannot be read"):
            try:
                payload: bytes = self.fs.cat_file(self.path(relative))
            except FileNotFoundError:
                return None
            return payload

    def put(self, relative: str, payload: bytes) -> None:
        """Write a small file so that a reader sees the old or the new one, whole."""
        with self.refusals("cannot be written"):
            path = self.path(relative)
            self._make_folder(path)
            if self.is_local:
                write_whole(Path(path), payload)
                opened(Path(path))
            else:
                self.fs.pipe_file(path, payload)

    def upload(self, file: Path, relative: str) -> None:
        """Copy a file of this machine; on the disk when this returns, where the place is one."""
        with self.refusals("cannot be written"):
            path = self.path(relative)
            self._make_folder(path)
            with file.open("rb") as source, self.fs.open(path, "wb") as copy:
                shutil.copyfileobj(source, copy, 2**22)
            if self.is_local:
                self.sync(relative)

    def sync(self, relative: str) -> None:
        """Write a local file and its name to the disk."""
        path = Path(self.path(relative))
        opened(path)
        with path.open("rb") as file:
            os.fsync(file.fileno())
        sync_folder(path.parent)

    def remove(self, relative: str) -> None:
        """Delete a file; one that is gone already is fine."""
        with self.refusals("cannot be deleted"), suppress(FileNotFoundError):
            self.fs.rm_file(self.path(relative))

    def _make_folder(self, path: str) -> None:
        folder = path.rpartition("/")[0]
        if not self.is_local:
            if self._has_folders:
                self.fs.makedirs(folder, exist_ok=True)
            return
        made = [one for one in (Path(folder), *Path(folder).parents) if not one.exists()]
        Path(folder).mkdir(parents=True, exist_ok=True)
        opened(*made)
        for one in made:
            sync_folder(one.parent)


class Turn:
    """The right to publish to a place. `confirm` before anything that readers see."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.sign = f"{_PUBLISHERS}/{secrets.token_hex(8)}.json"
        self._since = datetime.now(UTC).isoformat(timespec="seconds")
        self._renewed = 0
        self._is_over = threading.Event()

    def show(self) -> None:
        """Write the sign that others see."""
        self._renewed += 1
        own = {"host": socket.gethostname(), "pid": os.getpid(), "since": self._since, "renewed": self._renewed}
        self.place.put(self.sign, json.dumps(own).encode())

    def confirm(self) -> None:
        """ObjectStoreError where another publisher took this one for dead, and its turn."""
        if self.place.get(self.sign) is None:
            raise ObjectStoreError(
                f"{self.place.shown}: another publisher took this turn, because this one gave no sign for"
                f" {DEAD_SECONDS:g} s. Run again"
            )

    def renewing(self) -> threading.Thread:
        """Renew the sign from time to time, until `end`."""
        thread = threading.Thread(target=self._renew, daemon=True, name="object store turn")
        thread.start()
        return thread

    def end(self) -> None:
        """Let others have their turn."""
        self._is_over.set()

    def _renew(self) -> None:
        while not self._is_over.wait(RENEWAL_SECONDS):
            with suppress(ObjectStoreError):  # the next renewal may succeed; `confirm` notices where none did
                if self.place.get(self.sign) is not None:
                    self.show()


@contextmanager
def taking_turns(place: Place, patience_seconds: float) -> Iterator[Turn]:
    """The only publisher at a place. ObjectStoreError after so many seconds, naming the other one.

    Needs no lock of the store, only that a listing shows every file that is written: whoever sees another sign after
    writing its own withdraws it and waits. A publisher that died leaves its sign; it counts as dead once it was not
    renewed for DEAD_SECONDS by this machine's watch, or at once where it was a process of this machine.
    """
    seen: dict[str, tuple[bytes, float]] = {}
    deadline = time.monotonic() + patience_seconds
    is_logged = False
    while True:
        turn = Turn(place)
        others = _others(place, turn, seen)
        if not others:
            turn.show()
            others = _others(place, turn, seen)
            if not others:
                break
            place.remove(turn.sign)
        named = "; ".join(others)
        if time.monotonic() >= deadline:
            raise ObjectStoreError(
                f"{place.shown}: another publisher writes there ({named}); waited {patience_seconds:g} s. Run again"
                f" when it is done. If it died, wait {DEAD_SECONDS:g} s or delete its file in {_PUBLISHERS}/"
            )
        if not is_logged:
            logger.info("waiting up to %g s for another publisher at %s (%s)", patience_seconds, place.shown, named)
            is_logged = True
        time.sleep(random.uniform(0.2, 1.0) * min(1.0, max(0.1, patience_seconds / 10)))  # noqa: S311
    renewal = turn.renewing()
    try:
        yield turn
    finally:
        turn.end()
        renewal.join()
        with suppress(ObjectStoreError):  # the store is away: the sign dies of its age
            place.remove(turn.sign)


def _others(place: Place, turn: Turn, seen: dict[str, tuple[bytes, float]]) -> list[str]:
    """The other publishers that are alive, as a message names them; the signs of dead ones are removed."""
    now = time.monotonic()
    alive = []
    for path in place.files(_PUBLISHERS):
        if path == turn.sign or not path.endswith(".json"):
            continue
        sign = place.get(path)
        if sign is None:
            continue
        before, since = seen.get(path, (b"", now))
        seen[path] = (sign, since if before == sign else now)
        host, pid, at = _read(sign)
        if now - seen[path][1] >= DEAD_SECONDS or (host == socket.gethostname() and not _runs(pid)):
            place.remove(path)
            continue
        alive.append(f"process {pid} of {host} since {at}")
    return alive


def _read(sign: bytes) -> tuple[str, int, str]:
    try:
        found = json.loads(sign)
        return printable(str(found["host"])), int(found["pid"]), printable(str(found["since"]))
    except (ValueError, KeyError, TypeError):
        return "unknown", 0, "unknown"


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
