"""Rows of outside files: which are refused and why, and when there are too many of them.

Add here what every reader of rows shares when one of them is not readable or not possible. Keep out what is possible in
a field: that is the reader's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from collectors.source_errors import SourceError, printable

_Row = TypeVar("_Row")
_Made = TypeVar("_Made")

# A source fails where more of its rows are bad; the fleet file sets it under `limits.bad_rows_ratio`.
BAD_ROWS_RATIO = 0.5
# So many bad rows are shown with their place and reason.
SHOWN_ROWS = 3
REASON_CHARACTERS = 300
# A file of which so many rows are bad, and none before, is not read to its end.
HOPELESS_ROWS = 10_000
# Longer numbers are no counts and no times, whatever their digits.
_WHOLE_CHARACTERS = 30
# Python itself also reads 1_000, inf, and the digits of every script.
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)


class Reject(Exception):
    """A row that is not what its file should hold; the message names the field, the value and what was expected."""


@dataclass
class Rejects:
    """The rows of one reading that were refused, `first` with place and reason, and how many could be `read`.

    A file that cannot be read, or that breaks off, is one row more. `most_ratio` is the part of all rows that may be
    refused before the source fails, `setting` the key of the fleet file that sets it, if one does.
    """

    most_ratio: float = BAD_ROWS_RATIO
    setting: str | None = "limits.bad_rows_ratio"
    read: int = 0
    rows: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, where: str, why: object, rows: int = 1) -> None:
        """Count rows that were refused for one reason; `where` is the place of one of them."""
        self.rows += rows
        if len(self.first) < SHOWN_ROWS:
            self.first.append(printable(f"{where}: {why}")[:REASON_CHARACTERS])

    def check(self, url: str) -> None:
        """SourceError where more rows were refused than `most_ratio` allows."""
        if self.rows > self.most_ratio * (self.rows + self.read):
            allowed = f"expected at most {self.most_ratio:g} of all" + (f" ({self.setting})" if self.setting else "")
            raise SourceError(url, None, f"{self._counts()}, {allowed}: {self._reasons()}")

    def __str__(self) -> str:
        return f"{self._counts()}: {self._reasons()}" if self.rows else ""

    def _counts(self) -> str:
        return f"{self.rows:,} of {self.rows + self.read:,} rows rejected"

    def _reasons(self) -> str:
        return "; ".join([*self.first, *(["…"] if self.rows > len(self.first) else [])])


def readable(rows: Iterable[tuple[str, _Row]], make: Callable[[_Row], _Made], rejects: Rejects) -> Iterator[_Made]:
    """What `make` makes of each (place, row) of a file. A row for which it raises Reject is counted instead, and so is
    the place where the file stops being readable."""
    read, bad = 0, 0
    try:
        for place, row in rows:
            try:
                made = make(row)
            except Reject as reason:
                rejects.add(place, reason)
                bad += 1
                if not read and bad >= HOPELESS_ROWS:
                    return
                continue
            read += 1
            yield made
    except SourceError as refusal:
        rejects.add(refusal.url, refusal.reason)
    finally:
        rejects.read += read


def number_of(text: str) -> int | float:
    """The number that a text is: whole ones exactly, and infinity where it is too large. ValueError for anything else,
    such as NaN, 1_000 and 0x1F."""
    if text.isdigit() and text.isascii() and len(text) <= _WHOLE_CHARACTERS:
        return int(text)
    bare = text.strip()
    if _NUMBER.fullmatch(bare) is None:
        raise ValueError("not a number")
    is_whole = len(bare) <= _WHOLE_CHARACTERS and bare.lstrip("+-").isdigit()
    return int(bare) if is_whole else float(bare)


def is_object(row: Any) -> dict[str, Any]:
    """The row; Reject where it is no JSON object."""
    if not isinstance(row, dict):
        raise Reject(f"is a {type(row).__name__}, expected an object")
    return row
