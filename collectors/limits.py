"""How much one source may cost: bytes, seconds and series of an answer, and of a window.

Add a limit here when a source can use something else without bound. Keep out how a limit is kept: `http_client` counts
bytes and seconds of answers, `series` counts series, and the landing counts the seconds that it waits for a window.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The limits of one source; the fleet file sets them under `limits`.

    `answer_bytes` is for one answer, or one line of a stream, after decompression. `answer_seconds` is for one answer
    from the request to its last byte; of a stream, for every few MiB. `window_bytes` is for all answers of one window,
    `window_seconds` for the time that a landing waits for them, `series` for the distinct series in it.
    """

    answer_bytes: int = 64 << 20
    answer_seconds: float = 60.0
    window_bytes: int = 16 << 30
    window_seconds: float = 300.0
    # One landing holds a few hundred bytes per series. 10,000 GPUs with their engines have a fifth of this; a label
    # that changes with every request has no bound.
    series: int = 500_000


DEFAULTS = Limits()
# Ten days of five-minute values, with room; a provider that sends more is not answering the question.
GRID_LIMITS = Limits(answer_bytes=8 << 20, answer_seconds=30.0, window_seconds=120.0)
# One COPY of a gateway's table, for all days of a run.
RECORD_LIMITS = Limits(window_seconds=1800.0)
# A page is one moment: the largest known ones, of an engine with many histograms, have a few MiB.
PAGE_LIMITS = Limits(answer_bytes=32 << 20, answer_seconds=10.0, series=200_000)
