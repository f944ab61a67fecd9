"""Samples from the files of the OpenTelemetry Collector's file exporter: JSON Lines of OTLP metrics.

Add here how such files are read. Keep out what of a document is kept (`otlp`), and spans: those are requests
(`records.otlp_spans`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping

import numpy as np
import orjson

from collectors.personal_labels import PersonalLabels
from collectors.protocols.otlp import Malformed, parts_of_document, readings
from collectors.readings import Reading
from collectors.rows import BAD_ROWS_RATIO, Rejects
from collectors.samples import Batch, Family, SourceError, Window, sample_batch
from collectors.series import SeriesRegister
from collectors.text_files import lines, paths_of

BATCH_ROWS = 100_000


class OtlpFilesCollector:
    """Reads the files of a path, a glob or a folder (also .gz). A line that is no OTLP, and a point that cannot be
    read, are rejects; SourceError where they are more than `bad_rows_ratio` of all. `stated` labels name who asked."""

    def __init__(
        self, source: str, path: str, stated: Collection[str] = (), bad_rows_ratio: float = BAD_ROWS_RATIO
    ) -> None:
        self.source = source
        self.path = path
        self.bad_rows_ratio = bad_rows_ratio
        self._labels = PersonalLabels(stated)

    def collect(self, window: Window, families: Mapping[str, Family], register: SeriesRegister) -> Iterator[Batch]:
        """The samples of the window, in file order."""
        rejects = register.rejects = Rejects(self.bad_rows_ratio)
        kinds = {metric: family.source_kind for metric, family in families.items()}
        waiting: list[Reading] = []
        for path in paths_of(self.path, "*.json*"):
            for reading in self._readings(path, kinds, register):
                if window.start_us <= reading.observed_us < window.end_us:
                    waiting.append(reading)
                    if len(waiting) >= BATCH_ROWS:
                        yield from _batches(waiting, families, register)
                        waiting = []
        yield from _batches(waiting, families, register)
        rejects.check(self.path)

    def _readings(self, path: str, kinds: Mapping[str, str], register: SeriesRegister) -> Iterator[Reading]:
        rejects = register.rejects
        try:
            for number, line in lines(path, rejects):
                place = f"{path}:{number}"
                try:
                    found = readings(parts_of_document(orjson.loads(line), "metrics"), kinds, self._labels)
                except orjson.JSONDecodeError as error:
                    rejects.add(place, f"is not JSON: {error}")
                    continue
                except Malformed as error:
                    rejects.add(place, error)
                    continue
                rejects.read += len(found.kept)
                if found.not_taken:
                    rejects.add(place, str(found.not_taken), found.not_taken.total())
                for metric, points in found.unknown.items():
                    register.unknown(metric, points)
                yield from found.kept
        except SourceError as refusal:
            rejects.add(refusal.url, refusal.reason)


def _batches(held: list[Reading], families: Mapping[str, Family], register: SeriesRegister) -> Iterator[Batch]:
    """One batch per stream; each series in the order of its times."""
    for stream in ("power", "tokens"):
        chosen = [reading for reading in held if families[reading.metric].stream == stream]
        if not chosen:
            continue
        ids = np.array(
            [register.series_id(families[one.metric], json.loads(one.labels)) for one in chosen], dtype=np.int64
        )
        times = np.array([reading.observed_us for reading in chosen], dtype=np.int64)
        values = np.array([reading.value for reading in chosen], dtype=np.float64)
        order = np.lexsort((times, ids))
        samples = sample_batch(ids[order], times[order], values[order])
        register.observe(samples)
        yield Batch(stream, samples)
