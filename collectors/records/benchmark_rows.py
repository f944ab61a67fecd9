"""Rows of published results and their fields, read with a message that names the file, the row and the field.

Add a shape in which publishers list results, or a kind of field. Keep out what a publisher's fields mean.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from typing import Any, TypeVar

from collectors.samples import SourceError
from collectors.text_files import lines

# Column of raw.benchmark_results -> value. Throughput and watts are those of the whole system of `accelerators`.
Result = dict[str, Any]
_Value = TypeVar("_Value", str, float)


def objects(path: str, held: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The objects of a list, each with its place for messages."""
    if not isinstance(held, list):
        raise SourceError(path, None, f"is a {type(held).__name__}, expected a list of results")
    for place, row in enumerate(held):
        if not isinstance(row, dict):
            raise SourceError(path, None, f"[{place}] is a {type(row).__name__}, expected an object")
        yield f"{path}[{place}]", row


def csv_rows(path: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The rows of a CSV file by column name, each with its place for messages."""
    held = lines(path)
    try:
        header = next(csv.reader([next(held, (0, b""))[1].decode("utf-8-sig")]), [])
        for line_number, line in held:
            cells = next(csv.reader(io.StringIO(line.decode("utf-8")), strict=True), [])
            if len(cells) != len(header):
                raise SourceError(path, None, f"line {line_number} has {len(cells)} columns, the header {len(header)}")
            yield f"{path}:{line_number}", dict(zip(header, cells, strict=True))
    except (csv.Error, UnicodeDecodeError) as error:
        raise SourceError(path, None, f"is not CSV: {error}") from error


def plain(name: str) -> str:
    """A column name without units in brackets, in small letters."""
    return re.sub(r"\(.*?\)|\[.*?\]", "", name).strip().lower()


def text(where: str, row: Mapping[str, Any], name: str) -> str | None:
    """A field as text; None where it is missing or empty."""
    value = row.get(name)
    return None if value in (None, "") else str(value)


def needed_text(where: str, row: Mapping[str, Any], name: str) -> str:
    """A field as text; SourceError where it is missing."""
    return needed(where, row, name, text(where, row, name))


def needed_number(where: str, row: Mapping[str, Any], name: str) -> float:
    """A field as a number; SourceError where it is missing."""
    return needed(where, row, name, number(where, row, name))


def needed(where: str, row: Mapping[str, Any], name: str, value: _Value | None) -> _Value:
    """The value of a field; SourceError names the fields that there are, where it is None."""
    if value is None:
        raise SourceError(where, None, f"{name}: missing; there are {', '.join(map(str, row))}"[:500])
    return value


def number(where: str, row: Mapping[str, Any], name: str) -> float | None:
    """A field as a number, 0 or more; None where it is missing, SourceError where it is anything else."""
    value = row.get(name)
    if value in (None, "", "N/A", "-"):
        return None
    try:
        found = float(str(value).replace(",", "")) if not isinstance(value, bool) else math.nan
    except ValueError:
        found = math.nan
    if not 0 <= found < math.inf:
        raise SourceError(where, None, f"{name}: got {value!r}, expected a number, 0 or more"[:500])
    return found


def day(where: str, row: Mapping[str, Any], name: str) -> date | None:
    """The date at the beginning of a field, written 2026-05-18 or 20260518-134502; None where it is missing."""
    value = text(where, row, name)
    if value is None:
        return None
    digits = value.replace("-", "")[:8]
    try:
        return datetime.strptime(digits, "%Y%m%d").replace(tzinfo=UTC).date()
    except ValueError as error:
        raise SourceError(where, None, f"{name}: got {value!r}, expected a date such as 2026-05-18"[:500]) from error


def per_second(milliseconds: float | None) -> float | None:
    """How many a second, where each takes these milliseconds; None for 0."""
    return 1000 / milliseconds if milliseconds else None


def seconds(milliseconds: float | None) -> float | None:
    """Milliseconds as seconds."""
    return None if milliseconds is None else milliseconds / 1000
