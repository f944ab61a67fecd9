"""Phrases with numbers in them: a change against an earlier value, a list of things, an amount with its unit.

Add here a phrase that several figures use. Keep out whole sentences: each figure has its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.report.markup import UNKNOWN, number

SAME = 0.0005  # a change below a twentieth of a percent is none


def change(now: Any, before: Any, what: str) -> str:
    """`2.0 % more than the day before`, or that it is unknown. `what` is the day compared with."""
    if now is None or before is None:
        return f"{what} is {UNKNOWN}"
    if before == 0:
        return f"{what} was 0"
    share = (now - before) / abs(before)
    if abs(share) < SAME:
        return f"the same as {what}"
    return f"{percent(abs(share))} {'more' if share > 0 else 'less'} than {what}"


def in_doubt(reasons: str | None) -> str:
    """What follows a sentence whose figures are in doubt; nothing where none is."""
    return f" <b>In doubt</b> by a hundredth or more: {reasons} (marts.doubts has what to do)." if reasons else ""


def percent(share: float) -> str:
    """A share of one in percent, with one digit where it is small."""
    return f"{100 * share:,.0f} %" if abs(share) >= 0.1 else f"{100 * share:,.1f} %"


def amount(value: Any, unit: str, digits: int = 2) -> str:
    """A number with its unit, or `unknown USD`."""
    return f"{number(value, digits)} {unit}"


def total(found: Sequence[Mapping[str, Any]], column: str) -> float | None:
    """The sum of a column over the rows in which it is known; None where it is known in none."""
    known = [row[column] for row in found if row[column] is not None]
    return sum(known) if known else None


def metered(scope: str | None) -> str:
    """Whose energy a meter scope has: `accelerators`, or `servers` where whole nodes are metered."""
    return {"board": "accelerators", "module": "accelerators", "node": "servers"}.get(scope or "", "meters")


def counted(count: int, thing: str, things: str | None = None) -> str:
    """`1 change`, `3 changes`."""
    return f"{count:,} {thing if count == 1 else things or f'{thing}s'}"


def listed(names: Sequence[str]) -> str:
    """`a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
