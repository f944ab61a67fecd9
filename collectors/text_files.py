"""Lines and documents of text files, plain or gzipped, in bounded memory.

Add here what any reader of logs and results needs of a file. Keep out what stands in it.
"""

from __future__ import annotations

import glob
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from collectors.samples import SourceError

LINE_BYTES = 8 << 20
DOCUMENT_BYTES = 256 << 20
# Logs shrink to a tenth or a thirtieth; what unfolds a thousandfold was made to fill a disk.
UNFOLDED_AT_MOST = 200
UNFOLDED_ALWAYS = 64 << 20


def paths_of(pattern: str, inside: str = "*") -> list[str]:
    """The files of a path, a glob, or a folder (then those called `inside` in it, however deep), in order."""
    path = Path(pattern)
    if path.is_file():
        return [pattern]
    if path.is_dir():
        pattern = f"{glob.escape(pattern)}/**/{inside}"
    found = sorted(name for name in glob.glob(pattern, recursive=True) if Path(name).is_file())  # noqa: PTH207
    if not found:
        raise SourceError(pattern, None, "no such file")
    return found


def lines(path: str) -> Iterator[tuple[int, bytes]]:
    """(number from 1, line) of every line that is not blank. SourceError when the file breaks off or explodes."""
    try:
        with _opened(path) as file:
            number = 0
            while line := file.readline(LINE_BYTES + 1):
                number += 1
                if len(line) > LINE_BYTES:
                    raise SourceError(path, None, f"line {number} is longer than {LINE_BYTES >> 20} MiB")
                if line.strip():
                    yield number, line
    except (OSError, EOFError, zlib.error) as error:
        raise SourceError(path, None, f"cannot be read: {error}") from error


def document(path: str) -> Any:
    """The JSON of a file. SourceError says where it stops being JSON."""
    try:
        with _opened(path) as file:
            held = file.read(DOCUMENT_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise SourceError(path, None, f"cannot be read: {error}") from error
    if len(held) > DOCUMENT_BYTES:
        raise SourceError(path, None, f"is larger than {DOCUMENT_BYTES >> 20} MiB")
    return parsed(path, held)


def parsed(where: str, held: bytes) -> Any:
    """The JSON in these bytes. SourceError says what is wrong, and what stands there instead."""
    try:
        return orjson.loads(held)
    except orjson.JSONDecodeError as error:
        opening = held.lstrip()[:40].decode("utf-8", "replace")
        raise SourceError(where, None, f"is not JSON ({error}); it begins with {opening!r}") from error


class _Unfolding:
    """A gzipped file that stops before it fills memory or disk."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = gzip.open(path, "rb")  # noqa: SIM115 (closed by __exit__)
        self._left = max(UNFOLDED_ALWAYS, UNFOLDED_AT_MOST * Path(path).stat().st_size)

    def __enter__(self) -> _Unfolding:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def readline(self, size: int) -> bytes:
        return self._counted(self._file.readline(size))

    def read(self, size: int) -> bytes:
        return self._counted(self._file.read(min(size, self._left + 1)))

    def _counted(self, held: bytes) -> bytes:
        self._left -= len(held)
        if self._left < 0:
            raise SourceError(self._path, None, f"unfolds to more than {UNFOLDED_AT_MOST} times its size")
        return held


def _opened(path: str) -> BinaryIO | _Unfolding:
    return _Unfolding(path) if path.endswith(".gz") else Path(path).open("rb")
