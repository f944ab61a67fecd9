"""One day of a fleet in a real Prometheus and a real VictoriaMetrics, and each one's energy per device and 5 minutes.

Add here another server that can deliver a day. Keep out the landing (`prometheus.land`) and fake servers.
"""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow.compute as pc

from bench import children, prometheus

ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
STEP_SECONDS = 300

# The servers' question in SQL: what the counter rose by since the last sample before the 5 minutes.
INCREASE = """
with energy_series as (
    select series_id, json_extract_string(labels, '$.UUID') as device_uuid from raw.series where metric = ?
),
bucketed as (
    select
        series_id,
        epoch_us(observed_at) // 300000000 as interval_number,
        min(value) as first_value, max(value) as last_value
    from raw.power_samples
    where series_id in (select series_id from energy_series)
    group by all
)
select
    device_uuid,
    interval_number,
    (
        last_value - lag(last_value, 1, first_value) over (partition by series_id order by interval_number)
    ) / 1000 as energy_joules
from bucketed join energy_series using (series_id)
"""

# The ledger's question: deltas between the intervals too, shared by time across the edge.
SHARED = """
with energy_series as (
    select series_id, json_extract_string(labels, '$.UUID') as device_uuid from raw.series where metric = ?
),
bucketed as (
    select
        series_id,
        epoch_us(observed_at) // 300000000 as interval_number,
        min(value) as first_value, max(value) as last_value,
        min(epoch_us(observed_at)) as first_us, max(epoch_us(observed_at)) as last_us
    from raw.power_samples
    where series_id in (select series_id from energy_series)
    group by all
),
neighboured as (
    select
        *,
        lag(last_value) over device as previous_value, lag(last_us) over device as previous_us,
        lead(first_value) over device as next_value, lead(first_us) over device as next_us
    from bucketed
    window device as (partition by series_id order by interval_number)
)
select
    device_uuid,
    interval_number,
    (
        last_value - first_value
        + coalesce((first_value - previous_value) * (first_us - interval_number * 300000000)
            / (first_us - previous_us), 0)
        + coalesce((next_value - last_value) * ((interval_number + 1) * 300000000 - last_us)
            / (next_us - last_us), 0)
    ) / 1000 as energy_joules
from neighboured join energy_series using (series_id)
"""


class Answer(NamedTuple):
    """Energy per device and 5 minutes: what it took, how many figures, their sum."""

    seconds: float
    figures: int
    energy_joules: float


def missing() -> str | None:
    """Which program is missing on this host, if one is."""
    return prometheus.missing() or (None if shutil.which("victoria-metrics") else "victoria-metrics")


@contextmanager
def victoria_metrics(folder: Path, gpus: int, day: date) -> Iterator[str]:
    """The URL of a VictoriaMetrics on loopback that holds what `prometheus.server` holds."""
    port = prometheus.free_port()
    command = [
        "victoria-metrics",
        f"-storageDataPath={folder / 'data'}",
        f"-httpListenAddr=127.0.0.1:{port}",
        "-retentionPeriod=100y",
        "-search.latencyOffset=0s",
        "-loggerLevel=ERROR",
    ]
    url = f"http://127.0.0.1:{port}"
    with children.running(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        prometheus.wait_until_ready(f"{url}/health")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        connection.request("POST", "/api/v1/import", body=_import_lines(gpus, day), encode_chunked=True)
        connection.getresponse().read()
        connection.close()
        for path in ("/internal/force_flush", "/internal/force_merge"):
            with urllib.request.urlopen(url + path, timeout=600) as answer:
                answer.read()
        yield url


def energy_by_server(url: str, day: date) -> Answer:
    """What the server itself takes for each board's energy per 5 minutes of the day, to the answer's last byte."""
    start_at = datetime(day.year, day.month, day.day, tzinfo=UTC)
    fields = {
        "query": f"increase({ENERGY}[{STEP_SECONDS}s])",
        "start": int((start_at + timedelta(seconds=STEP_SECONDS)).timestamp()),
        "end": int((start_at + timedelta(days=1)).timestamp()),
        "step": STEP_SECONDS,
        # VictoriaMetrics remembers answers; Prometheus ignores the field.
        "nocache": 1,
    }
    began = time.perf_counter()
    with urllib.request.urlopen(f"{url}/api/v1/query_range?{urllib.parse.urlencode(fields)}", timeout=600) as answer:
        body = answer.read()
    seconds = time.perf_counter() - began
    values = [float(value) for one in json.loads(body)["data"]["result"] for _, value in one["values"]]
    return Answer(seconds, len(values), sum(values) / 1000)


def energy_by_sql(connection: duckdb.DuckDBPyConnection, query: str) -> Answer:
    """What DuckDB takes for INCREASE or SHARED over the rows that were landed, to the last row."""
    began = time.perf_counter()
    rows = connection.sql(query, params=[ENERGY]).to_arrow_table()
    seconds = time.perf_counter() - began
    return Answer(seconds, rows.num_rows, pc.sum(rows["energy_joules"]).as_py())


def _import_lines(gpus: int, day: date) -> Iterator[bytes]:
    for series, observed_us in prometheus.boards(gpus, day):
        line = {
            "metric": {"__name__": series.metric, **series.labels},
            "values": series.values.tolist(),
            "timestamps": (observed_us // 1000).tolist(),
        }
        yield json.dumps(line, separators=(",", ":")).encode() + b"\n"
