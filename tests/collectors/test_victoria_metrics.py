"""VictoriaMetrics' export against a real server: the same samples and series as through its range selectors."""

import gzip
import json
import logging
import math
import time
import urllib.request
from collections import Counter
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta

import numpy as np
import orjson
import pytest

from collectors.protocols.prometheus import EXPORT_KIND, PrometheusCollector
from collectors.samples import Family, Window
from pipelines.landing.telemetry_landing import Catalogue, land
from pipelines.warehouse import database
from pipelines.warehouse.raw_tables import create_tables
from tests.collectors.test_prometheus import FAMILIES, GPU, HOUR, POWER, START, START_S, TOKENS, collected
from tests.servers import (
    fields_of,
    http_server,
    openmetrics,
    reply,
    victoria_metrics_scraping,
    victoria_metrics_with_history,
)

NEEDED_BY = {"history": ("victoria-metrics",)}

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


@contextmanager
def without_export(url):
    """The same server behind a proxy that refuses the export; and the list of paths that it was asked for."""
    asked = []

    def forward(handler):
        path, _, query = handler.path.partition("?")
        asked.append(path)
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        if path.endswith("/export"):
            reply(handler, 403, b"no route", "text/plain")
            return
        data = body if handler.command == "POST" else None
        with urllib.request.urlopen(f"{url}{path}?{query}", data=data, timeout=30) as answer:
            reply(handler, 200, answer.read())

    with http_server(forward) as proxy:
        yield proxy, asked


@pytest.fixture(scope="module")
def guarded(history):
    with without_export(history) as (url, asked):
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


def test_the_export_is_used_where_it_is_and_a_refusal_is_logged(history, guarded, caplog):
    url, asked = guarded
    asked.clear()
    with caplog.at_level(logging.INFO, "collectors.protocols.prometheus"):
        collected(history)
        assert caplog.messages == []
        collected(url)
    assert caplog.messages == [
        f"source cluster is read through range selectors: {url}/api/v1/export: HTTP 403: refused: no route"
    ]
    assert asked.count("/api/v1/export") == 1
    assert "/api/v1/query" in asked


@pytest.mark.needs("victoria-metrics")
def test_the_mark_of_a_series_end_is_one_reject_both_ways(tmp_path):
    """VictoriaMetrics scrapes; when a board vanishes it marks the series with a NaN, which is no measurement."""
    boards = ["GPU-a", "GPU-b"]

    def page(handler):
        lines = "".join(f'{POWER}{{UUID="{board}"}} 250\n' for board in boards)
        reply(handler, 200, f"# TYPE {POWER} gauge\n{lines}".encode(), "text/plain; version=0.0.4")

    def rejects(register):
        labels = {row["series_id"]: json.loads(row["labels"])["UUID"] for row in register.series_table().to_pylist()}
        return {labels[row["series_id"]]: row["rejects"] for row in register.chunk_table().to_pylist()}

    started = datetime.now(UTC).replace(microsecond=0)
    window = Window(started, started + timedelta(hours=1))
    with (
        http_server(page) as target,
        victoria_metrics_scraping(tmp_path, target.removeprefix("http://")) as url,
        without_export(url) as (guarded_url, _),
    ):
        deadline = time.monotonic() + 30
        found = {}
        while found != {"GPU-a": 0, "GPU-b": 1} and time.monotonic() < deadline:
            time.sleep(0.3)
            urllib.request.urlopen(f"{url}/internal/force_flush", timeout=10).close()
            found = rejects(collected(url, window)[1])
            if set(found) == {"GPU-a", "GPU-b"}:
                boards[:] = ["GPU-a"]
        assert found == {"GPU-a": 0, "GPU-b": 1}
        boards.clear()
        window = Window(started, datetime.now(UTC))  # what is scraped from here on is not compared
        (exported, by_export), (selected, by_selectors) = collected(url, window), collected(guarded_url, window)
    by_series = [sorted((row[:4], repr(row[4])) for row in rows) for rows in (exported, selected)]
    assert by_series[0] == by_series[1]
    assert by_export.chunk_table().sort_by("series_id") == by_selectors.chunk_table().sort_by("series_id")


# --- answers that a good server gives rarely --------------------------------------------------------------------------


def line(gpu, seconds):
    times = [int((START_S + s) * 1000) for s in seconds]
    labels = {"__name__": POWER, "UUID": gpu}
    return orjson.dumps({"metric": labels, "values": [float(s) for s in seconds], "timestamps": times}) + b"\n"


LONG = range(0, 3600)


def exporting(answer):
    """A server with an export, which answers for POWER through `answer(handler, fields, times asked before)`."""
    asked = []

    def both(handler):
        path, fields = fields_of(handler)
        if path.endswith("/label/__name__/values"):
            reply(handler, 200, orjson.dumps({"status": "success", "data": [POWER]}))
        elif '"up"' in fields["match[]"]:
            reply(handler, 200, b"", EXPORT_KIND)
        else:
            asked.append((path, fields))
            answer(handler, fields, len(asked) - 1)

    return http_server(both), asked


@pytest.mark.parametrize("ending", ["the connection", "its own words"])
def test_a_stream_that_breaks_off_is_asked_for_again_and_gives_each_series_once(ending, monkeypatch):
    monkeypatch.setattr("collectors.protocols.http_client.GROUP_BYTES", 1)
    whole = [line(f"GPU-{n}", LONG) for n in range(6)]

    def answer(handler, _, before):
        body = b"".join(whole if before == 0 else reversed(whole))
        if before == 2:
            reply(handler, 200, body, EXPORT_KIND)
        elif ending == "the connection":
            reply(handler, 200, body[: len(body) // 2], EXPORT_KIND, Content_Length=str(len(body)), Connection="close")
            handler.close_connection = True
        else:
            reply(handler, 200, whole[0] + b"remoteAddr: x; cannot send data to remote client", EXPORT_KIND)

    running, asked = exporting(answer)
    with running as url:
        rows, register = collected(url, families={POWER: FAMILIES[POWER]}, attempts=3)
    assert len(asked) == 3
    assert Counter(row[2] for row in rows) == {f'{{"UUID":"GPU-{n}"}}': len(LONG) for n in range(6)}
    assert [row[4] for row in rows] == [*map(float, LONG)] * 6
    assert set(register.chunk_table()["duplicates"].to_pylist()) == {0}


def test_replicas_far_apart_in_the_stream_land_as_through_selectors(tmp_path, monkeypatch):
    monkeypatch.setattr("collectors.protocols.http_client.GROUP_BYTES", 1)
    samples = {name: [(START_S + 60 * n + late, 100.0 + n) for n in range(60)] for name, late in (("0", 0), ("1", 7))}

    def exported(handler, *_):
        handler.send_response(200)
        handler.send_header("Content-Type", EXPORT_KIND)
        handler.send_header("Connection", "close")
        handler.end_headers()
        for name, points in samples.items():
            labels = {"__name__": POWER, "UUID": "GPU-a", "replica": name}
            values, times = [value for _, value in points], [int(at * 1000) for at, _ in points]
            handler.wfile.write(orjson.dumps({"metric": labels, "values": values, "timestamps": times}) + b"\n")
            handler.wfile.flush()
            time.sleep(0.2)  # so that the lines do not come in one piece
        handler.close_connection = True

    def selected(handler):
        path, fields = fields_of(handler)
        end_s = float(fields.get("time", 0))
        first_s = end_s - int(fields["query"].rpartition("[")[2].removesuffix("ms]")) / 1000 if "query" in fields else 0
        series = [
            {
                "metric": {"UUID": "GPU-a", "replica": name},
                "values": [[at, str(value)] for at, value in samples[name] if first_s < at <= end_s],
            }
            for name in samples
        ]
        found = {"label": [POWER], "query": {"resultType": "matrix", "result": series}}
        part = next((part for part in found if f"/{part}" in path), None)
        status = 200 if part else 404
        reply(handler, status, orjson.dumps({"status": "success", "data": found.get(part)}))

    known = Catalogue({POWER: FAMILIES[POWER]}, [("dcgm_exporter", "UUID", 10, "device_uuid")])
    landed = []
    for name, server in (("export", exporting(exported)[0]), ("selectors", http_server(selected))):
        with server as url, closing(database.connect(tmp_path / f"{name}.duckdb")) as connection:
            create_tables(connection)
            collector = PrometheusCollector("cluster", url, backoff_seconds=0.01)
            result = land(connection, collector, HOUR, known, run_id="run", replica_labels=["replica"])
            assert (result.outcome, result.rows, result.detail) == ("landed", 120, None)
            tables = ("power_samples", "series", "series_chunks")
            landed.append([connection.execute(f"from raw.{table} order by all").fetchall() for table in tables])
    assert landed[0][0] == landed[1][0]
    assert landed[0][1] == landed[1][1]
    # How many came late is how they came; everything else is counted again from the rows.
    (by_export,), (by_selectors,) = landed[0][2], landed[1][2]
    assert [one for one in zip(by_export, by_selectors, strict=True) if one[0] != one[1]] == [(1, 0)]


def test_the_api_of_a_cluster_lies_below_a_path_and_the_answer_may_be_compressed():
    def answer(handler, *_):
        assert handler.headers["Authorization"] == "Basic Ym9iOnNlY3JldA=="
        reply(handler, 200, gzip.compress(line("GPU-a", [1])), EXPORT_KIND, Content_Encoding="gzip")

    running, asked = exporting(answer)
    with running as url:
        root = url.replace("http://", "http://bob:secret@") + "/select/0/prometheus/"
        rows, _ = collected(root, families={POWER: FAMILIES[POWER]}, matchers=['namespace="llm"'])
    assert rows == [("power", POWER, '{"UUID":"GPU-a"}', 1000.0, 1.0)]
    ((path, fields),) = asked
    assert path == "/select/0/prometheus/api/v1/export"
    assert fields == {
        "match[]": f'{{__name__="{POWER}",namespace="llm"}}',
        "start": "1790812800.000",
        "end": "1790816399.999",
        "deny_partial_response": "1",
    }
