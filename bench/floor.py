"""The floor: the leanest hand-written way from the same Parquet files to the energy of each device per 5 minutes.

`python -m bench.floor --power OUT/power` (and `--tokens OUT/tokens`, landed beside it) reads the spool's files with
pyarrow, lands (series_id, observed_at, value) in a DuckDB file, computes joules per device and 5 minutes, and prints
seconds and peak memory as JSON. It relies on what `bench.fleet_day` guarantees: no gaps, no resets, no invalid samples,
one meter per device. Nothing else is left out: it lands every row that the product lands, and divides a delta or
trapezoid over an interval's edge by time, as the book does.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench import children

SCHEMA = pa.schema([("series_id", pa.int64()), ("observed_at", pa.timestamp("us", tz="UTC")), ("value", pa.float64())])

# A counter that only rises has its first and last value at its minimum and maximum: two plain aggregates.
COUNTER_JOULES = """
with bucketed as (
    select
        device_uuid,
        time_bucket(interval 5 minutes, observed_at) as interval_start_at,
        min(value) as first_value, max(value) as last_value,
        min(observed_at) as first_at, max(observed_at) as last_at
    from samples join series using (series_id)
    where metric = 'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION'
    group by all
),
neighboured as (
    select
        *,
        lag(last_value) over device as previous_value, lag(last_at) over device as previous_at,
        lead(first_value) over device as next_value, lead(first_at) over device as next_at
    from bucketed
    window device as (partition by device_uuid order by interval_start_at)
)
select
    device_uuid,
    interval_start_at,
    (
        last_value - first_value
        + coalesce((first_value - previous_value) * epoch(first_at - interval_start_at)
            / epoch(first_at - previous_at), 0)
        + coalesce((next_value - last_value) * epoch(interval_start_at + interval 5 minutes - last_at)
            / epoch(next_at - last_at), 0)
    ) / 1000 as energy_joules
from neighboured
"""

GAUGE_JOULES = """
with steps as (
    select
        device_uuid,
        lag(observed_at) over device as from_at,
        observed_at as to_at,
        (lag(value) over device + value) / 2 as watts
    from samples join series using (series_id)
    where metric = 'DCGM_FI_DEV_POWER_USAGE'
    window device as (partition by series_id order by observed_at)
),
cut as (
    select
        device_uuid, watts, from_at, to_at,
        time_bucket(interval 5 minutes, from_at) as from_interval_at,
        time_bucket(interval 5 minutes, to_at) as to_interval_at
    from steps
    where from_at is not null
),
pieces as (
    select
        device_uuid, from_interval_at as interval_start_at,
        watts * epoch(least(to_at, from_interval_at + interval 5 minutes) - from_at) as joules
    from cut
    union all
    select device_uuid, to_interval_at, watts * epoch(to_at - to_interval_at)
    from cut
    where from_interval_at < to_interval_at
)
select device_uuid, interval_start_at, sum(joules) as energy_joules from pieces group by all
"""


class Landing:
    """Reads spools' files into batches of SCHEMA and remembers which series is what."""

    def __init__(self, spools: Sequence[Path]) -> None:
        self.paths = sorted(path for spool in spools for path in spool.glob("host=*/date=*/*.parquet"))
        self.series: dict[tuple[str, str], int] = {}
        self.rows = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        for path in self.paths:
            for batch in pq.ParquetFile(path, read_dictionary=["metric", "labels"]).iter_batches(1 << 20):
                metric, labels = batch.column("metric"), batch.column("labels")
                pairs = metric.indices.to_numpy().astype(np.int64) * len(labels.dictionary) + labels.indices.to_numpy()
                starts = np.flatnonzero(np.diff(pairs, prepend=-1))
                ids = [
                    self.series.setdefault((str(metric[int(at)]), str(labels[int(at)])), len(self.series))
                    for at in starts
                ]
                series_id = pa.array(np.repeat(np.array(ids), np.diff(starts, append=len(pairs))))
                self.rows += batch.num_rows
                yield pa.RecordBatch.from_arrays(
                    [series_id, batch.column("observed_at"), batch.column("value")], schema=SCHEMA
                )

    def series_table(self) -> pa.Table:
        """series_id, metric, device_uuid (NULL for an engine's series)."""
        return pa.table(
            {
                "series_id": pa.array(self.series.values(), pa.int64()),
                "metric": [metric for metric, _ in self.series],
                "device_uuid": pa.array([json.loads(labels).get("UUID") for _, labels in self.series], pa.string()),
            }
        )


def run(spools: Sequence[Path], warehouse: Path) -> dict:
    """Land and compute; seconds per step, joules and peak memory. `warehouse` must not exist yet."""
    began, cpu_began = time.perf_counter(), time.process_time()
    landing = Landing(spools)
    with duckdb.connect(str(warehouse)) as connection:
        connection.execute("set TimeZone = 'UTC'")
        connection.execute("create table samples (series_id bigint, observed_at timestamptz, value double)")
        reader = pa.RecordBatchReader.from_batches(SCHEMA, landing.batches())
        connection.register("incoming", reader)
        connection.execute("insert into samples select * from incoming")
        series = landing.series_table()
        connection.register("incoming_series", series)
        connection.execute("create table series as select * from incoming_series")
        connection.execute("checkpoint")
        landed, cpu_landed = time.perf_counter(), time.process_time()
        metrics = set(series["metric"].to_pylist())
        if "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION" in metrics:
            connection.execute(f"create table energy as {COUNTER_JOULES}")
        else:
            connection.execute(f"create table energy as {GAUGE_JOULES}")
        connection.execute("checkpoint")
        booked, cpu_booked = time.perf_counter(), time.process_time()
        intervals, joules = connection.execute("select count(*), sum(energy_joules) from energy").fetchall()[0]
    return {
        "rows": landing.rows,
        "land_seconds": round(landed - began, 3),
        "land_cpu_seconds": round(cpu_landed - cpu_began, 3),
        "energy_seconds": round(booked - landed, 3),
        "total_seconds": round(booked - began, 3),
        "cpu_seconds": round(cpu_booked - cpu_began, 3),
        "land_rows_per_second": round(landing.rows / (landed - began)),
        "peak_rss_mib": children.own_peak_mib(),
        "intervals": intervals,
        "energy_joules": joules,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.floor", description=__doc__.partition("\n")[0])
    parser.add_argument("--power", type=Path, required=True, help="the spool that bench.fleet_day wrote")
    parser.add_argument("--tokens", type=Path, help="its other spool, to be landed too")
    options = parser.parse_args()
    spools = [spool for spool in (options.power, options.tokens) if spool]
    with tempfile.TemporaryDirectory(dir=options.power.parent) as folder:
        print(json.dumps(run(spools, Path(folder) / "floor.duckdb")))


if __name__ == "__main__":
    main()
