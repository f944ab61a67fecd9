"""A source whose clock is wrong: it is asked by its own times, and its samples get the true ones.

Add here what of a collector depends on the source's clock. Keep out how sources are read (`protocols`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from collectors.samples import OBSERVED_AT, SAMPLE_SCHEMA, Batch, Window

if TYPE_CHECKING:
    from collectors.collector import Collector
    from collectors.samples import Family
    from collectors.series import SeriesRegister


class CorrectedClock:
    """The collector of a source whose clock is ahead by `offset_seconds`, behind where that is negative."""

    def __init__(self, collector: Collector, offset_seconds: float) -> None:
        self.source = collector.source
        self._collector = collector
        self._offset = timedelta(seconds=offset_seconds)

    def collect(self, window: Window, families: Mapping[str, Family], register: SeriesRegister) -> Iterator[Batch]:
        """The samples of the window by true time."""
        register.clock_offset_us = self._offset // timedelta(microseconds=1)
        for stream, samples in self._collector.collect(self._stamped(window), families, register):
            times = samples.column(1).cast(pa.int64()).to_numpy() - register.clock_offset_us
            columns = [samples.column(0), pa.array(times).view(OBSERVED_AT), samples.column(2)]
            yield Batch(stream, pa.RecordBatch.from_arrays(columns, schema=SAMPLE_SCHEMA))

    def __getattr__(self, name: str) -> Any:
        """What else the collector has; a window that it is asked for is one of its own times."""
        found = getattr(self._collector, name)
        if name not in ("check", "counted"):
            return found
        return lambda window, *rest: found(self._stamped(window), *rest)

    def _stamped(self, window: Window) -> Window:
        return Window(window.start_at + self._offset, window.end_at + self._offset)
