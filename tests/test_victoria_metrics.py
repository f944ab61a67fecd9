"""VictoriaMetrics' export against a real server: the same samples and series as through its range selectors."""

import logging
import math
import urllib.error
import urllib.request
from datetime import timedelta

import numpy as np
import pytest

from collectors.samples import Family, Window
from tests.servers import http_server, openmetrics, reply, victoria_metrics_with_history
from tests.test_prometheus import GPU, HOUR, POWER, START, START_S, TOKENS, collected

HA = {"ha_power": Family("ha_power", "power", "dcgm_exporter")}


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """Two hours of two GPUs every 15 s (a gap of 4 minutes in one), an engine that restarts, odd labels and values."""
    steps = np.arange(-4, 480) * 15.0
    gpu_b = [(START_S + s, 100.0) for s in steps]
    odd = {"UUID": 'a"values":[1,"2"],"timestamps":[', "Hostname": "ä\n\\]],[", "namespace": "other"}
    lines = openmetrics(
        [
            (POWER, GPU, [(START_S + s + 0.007, 300.0 + s) for s in steps if not 1800 <= s < 2040]),
            (POWER, {"UUID": "GPU-b", "Hostname": "n1"}, gpu_b),
            (POWER, odd, [(START_S + 1, math.inf), (START_S + 2, -math.inf), (START_S + 3, -0.25), (START_S + 4, 1.5)]),
            ("DCGM_FI_DEV_NEW", GPU, gpu_b),
            (
                TOKENS,
                {"model_name": "m", "engine": "0"},
                [(START_S + s + 0.5, s if s < 900 else s - 900) for s in steps if s >= 0] + [(START_S + 30.5, 31.0)],
            ),
            ("ha_power", {"UUID": "GPU-a", "prometheus_replica": "0"}, gpu_b[4:8]),
            ("ha_power", {"UUID": "GPU-a", "prometheus_replica": "1"}, [(at + 5, v + 1) for at, v in gpu_b[4:8]]),
        ]
    )
    with victoria_metrics_with_history(tmp_path_factory.mktemp("victoria"), lines) as url:
        yield url


@pytest.fixture(scope="module")
def guarded(history):
    """The same server behind a proxy that refuses the export; also the paths that it was asked for."""
    asked = []

    def forward(handler):
        path, _, query = handler.path.partition("?")
        asked.append(path)
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        if path.endswith("/export"):
            reply(handler, 403, b"no route", "text/plain")
            return
        data = body if handler.command == "POST" else None
        with urllib.request.urlopen(f"{history}{path}?{query}", data=data, timeout=30) as answer:
            reply(handler, 200, answer.read())

    with http_server(forward) as url:
        yield url, asked


@pytest.mark.parametrize(
    "window",
    [
        HOUR,
        Window(START, START + timedelta(hours=2)),
        Window(START + timedelta(milliseconds=7), START + timedelta(seconds=15, milliseconds=7)),
        Window(START + timedelta(seconds=14.9995), START + timedelta(seconds=15.0005)),
        Window(START + timedelta(days=3), START + timedelta(days=4)),
    ],
    ids=["an hour", "over a chunk's edge", "one step", "half milliseconds", "nothing"],
)
def test_both_ways_give_the_same_rows_and_facts(history, guarded, window):
    exported, by_export = collected(history, window)
    selected, by_selector = collected(guarded[0], window)
    assert exported == selected
    assert by_export.chunk_table().sort_by("series_id") == by_selector.chunk_table().sort_by("series_id")
    assert by_export.series_table().sort_by("series_id") == by_selector.series_table().sort_by("series_id")
    assert by_export.unknown_table() == by_selector.unknown_table()


def test_the_export_gives_what_the_server_was_given(history):
    rows, register = collected(history)
    by_series = {}
    for _, metric, labels, at_ms, value in rows:
        by_series.setdefault((metric, labels), []).append((at_ms, value))
    gpu_a, gpu_b = '{"Hostname":"n1","UUID":"GPU-a"}', '{"Hostname":"n1","UUID":"GPU-b"}'
    odd = '{"Hostname":"ä\\n\\\\]],[","UUID":"a\\"values\\":[1,\\"2\\"],\\"timestamps\\":[","namespace":"other"}'
    engine = '{"engine":"0","model_name":"m"}'
    seconds = [s for s in range(0, 3600, 15) if not 1800 <= s < 2040]
    assert by_series[POWER, gpu_a] == [(s * 1000 + 7, 300.0 + s) for s in seconds]
    assert by_series[POWER, gpu_b] == [(s * 1000.0, 100.0) for s in range(0, 3600, 15)]
    assert by_series[POWER, odd] == [(1000, math.inf), (2000, -math.inf), (3000, -0.25), (4000, 1.5)]
    counted = [(s * 1000 + 500.0, float(s if s < 900 else s - 900)) for s in range(0, 3600, 15)]
    assert sorted(by_series[TOKENS, engine]) == sorted([*counted, (30_500, 31.0)])
    series = {row["series_id"]: row["metric"] + row["labels"] for row in register.series_table().to_pylist()}
    facts = {
        series[row["series_id"]]: (row["samples"], row["rejects"], row["falls"], row["duplicates"])
        for row in register.chunk_table().to_pylist()
    }
    assert facts == {
        POWER + gpu_a: (224, 0, 0, 0),
        POWER + gpu_b: (240, 0, 0, 0),
        POWER + odd: (1, 3, 0, 0),
        TOKENS + engine: (241, 0, 1, 1),
    }
    assert register.unknown_table().to_pylist() == [{"metric": "DCGM_FI_DEV_NEW", "series": 1}]


def test_matchers_narrow_the_export(history):
    rows, _ = collected(history, matchers=['UUID="GPU-b"'])
    assert len(rows) == 240


def test_replicas_become_one_series_both_ways(history, guarded):
    exported, by_export = collected(history, families=HA, replica_labels=["prometheus_replica"])
    selected, by_selector = collected(guarded[0], families=HA, replica_labels=["prometheus_replica"])
    assert exported == selected
    assert len(exported) == 8
    assert by_export.chunk_table() == by_selector.chunk_table()


def test_the_export_is_used_where_it_is_and_a_refusal_is_told(history, guarded, caplog):
    url, asked = guarded
    asked.clear()
    with caplog.at_level(logging.INFO, "collectors.prometheus"):
        collected(history)
        assert caplog.messages == []
        collected(url)
    assert caplog.messages == [
        f"source cluster is read through range selectors: {url}/api/v1/export: HTTP 403: refused: no route"
    ]
    assert asked.count("/api/v1/export") == 1
    assert "/api/v1/query" in asked
