"""What `UnknownServer` answers, of series that are at hand: of a metrics page, or of the newest files of a spool.

Add here what both know. Keep out how the series were read: that is `unknown_page` and `unknown_spool`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from statistics import median
from typing import NamedTuple

from collectors.probes.unknown_server import Product, usual_seconds


class Observed(NamedTuple):
    """A series with its first and last sample, in microseconds since the epoch, and the number of its samples. Of one
    that was read in parts, `shortest_us` is the shortest mean interval of a part: the others may have gaps."""

    metric: str
    labels: Mapping[str, str]
    first_us: int
    last_us: int
    samples: int
    shortest_us: float | None = None

    @property
    def interval_us(self) -> float | None:
        """Between two of its samples; None where it has one moment."""
        if self.shortest_us is not None:
            return self.shortest_us
        return (self.last_us - self.first_us) / (self.samples - 1) if self.last_us > self.first_us else None


@dataclass(frozen=True)
class ObservedSeries:
    """Series that were read at a URL, of a kind of place. `unknown` are names of which only the number of series was
    kept; `since_days` is since how many whole days there are samples, None where there is no history."""

    url: str
    at: datetime
    kind: str
    observed: Sequence[Observed]
    unknown: Mapping[str, int] = field(default_factory=dict)
    since_days: int | None = None

    @cached_property
    def _by_metric(self) -> dict[str, list[Observed]]:
        found: dict[str, list[Observed]] = {}
        for one in self.observed:
            found.setdefault(one.metric, []).append(one)
        return found

    def names(self) -> list[str]:
        """The names of all metrics."""
        return sorted({*self._by_metric, *self.unknown})

    def series(self, metric: str) -> list[dict[str, str]]:
        """The labels of the series of one metric."""
        return [dict(one.labels) for one in self._by_metric.get(metric, ())]

    def count(self, metric: str) -> int:
        """The number of series of one metric."""
        return len(self._by_metric.get(metric, ())) or self.unknown.get(metric, 0)

    def interval_seconds(self, metric: str) -> float | None:
        """The seconds between two samples, by the median of the series; None where none has two."""
        found = [one.interval_us / 1e6 for one in self._by_metric.get(metric, ()) if one.interval_us is not None]
        # A look is late by some milliseconds now and then.
        return usual_seconds(0.97 * median(found), 1.03 * median(found)) or median(found) if found else None

    def newest_at(self, metric: str) -> datetime | None:
        """The time of the newest sample of a metric."""
        newest = max((one.last_us for one in self._by_metric.get(metric, ())), default=None)
        return None if newest is None else datetime.fromtimestamp(newest / 1e6, UTC)

    def product(self) -> Product:
        """What was read."""
        return Product(self.kind, None, None)

    def clock_seconds(self) -> float | None:
        """None: what is at hand has no clock."""
        return None

    def oldest_days(self, _metric: str) -> int | None:
        """How many whole dates back there are samples; None where there is no history."""
        return self.since_days
