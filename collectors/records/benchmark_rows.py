"""Rows of published results and their fields, read with a message that names the file, the row and the field.

Add a shape in which publishers list results, or a kind of field. Keep out what a publisher's fields mean.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import Any, TypeVar

from collectors.cells import shown
from collectors.rows import REASON_CHARACTERS, Reject, Rejects, number_of
from collectors.samples import END_US, FIRST_US, SourceError, microseconds
from collectors.text_files import csv_rows

# Column of raw.benchmark_results -> value. Throughput and watts are those of the whole system of `accelerators`.
Result = dict[str, Any]
_Value = TypeVar("_Value", str, float)
TEXT_CHARACTERS = 1_000
# Far above any count, rate or time of a system; what is made of two such numbers is finite.
MOST = 1e15
_THOUSANDS = re.compile(r"[0-9]{1,3}(,[0-9]{3})+(\.[0-9]*)?")


def objects(path: str, held: Any) -> Iterator[tuple[str, Any]]:
    """The rows of a list, each with its place for messages. SourceError where there is none."""
    if not isinstance(held, list):
        raise SourceError(path, None, f"is a {type(held).__name__}, expected a list of results")
    return ((f"{path}[{place}]", row) for place, row in enumerate(held))


def csv_results(path: str, rejects: Rejects) -> Iterator[tuple[str, dict[str, str]]]:
    """The rows of a CSV file by column name, each with its place for messages. One that lacks cells is a reject."""
    columns, rows = csv_rows(path, rejects)
    for place, row in rows:
        if len(row) < len(columns):
            rejects.add(place, f"has {len(row)} cells, the header {len(columns)}")
        else:
            yield place, row


def plain(name: str) -> str:
    """A column name without units in brackets, in small letters."""
    return re.sub(r"\(.*?\)|\[.*?\]", "", name).strip().lower()


def text(row: Mapping[str, Any], name: str) -> str | None:
    """A field as text; None where it is missing or empty, Reject where it is a list, an object or too long."""
    value = row.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, list | dict) or len(spelled := str(value)) > TEXT_CHARACTERS:
        raise Reject(f"{name}: got {shown(value)}, expected a text of at most {TEXT_CHARACTERS:,} characters")
    return spelled


def joined(row: Mapping[str, Any], *names: str) -> str:
    """Fields as one text with slashes between them."""
    return "/".join(str(text(row, name)) for name in names)


def needed_text(row: Mapping[str, Any], name: str) -> str:
    """A field as text; Reject where it is missing."""
    return needed(row, name, text(row, name))


def needed_number(row: Mapping[str, Any], name: str) -> float:
    """A field as a number; Reject where it is missing."""
    return needed(row, name, number(row, name))


def needed(row: Mapping[str, Any], name: str, value: _Value | None) -> _Value:
    """The value of a field; Reject names the fields that there are, where it is None."""
    if value is None:
        raise Reject(f"{name}: missing; there are {', '.join(map(str, row))}"[:REASON_CHARACTERS])
    return value


def number(row: Mapping[str, Any], name: str) -> float | None:
    """A field as a number, 0 to MOST; None where it is missing, Reject where it is anything else."""
    value = row.get(name)
    if value is None or (isinstance(value, str) and value in ("", "N/A", "-")):
        return None
    found = math.nan
    if isinstance(value, str):
        with suppress(ValueError):
            found = number_of(value.replace(",", "") if _THOUSANDS.fullmatch(value) else value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        found = value
    return in_range(name, found, value)


def in_range(name: str, found: float, value: Any) -> float:
    """The number that was made of a value; Reject where it is not 0 to MOST."""
    if not 0 <= found <= MOST:
        raise Reject(f"{name}: got {shown(value)}, expected a number, 0 to {MOST:g}")
    return float(found)


def day(row: Mapping[str, Any], name: str) -> date | None:
    """The date at the beginning of a field, written 2026-05-18 or 20260518-134502; None where it is missing."""
    value = text(row, name)
    if value is None:
        return None
    try:
        found = datetime.strptime(value.replace("-", "")[:8], "%Y%m%d").replace(tzinfo=UTC)
        if FIRST_US <= microseconds(found) < END_US:
            return found.date()
    except ValueError:
        pass
    raise Reject(f"{name}: got {shown(value)}, expected a date such as 2026-05-18")


def per_second(milliseconds: float | None) -> float | None:
    """How many a second, where each takes these milliseconds; None for 0."""
    return 1000 / milliseconds if milliseconds else None


def seconds(milliseconds: float | None) -> float | None:
    """Milliseconds as seconds."""
    return None if milliseconds is None else milliseconds / 1000
