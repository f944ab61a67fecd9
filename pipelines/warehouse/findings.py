"""The report of a failed check: each row with its key and its value with unit, then what was expected and what to do.

All our checks report their rows this way. Column names carry units, so a row is its columns' names and values. Keep
out what is checked: that is in the checks themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

SHOWN = 5


def report(lines: Sequence[str], total: int, expected: str, remedy: str) -> str:
    """How many rows there are in all, the first lines, and, where known, what was expected and what to do."""
    shown = [f"{total:,} {'row' if total == 1 else 'rows'}", *(f"  {line}" for line in lines[:SHOWN])]
    if total > len(lines[:SHOWN]):
        shown.append(f"  … and {total - len(lines[:SHOWN]):,} more")
    if expected:
        shown.append(f"  Expected: {expected}")
    if remedy:
        shown.append(f"  What to do: {remedy}")
    return "\n".join(shown)


def row(names: Iterable[str], values: Iterable[Any]) -> str:
    """One row: `date 2026-10-07, meter GPU-1, cross_check_ratio 0.062`; NULLs are left out."""
    pairs = [(name, value) for name, value in zip(names, values, strict=True) if value is not None]
    return ", ".join(f"{name} {_value(value)}" for name, value in pairs)


def markdown(names: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    """Rows as a Markdown table, as the Dagster UI shows it."""
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in [names, ["---"] * len(names), *rows])


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float | Decimal):
        return f"{float(value):,.6g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="seconds")
    return str(value)
