"""Lines and documents of text files, plain or packed by gzip or zstd, in bounded memory.

Add here what any reader of logs and results needs of a file. Keep out what is in it.
"""

from __future__ import annotations

import codecs
import csv
import glob
import gzip
import json
import re
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import orjson
import pyarrow as pa

from collectors.rows import Rejects
from collectors.samples import SourceError

BLOCK_BYTES = 1 << 20
LINE_BYTES = 8 << 20
DOCUMENT_BYTES = 256 << 20
# Logs shrink to a tenth or a thirtieth; what expands a thousandfold was made to fill a disk.
MOST_EXPANSION = 200
ALWAYS_EXPANDED_BYTES = 64 << 20
_WILDCARD = re.compile(r"[*?\[]")
_LINE = re.compile(rb"[^\n]+")
# A line of a CSV file as the csv module takes it: its ends may be carriage returns alone.
_RETURNS = re.compile(r"[^\r]*\r|[^\r]+")
_OPEN_QUOTE = "unexpected end of data"  # in the words of the csv module
QUOTED_LINES = 20
_NOT_BLANK = re.compile(r"\S")
_BOM = b"\xef\xbb\xbf"
_ZSTD = b"\x28\xb5\x2f\xfd"


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


def lines(path: str, rejects: Rejects) -> Iterator[tuple[int, bytes]]:
    """(number from 1, line) of every line that is not blank.

    A line that is too long is a reject, and so is the place where a file breaks off, is damaged or has no end: the
    lines before it are given.
    """
    number, rest, is_too_long = 1, b"", False
    try:
        with unpacked(path) as file:
            while block := file.read(BLOCK_BYTES):
                if number == 1 and not rest:
                    block = block.removeprefix(_BOM)
                if is_too_long:
                    _, end_of_line, block = block.partition(b"\n")
                    if not end_of_line:
                        continue
                    number, is_too_long = number + 1, False
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
                    rejects.add(f"{path}:{number}", f"is longer than {LINE_BYTES >> 20} MiB")
                    rest, is_too_long = b"", True
    except (OSError, EOFError, zlib.error) as error:
        rejects.add(path, f"cannot be read from line {number} on: {error}")
    except SourceError as refusal:
        rejects.add(path, f"{refusal.reason}; read up to line {number}")
    else:
        if rest.strip():
            yield number, rest


def csv_rows(path: str, rejects: Rejects) -> tuple[list[str], Iterator[tuple[str, dict[str, str]]]]:
    """The columns of a CSV file, and its rows by column name, each with its place. A row that is not CSV or has more
    cells than there are columns is a reject; one that has fewer lacks the last ones. Cells are separated by commas, or
    by semicolons, tabs or bars where the header has no comma."""
    records = _records(path, rejects)
    _, columns = next(records, ("", []))
    columns[:1] = [name.removeprefix("\ufeff") for name in columns[:1]]
    return columns, _rows_of(columns, records, rejects)


def _rows_of(
    columns: list[str], records: Iterator[tuple[str, list[str]]], rejects: Rejects
) -> Iterator[tuple[str, dict[str, str]]]:
    for place, cells in records:
        if any(cells[len(columns) :]):
            rejects.add(place, f"has {len(cells)} cells, the header {len(columns)}: is a comma in a cell not quoted?")
        else:
            yield place, dict(zip(columns, cells, strict=False))


def _records(path: str, rejects: Rejects) -> Iterator[tuple[str, list[str]]]:
    """(place, cells) of each record of a CSV file. A quoted cell may go on over QUOTED_LINES; where it does not end by
    then, its first line is a reject and the next one begins a record."""
    held = lines(path, rejects)
    again: deque[tuple[int, bytes]] = deque()
    record: list[tuple[int, bytes]] = []
    separator = ""
    while (line := again.popleft() if again else next(held, None)) or record:
        record += [line] if line else []
        place = f"{path}:{record[0][0]}"
        try:
            text = b"\n".join(part for _, part in record).decode("utf-8")
            separator = separator or next((one for one in ",;\t|" if one in text), ",")
            cells = list(csv.reader(_RETURNS.findall(text), strict=True, delimiter=separator))
        except (csv.Error, UnicodeDecodeError) as error:
            if str(error) == _OPEN_QUOTE and line and len(record) < QUOTED_LINES:
                continue
            rejects.add(place, f"is not CSV: {error}")
            again.extendleft(reversed(record[1:]))
        else:
            yield from ((place, row) for row in cells)
        record = []


def document(path: str) -> Any:
    """The JSON of a file. SourceError names the place where it stops being JSON."""
    return parsed(path, _whole(path))


def documents(path: str) -> Iterator[Any]:
    """The values of a file of JSON, one or several after each other; of a list that is cut off, its own values.
    SourceError names the place where it stops being JSON, after those before it."""
    held = _whole(path)
    try:
        yield orjson.loads(held.removeprefix(_BOM))
        return
    except orjson.JSONDecodeError:
        text = held.decode("utf-8-sig", "replace")
    decoder, at, is_in_list = json.JSONDecoder(), 0, False
    while begins := _NOT_BLANK.search(text, at):
        if is_in_list and begins[0] == ",":
            at = begins.end()
            continue
        try:
            value, at = decoder.raw_decode(text, begins.start())
        except (json.JSONDecodeError, RecursionError) as error:
            if begins[0] == "[" and not is_in_list:
                at, is_in_list = begins.end(), True
                continue
            line = text.count("\n", 0, begins.start()) + 1
            raise SourceError(f"{path}:{line}", None, f"is not JSON from here on ({error})") from error
        yield value
    if is_in_list:
        raise SourceError(path, None, "is not JSON at its end: a list is cut off")


def _whole(path: str) -> bytearray:
    held = bytearray()
    try:
        with unpacked(path) as file:
            while len(held) <= DOCUMENT_BYTES and (block := file.read(BLOCK_BYTES)):
                held += block
    except (OSError, EOFError, zlib.error) as error:
        raise SourceError(path, None, f"cannot be read: {error}") from error
    if len(held) > DOCUMENT_BYTES:
        raise SourceError(path, None, f"is larger than {DOCUMENT_BYTES >> 20} MiB")
    return held


def parsed(where: str, held: bytes | bytearray) -> Any:
    """The JSON in these bytes. SourceError names what is wrong, and what is there instead."""
    try:
        return orjson.loads(held.removeprefix(_BOM))
    except orjson.JSONDecodeError as error:
        opening = held.lstrip()[:40].decode("utf-8", "replace")
        raise SourceError(where, None, f"is not JSON ({error}); it begins with {opening!r}") from error


def compression_of(path: str) -> str | None:
    """gzip, zstd or None: by how a file begins, and where that is neither by its name."""
    with Path(path).open("rb") as file:
        begins = file.read(4)
    if begins[:2] == b"\x1f\x8b" or (begins != _ZSTD and path.endswith(".gz")):
        return "gzip"
    return "zstd" if begins == _ZSTD or path.endswith(".zst") else None


def is_parquet(path: str) -> bool:
    """By how a file begins, or its name. Whoever reads it finds why it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return file.read(4) == b"PAR1" or path.endswith(".parquet")
    except OSError:
        return path.endswith(".parquet")


def is_utf16(path: str) -> bool:
    """Whether it begins as what PowerShell's `>` writes."""
    with Path(path).open("rb") as file:
        return file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class _Recoded:
    """A file of UTF-16, read as UTF-8."""

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("rb")  # noqa: SIM115 (closed by close)
        self._decoder = codecs.getincrementaldecoder("utf-16")("replace")

    def __enter__(self) -> _Recoded:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def read(self, size: int) -> bytes:
        while block := self._file.read(size):
            if text := self._decoder.decode(block):
                return text.encode("utf-8", "replace")
        return self._decoder.decode(b"", final=True).encode("utf-8", "replace")


class _Expanding:
    """A packed file whose reading stops before it fills memory or disk."""

    def __init__(self, path: str, compression: str) -> None:
        self._path = path
        is_gzip = compression == "gzip"
        self._file: Any = gzip.open(path, "rb") if is_gzip else pa.input_stream(path, compression=compression)  # noqa: SIM115
        self._left = max(ALWAYS_EXPANDED_BYTES, MOST_EXPANSION * Path(path).stat().st_size)

    def __enter__(self) -> _Expanding:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, size: int) -> bytes:
        # What one read unpacked is given before the next one finds that the file breaks off.
        held: bytes = self._file.read1(min(size, self._left + 1))
        self._left -= len(held)
        if self._left < 0:
            raise SourceError(self._path, None, f"expands to more than {MOST_EXPANSION} times its size")
        return held


class WholeLines:
    """A text file for who reads blocks: as far as it can be read, to the end of a line; what is not UTF-8 is U+FFFD.
    `damage` is why it ends before its end, if it does. Of a part of it, the bytes [start, end), both ends of lines."""

    def __init__(self, path: str, start: int = 0, end: int | None = None) -> None:
        self.damage: str | None = None
        self.closed = False
        self._path = path
        self._given = 0
        # Arrow unpacks three times as fast as Python, and gives nothing of the block in which a file breaks off.
        self._compression = compression_of(path)
        self._file: Any = _Recoded(path) if is_utf16(path) else pa.input_stream(path, compression=self._compression)
        self._is_arrow = True
        self._ready, self._tail, self._is_over = b"", b"", False
        self._before, self._left = start, end

    def __enter__(self) -> WholeLines:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self.closed = True
        self._file.close()

    def read(self, size: int) -> bytes:
        """At most `size` bytes; none at the end."""
        while not self._ready and not self._is_over:
            self._ready = self._inside(self._lines())
        given, self._ready = self._ready[:size], self._ready[size:]
        return given

    def _inside(self, held: bytes) -> bytes:
        """What of these bytes is in the part."""
        if self._left is not None:
            held, self._left = held[: self._left], max(0, self._left - len(held))
            self._is_over |= not self._left
        given, self._before = held[self._before :], max(0, self._before - len(held))
        return given

    def _lines(self) -> bytes:
        try:
            block: bytes = self._file.read(BLOCK_BYTES) if self._is_arrow else self._file.read1(BLOCK_BYTES)
        except (OSError, EOFError, zlib.error) as error:
            if self._is_arrow and self._compression == "gzip":
                self._go_on_slowly()
            else:
                # The line in which it breaks off is not whole.
                self.damage, self._is_over = str(error), True
            return b""
        self._given += len(block)
        held = self._tail + block
        self._is_over = not block
        end = len(held) if self._is_over or len(held) > LINE_BYTES else held.rfind(b"\n") + 1
        found, self._tail = held[:end], held[end:]
        try:
            found.decode()
        except UnicodeDecodeError:
            return found.decode("utf-8", "replace").encode()
        return found

    def _go_on_slowly(self) -> None:
        """Go on where Arrow failed with Python's reader."""
        self._file.close()
        self._file, self._is_arrow = gzip.open(self._path, "rb"), False  # noqa: SIM115 (closed by close)
        try:
            self._file.seek(self._given)
        except (OSError, EOFError, zlib.error) as error:
            self.damage, self._is_over = str(error), True


def unpacked(path: str) -> BinaryIO | _Expanding | _Recoded:
    """A file whose bytes are read as they were before it was packed; those of UTF-16 as UTF-8."""
    compression = compression_of(path)
    if compression is None:
        return _Recoded(path) if is_utf16(path) else Path(path).open("rb")
    return _Expanding(path, compression)


def blocks(
    numbered: Iterable[tuple[str, bytes]], most_lines: int, most_bytes: int
) -> Iterator[list[tuple[str, bytes]]]:
    """(place, line) of lines in blocks of bounded size."""
    block: list[tuple[str, bytes]] = []
    size = 0
    for place, line in numbered:
        block.append((place, line))
        size += len(line)
        if len(block) == most_lines or size > most_bytes:
            yield block
            block, size = [], 0
    if block:
        yield block
