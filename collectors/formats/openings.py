"""The opening of a file: its first lines as text, whatever compressed it, and the lines at its end where that is cheap.

Add here what is needed to recognise a file. Keep out what its lines mean.
"""

from __future__ import annotations

import csv
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from collectors.samples import SourceError
from collectors.text_files import WholeLines, compression_of, is_utf16, unpacked

OPENING_BYTES = 64 << 10
ENDING_BYTES = 16 << 10
_TIME_WORD = re.compile(rb"ime")  # of `timestamp` and of `Time`: a literal is found ten times as fast


@dataclass(frozen=True)
class Opening:
    """`lines` from the start, `ending` the last ones (empty where the file is packed or `lines` has all of them).
    The first of `ending` may be a part of a line. `columns` is the header as a CSV."""

    path: str
    lines: tuple[str, ...]
    ending: tuple[str, ...]
    is_whole: bool
    head: bytes

    @property
    def text(self) -> str:
        """The lines as one text."""
        return "\n".join(self.lines)

    @property
    def separator(self) -> str:
        """What divides the cells of its header."""
        first = self.lines[0] if self.lines else ""
        return next((one for one in ",;\t|" if one in first), ",")

    def after(self, lines: int) -> Opening:
        """The opening without its first lines."""
        return replace(self, lines=self.lines[lines:])

    def before(self, header: re.Pattern[str]) -> Opening:
        """The opening up to the next header, where there is one."""
        later = (n for n, line in enumerate(self.lines) if n and line != self.lines[0] and header.search(line))
        return replace(self, lines=self.lines[: next(later, None)])

    def cells(self, lines: tuple[str, ...] | None = None) -> list[list[str]]:
        """The cells of the lines of a CSV, without the spaces around them."""
        try:
            rows = list(csv.reader(self.lines if lines is None else lines, delimiter=self.separator))
        except csv.Error:
            return []
        return [[cell.strip() for cell in row] for row in rows if row]


def opening_of(path: str, most_bytes: int = OPENING_BYTES) -> Opening:
    """The opening of a file. SourceError where it cannot be read."""
    try:
        with unpacked(path) as file:
            head = b""
            while len(head) <= most_bytes and (block := file.read(most_bytes + 1 - len(head))):
                head += block
        is_whole = len(head) <= most_bytes
        ending = b"" if is_whole or compression_of(path) or is_utf16(path) else _ending(path)
    except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
        raise SourceError(path, None, f"cannot be read: {error}") from error
    held = head[:most_bytes]
    lines = _text(held).splitlines()
    # The last line is cut off somewhere.
    lines = lines if is_whole else lines[:-1] or lines
    return Opening(path, tuple(lines), tuple(_text(ending).splitlines()), is_whole, held)


def headers(path: str, header: re.Pattern[str]) -> Iterator[tuple[int, Opening]]:
    """(byte within the unpacked file, opening from there) of each line that may be a header."""
    offset = 0
    with WholeLines(path) as file:
        while block := file.read(1 << 30):
            for found in _TIME_WORD.finditer(block):
                begins = block.rfind(b"\n", 0, found.start()) + 1
                ends = block.find(b"\n", begins)
                if header.search(_text(block[begins : len(block) if ends < 0 else ends])):
                    held = block[begins : begins + OPENING_BYTES]
                    lines = _text(held).splitlines()
                    yield offset + begins, Opening(path, tuple(lines[:-1] or lines), (), False, held)
            offset += len(block)


def _text(held: bytes) -> str:
    return held.decode("utf-8-sig", "replace")


def _ending(path: str) -> bytes:
    with Path(path).open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - ENDING_BYTES))
        return file.read()
