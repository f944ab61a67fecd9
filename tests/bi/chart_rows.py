"""One form for the answers of Superset, PostgreSQL and DuckDB, so that their rows can be compared.

Add here what another program writes otherwise. Keep out what a chart should return: that is `answers`.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time
from decimal import Decimal
from math import isclose
from typing import Any

# A right value may differ in its last digits: one database adds and divides decimals, the other doubles.
DIGITS = 9


def plain(value: Any) -> Any:
    """A value as all three programs can give it: dates and times as ISO in UTC, numbers as floats."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
    if isinstance(value, date):
        return datetime.combine(value, time(), UTC).isoformat()
    if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", value):  # a date that a bar chart takes for a name
        return plain(date.fromisoformat(value))
    return float(value) if isinstance(value, int | float | Decimal) else value


def sorted_rows(rows: list[tuple]) -> list[tuple[str, list[float]]]:
    """Each row as its words and its numbers, in an order that all programs share."""
    split = []
    for row in rows:
        values = [plain(value) for value in row]
        words = [None if isinstance(value, float) else value for value in values]
        split.append((repr(words), [value for value in values if isinstance(value, float)]))
    return sorted(split)


def is_same(found: list[tuple], expected: list[tuple]) -> bool:
    """Whether two answers have the same rows in any order, numbers to DIGITS digits."""
    ours, theirs = sorted_rows(found), sorted_rows(expected)
    return len(ours) == len(theirs) and all(
        words == other_words
        and len(numbers) == len(other_numbers)
        and all(isclose(one, other, rel_tol=10**-DIGITS) for one, other in zip(numbers, other_numbers, strict=True))
        for (words, numbers), (other_words, other_numbers) in zip(ours, theirs, strict=True)
    )


def labels_of(query: dict[str, Any]) -> list[str]:
    return [one["label"] if isinstance(one, dict) else one for one in query["columns"]]


def is_pivoted(query: dict[str, Any]) -> bool:
    """Whether the second name of each row has become a column."""
    return len(query["columns"]) == 2 and any(one["operation"] == "pivot" for one in query.get("post_processing") or [])


def rows_of(query: dict[str, Any], result: dict[str, Any]) -> list[tuple]:
    """The rows of a chart's answer: its columns, then its metrics. A pivot is undone; its empty cells are no rows."""
    columns, metrics = labels_of(query), query.get("metrics") or []
    timed = {name for name, kind in zip(result["colnames"], result["coltypes"], strict=True) if kind == 2}
    found = [
        {name: instant(value) if name in timed and value is not None else value for name, value in row.items()}
        for row in result["data"]
    ]
    if not is_pivoted(query):
        return [tuple(row[name] for name in [*columns, *metrics]) for row in found]
    (x, _) = columns
    return [(row[x], name, value) for row in found for name, value in row.items() if name != x and value is not None]


def instant(value: Any) -> datetime:
    """Superset gives milliseconds since 1970."""
    return (
        datetime.fromtimestamp(value / 1000, UTC) if isinstance(value, int | float) else datetime.fromisoformat(value)
    )
