"""Readings of a live source at one moment.

Add here what the live sources (`nvml`, `exposition`) and the spool share. Keep out anything about one of them, and
anything that keeps state between two readings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple


class Reading(NamedTuple):
    """One value at one instant, in the source's own unit.

    `observed_us` is microseconds since the epoch, UTC; `labels` is the text that `labels_json` writes.
    """

    observed_us: int
    source_kind: str
    metric: str
    labels: str
    value: float


def labels_json(labels: Mapping[str, str]) -> str:
    """Labels as JSON text with sorted keys and no whitespace: equal labels give equal text."""
    return json.dumps(dict(labels), ensure_ascii=False, separators=(",", ":"), sort_keys=True)
