"""From when to when files reach: their own times, and whether power and tokens were measured at the same time at all.

Add here what compares spans. Keep out what a file's times look like (`formats.found_columns`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import numpy as np
import pyarrow as pa

from collectors import cells
from collectors.cells import NO_TIME, TimeForm

# Zones differ by quarters of an hour.
_ZONE_STEP = timedelta(minutes=15)
_MOST_OF_A_ZONE = timedelta(hours=14)


@dataclass(frozen=True)
class Span:
    """Two moments, and whose they are."""

    name: str
    first_at: datetime
    last_at: datetime

    def __str__(self) -> str:
        return f"{self.name} from {_shown(self.first_at)} to {_shown(self.last_at)}"


def disjoint(power: Sequence[Span], tokens: Sequence[Span]) -> str | None:
    """Why no power can be tokens' power: none of the spans overlap. None where one does, or a side has none. Half an
    hour apart is not yet seen as a wrong zone: the message has how far they are, and what that may be."""
    if not power or not tokens or any(_overlap(a, b) for a in power for b in tokens):
        return None
    one, other = min(((a, b) for a in power for b in tokens), key=lambda pair: _gap(*pair))
    text = f"power and tokens were not measured at the same time: {one}, {other}"
    shift = other.first_at - one.first_at
    if abs(shift) <= _MOST_OF_A_ZONE + _ZONE_STEP and _near_a_zone(shift):
        hours = round(shift / _ZONE_STEP) * _ZONE_STEP / timedelta(hours=1)
        text += f". They begin {abs(hours):g} h apart: one may be of a clock in another zone; state its time_zone"
    return text


def _overlap(a: Span, b: Span) -> bool:
    return a.first_at <= b.last_at and b.first_at <= a.last_at


def _gap(a: Span, b: Span) -> timedelta:
    return max(a.first_at - b.last_at, b.first_at - a.last_at)


def _near_a_zone(shift: timedelta) -> bool:
    step = round(shift / _ZONE_STEP) * _ZONE_STEP
    return abs(step) >= timedelta(minutes=30) and abs(shift - step) <= timedelta(minutes=5)


def moments(texts: Iterable[str], form: TimeForm) -> list[datetime]:
    """The times among these texts, sorted."""
    column = pa.array(list(texts), pa.string())
    found = cells.times_us(column, form) if len(column) else np.array([], np.int64)
    return [datetime.fromtimestamp(us / 1e6, UTC) for us in sorted({int(us) for us in found if us != NO_TIME})]


def usual_step_seconds(times: Sequence[datetime]) -> float | None:
    """The median distance of successive times, in the precision in which people state one."""
    if len(times) < 2:
        return None
    steps = sorted((b - a).total_seconds() for a, b in pairwise(times))
    step = steps[len(steps) // 2]
    return round(step) if step >= 2 else float(f"{step:.2g}")


def _shown(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
