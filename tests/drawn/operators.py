"""Operators: what monitoring does to samples and labels, without knowing which cluster, board or engine they are of.

Add here an operator as a function of one series and of the samples that it acts on. Keep out on which series it acts
and whether a second account remains (`operated`), and what a world retells rightly (`retellings`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

# metric, labels, Unix seconds, values
Series = tuple[str, dict[str, str], np.ndarray, np.ndarray]
# A series with the one that it came of: its metric and labels without the name of its cell.
Keyed = tuple[str, Series]

NEW_LABELS = ("replica", "shard", "job")
LATE_SECONDS = 0.001  # between samples that arrive together


@dataclass(frozen=True)
class Operator:
    """What is done to the chosen series from one Unix second to another."""

    kind: str
    chosen: frozenset[str]
    start: float
    end: float
    amount: float = 0.0  # seconds, parts, processes or a factor, by kind
    label: str = ""

    def applied(self, series: Sequence[Keyed]) -> list[Keyed]:
        """All series, the chosen ones changed."""
        if self.kind in SUMS:
            return list(_sums(self, series))
        return [
            (key, shown)
            for key, one in series
            for shown in (SAMPLES[self.kind](self, one) if key in self.chosen else (one,))
            if len(shown[2])
        ]

    def acts_at(self, at: np.ndarray) -> np.ndarray:
        """Which of these moments it acts at."""
        return (at >= self.start) & (at < self.end)

    def metrics(self) -> list[str]:
        """The metrics that it acts on."""
        return sorted({key.partition("{")[0] for key in self.chosen})

    def __str__(self) -> str:
        first, last = (datetime.fromtimestamp(one, UTC).strftime("%H:%M") for one in (self.start, self.end))
        details = [f"{self.amount:g}"] * bool(self.amount) + [self.label] * bool(self.label)
        count = f" ({len(self.chosen)} series)" if len(self.chosen) > 1 else ""
        return f"{' '.join([self.kind, *details])} of {', '.join(self.metrics())}{count} from {first} to {last}"


def _values(change: Callable[[Operator, np.ndarray, np.ndarray], np.ndarray]) -> Callable[..., Iterator[Series]]:
    """An operator on the values of the samples in its time."""

    def shown(operator: Operator, one: Series) -> Iterator[Series]:
        metric, labels, at, values = one
        inside = operator.acts_at(at)
        changed = values.astype(float)
        if inside.any():
            changed[inside] = change(operator, at[inside], changed[inside])
        yield metric, labels, at, changed

    return shown


def is_counter(values: np.ndarray) -> bool:
    """Whether the samples only count up."""
    return len(values) > 1 and bool((np.diff(values) >= 0).all()) and values[-1] > values[0]


def _round(operator: Operator, at: np.ndarray, values: np.ndarray) -> np.ndarray:
    step = (values.max() - values.min()) / operator.amount
    return np.floor(values / step) * step if step else values


def _delta(operator: Operator, at: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.diff(values, prepend=values[:1]) if is_counter(values) else values


def _interleave(operator: Operator, at: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Each of the processes has a part of what is counted, and had counted otherwise before."""
    processes = int(operator.amount)
    if not is_counter(values):
        return values
    which = np.arange(len(values)) % processes
    parts = 2 * (which + 1) / (processes * (processes + 1))
    return parts * values + (values[-1] - values[0]) * 7.0**which


def _restart(operator: Operator, one: Series) -> Iterator[Series]:
    """A counter begins anew just after its last sample before the start, so that nothing of it is unseen."""
    metric, labels, at, values = one
    later = at >= operator.start
    if is_counter(values) and not later.all():
        values = values - np.where(later, values[~later][-1], 0.0)
    yield metric, labels, at, values


def _hold(operator: Operator, one: Series) -> Iterator[Series]:
    """The last value before the start is repeated until the end, where the series ended before, too."""
    metric, labels, at, values = one
    before = at < operator.start
    if not before.any():
        yield one
        return
    step = float(np.median(np.diff(at))) if len(at) > 1 else 60.0
    held = np.arange(at[before][-1] + step, operator.end, step)
    yield metric, labels, np.append(at[before], held), np.append(values[before], np.full(len(held), values[before][-1]))


def _shift(operator: Operator, one: Series) -> Iterator[Series]:
    metric, labels, at, values = one
    stamped = at + np.where(operator.acts_at(at), operator.amount, 0.0)
    order = np.argsort(stamped, kind="stable")
    yield metric, labels, stamped[order], values[order]


def _late(operator: Operator, one: Series) -> Iterator[Series]:
    """The samples arrive together at the end, and are stamped then."""
    metric, labels, at, values = one
    inside = operator.acts_at(at)
    arrived = operator.end + LATE_SECONDS * (np.arange(inside.sum()) - inside.sum())
    stamped = at.copy()
    stamped[inside] = arrived
    yield metric, labels, stamped, values


def _kept(kept: Callable[[Operator, np.ndarray], np.ndarray]) -> Callable[..., Iterator[Series]]:
    """An operator that loses samples in its time."""

    def shown(operator: Operator, one: Series) -> Iterator[Series]:
        metric, labels, at, values = one
        chosen = ~operator.acts_at(at) | kept(operator, at)
        yield metric, labels, at[chosen], values[chosen]

    return shown


def _copy(operator: Operator, one: Series) -> Iterator[Series]:
    metric, labels, at, values = one
    inside = operator.acts_at(at)
    yield one
    yield metric, {**labels, operator.label: "second"}, at[inside], values[inside]


def _renamed(name: Callable[[Operator, str, dict[str, str]], tuple[str, dict[str, str]]]) -> Callable[..., object]:
    """An operator that gives the samples in its time another metric or other labels."""

    def shown(operator: Operator, one: Series) -> Iterator[Series]:
        metric, labels, at, values = one
        inside = operator.acts_at(at)
        yield metric, labels, at[~inside], values[~inside]
        yield *name(operator, metric, labels), at[inside], values[inside]

    return shown


def _other_label(operator: Operator, metric: str, labels: dict[str, str]) -> tuple[str, dict[str, str]]:
    return metric, {f"label_{name}" if name == operator.label else name: text for name, text in labels.items()}


def _other_value(operator: Operator, metric: str, labels: dict[str, str]) -> tuple[str, dict[str, str]]:
    return metric, {name: f"{text}-b" if name == operator.label else text for name, text in labels.items()}


def _split(operator: Operator, one: Series) -> Iterator[Series]:
    """Every second sample has another value of the label."""
    metric, labels, at, values = one
    other = operator.acts_at(at) & (np.arange(len(at)) % 2 == 1)
    yield metric, labels, at[~other], values[~other]
    yield *_other_value(operator, metric, labels), at[other], values[other]


def _sums(operator: Operator, series: Sequence[Keyed]) -> Iterator[Keyed]:
    """Series that differ in one label are added up; of the sum's parts only what is out of its time remains."""
    groups: dict[tuple[str, str], list[Keyed]] = defaultdict(list)
    for key, one in series:
        metric, labels, at, values = one
        if key not in operator.chosen or operator.label not in labels:
            yield key, one
            continue
        rest = {name: text for name, text in labels.items() if name != operator.label}
        groups[metric, str(sorted(rest.items()))].append((key, one))
        left = ~operator.acts_at(at) if operator.kind == "sum and drop" else np.full(len(at), True)
        if left.any():
            yield key, (metric, labels, at[left], values[left])
    for parts in groups.values():
        key, (metric, labels, *_) = parts[0]
        sums: dict[float, float] = defaultdict(float)
        for _, (_, _, at, values) in parts:
            inside = operator.acts_at(at)
            for moment, value in zip(at[inside].tolist(), values[inside].tolist(), strict=True):
                sums[moment] += value
        rest = {name: text for name, text in labels.items() if name != operator.label}
        if sums:
            yield key, (metric, rest, np.array(sorted(sums)), np.array([sums[one] for one in sorted(sums)]))


SAMPLES: Mapping[str, Callable[..., Iterator[Series]]] = {
    "freeze": _values(lambda operator, at, values: np.full(len(values), values[0])),
    "zero": _values(lambda operator, at, values: np.zeros(len(values))),
    "hold": _hold,
    "round": _values(_round),
    "shift": _shift,
    "step": _kept(lambda operator, at: np.arange(len(at)) % int(operator.amount) == 0),
    "drop": _kept(lambda operator, at: np.full(len(at), False)),
    "restart": _restart,
    "interleave": _values(_interleave),
    "copy": _copy,
    "rename metric": _renamed(lambda operator, metric, labels: (f"{metric}_v2", labels)),
    "rename label": _renamed(_other_label),
    "split": _split,
    "move": _renamed(_other_value),
    "late": _late,
    "delta": _values(_delta),
    "rescale": _values(lambda operator, at, values: values * operator.amount),
}
SUMS = ("sum and keep", "sum and drop")
KINDS = (*SAMPLES, *SUMS)
# Kind -> the amounts that are drawn.
AMOUNTS: Mapping[str, tuple[float, ...]] = {
    "round": (10, 100),
    "shift": (-1200, -300, 300, 1200),
    "step": (4, 10),
    "interleave": (2, 3),
    "rescale": (0.001, 0.5, 2, 1000),
}
OTHER_NAMES = ("split", "move")
OF_LABELS = ("rename label", *OTHER_NAMES, *SUMS)
# What leaves the account of a series as it was: all of it is there as well, or a fall shows where it began anew.
LEAVES_ITS_ACCOUNT = ("copy", "restart")
