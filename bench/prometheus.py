"""From a real Prometheus server into DuckDB: samples per second through collector and landing.

`python -m bench.prometheus --url URL --day 2026-09-01 --warehouse FILE` lands one day, or its first hours, and prints
the seconds; `server` starts a Prometheus that holds such a day as history. Keep out fake servers.
"""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from pathlib import Path

import numpy as np

from bench import children, fleet_day
from collectors.protocols.prometheus import PrometheusCollector
from collectors.samples import Window
from pipelines.fleet import catalog
from pipelines.landing import telemetry_landing
from pipelines.warehouse import database
from pipelines.warehouse.raw_tables import create_tables

READY_SECONDS = 60


def missing() -> str | None:
    """Which program is missing on this host, if one is."""
    return next((name for name in ("prometheus", "promtool") if shutil.which(name) is None), None)


@contextmanager
def server(folder: Path, gpus: int, day: date) -> Iterator[str]:
    """The URL of a Prometheus on loopback that holds the day's power, energy and activity of `gpus` boards."""
    page, port = folder / "history.openmetrics", free_port()
    with page.open("w", encoding="utf-8") as file:
        file.writelines(_openmetrics(gpus, day))
    # promtool reads the page once for each block.
    blocks = [
        "promtool",
        "tsdb",
        "create-blocks-from",
        "--max-block-duration=54h",
        "openmetrics",
        page,
        folder / "data",
    ]
    subprocess.run(blocks, check=True, capture_output=True)
    page.unlink()
    config = folder / "prometheus.yml"
    config.write_text("scrape_configs: []\n", encoding="utf-8")
    command = [
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    ]
    url = f"http://127.0.0.1:{port}"
    with children.running(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        wait_until_ready(f"{url}/-/ready")
        yield url


def land(url: str, day: date, path: Path, hours: float = 24.0) -> dict[str, float]:
    """Land the first hours of the server's day into a new warehouse at `path`: samples, seconds, samples per second."""
    start_at = datetime(day.year, day.month, day.day, tzinfo=UTC)
    collector = PrometheusCollector("bench", url)
    known = telemetry_landing.Catalogue(catalog.families(), catalog.device_labels())
    with closing(database.connect(path)) as connection:
        create_tables(connection)
        began = time.perf_counter()
        window = Window(start_at, start_at + timedelta(hours=hours))
        landed = telemetry_landing.land(connection, collector, window, known, run_id="bench")
        seconds = time.perf_counter() - began
    if landed.outcome != "landed":
        raise RuntimeError(f"{landed.outcome}: {landed.detail}")
    return {
        "rows": landed.rows,
        "seconds": seconds,
        "rows_per_second": landed.rows / seconds,
        "peak_mib": children.own_peak_mib(),
    }


def boards(gpus: int, day: date) -> Iterator[tuple[fleet_day.Series, np.ndarray]]:
    """Each series of the day's boards with its times in microseconds."""
    for number in range(-(-gpus // fleet_day.GPUS_PER_NODE)):
        this = fleet_day.node(number, day)
        here = min(fleet_day.GPUS_PER_NODE, gpus - number * fleet_day.GPUS_PER_NODE)
        for series in fleet_day.board_series(this, number, here, day, gauge_only=False):
            yield series, this.observed_us


def _openmetrics(gpus: int, day: date) -> Iterator[str]:
    """The day's boards as OpenMetrics lines, metric by metric."""
    for metric, series_of_metric in groupby(
        sorted(boards(gpus, day), key=lambda board: board[0].metric), key=lambda board: board[0].metric
    ):
        yield f"# TYPE {metric} gauge\n"
        for series, observed_us in series_of_metric:
            labels = ",".join(f'{name}="{value}"' for name, value in series.labels.items())
            name = f"{metric}{{{labels}}}"
            for at, value in zip((observed_us / 1e6).tolist(), series.values.tolist(), strict=True):
                yield f"{name} {value!r} {at:.3f}\n"
    yield "# EOF\n"


def free_port() -> int:
    """A TCP port of the loopback interface that was free a moment ago."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_until_ready(url: str) -> None:
    """Wait until `url` answers; the last error after READY_SECONDS."""
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except (urllib.error.URLError, OSError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.prometheus", description=__doc__.partition("\n")[0])
    parser.add_argument("--url", required=True)
    parser.add_argument("--day", type=date.fromisoformat, default=fleet_day.FIRST_DAY)
    parser.add_argument("--warehouse", type=Path, required=True, help="a DuckDB file that does not exist yet")
    parser.add_argument("--hours", type=float, default=24.0, help="of the day, from midnight on")
    options = parser.parse_args()
    print(json.dumps(land(options.url, options.day, options.warehouse, options.hours)))


if __name__ == "__main__":
    main()
