"""The Prometheus collector: against real Prometheus servers, and against HTTP answers that no good server gives."""

import gzip
import json
import math
import time
import tracemalloc
import urllib.parse
from datetime import UTC, datetime, timedelta

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.files import FileMapping, FilesCollector
from collectors.prometheus import PrometheusCollector, parse_matrix
from collectors.samples import Family, SourceError, Window, microseconds
from collectors.series import SeriesRegister
from tests.servers import http_server, openmetrics, prometheus_scraping, prometheus_with_history

START = datetime(2026, 10, 1, tzinfo=UTC)
HOUR = Window(START, START + timedelta(hours=1))
DAY = Window(START, START + timedelta(days=1))
START_S = START.timestamp()
POWER = "DCGM_FI_DEV_POWER_USAGE"
TOKENS = "vllm:generation_tokens_total"
FAMILIES = {POWER: Family(POWER, "power", "dcgm_exporter"), TOKENS: Family(TOKENS, "tokens", "vllm")}
GPU = {"UUID": "GPU-a", "Hostname": "n1"}


def collected(url, window=HOUR, families=FAMILIES, **options):
    """Rows (stream, metric, labels, milliseconds into the window, value) sorted, and the register."""
    replicas = options.get("replica_labels", ())
    register = SeriesRegister("cluster", window, replicas)
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


def test_unknown_families_of_known_exporters_are_told_with_their_series(history):
    _, register = collected(history)
    assert register.unknown_table().to_pylist() == [
        {"metric": "DCGM_FI_DEV_NEW", "series": 1},
        {"metric": "vllm:new_total", "series": 2},
    ]


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


def test_chunks_are_halved_under_the_server_s_sample_limit(tmp_path):
    lines = openmetrics([(POWER, GPU, [(START_S + s, float(s)) for s in range(0, 7200, 5)])])
    with prometheus_with_history(tmp_path, lines, "--query.max-samples=500") as url:
        rows, register = collected(url, Window(START, START + timedelta(hours=2)))
        assert [row[3:] for row in rows] == [(s * 1000.0, float(s)) for s in range(0, 7200, 5)]
        assert register.chunk_table()["out_of_order"].to_pylist() == [0]


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


# --- answers of any kind ----------------------------------------------------------------------------------------------


def reply(handler, status, body, kind="application/json", **headers):
    handler.send_response(status)
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **told}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)


def fields_of(handler):
    """Path and form fields of a request, read whole so that the connection can be used again."""
    path, _, query = handler.path.partition("?")
    body = handler.rfile.read(int(handler.headers.get("Content-Length", 0))).decode()
    return path, dict(urllib.parse.parse_qsl(body or query))


def matrix(*series):
    return orjson.dumps({"status": "success", "data": {"resultType": "matrix", "result": list(series)}})


SAMPLE = matrix({"metric": {"__name__": POWER, **GPU}, "values": [[START_S + 1, "250.5"]]})
ROW = ("power", POWER, '{"Hostname":"n1","UUID":"GPU-a"}', 1000.0, 250.5)
ONE = {POWER: FAMILIES[POWER]}


def server(answer):
    """A server whose names endpoint knows POWER, and which answers queries through `answer(handler, fields)`."""

    def both(handler):
        path, fields = fields_of(handler)
        if path.endswith("/label/__name__/values"):
            reply(handler, 200, orjson.dumps({"status": "success", "data": [POWER]}))
        else:
            answer(handler, fields)

    return http_server(both)


def failure(answer, url_part="", **options):
    with server(answer) as url:
        with pytest.raises(SourceError) as caught:
            collected(url.replace("http://", f"http://{url_part}"), families=ONE, **options)
        assert caught.value.url == f"{url}/api/v1/query"
        assert "window [2026-10-01T00:00:00+00:00, 2026-10-01T01:00:00+00:00)" in str(caught.value)
        return caught.value


def test_a_refusal_is_not_retried_and_names_the_status_but_no_secret(monkeypatch):
    asked = []

    def refuse(handler, _):
        asked.append(handler.headers["Authorization"])
        reply(handler, 401, b"token hunter2 is not valid", "text/plain")

    monkeypatch.setenv("PROM_TOKEN", "hunter2")
    error = failure(refuse, "bob:hunter3@", bearer_env="PROM_TOKEN")
    assert error.status == 401
    assert "refused: token *** is not valid" in str(error)
    assert "hunter" not in str(error)
    assert asked == ["Bearer hunter2"]


@pytest.mark.parametrize(
    ("options", "url_part"),
    [({"username_env": "PROM_USER", "password_env": "PROM_PASSWORD"}, ""), ({}, "bob:p%40ss@")],
)
def test_basic_authentication_from_the_environment_or_the_url(monkeypatch, options, url_part):
    monkeypatch.setenv("PROM_USER", "bob")
    monkeypatch.setenv("PROM_PASSWORD", "p@ss")
    seen = []

    def answer(handler, _):
        seen.append(handler.headers["Authorization"])
        reply(handler, 200, SAMPLE)

    with server(answer) as url:
        assert collected(url.replace("http://", f"http://{url_part}"), families=ONE, **options)[0] == [ROW]
    assert set(seen) == {"Basic Ym9iOnBAc3M="}


def test_a_missing_environment_variable_is_named():
    with pytest.raises(SourceError, match=r"environment variable NO_SUCH_TOKEN \(bearer_env\) is not set"):
        collected("http://127.0.0.1:1", bearer_env="NO_SUCH_TOKEN")


def test_server_errors_are_retried_and_then_reported():
    asked = []

    def fail(handler, _):
        asked.append(1)
        reply(handler, 500, b'{"status":"error","errorType":"internal","error":"disk on fire"}')

    error = failure(fail, attempts=3)
    assert (error.status, len(asked)) == (500, 3)
    assert "disk on fire (3 attempts)" in str(error)


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_what_passes_is_waited_for(status):
    asked = []

    def once(handler, _):
        asked.append(1)
        if len(asked) == 1:
            reply(handler, status, b"later", "text/plain", Retry_After="0")
        else:
            reply(handler, 200, SAMPLE)

    with server(once) as url:
        assert collected(url, families=ONE)[0] == [ROW]
    assert len(asked) == 2


def test_retry_after_is_respected():
    asked = []

    def once(handler, _):
        asked.append(time.monotonic())
        reply(handler, *((429, b"", "text/plain") if len(asked) == 1 else (200, SAMPLE)), Retry_After="1")

    with server(once) as url:
        collected(url, families=ONE)
    assert asked[1] - asked[0] >= 1.0


BAD_ANSWERS = {
    "a login page": (200, b"<html>Sign in</html>", "text/html", "answered text/html, not JSON; a login page"),
    "html called JSON": (200, b"<html>Sign in</html>", "application/json", "is not JSON; a login page"),
    "JSON that breaks off in a block": (200, SAMPLE[:-20], "application/json", "breaks off within a series"),
    "JSON that breaks off after it": (200, SAMPLE[:-2], "application/json", "cannot be read"),
    "an error with status 200": (
        200,
        b'{"status":"error","error":"bad"}',
        "application/json",
        "status is not success: bad",
    ),
    "another type": (
        200,
        b'{"status":"success","data":{"resultType":"vector","result":[]}}',
        "application/json",
        "not of type matrix",
    ),
    "a bad query": (
        400,
        b'{"status":"error","errorType":"bad_data","error":"parse error"}',
        "application/json",
        "HTTP 400: parse error",
    ),
    "half an answer": (
        200,
        SAMPLE[:-1] + b',"warnings":["store down"]}',
        "application/json",
        "the answer is partial: store down",
    ),
    "a partial answer": (
        200,
        SAMPLE[:-1] + b',"isPartial":true}',
        "application/json",
        "the answer is partial: isPartial",
    ),
    "no number": (200, SAMPLE.replace(b"250.5", b"watts"), "application/json", "cannot be read"),
}


@pytest.mark.parametrize("case", BAD_ANSWERS)
def test_garbage_is_a_source_error_and_never_a_sample(case):
    status, body, kind, expected = BAD_ANSWERS[case]
    error = failure(lambda handler, _: reply(handler, status, body, kind))
    assert error.status == status
    assert expected in str(error)


def test_a_redirect_is_not_followed_and_its_query_not_told():
    error = failure(
        lambda handler, _: reply(handler, 302, b"", Location="https://bob:x@login.example/auth?token=secret")
    )
    assert (error.status, "redirects to https://login.example/auth; a login page?" in str(error)) == (302, True)


def test_a_connection_that_breaks_off_is_tried_again_and_then_reported():
    asked = []

    def cut(handler, _):
        asked.append(1)
        reply(handler, 200, SAMPLE[:30], Content_Length=str(len(SAMPLE)), Connection="close")
        handler.close_connection = True

    error = failure(cut, attempts=2)
    assert (len(asked), "the answer broke off" in str(error)) == (2, True)


def test_an_unreachable_server_is_reported_with_its_url():
    with pytest.raises(
        SourceError, match=r"http://127\.0\.0\.1:1/api/v1/label/__name__/values: cannot be reached: .*2 attempts"
    ):
        collected("http://bob:secret@127.0.0.1:1", attempts=2)


def test_a_url_that_is_none_is_refused_at_once():
    for url in ("prom:9090", "ftp://prom", "bob:hunter2@prom:9090"):
        with pytest.raises(SourceError, match="not an http or https URL") as caught:
            PrometheusCollector("cluster", url)
        assert "hunter2" not in str(caught.value)


def limited_server(most_ms, status, body, **headers):
    """Answers like a server that allows `most_ms` a query: one sample each 100 s; also the list of what was asked."""
    asked = []

    def answer(handler, fields):
        range_ms = int(fields["query"].rpartition("[")[2].removesuffix("ms]"))
        asked.append(range_ms)
        end_s = float(fields["time"])
        if range_ms > most_ms:
            reply(handler, status, body, **headers)
            return
        inside = [s for s in range(0, 3600, 100) if end_s - range_ms / 1000 <= START_S + s <= end_s]
        reply(handler, 200, matrix({"metric": GPU, "values": [[START_S + s, str(s)] for s in inside]}))

    return server(answer), asked


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (
            422,
            b'{"status":"error","error":"query processing would load too many samples into memory"}',
        ),
        (413, b"too large"),
        (503, b'{"status":"error","errorType":"timeout","error":"query timed out"}'),
        (200, b'{"status":"success","data":"' + b"x" * 20_000 + b'"}'),
    ],
    ids=["samples", "size", "timeout", "long body"],
)
def test_an_answer_over_a_limit_halves_the_chunk(status, body):
    running, asked = limited_server(900_000, status, body)
    with running as url:
        rows, _ = collected(url, families=ONE, body_limit_bytes=10_000)
    assert [row[3:] for row in rows] == [(s * 1000.0, float(s)) for s in range(0, 3600, 100)]
    assert asked[:3] == [3_600_000, 1_800_000, 900_000]


def test_a_gzip_bomb_costs_little_more_than_the_limit():
    bomb = gzip.compress(bytes(200_000_000))
    running, asked = limited_server(900_000, 200, bomb, Content_Encoding="gzip")
    with running as url:
        tracemalloc.start()
        rows, _ = collected(url, families=ONE, body_limit_bytes=1_000_000)
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert len(rows) == 36
    assert asked[:3] == [3_600_000, 1_800_000, 900_000]
    assert peak_bytes < 40_000_000


def test_a_compressed_answer_is_read():
    with server(lambda handler, _: reply(handler, 200, gzip.compress(SAMPLE), Content_Encoding="gzip")) as url:
        assert collected(url, families=ONE)[0] == [ROW]


def test_a_limit_that_even_a_second_is_over_is_an_error():
    running, asked = limited_server(0, 422, b'{"status":"error","error":"too many series"}')
    with running as url, pytest.raises(SourceError, match="HTTP 422: too many series"):
        collected(url, families=ONE)
    assert asked[-1] == 1000
    assert len(asked) == 13


def test_a_server_that_takes_no_post_is_asked_by_get():
    methods = []

    def answer(handler, _):
        methods.append(handler.command)
        reply(handler, 405 if handler.command == "POST" else 200, SAMPLE)

    with server(answer) as url:
        assert collected(url, families=ONE)[0] == [ROW]
    assert methods == ["POST", "GET"]


def test_fields_and_headers_of_the_fleet_file_go_with_every_request():
    seen = []

    def answer(handler, fields):
        seen.append((handler.headers["X-Scope-OrgID"], fields["extra_label"], fields["query"]))
        reply(handler, 200, SAMPLE)

    with server(answer) as url:
        collected(f"{url}/?extra_label=a%3Db", families=ONE, headers={"X-Scope-OrgID": "team"}, matchers=['a="b"'])
    assert seen == [("team", "a=b", '{__name__="DCGM_FI_DEV_POWER_USAGE",a="b"}[3600000ms]')]


def test_a_server_that_hides_its_names_is_asked_for_every_family():
    def answer(handler):
        path, fields = fields_of(handler)
        known = path.endswith("/query") and POWER in fields["query"]
        reply(handler, 200 if path.endswith("/query") else 403, SAMPLE if known else matrix())

    with http_server(answer) as url:
        rows, register = collected(url)
    assert rows == [ROW]
    assert register.unknown_table().num_rows == 0


# --- parsing ----------------------------------------------------------------------------------------------------------


def test_values_times_and_labels_are_exact():
    body = (
        b'{"status":"success","data":{"resultType":"matrix","result":['
        b'{"metric":{"__name__":"m","a":"\\"values\\":[[1,\\"2\\"]]"},'
        b'"values":[[1790812800.001,"1"],[1790812800.999,"-Inf"],[1790812801,"+Inf"],[1790812802.5,"1.5e+10"]]},'
        b'{"metric":{"values":"[["},"histograms":[[1790812800,{"count":"1"}]]},'
        b'{"metric":{},"values":[]},'
        b'{"metric":{"b":"\\u00e4]]\\n"},"values":[[1790812800,"NaN"]]}]}}'
    )
    for text in (body, body.replace(b'"values":[[', b'"values": [['), body.replace(b',"values":[[', b',"values":[[ ')):
        labels, counts, times_ms, values = parse_matrix(text)
        assert labels == [{"a": '"values":[[1,"2"]]'}, {"b": "ä]]\n"}]
        assert counts.tolist() == [4, 1]
        assert times_ms.tolist() == [1790812800001, 1790812800999, 1790812801000, 1790812802500, 1790812800000]
        assert values[:4].tolist() == [1.0, -math.inf, math.inf, 1.5e10]
        assert math.isnan(values[4])


def test_an_empty_matrix_and_the_honest_emptiness_of_thanos():
    assert parse_matrix(matrix())[0] == []
    warning = matrix()[:-1] + b',"warnings":["No StoreAPIs matched for this query"]}'
    assert [len(part) for part in parse_matrix(warning)] == [0, 0, 0, 0]


TEXT = st.text(st.sampled_from('ab"\\[]{},:1\n\u2028ä') | st.characters(codec="utf-8"), max_size=12)
NUMBERS = st.floats() | st.integers(-(10**6), 10**6).map(float)


@given(
    st.lists(
        st.tuples(
            st.dictionaries(TEXT | st.just("values"), TEXT | st.just('"values":[['), max_size=3),
            st.lists(st.tuples(st.integers(0, 4 * 10**12), NUMBERS), min_size=1, max_size=5),
        ),
        max_size=5,
    )
)
@settings(max_examples=200, deadline=None)
def test_every_matrix_comes_back_as_it_was(series):
    def text(value):
        return {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}.get(repr(value), repr(value))

    body = matrix(
        *(
            {"metric": {"__name__": "m", **labels}, "values": [[ms / 1000, text(value)] for ms, value in samples]}
            for labels, samples in series
        )
    )
    labels, counts, times_ms, values = parse_matrix(body)
    assert labels == [{name: value for name, value in one.items() if name != "__name__"} for one, _ in series]
    assert counts.tolist() == [len(samples) for _, samples in series]
    assert times_ms.tolist() == [ms for _, samples in series for ms, _ in samples]
    np.testing.assert_array_equal(values, [value for _, samples in series for _, value in samples])


@given(st.integers(0, len(SAMPLE) - 1))
@settings(max_examples=50, deadline=None)
def test_no_beginning_of_an_answer_is_taken_for_a_whole_one(length):
    with pytest.raises(ValueError):
        parse_matrix(SAMPLE[:length])
