"""Rows of a reader's query as a table, CSV or JSON.

Add here a format, or how a type is written in one. Keep out which database is read, and what a query may do
(`pipelines.command_line.sql_command`). Names in the marts come from servers and files: a terminal, a spreadsheet and a
web page must be safe from them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

from collectors.samples import printable
from pipelines.command_line.text_tables import MISSING, aligned
from pipelines.publishing.spreadsheet_cells import harmless

Row = Sequence[Any]
# Longer cells of a table are cut, with an ellipsis; CSV and JSON have them whole.
CELL_CHARACTERS = 80


def as_table(names: Sequence[str], rows: Iterable[Row], limit: int) -> Iterator[str]:
    """Lines of a table with at most `limit` rows (0: all), and how many more there are. Unknown values are –."""
    shown: list[Row] = []
    more = 0
    for row in rows:
        if limit and len(shown) == limit:
            more += 1
        else:
            shown.append(row)
    numbers = [_is_numeric(column) for column in zip(*shown, strict=True)] or [False] * len(names)
    yield from aligned(
        [[_cut(printable(name)) for name in names], *([_shown(value) for value in row] for row in shown)],
        [not is_number for is_number in numbers],
    )
    if more:
        yield f"… and {more:,} more rows (--limit 0 prints all; --format csv and json have them)"
    elif not shown:
        yield "no rows"


def as_csv(names: Sequence[str], rows: Iterable[Row], *, is_raw: bool = False) -> Iterator[str]:
    """Lines of a CSV file with a heading (RFC 4180; unknown values are empty cells, an empty text is "").

    A text that a spreadsheet would run gets an apostrophe in front (`spreadsheet_cells`), unless `is_raw`.
    """
    yield ",".join(_csv_cell(name, is_raw) for name in names)
    for row in rows:
        yield ",".join(_csv_cell(value, is_raw) for value in row)


def as_json(names: Sequence[str], rows: Iterable[Row]) -> Iterator[str]:
    """Lines of a JSON array with one object per row. Decimals are numbers with all their digits, times ISO 8601 in UTC,
    unknown values null."""
    keys = [_json(name) for name in _unique(names)]
    objects = (
        "  {" + ", ".join(f"{key}: {_json(value)}" for key, value in zip(keys, row, strict=True)) + "}" for row in rows
    )
    line = next(objects, None)
    yield "["
    for following in objects:
        yield f"{line},"
        line = following
    if line is not None:
        yield line
    yield "]"


def plain(value: Any) -> str:
    """A known value as text: times as ISO 8601 in UTC, decimals in full and never as a power of ten."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    return _json(value) if isinstance(value, list | tuple | dict) else str(value)


def _shown(value: Any) -> str:
    if value is None:
        return MISSING
    text = plain(value)
    if isinstance(value, Decimal) and "." in text:
        text = text.rstrip("0").rstrip(".")
    return _cut(printable(text))


def _cut(text: str) -> str:
    return text if len(text) <= CELL_CHARACTERS else text[: CELL_CHARACTERS - 1] + "…"


def _is_numeric(column: Row) -> bool:
    known = [value for value in column if value is not None]
    return bool(known) and all(isinstance(value, int | float | Decimal) for value in known)


def _csv_cell(value: Any, is_raw: bool) -> str:
    if value is None:
        return ""
    text = plain(value)
    if isinstance(value, int | float | Decimal | date | time):
        return text
    if not is_raw:
        text = harmless(text)
    return '"' + text.replace('"', '""') + '"' if not text or any(one in text for one in ',"\r\n') else text


def _json(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, float) and not math.isfinite(value):
        return f'"{value}"'  # JSON has no number for it, and null would mean unknown
    if isinstance(value, bool | int | float | Decimal):
        return plain(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_json, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_json(str(key))}: {_json(of_key)}' for key, of_key in value.items())}}}"
    text = plain(value)
    # What is not printable (a control character, a change of direction) is written as an escape.
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _unique(names: Sequence[str]) -> list[str]:
    """The same names, numbered where one occurs again: an object has each key once."""
    found: list[str] = []
    for name in names:
        count = 1
        fresh = name
        while fresh in found:
            count += 1
            fresh = f"{name}_{count}"
        found.append(fresh)
    return found
