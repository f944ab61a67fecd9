"""What samples take on disk: `python -m bench.disk --gpus 100 --folder DIR` prints bytes per sample as JSON.

The day is the bench's own (`fleet_day`: gauges, counters, ratios and buckets) with milliseconds of jitter, landed at
once, landed again, and landed hour by hour as a spool gives it. Keep out how samples are stored
(`pipelines.landing.stores`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.fleet_day import FIRST_DAY, GPUS_PER_NODE, STEPS, board_series, engine_series, node
from collectors.samples import Batch, Family, Window, sample_batch
from collectors.series import SeriesRegister
from pipelines.fleet import catalog
from pipelines.landing import telemetry_landing
from pipelines.warehouse import compaction, database
from pipelines.warehouse.raw_tables import create_tables

JITTER_US = 20_000
# A ratio of 17 digits.
RATIO = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"


class Disk(NamedTuple):
    """Bytes of used blocks of a warehouse, and the samples in it."""

    bytes: int
    samples: int


class JitteredDay:
    """A collector of the day's nodes, whose scrapes come up to JITTER_US late, to the millisecond."""

    source = "bench"

    def __init__(self, gpus: int, is_additive: bool) -> None:
        self.nodes = -(-gpus // GPUS_PER_NODE)
        self.is_additive = is_additive

    def collect(self, window: Window, families: Mapping[str, Family], register: SeriesRegister) -> Iterator[Batch]:
        """A batch per series."""
        for number in range(self.nodes):
            this = node(number, FIRST_DAY)
            random = np.random.Generator(np.random.Philox(key=[7, number]))
            times = this.observed_us + random.integers(0, JITTER_US // 1000, STEPS) * 1000
            inside = (times >= window.start_us) & (times < window.end_us)
            boards = list(board_series(this, number, GPUS_PER_NODE, FIRST_DAY, False))
            ratios = [one._replace(metric=RATIO, values=random.random(STEPS)) for one in boards[2::3]]
            for series in (*boards, *ratios, *engine_series(this, number, FIRST_DAY)):
                family = families.get(series.metric)
                if family is None:
                    continue
                series_id = register.series_id(family, series.labels)
                values = series.values.astype(np.float64)[inside]
                samples = sample_batch(np.full(len(values), series_id), times[inside], values)
                register.observe(samples)
                yield Batch(family.stream, samples)


def used(path: Path) -> Disk:
    """What a warehouse holds."""
    with closing(database.connect(path)) as connection:
        connection.execute("checkpoint")
        (samples,) = connection.execute("select sum(samples) from raw.series_chunks").fetchall()[0]
        return Disk(compaction.blocks_of(connection).used_bytes, int(samples))


def land(path: Path, collector: JitteredDay, hours: int) -> None:
    """Land the day in windows of so many hours."""
    known = telemetry_landing.Catalogue(catalog.families(), catalog.device_labels())
    day = Window.of_day(FIRST_DAY)
    with closing(database.connect(path)) as connection:
        create_tables(connection)
        for first in range(0, 24, hours):
            start_at = day.start_at + timedelta(hours=first)
            window = Window(start_at, start_at + timedelta(hours=hours))
            landing = telemetry_landing.land(connection, collector, window, known, run_id="bench")
            if landing.outcome not in ("landed", "unchanged"):
                raise RuntimeError(f"{landing.window}: {landing.outcome}: {landing.detail}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.disk", description=__doc__.partition("\n")[0])
    parser.add_argument("--gpus", type=int, default=100)
    parser.add_argument("--folder", type=Path, required=True)
    options = parser.parse_args()
    found = {}
    at_once, by_hour = options.folder / "disk-at-once.duckdb", options.folder / "disk-by-hour.duckdb"
    for path in (at_once, by_hour):
        path.unlink(missing_ok=True)
    land(at_once, JitteredDay(options.gpus, is_additive=False), 24)
    found["landed at once"] = used(at_once)
    land(at_once, JitteredDay(options.gpus, is_additive=False), 24)
    found["landed again"] = used(at_once)
    land(by_hour, JitteredDay(options.gpus, is_additive=True), 1)
    found["landed hour by hour"] = used(by_hour)
    print(json.dumps({name: disk.bytes / disk.samples for name, disk in found.items()}))


if __name__ == "__main__":
    main()
