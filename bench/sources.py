"""One day of a fleet in a real VictoriaMetrics, beside `prometheus.server`.

Add here another server that can deliver a day. Keep out the landing (`prometheus.land`), what is asked (`questions`)
and fake servers.
"""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path

from bench import children, prometheus


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


def _import_lines(gpus: int, day: date) -> Iterator[bytes]:
    for series, observed_us in prometheus.boards(gpus, day):
        line = {
            "metric": {"__name__": series.metric, **series.labels},
            "values": series.values.tolist(),
            "timestamps": (observed_us // 1000).tolist(),
        }
        yield json.dumps(line, separators=(",", ":")).encode() + b"\n"
