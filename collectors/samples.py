"""The types that all collectors share: window, family and batch.

Add here what passes between collectors and landing. Keep out anything about one kind of source, and what the agent
needs (`source_errors`, `readings`): it has neither NumPy nor pyarrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from collectors.source_errors import SourceError, printable, shown_variable, url_without_secrets

# What collectors that yield samples raise and show is taken from here too.
__all__ = ["SourceError", "printable", "shown_variable", "url_without_secrets"]

OBSERVED_AT = pa.timestamp("us", tz="UTC")
SAMPLE_SCHEMA = pa.schema([("series_id", pa.int64()), ("observed_at", OBSERVED_AT), ("value", pa.float64())])

# DCGM writes its blanks as 9223372036854775792…795: anything from here on is a sentinel, not a measurement.
SENTINEL_FROM = 9.2e18

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds(at: datetime) -> int:
    """Whole microseconds since the epoch; exact, where `datetime.timestamp()` would round through a float."""
    return (at - _EPOCH) // timedelta(microseconds=1)


# Times [FIRST_US, END_US) are those of this century: any other is in another unit, or of a clock that is not set.
FIRST_US = microseconds(datetime(2000, 1, 1, tzinfo=UTC))
END_US = microseconds(datetime(2100, 1, 1, tzinfo=UTC))


def valid(values: np.ndarray) -> np.ndarray:
    """Which values are measurements: finite, >= 0 and no sentinel. Shape (n,) float64 in, (n,) bool out."""
    return (values >= 0) & (values < SENTINEL_FROM)


@dataclass(frozen=True)
class Window:
    """A half-open stretch of time [start_at, end_at), timezone-aware. ValueError when naive or empty."""

    start_at: datetime
    end_at: datetime

    def __post_init__(self) -> None:
        if self.start_at.tzinfo is None or self.end_at.tzinfo is None:
            raise ValueError(f"a window needs aware times, got {self.start_at} and {self.end_at}")
        if self.start_at >= self.end_at:
            raise ValueError(f"a window ends after it starts, got {self}")

    @classmethod
    def of_day(cls, day: date) -> Window:
        """A UTC day."""
        start_at = datetime.combine(day, time(), UTC)
        return cls(start_at, start_at + timedelta(days=1))

    @property
    def start_us(self) -> int:
        """Microseconds since the epoch of the first instant inside."""
        return microseconds(self.start_at)

    @property
    def end_us(self) -> int:
        """Microseconds since the epoch of the first instant outside."""
        return microseconds(self.end_at)

    def __str__(self) -> str:
        return f"[{self.start_at.astimezone(UTC).isoformat()}, {self.end_at.astimezone(UTC).isoformat()})"


Stream = Literal["power", "tokens"]


@dataclass(frozen=True)
class Family:
    """One metric of the catalogue, as far as a collector may know it. `source_kind` is the exporter. Of a family with a
    `label`, only series that have this label are meant."""

    metric: str
    stream: Stream
    source_kind: str
    label: str | None = None


class Batch(NamedTuple):
    """Samples of SAMPLE_SCHEMA for one raw table: `stream` is "power" or "tokens"."""

    stream: str
    samples: pa.RecordBatch


def sample_batch(series_ids: np.ndarray, observed_us: np.ndarray, values: np.ndarray) -> pa.RecordBatch:
    """One RecordBatch of SAMPLE_SCHEMA from three (n,) arrays: int64 ids, int64 microseconds UTC, float64 values."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array(series_ids, type=pa.int64()),
            pa.array(observed_us, type=pa.int64()).view(OBSERVED_AT),
            pa.array(values, type=pa.float64()),
        ],
        schema=SAMPLE_SCHEMA,
    )
