"""The types that all collectors share: window, family, batch, and the error of a source that cannot be read.

Add here what passes between collectors and landing. Keep out anything about one kind of source.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Literal, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import numpy as np
import pyarrow as pa

OBSERVED_AT = pa.timestamp("us", tz="UTC")
SAMPLE_SCHEMA = pa.schema([("series_id", pa.int64()), ("observed_at", OBSERVED_AT), ("value", pa.float64())])

# DCGM writes its blanks as 9223372036854775792…795: anything from here on is a sentinel, not a measurement.
SENTINEL_FROM = 9.2e18

# PROM_TOKEN, HOME and PROM_2 are names; AKIAIOSFODNN7EXAMPLE, an access key, is none.
_USUAL_VARIABLE = re.compile(r"(?=.{1,40}$)[A-Z]+(_[A-Z0-9]+)*")
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


def url_without_secrets(url: str) -> str:
    """The URL for logs: without user info, query and fragment, which may contain passwords and tokens."""
    if url.startswith(("/", ".")):
        return url  # a file's path, in which these characters mean nothing
    try:
        parts = urlsplit(url)
        if not parts.netloc:
            return urlunsplit((parts.scheme, "", parts.path.rpartition("@")[2], "", ""))
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    except ValueError:
        return "<unreadable url>"


def printable(text: str) -> str:
    """Text of a server or a file as a terminal may show it: what is not printable becomes an escape such as \\x1b.

    A control character could move the cursor, recolour or rewrite what a person reads.
    """
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape", "backslashreplace").decode("ascii") for one in text
    )


def shown_variable(name: str) -> str:
    """The name of an environment variable as a message may show it, or a placeholder, as it may be a secret.

    Only what is spelled as variables usually are is shown: capitals, with underscores between them.
    """
    return name if _USUAL_VARIABLE.fullmatch(name) else "(its name is not shown, it may be a secret)"


class SourceError(Exception):
    """A source that is unreachable, refuses, or sends an invalid answer.

    `url` carries no secret, `status` is the HTTP status if there was one, `reason` is for whoever reads the audit. Both
    texts are printable, whatever the source wrote into them.
    """

    def __init__(self, url: str, status: int | None, reason: str) -> None:
        self.url = printable(url_without_secrets(url))
        self.status = status
        self.reason = reason = printable(reason)
        super().__init__(f"{self.url}: {reason}" if status is None else f"{self.url}: HTTP {status}: {reason}")


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
