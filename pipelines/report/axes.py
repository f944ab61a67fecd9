"""Axes of a chart: where a value is, and which round values are marked.

Add here a kind of axis. Keep out what is drawn between them: that is `charts`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

WIDE_RANGE = 40  # highest over lowest value: from here on equal steps would flatten the small ones
STEPS = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True)
class Axis:
    """Values from `low` to `high` between the pixels `start` and `end`; `ticks` are marked, with their text."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[tuple[float, str], ...]
    is_log: bool = False

    def place(self, value: float) -> float:
        """The pixel of a value."""
        if self.is_log:
            share = (math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def holds(self, value: float | None) -> bool:
        """Whether a value can be drawn: a logarithm has no zero."""
        return value is not None and math.isfinite(value) and (value > 0 or not self.is_log)


def numeric(values: Iterable[float], start: float, end: float, *, may_be_log: bool = True, ticks: int = 4) -> Axis:
    """An axis over the values: from 0, or in equal ratios where they differ by more than WIDE_RANGE. It ends at a
    mark."""
    found = [value for value in values if math.isfinite(value)]
    positive = [value for value in found if value > 0]
    if may_be_log and positive and max(positive) / min(positive) > WIDE_RANGE:
        return _logarithmic(min(positive), max(positive), start, end, ticks)
    high = max([*found, 0]) or 1.0
    low = min([*found, 0])
    step = _step((high - low) / ticks)
    low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    marks = [low + n * step for n in range(round((high - low) / step) + 1)]
    return Axis(low, high, start, end, tuple((mark, short(mark)) for mark in marks))


def _logarithmic(low: float, high: float, start: float, end: float, ticks: int) -> Axis:
    """Its ends are marks: the next ones below the lowest and above the highest value."""
    powers = range(math.floor(math.log10(low)) - 3, math.ceil(math.log10(high)) + 4)
    # The finest marks that are not too many: 1 2 5 10, or 1 3 10, or powers of ten, or every second or third of them.
    for steps, every in (((1, 2, 5), 1), ((1, 3), 1), ((1,), 1), ((1,), 2), ((1,), 3)):
        found = [step * 10.0**power for power in powers[::every] for step in steps]
        first = max(mark for mark in found if mark <= low * (1 + 1e-9))
        last = min(mark for mark in found if mark >= high * (1 - 1e-9))
        marks = [mark for mark in found if first <= mark <= last]
        if len(marks) <= 2 * ticks + 1:
            break
    return Axis(marks[0], marks[-1], start, end, tuple((mark, short(mark)) for mark in marks), is_log=True)


def of_dates(dates: Sequence[date], start: float, end: float, ticks: int = 5) -> Axis:
    """An axis of days; values are ordinals. Its marks are whole weeks or days apart."""
    first, last = min(dates), max(dates)
    days = (last - first).days
    every = next((step for step in (1, 2, 7, 14, 28, 91) if days / step <= ticks), 365)
    marks = [last - timedelta(days=n) for n in range(0, days + 1, every)][::-1]
    low, high = (first.toordinal(), last.toordinal()) if days else (first.toordinal() - 0.5, first.toordinal() + 0.5)
    return Axis(low, high, start, end, tuple((mark.toordinal(), f"{mark:%d %b}") for mark in marks))


def of_times(times: Sequence[datetime], start: float, end: float) -> Axis:
    """An axis of hours; values are seconds since 1970. Each midnight, UTC, is marked."""
    first, last = min(times), max(times)
    midnight = first.replace(hour=0, minute=0)
    marks = [midnight + timedelta(days=n) for n in range((last - midnight).days + 2)]
    low, high = first.timestamp(), max(last.timestamp(), first.timestamp() + 3600)
    shown = tuple((mark.timestamp(), f"{mark:%d %b}") for mark in marks if low <= mark.timestamp() <= high)
    return Axis(low, high, start, end, shown)


def short(value: float) -> str:
    """A tick as text: 1,500 or 0.02 or 2.5 M."""
    size = abs(value)
    for above, unit in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if size >= above:
            return f"{value / {' G': 1e9, ' M': 1e6, ' k': 1e3}[unit]:,.10g}{unit}"
    return f"{value:,.6g}" if size >= 1 or value == 0 else f"{value:.3g}"


def percent(value: float) -> str:
    """A tick of a share."""
    return f"{100 * value:.4g} %"


def with_ticks(axis: Axis, as_text: Callable[[float], str]) -> Axis:
    """The same axis with other text at its marks."""
    return Axis(
        axis.low, axis.high, axis.start, axis.end, tuple((at, as_text(at)) for at, _ in axis.ticks), axis.is_log
    )


def _step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in STEPS if step * power >= least * (1 - 1e-9))
