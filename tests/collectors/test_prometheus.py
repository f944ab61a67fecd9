"""The Prometheus collector against real Prometheus servers: what they hold is what lands."""

import json
import math
import time
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from collectors.protocols.mapped_files import FileMapping
from collectors.protocols.prometheus import PrometheusCollector
from collectors.protocols.sample_files import FilesCollector
from collectors.samples import Family, Window, microseconds
from collectors.series import SeriesRegister
from tests.servers import http_server, openmetrics, prometheus_scraping, prometheus_with_history, reply

NEEDED_BY = {"history": ("prometheus",)}

START = datetime(2026, 10, 1, tzinfo=UTC)
HOUR = Window(START, START + timedelta(hours=1))
DAY = Window(START, START + timedelta(days=1))
START_S = START.timestamp()
POWER = "DCGM_FI_DEV_POWER_USAGE"
TOKENS = "vllm:generation_tokens_total"
FAMILIES = {POWER: Family(POWER, "power", "dcgm_exporter"), TOKENS: Family(TOKENS, "tokens", "vllm")}
GPU = {"UUID": "GPU-a", "Hostname": "n1"}


def collected(url, window=HOUR, families=FAMILIES, replica_labels=(), **options):
    """Rows (stream, metric, labels, milliseconds into the window, value) sorted, and the register."""
    register = SeriesRegister("cluster", window, replica_labels)
    batches = list(
        PrometheusCollector("cluster", url, backoff_seconds=0.01, **options).collect(window, families, register)
    )
    series = {row["series_id"]: row for row in register.series_table().to_pylist()}
    rows = []
    for stream, samples in batches:
        for sample in samples.to_pylist():
            one, after_us = series[sample["series_id"]], microseconds(sample["observed_at"]) - window.start_us
            rows.append((stream, one["metric"], one["labels"], after_us / 1000, sample["value"]))
    return sorted(rows, key=lambda row: row[:4]), register


# --- real servers -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """A Prometheus with two hours of two GPUs every 15 s (a gap of 4 minutes in one), an engine, and odd labels."""
    steps = np.arange(-4, 480) * 15.0
    gpu_a = [(START_S + s + 0.007, 300.0 + s) for s in steps if not 1800 <= s < 2040]
    gpu_b = [(START_S + s, 100.0) for s in steps]
    tokens = [(START_S + s + 0.5, max(0.0, s)) for s in steps]
    odd = {"UUID": 'a"values":[[1,"2"]]', "Hostname": "ä\n\\]],[", "namespace": "other"}
    lines = openmetrics(
        [
            (POWER, {**GPU, "namespace": "llm"}, gpu_a),
            (POWER, {"UUID": "GPU-b", "Hostname": "n1", "namespace": "llm"}, gpu_b),
            (
                POWER,
                odd,
                [(START_S + 1, math.nan), (START_S + 2, math.inf), (START_S + 3, -1.5e300), (START_S + 4, 5e-324)],
            ),
            ("DCGM_FI_DEV_NEW", GPU, gpu_b),
            ("node_load1", GPU, gpu_b),
            (TOKENS, {"model_name": "m", "engine": "0", "namespace": "llm"}, tokens),
            ("vllm:new_total", {"model_name": "m", "engine": "0"}, tokens),
            ("vllm:new_total", {"model_name": "m", "engine": "1"}, tokens),
            ("ha_power", {"UUID": "GPU-a", "prometheus_replica": "0"}, gpu_b[4:8]),
            ("ha_power", {"UUID": "GPU-a", "prometheus_replica": "1"}, [(at + 5, v + 1) for at, v in gpu_b[4:8]]),
        ]
    )
    with prometheus_with_history(tmp_path_factory.mktemp("prometheus"), lines) as url:
        yield url


def test_only_the_real_samples_arrive_over_a_planted_gap(history):
    rows, register = collected(history, matchers=['namespace="llm"', 'UUID="GPU-a"'])
    label = '{"Hostname":"n1","UUID":"GPU-a","namespace":"llm"}'
    seconds = [s for s in range(0, 3600, 15) if not 1800 <= s < 2040]
    assert rows == [("power", POWER, label, s * 1000 + 7, 300.0 + s) for s in seconds]
    (chunk,) = register.chunk_table().to_pylist()
    assert (chunk["samples"], chunk["longest_gap_seconds"], chunk["typical_interval_seconds"]) == (224, 255.0, 15.0)


def test_edges_are_half_open_wherever_the_window_and_its_chunks_are_cut(history):
    def seconds(start, end):
        window = Window(START + timedelta(seconds=start), START + timedelta(seconds=end))
        return [row[3] / 1000 + start for row in collected(history, window, matchers=['UUID="GPU-b"'])[0]]

    assert seconds(0, 45) == [0, 15, 30]
    assert seconds(15, 30) == [15]
    assert seconds(15.001, 30.001) == [30]
    assert seconds(14.9995, 15.0005) == [15]
    # Chunk edges fall on samples: one hour, then two.
    assert seconds(0, 7200) == [15.0 * n for n in range(480)]


def test_labels_and_values_of_every_kind_survive(history):
    rows, register = collected(history, matchers=['namespace="other"'])
    (label,) = {row[2] for row in rows}
    assert json.loads(label) == {"UUID": 'a"values":[[1,"2"]]', "Hostname": "ä\n\\]],[", "namespace": "other"}
    assert math.isnan(rows[0][4])
    assert [row[3:] for row in rows[1:]] == [(2000.0, math.inf), (3000.0, -1.5e300), (4000.0, 5e-324)]
    assert register.chunk_table()["rejects"].to_pylist() == [3]


def test_counters_go_to_their_own_stream(history):
    rows, _ = collected(history, Window(START, START + timedelta(seconds=30)), matchers=['namespace="llm"'])
    engine = '{"engine":"0","model_name":"m","namespace":"llm"}'
    assert [row for row in rows if row[0] == "tokens"] == [
        ("tokens", TOKENS, engine, 500.0, 0.0),
        ("tokens", TOKENS, engine, 15_500.0, 15.0),
    ]


def test_unknown_families_of_known_exporters_are_reported_with_their_series(history):
    _, register = collected(history)
    assert register.unknown_table().to_pylist() == [
        {"metric": "DCGM_FI_DEV_NEW", "series": 1},
        {"metric": "vllm:new_total", "series": 2},
    ]


def test_other_programs_metrics_are_not_reported_for_beginning_with_the_same_word(history):
    rapl = "node_rapl_package_joules_total"
    _, register = collected(history, families={**FAMILIES, rapl: Family(rapl, "power", "node_exporter")})
    assert register.unknown_table()["metric"].to_pylist() == ["DCGM_FI_DEV_NEW", "vllm:new_total"]


def test_two_replicas_become_one_series_in_time_order(history):
    families = {"ha_power": Family("ha_power", "power", "dcgm_exporter")}
    rows, register = collected(history, families=families, replica_labels=["prometheus_replica"])
    label = '{"UUID":"GPU-a"}'
    expected = [(s, 100.0) for s in (0, 15, 30, 45)] + [(s + 5, 101.0) for s in (0, 15, 30, 45)]
    assert rows == [("power", "ha_power", label, s * 1000.0, value) for s, value in sorted(expected)]
    (chunk,) = register.chunk_table().to_pylist()
    assert (chunk["samples"], chunk["out_of_order"], chunk["longest_gap_seconds"]) == (8, 0, 10.0)


def test_the_same_data_from_files_lands_the_same_samples(history, tmp_path):
    rows, register = collected(history, matchers=['namespace="llm"'])
    table = pa.table(
        {
            "metric": [row[1] for row in rows],
            "labels": [row[2] for row in rows],
            "observed_at": pa.array([HOUR.start_us + round(row[3] * 1000) for row in rows]).view(
                pa.timestamp("us", "UTC")
            ),
            "value": [row[4] for row in rows],
        }
    )
    pq.write_table(table, tmp_path / "same.parquet")
    mapping = FileMapping(
        str(tmp_path / "same.parquet"), time="observed_at", metric="metric", labels_json="labels", value="value"
    )
    again = SeriesRegister("cluster", HOUR)
    batches = FilesCollector("cluster", [mapping]).collect(HOUR, FAMILIES, again)
    found = sorted(tuple(row.values()) for _, batch in batches for row in batch.to_pylist())
    ids = {(row["metric"], row["labels"]): row["series_id"] for row in register.series_table().to_pylist()}
    assert found == sorted(
        (ids[row[1], row[2]], HOUR.start_at + timedelta(milliseconds=row[3]), row[4]) for row in rows
    )
    assert len(found) == 224 + 240 + 240
    assert again.chunk_table().sort_by("series_id") == register.chunk_table().sort_by("series_id")


@pytest.mark.needs("prometheus")
def test_chunks_are_halved_under_the_server_s_sample_limit(tmp_path):
    lines = openmetrics([(POWER, GPU, [(START_S + s, float(s)) for s in range(0, 7200, 5)])])
    with prometheus_with_history(tmp_path, lines, "--query.max-samples=500") as url:
        rows, register = collected(url, Window(START, START + timedelta(hours=2)))
        assert [row[3:] for row in rows] == [(s * 1000.0, float(s)) for s in range(0, 7200, 5)]
        assert register.chunk_table()["out_of_order"].to_pylist() == [0]


@pytest.mark.needs("prometheus")
def test_a_live_exporter_is_scraped_and_collected(tmp_path):
    def page(handler):
        body = f'# TYPE {POWER} gauge\n{POWER}{{UUID="GPU-live"}} 321.5\n'.encode()
        reply(handler, 200, body, "text/plain; version=0.0.4")

    started = datetime.now(UTC).replace(microsecond=0)
    with http_server(page) as target, prometheus_scraping(tmp_path, target.removeprefix("http://")) as url:
        deadline = time.monotonic() + 30
        rows = []
        while len(rows) < 3 and time.monotonic() < deadline:
            time.sleep(0.5)
            rows, register = collected(url, Window(started, started + timedelta(hours=1)))
    label = json.dumps(
        {"UUID": "GPU-live", "instance": target.removeprefix("http://"), "job": "live"}, separators=(",", ":")
    )
    assert len(rows) >= 3
    assert {row[:3] + row[4:] for row in rows} == {("power", POWER, label, 321.5)}
    assert register.chunk_table()["typical_interval_seconds"].to_pylist() == [pytest.approx(1.0, abs=0.5)]
