"""What a source may cost, and how much of it may be unreadable, as the fleet file states it.

Add a limit here when reading a source could take more than a machine has. Keep out its value where none is stated:
`collectors.limits`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from collectors.limits import DEFAULTS
from collectors.rows import BAD_ROWS_RATIO
from pipelines.fleet.values import Count, Part, Positive


class SeriesLimit(Part):
    """What a window of any source may cost: distinct series."""

    series: Count = DEFAULTS.series


class RowLimits(Part):
    """Which part of the rows of a source's files may be unreadable before the source fails."""

    bad_rows_ratio: Annotated[float, Field(ge=0, le=1)] = BAD_ROWS_RATIO


class FileLimits(SeriesLimit, RowLimits):
    """What a window of files may cost, and how much of it may be unreadable."""


class StoreLimits(SeriesLimit):
    """What a spool may cost: series, and where a server holds it, seconds for the answer to one request."""

    answer_seconds: Annotated[float, Field(strict=True, gt=0, le=604_800)] = DEFAULTS.answer_seconds


class ServerLimits(SeriesLimit):
    """What a server's answers may cost: bytes after decompression, and seconds (see collectors.limits)."""

    answer_bytes: Count = DEFAULTS.answer_bytes
    answer_seconds: Positive = DEFAULTS.answer_seconds
    window_bytes: Count = DEFAULTS.window_bytes
    window_seconds: Positive = DEFAULTS.window_seconds

    @model_validator(mode="after")
    def _answer_within_window(self) -> ServerLimits:
        for unit in ("bytes", "seconds"):
            answer, window = getattr(self, f"answer_{unit}"), getattr(self, f"window_{unit}")
            if answer > window:
                raise ValueError(f"answer_{unit}: got {answer:g}, expected at most window_{unit}, which is {window:g}")
        return self
