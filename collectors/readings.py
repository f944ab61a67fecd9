"""Readings of a live source at one moment, and how they become batches.

Add here what the live sources (`nvml`, `exposition`) and the spool share. Keep out anything about one of them, and
anything that keeps state between two readings.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from collectors.samples import Batch, Family, Window, sample_batch
from collectors.series import SeriesRegister


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


def reading_batches(
    readings: Iterable[Reading], window: Window, families: Mapping[str, Family], register: SeriesRegister
) -> Iterator[Batch]:
    """At most one batch per stream: the readings of catalogued families inside the window, registered and observed."""
    columns: dict[str, tuple[list[int], list[int], list[float]]] = {}
    unknown: dict[str, set[str]] = {}
    for reading in readings:
        family = families.get(reading.metric)
        if family is None:
            unknown.setdefault(reading.metric, set()).add(reading.labels)
        elif window.start_us <= reading.observed_us < window.end_us:
            ids, times, values = columns.setdefault(family.stream, ([], [], []))
            ids.append(register.series_id(family, json.loads(reading.labels)))
            times.append(reading.observed_us)
            values.append(reading.value)
    for metric, series in unknown.items():
        register.unknown(metric, len(series))
    for stream, (ids, times, values) in columns.items():
        samples = sample_batch(np.array(ids, np.int64), np.array(times, np.int64), np.array(values, np.float64))
        register.observe(samples)
        yield Batch(stream, samples)
