"""Pages over real HTTP: the recorded ones of real engines, and the broken ones of real life."""

import contextlib
import gzip
import json
import math
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.limits import Limits
from collectors.protocols.exposition import ExpositionPage, parse_page
from collectors.rows import Rejects
from collectors.samples import SourceError
from tests import optional
from tests.servers import free_port, http_server

ROOT = Path(__file__).parents[2]

VLLM = {
    "vllm:prompt_tokens_total": "vllm",
    "vllm:generation_tokens_total": "vllm",
    "vllm:generation_tokens_created": "vllm",
    "vllm:prompt_tokens_by_source_total": "vllm",
    "vllm:num_requests_running": "vllm",
}

SMALL = """\
# HELP vllm:generation_tokens_total Number of generation tokens processed.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="tiny"} 2520.0
# TYPE python_gc_objects_collected_total counter
python_gc_objects_collected_total{generation="0"} 14449.0
python_gc_objects_collected_total{generation="1"} 449.0
"""

OPENMETRICS = """\
# TYPE vllm:generation_tokens counter
# HELP vllm:generation_tokens Number of generation tokens processed.
vllm:generation_tokens_total{model_name="tiny"} 2520.0 # {trace_id="a"} 12.0
vllm:generation_tokens_created{model_name="tiny"} 1.7952027215700233e+09
# TYPE vllm:e2e_request_latency_seconds histogram
vllm:e2e_request_latency_seconds_bucket{le="0.5"} 3.0
vllm:e2e_request_latency_seconds_bucket{le="+Inf"} 4.0
vllm:e2e_request_latency_seconds_count 4.0
vllm:e2e_request_latency_seconds_sum 2.5
# TYPE other gauge
other 1.0
# EOF
"""


def recorded(name):
    """A page of the validation data."""
    (data,) = optional.required("validation-data")
    return (data / "metrics_pages" / name).read_text()


def answering(body, content_type="text/plain; version=0.0.4; charset=utf-8", status=200, headers=()):
    body = body.encode() if isinstance(body, str) else body

    def answer(request):
        request.send_response(status)
        request.send_header("Content-Type", content_type)
        for name, value in headers:
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    return http_server(answer)


def totals(readings):
    """(metric, source label or "") -> value."""
    return {(r.metric, json.loads(r.labels).get("source", "")): r.value for r in readings}


@pytest.mark.needs("validation-data")
def test_the_real_vllm_pages_give_the_clients_own_totals():
    looks = []
    for name in ("vllm_0_32_cpu_before.prom", "vllm_0_32_cpu_after.prom"):
        with answering(recorded(name)) as url:
            looks.append(totals(ExpositionPage(f"{url}/metrics", VLLM).look()))
    before, after = looks
    # A label set without a request is not on the page before: it counts from zero.
    moved = {key: after[key] - before.get(key, 0.0) for key in after if key[0].endswith("_total")}
    assert moved == {
        ("vllm:prompt_tokens_total", ""): 10_920.0,
        ("vllm:generation_tokens_total", ""): 2_520.0,
        ("vllm:prompt_tokens_by_source_total", "local_compute"): 3_368.0,
        ("vllm:prompt_tokens_by_source_total", "local_cache_hit"): 7_552.0,
        ("vllm:prompt_tokens_by_source_total", "external_kv_transfer"): 0.0,
    }
    assert after["vllm:generation_tokens_created", ""] == 1.7952027215700235e09


@pytest.mark.needs("validation-data")
def test_the_filter_and_the_whole_parse_agree_on_the_real_page():
    text = recorded("vllm_0_32_cpu_after.prom")
    everything, unwanted_of_everything = parse_page(text, Rejects())
    some, unwanted = parse_page(text, Rejects(), VLLM)
    assert len(everything) == 425
    assert unwanted_of_everything == {}
    assert some == [sample for sample in everything if sample.metric in VLLM]
    assert len(some) == 7
    assert len(some) + sum(unwanted.values()) == 425


@pytest.mark.needs("validation-data")
def test_dcgm_keeps_its_counter_name_without_total():
    page = recorded("dcgm_metrics_excerpt_datadog.prom")
    samples, _ = parse_page(page, Rejects(), {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"})
    assert [(s.metric, s.value, s.labels["Hostname"]) for s in samples] == [
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 128_996_013.0, "424773df46e0")
    ]


def test_labels_time_and_kind_of_a_reading():
    with answering(SMALL) as url:
        page = ExpositionPage(f"{url}/metrics", VLLM, clock_ns=lambda: 1_700_000_000_123_456_789)
        [reading] = page.look()
        port = url.rpartition(":")[2]
        assert reading == (
            1_700_000_000_123_456,
            "vllm",
            "vllm:generation_tokens_total",
            f'{{"engine":"0","instance":"127.0.0.1:{port}","model_name":"tiny"}}',
            2520.0,
        )
        assert page.unknown == {"python_gc_objects_collected_total": 2}


def test_localhost_of_two_hosts_is_two_instances():
    with answering(SMALL) as url:
        port = url.rpartition(":")[2]
        [reading] = ExpositionPage(f"{url}/metrics", VLLM, host="gpu-a").look()
    assert json.loads(reading.labels) == {
        "engine": "0",
        "instance": f"gpu-a:{port}",
        "model_name": "tiny",
        "node": "gpu-a",
    }


def test_the_pages_own_instance_and_times_stand():
    with answering('power_watts{instance="bmc-7:80"} 5 1700000000125\n') as url:
        [reading] = ExpositionPage(url).look()
    assert json.loads(reading.labels) == {"instance": "bmc-7:80"}
    assert reading.observed_us == 1_700_000_000_125_000


def test_openmetrics_is_read_where_a_page_insists():
    with answering(OPENMETRICS, "application/openmetrics-text; version=1.0.0; charset=utf-8") as url:
        page = ExpositionPage(url, {**VLLM, "vllm:e2e_request_latency_seconds_bucket": "vllm"})
        readings = page.look()
    assert [(r.metric, r.value) for r in readings] == [
        ("vllm:generation_tokens_total", 2520.0),
        ("vllm:generation_tokens_created", 1.7952027215700233e09),
        ("vllm:e2e_request_latency_seconds_bucket", 3.0),
        ("vllm:e2e_request_latency_seconds_bucket", 4.0),
    ]
    assert page.unknown == {
        "vllm:e2e_request_latency_seconds_count": 1,
        "vllm:e2e_request_latency_seconds_sum": 1,
        "other": 1,
    }


def test_nan_and_infinity_are_read_as_on_the_page():
    samples, _ = parse_page("a NaN\nb +Inf\nc -Inf\nd -1\ne 9223372036854775794\n", Rejects())
    assert math.isnan(samples[0].value)
    assert [sample.value for sample in samples[1:]] == [math.inf, -math.inf, -1.0, 9223372036854775794.0]


@pytest.mark.parametrize(
    ("body", "content_type", "reason"),
    [
        ("<html><form>Sign in</form></html>\n", "text/html; charset=utf-8", "answered text/html, not metrics"),
        (
            "<html><form>Sign in</form></html>\n",
            "text/plain",
            "not a metrics page; 1 of 1 rows rejected, expected at most 0.5 of all: a line begins with '<html>",
        ),
        ('{"power": 5}\n', "application/json", "answered application/json"),
        ('{"power": 5}\n', "text/plain", ""),
        ("no healthy upstream\n", "text/plain", "a line begins with 'no healthy upstream': it is no sample"),
        (SMALL[:-8], "text/plain", "truncated"),
        (OPENMETRICS.replace("# EOF\n", ""), "application/openmetrics-text", "# EOF is missing"),
        ("vllm:generation_tokens_total{model_name=tiny} 1\n", "text/plain", "Invalid labels"),
        ("vllm:generation_tokens_total many\n", "text/plain", "not a metrics page"),
        ("vllm:generation_tokens_total 1x\n", "text/plain", "1x"),
        ("vllm:generation_tokens_total 1 1e300\n", "text/plain", "which is no time"),
        ("", "text/plain", "truncated"),
        ("# nothing yet\n", "text/plain", "holds no samples"),
        (b"\xff\xfe\n", "text/plain", "not UTF-8"),
    ],
)
def test_a_broken_page_is_a_source_error(body, content_type, reason):
    with answering(body, content_type) as url, pytest.raises(SourceError) as caught:
        ExpositionPage(url, VLLM).look()
    assert reason in caught.value.reason
    assert caught.value.reason


@given(st.text(max_size=200), st.booleans())
def test_no_text_does_worse_than_a_value_error(text, is_openmetrics):
    rejects = Rejects()
    try:
        samples, _ = parse_page(text + "\n", rejects, is_openmetrics=is_openmetrics)
    except ValueError:
        return
    assert samples or rejects.rows


def test_an_oversized_page_is_cut_off():
    with answering(SMALL * 1000) as url, pytest.raises(SourceError, match="over 100000 bytes"):
        ExpositionPage(url, VLLM, limits=Limits(answer_bytes=100_000)).look()


def test_a_compressed_page_that_grows_beyond_the_cap_is_cut_off():
    packed = gzip.compress((SMALL * 10_000).encode())
    assert len(packed) < 100_000
    with (
        answering(packed, headers=[("Content-Encoding", "gzip")]) as url,
        pytest.raises(SourceError, match="over 100000 bytes"),
    ):
        ExpositionPage(url, VLLM, limits=Limits(answer_bytes=100_000)).look()


def test_an_answer_that_breaks_off_is_a_source_error_and_the_next_look_is_whole():
    lengths = [100, 0]

    def answer(request):
        request.send_response(200)
        request.send_header("Content-Type", "text/plain")
        request.send_header("Content-Length", str(len(SMALL) + lengths.pop(0)))
        request.end_headers()
        request.wfile.write(SMALL.encode())
        request.close_connection = True

    with http_server(answer) as url:
        page = ExpositionPage(url, VLLM)
        with pytest.raises(SourceError, match="the answer broke off"):
            page.look()
        assert len(page.look()) == 1


def test_a_page_that_hangs_times_out():
    def answer(request):
        request.rfile.read(1)

    with http_server(answer) as url, pytest.raises(SourceError, match="timed out"):
        ExpositionPage(url, limits=Limits(answer_seconds=0.2)).look()


def test_a_page_that_drips_is_given_up():
    def answer(request):
        request.send_response(200)
        request.send_header("Content-Length", "100000000")
        request.end_headers()
        with contextlib.suppress(ConnectionError):
            while True:
                request.wfile.write(b"#" * 70_000)
                time.sleep(0.05)

    with http_server(answer) as url, pytest.raises(SourceError, match=r"the answer took longer than 1\.6 s"):
        ExpositionPage(url, limits=Limits(answer_seconds=1.6)).look()


def test_unreachable_and_refusing_pages_say_so_without_secrets():
    port = free_port()
    with pytest.raises(SourceError) as caught:
        ExpositionPage(f"http://agent:hunter2@127.0.0.1:{port}/metrics?token=hunter2").look()
    assert caught.value.url == f"http://127.0.0.1:{port}/metrics"
    assert "Connection refused" in caught.value.reason
    assert "hunter2" not in str(caught.value)
    with answering("no\n", status=503) as url, pytest.raises(SourceError) as caught:
        ExpositionPage(url).look()
    assert caught.value.status == 503


def test_only_http_urls_are_pages():
    with pytest.raises(SourceError, match="not an http or https URL"):
        ExpositionPage("localhost:8000/metrics")


def test_secrets_come_from_the_named_variables(monkeypatch):
    seen = []

    def answer(request):
        seen.append(request.headers["Authorization"])
        request.send_response(200)
        request.send_header("Content-Type", "text/plain")
        request.send_header("Content-Length", str(len(SMALL)))
        request.end_headers()
        request.wfile.write(SMALL.encode())

    monkeypatch.setenv("PAGE_TOKEN", "s3cret\n")
    monkeypatch.setenv("PAGE_USER", "agent")
    monkeypatch.setenv("PAGE_PASSWORD", "hunter2")
    with http_server(answer) as url:
        ExpositionPage(url, bearer_env="PAGE_TOKEN").look()
        ExpositionPage(url, username_env="PAGE_USER", password_env="PAGE_PASSWORD").look()
        ExpositionPage(url.replace("://", "://agent:hunter2@")).look()
        assert seen == ["Bearer s3cret", "Basic YWdlbnQ6aHVudGVyMg==", "Basic YWdlbnQ6aHVudGVyMg=="]
        with pytest.raises(SourceError, match=r"environment variable NOT_SET \(bearer_env\) is not set"):
            ExpositionPage(url, bearer_env="NOT_SET").look()


def test_redirects_within_the_server_are_followed():
    def answer(request):
        is_moved = request.path == "/metrics"
        body = b"" if is_moved else SMALL.encode()
        request.send_response(307 if is_moved else 200)
        request.send_header("Location" if is_moved else "Content-Type", "/metrics/" if is_moved else "text/plain")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    with http_server(answer) as url:
        assert len(ExpositionPage(f"{url}/metrics", VLLM).look()) == 1
