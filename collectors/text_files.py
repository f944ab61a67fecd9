"""Lines and documents of text files, plain or gzipped, in bounded memory.

Add here what any reader of logs and results needs of a file. Keep out what is in it.
"""

from __future__ import annotations

import glob
import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from collectors.samples import SourceError

BLOCK_BYTES = 1 << 20
LINE_BYTES = 8 << 20
DOCUMENT_BYTES = 256 << 20
# Logs shrink to a tenth or a thirtieth; what expands a thousandfold was made to fill a disk.
MOST_EXPANSION = 200
ALWAYS_EXPANDED_BYTES = 64 << 20
_WILDCARD = re.compile(r"[*?\[]")
_LINE = re.compile(rb"[^\n]+")


def paths_of(pattern: str, inside: str = "*") -> list[str]:
    """The files of a path, a glob, or a folder (then those called `inside` in it, however deep), in order.

    SourceError where there are none, and for a link that leads out of the folder before the first wildcard: who may
    write into that folder could have any file of this machine read, and its first line shown.
    """
    path = Path(pattern)
    if path.is_file():
        return [pattern]
    root = path if path.is_dir() else before_glob(path)
    if path.is_dir():
        pattern = f"{glob.escape(pattern)}/**/{inside}"
    found = sorted(name for name in glob.glob(pattern, recursive=True) if Path(name).is_file())  # noqa: PTH207
    if not found:
        raise SourceError(pattern, None, "there is no such file")
    inner = root.resolve()
    for name in found:
        if not Path(name).resolve().is_relative_to(inner):
            fix = "Replace the link by the file, or name the file's own folder in the fleet file"
            raise SourceError(name, None, f"is a link that leads out of {root}. {fix}")
    return found


def before_glob(path: Path) -> Path:
    """The part of a path before its first wildcard."""
    first = next((n for n, part in enumerate(path.parts) if _WILDCARD.search(part)), len(path.parts))
    return Path(*path.parts[:first])


def lines(path: str) -> Iterator[tuple[int, bytes]]:
    """(number from 1, line) of every line that is not blank. SourceError for a file that breaks off or has no end."""
    number, rest = 1, b""
    try:
        with _opened(path) as file:
            while block := file.read(BLOCK_BYTES):
                held = rest + block
                end = held.rfind(b"\n") + 1
                last = 0
                # Not line by line: a file of nothing but line ends would take minutes.
                for found in _LINE.finditer(held, 0, end):
                    number += held.count(b"\n", last, found.start())
                    last = found.start()
                    if found[0].strip():
                        yield number, found[0]
                number += held.count(b"\n", last, end)
                rest = held[end:]
                if len(rest) > LINE_BYTES:
                    raise SourceError(path, None, f"line {number} is longer than {LINE_BYTES >> 20} MiB")
    except (OSError, EOFError, zlib.error) as error:
        raise SourceError(path, None, f"cannot be read: {error}") from error
    if rest.strip():
        yield number, rest


def document(path: str) -> Any:
    """The JSON of a file. SourceError names the place where it stops being JSON."""
    try:
        with _opened(path) as file:
            held = file.read(DOCUMENT_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise SourceError(path, None, f"cannot be read: {error}") from error
    if len(held) > DOCUMENT_BYTES:
        raise SourceError(path, None, f"is larger than {DOCUMENT_BYTES >> 20} MiB")
    return parsed(path, held)


def parsed(where: str, held: bytes) -> Any:
    """The JSON in these bytes. SourceError names what is wrong, and what is there instead."""
    try:
        return orjson.loads(held)
    except orjson.JSONDecodeError as error:
        opening = held.lstrip()[:40].decode("utf-8", "replace")
        raise SourceError(where, None, f"is not JSON ({error}); it begins with {opening!r}") from error


class _Expanding:
    """A gzipped file whose reading stops before it fills memory or disk."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = gzip.open(path, "rb")  # noqa: SIM115 (closed by __exit__)
        self._left = max(ALWAYS_EXPANDED_BYTES, MOST_EXPANSION * Path(path).stat().st_size)

    def __enter__(self) -> _Expanding:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, size: int) -> bytes:
        held = self._file.read(min(size, self._left + 1))
        self._left -= len(held)
        if self._left < 0:
            raise SourceError(self._path, None, f"expands to more than {MOST_EXPANSION} times its size")
        return held


def _opened(path: str) -> BinaryIO | _Expanding:
    return _Expanding(path) if path.endswith(".gz") else Path(path).open("rb")
