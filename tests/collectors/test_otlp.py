"""OTLP: spans of model calls become requests, metrics become samples, and nothing else of them is kept anywhere."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from collectors.devices import otlp_receiver
from collectors.devices.otlp_messages import refusal
from collectors.devices.otlp_receiver import Receiver
from collectors.devices.spool import Spool
from collectors.devices.spool_collector import SpoolCollector
from collectors.protocols.otlp_files import OtlpFilesCollector
from collectors.records.otlp_spans import OtlpSpanCollector
from collectors.rows import Rejects
from collectors.samples import SourceError, Window
from collectors.series import SeriesRegister
from pipelines.fleet import catalog

ROOT = Path(__file__).parents[2]
NOON_NS = int(datetime(2026, 10, 15, 12, tzinfo=UTC).timestamp()) * 1_000_000_000
DAY = Window.of_day(date(2026, 10, 15))
PLANTED = ("SECRET PROMPT", "SECRET ANSWER", "ann@acme.example", "203.0.113.9", "SECRET STATUS", "SECRET EVENT")


def value(held: object) -> dict[str, object]:
    if isinstance(held, int):
        return {"intValue": str(held)}
    return {"doubleValue": held} if isinstance(held, float) else {"stringValue": held}


def attributes(**held: object) -> list[dict[str, object]]:
    return [{"key": name.replace("__", "."), "value": value(one)} for name, one in held.items()]


def span(number: int, seconds: float = 2, **more: object) -> dict[str, object]:
    """A span of a chat that began `number` seconds after noon, with all that must not be kept."""
    held = {
        "gen_ai__operation__name": "chat",
        "gen_ai__request__model": "qwen",
        "gen_ai__usage__input_tokens": 100,
        "gen_ai__usage__output_tokens": 20,
        "gen_ai__prompt": PLANTED[0],
        "gen_ai__output__messages": PLANTED[1],
        "user__email": PLANTED[2],
        "client__address": PLANTED[3],
        **more,
    }
    return {
        "traceId": f"{number:032x}",
        "spanId": f"{number:016x}",
        "name": PLANTED[0],
        "startTimeUnixNano": str(NOON_NS + number * 1_000_000_000),
        "endTimeUnixNano": str(NOON_NS + int((number + seconds) * 1e9)),
        "attributes": attributes(**held),
        "events": [{"name": "gen_ai.content.prompt", "attributes": attributes(gen_ai__prompt=PLANTED[5])}],
        "status": {"message": PLANTED[4]},
    }


def traces(*spans: dict[str, object], **resource: object) -> dict[str, object]:
    held = {"service__name": "gateway", **resource}
    of_one = {"resource": {"attributes": attributes(**held)}, "scopeSpans": [{"scope": {}, "spans": list(spans)}]}
    return {"resourceSpans": [of_one]}


def metrics(*held: dict[str, object]) -> dict[str, object]:
    resource = {"attributes": attributes(host__name="gpu-a", service__instance__id="otel:1", process__owner=PLANTED[2])}
    return {"resourceMetrics": [{"resource": resource, "scopeMetrics": [{"metrics": list(held)}]}]}


def point(number: float, seconds: int = 0, **labels: object) -> dict[str, object]:
    at = str(NOON_NS + seconds * 1_000_000_000)
    return {"timeUnixNano": at, "asDouble": number, "attributes": attributes(**labels)}


def counter(name: str, unit: str, *points: dict[str, object], temporality: int = 2) -> dict[str, object]:
    held = {"isMonotonic": True, "aggregationTemporality": temporality, "dataPoints": list(points)}
    return {"name": name, "unit": unit, "sum": held}


POWER = {"name": "hw.power", "unit": "W", "gauge": {"dataPoints": [point(250.0, hw__id="0", hw__type="gpu")]}}
TOKENS = counter(
    "gen_ai.client.inference.usage.output_tokens", "{token}",
    point(70.0, gen_ai__request__model="qwen", tenant__id="acme", gen_ai__token__modality="text",
          user__email=PLANTED[2]),
)  # fmt: skip


def requests_of(path: Path, **keys: Any) -> tuple[list[dict[str, Any]], Rejects]:
    rejects = Rejects()
    collector = OtlpSpanCollector("spans", str(path), {}, **keys)
    return [row for batch in collector.collect(DAY, rejects) for row in batch.to_pylist()], rejects


def samples_of(collector: Any) -> dict[str, dict[str, float]]:
    """Metric -> labels -> the last value."""
    register = SeriesRegister("otlp", DAY, tenant_labels=["tenant_id"])
    values: dict[int, float] = {}
    for batch in collector.collect(DAY, catalog.families(), register):
        values |= dict(zip(*(batch.samples.column(nth).to_pylist() for nth in (0, 2)), strict=True))
    found: dict[str, dict[str, float]] = {}
    for row in register.series_table().to_pylist():
        found.setdefault(row["metric"], {})[row["labels"]] = values[row["series_id"]]
    return found


# --- files of the Collector ---


def test_spans_of_model_calls_are_requests(tmp_path: Path) -> None:
    lines = [
        traces(span(0, gen_ai__usage__cache_read__input_tokens=64, gen_ai__response__id="chatcmpl-1")),
        # The engine's own span of the same answer, by vLLM's names.
        traces(span(1, gen_ai__operation__name="text_completion", gen_ai__request__id="r-2"), service__name="vllm"),
        traces({**span(2), "status": {"code": 2}}, tenant__id="zeta"),
        # An agent's sum, a tool, a database.
        traces(span(3, gen_ai__operation__name="invoke_agent"), span(4, gen_ai__operation__name="execute_tool")),
        traces({**span(5), "attributes": attributes(db__system="postgresql")}),
    ]
    (tmp_path / "spans.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + "{broken\n", "utf-8")
    rows, rejects = requests_of(tmp_path, tenant=["tenant.id"], services=["gateway"])
    columns = ("request_id", "tenant", "model", "input_tokens", "cached_input_tokens", "output_tokens", "is_ok")
    assert [tuple(row[name] for name in columns) for row in rows] == [
        (f"{2:032x}:{2:016x}", "zeta", "qwen", 100, None, 20, False),
        ("chatcmpl-1", None, "qwen", 100, 64, 20, True),  # waits for how its model counts what a cache gave
    ]
    assert rows[1]["started_at"] == datetime(2026, 10, 15, 12, tzinfo=UTC)
    assert rows[1]["end_to_end_seconds"] == 2
    assert rejects.rows == 1
    assert len(requests_of(tmp_path)[0]) == 3  # with vLLM's own


def test_metrics_are_samples_by_the_names_of_the_catalogue(tmp_path: Path) -> None:
    started = {"startTimeUnixNano": str(NOON_NS - 60 * 1_000_000_000)}
    energy = counter("hw.energy", "J", {**point(5.0, hw__id="0", hw__type="gpu", hw__serial_number="S1"), **started})
    usage = {
        "name": "gen_ai.client.token.usage", "unit": "token",
        "histogram": {"aggregationTemporality": 2, "dataPoints": [
            {"timeUnixNano": str(NOON_NS), "sum": 9, "attributes": attributes(gen_ai__token__type="input")}
        ]},
    }  # fmt: skip
    delta = counter("gen_ai.client.inference.usage.input_tokens", "{token}", point(1.0), temporality=1)
    other = {"name": "http.server.requests", "gauge": {"dataPoints": [point(1.0)]}}
    path = tmp_path / "metrics.jsonl"
    path.write_text(json.dumps(metrics(POWER, energy, TOKENS, usage, delta, other)) + "\n", "utf-8")
    collector = OtlpFilesCollector("otlp", str(path), ["tenant_id"])
    found = samples_of(collector)
    assert {metric: list(held.values()) for metric, held in found.items()} == {
        "hw_power_watts": [250],
        "hw_energy_joules_total": [5],
        "gen_ai_client_inference_usage_output_tokens_total": [70],
        "gen_ai_client_token_usage_token_sum": [9],
    }
    [labels] = map(json.loads, found["hw_power_watts"])
    assert (labels["node"], labels["hw_sensor_location"]) == ("gpu-a", "package")
    [labels] = map(json.loads, found["gen_ai_client_inference_usage_output_tokens_total"])
    assert (labels["tenant_id"], "user_email" in labels) == ("acme", False)
    register = SeriesRegister("otlp", DAY)
    batches = [batch for batch in collector.collect(DAY, catalog.families(), register) if batch.stream == "power"]
    # The counter was 0 when its program started, a minute before; the gauge has its one value.
    assert sorted(value for batch in batches for value in batch.samples.column(2).to_pylist()) == [0, 5, 250]
    assert "expected cumulative temporality" in str(register.rejects)
    assert register.unknown_table().to_pylist() == [{"metric": "http.server.requests", "series": 1}]


def test_a_file_that_is_no_otlp_is_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"resourceMetrics": 7}\n[]\n', "utf-8")
    with pytest.raises(SourceError, match="2 of 2 rows rejected"):
        list(OtlpFilesCollector("otlp", str(path)).collect(DAY, catalog.families(), SeriesRegister("otlp", DAY)))


# --- the receiver ---


def send(
    port: int, path: str, body: bytes, kind: str = "application/json", *, token: str = "t0ken", **headers: str
) -> tuple[int, bytes, str | None]:
    """The status, the body and the header Retry-After of an answer."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, method="POST")
    request.add_header("Content-Type", kind)
    request.add_header("Authorization", f"Bearer {token}")
    for name, text in headers.items():
        request.add_header(name.replace("_", "-"), text)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read(), None
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read(), refused.headers.get("Retry-After")


def sent(receiver: Receiver, path: str, document: object) -> tuple[int, dict[str, Any], str | None]:
    """The status, the document and the header Retry-After of the answer to a document."""
    status, body, after = send(receiver.port, path, json.dumps(document).encode())
    return status, json.loads(body), after


def everything_in(folder: Path) -> bytes:
    files = [path for path in folder.rglob("*") if path.is_file()]
    tables = [pq.read_table(path) for path in files if path.suffix == ".parquet"]
    texts = [str(table.to_pylist()) + str(table.schema.metadata) for table in tables]
    return b"".join(path.read_bytes() for path in files) + "".join(texts).encode()


def test_what_is_answered_with_200_is_written_without_texts(receiver: Receiver, tmp_path: Path) -> None:
    export = traces(span(0), span(1, tenant__id="acme"), span(2, tenant__id=PLANTED[2]))
    assert send(receiver.port, "/v1/traces", json.dumps(export).encode())[:2] == (200, b"{}")
    body = gzip.compress(json.dumps(metrics(POWER, TOKENS)).encode())
    assert send(receiver.port, "/v1/metrics", body, Content_Encoding="gzip")[:2] == (200, b"{}")
    rows, rejects = requests_of(tmp_path / "spool/requests", tenant=["tenant.id"])
    assert [(row["tenant"], row["input_tokens"]) for row in rows] == [(None, 100), ("acme", 100), (None, 100)]
    assert rejects.rows == 0
    found = samples_of(SpoolCollector("otlp", tmp_path / "spool"))
    assert {metric: list(held.values()) for metric, held in found.items()} == {
        "hw_power_watts": [250],
        "gen_ai_client_inference_usage_output_tokens_total": [70],
    }
    written = everything_in(tmp_path)
    assert b"acme" in written
    assert [text for text in PLANTED if text.encode() in written] == []


def test_answers_are_those_of_the_specification(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    good = json.dumps(traces(span(0))).encode()
    port = receiver.port
    assert send(port, "/v1/traces", good, token="other")[0] == 401
    assert send(port, "/v1/logs", good)[0] == 404
    assert send(port, "/v1/traces", good, "text/plain")[0] == 415
    assert send(port, "/v1/traces", good, Content_Encoding="br")[0] == 415
    assert send(port, "/v1/traces", b"{SECRET", Content_Encoding="gzip")[0] == 400
    status, body, _ = send(port, "/v1/traces", b"{SECRET PROMPT")
    assert (status, b"SECRET" in body) == (400, False)
    assert send(port, "/v1/traces", b'{"resourceSpans": [7]}')[0] == 400
    # A span of another century is refused, the other one is kept.
    late = {**span(1), "startTimeUnixNano": "1"}
    status, body, _ = send(port, "/v1/traces", json.dumps(traces(span(0), late)).encode())
    assert (status, json.loads(body)["partialSuccess"]["rejectedSpans"]) == (200, "1")
    delta = metrics(counter("hw.energy", "J", point(1.0), temporality=1))
    status, body, _ = send(port, "/v1/metrics", json.dumps(delta).encode())
    assert (status, json.loads(body)["partialSuccess"]["rejectedDataPoints"]) == (200, "1")
    monkeypatch.setattr(otlp_receiver, "MOST_INFLATED_BYTES", 1_000)
    assert send(port, "/v1/traces", gzip.compress(good), Content_Encoding="gzip")[0] == 413
    monkeypatch.setattr(otlp_receiver, "MOST_BYTES", 10)
    assert send(port, "/v1/traces", good)[0] == 413


def test_a_full_disk_and_a_crowd_are_asked_to_retry(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Spool, "put", full)
    for path, export in (("/v1/traces", traces(span(0))), ("/v1/metrics", metrics(POWER))):
        status, _, after = send(receiver.port, path, json.dumps(export).encode())
        assert (status, after) == (503, "5")
    monkeypatch.undo()
    places = [receiver.place() for _ in range(otlp_receiver.MOST_AT_ONCE)]
    for place in places:
        place.__enter__()
    assert send(receiver.port, "/v1/traces", json.dumps(traces(span(0))).encode())[0::2] == (429, "5")
    for place in places:
        place.__exit__(None, None, None)
    assert send(receiver.port, "/v1/traces", json.dumps(traces(span(0))).encode())[0] == 200


def test_others_cannot_send_without_a_token(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"0\.0\.0\.0 can be reached from elsewhere"):
        Receiver(("0.0.0.0", 0), Spool(tmp_path), "gpu-a", {})


def test_a_kill_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "collectors", "agent", "--otlp", "127.0.0.1:0", "--spool", str(tmp_path / "spool")]
    agent = subprocess.Popen([*command, "--host", "gpu-a"], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        assert agent.stderr is not None
        line = next(line for line in agent.stderr if "OTLP is received on port" in line)
        port = int(line.split("port ")[1].split(",")[0])
        for number in range(20):
            held = {**span(number), "startTimeUnixNano": time.time_ns(), "endTimeUnixNano": time.time_ns()}
            assert send(port, "/v1/traces", json.dumps(traces(held)).encode()) == (200, b"{}", None)
        held = {"timeUnixNano": time.time_ns(), "asDouble": 250.0}
        power = {"name": "hw.power", "unit": "W", "gauge": {"dataPoints": [held]}}
        assert send(port, "/v1/metrics", json.dumps(metrics(power)).encode()) == (200, b"{}", None)
    finally:
        os.kill(agent.pid, signal.SIGKILL)
        agent.wait()
    written = [json.loads(path.read_text("utf-8")) for path in (tmp_path / "spool/requests").rglob("*.jsonl")]
    assert sorted(one["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["spanId"] for one in written) == [
        f"{number:016x}" for number in range(20)
    ]
    [samples] = (tmp_path / "spool/host=gpu-a").rglob("*.parquet")
    assert pq.read_table(samples).column("metric").to_pylist() == ["hw_power_watts"]


def test_a_refusal_is_a_status_in_both_encodings() -> None:
    assert refusal("application/json", "no") == b'{"message": "no"}'
    # Field 2, as text: the length of 200 bytes is two bytes itself.
    assert refusal("application/x-protobuf", "x" * 200) == b"\x12\xc8\x01" + b"x" * 200


def test_protobuf_is_read_as_json_is(receiver: Receiver, tmp_path: Path) -> None:
    from google.protobuf.json_format import ParseDict  # noqa: PLC0415 (an extra)
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2  # noqa: PLC0415
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2  # noqa: PLC0415

    message = ParseDict(traces(span(0, tenant__id="acme")), trace_service_pb2.ExportTraceServiceRequest())
    kind = "application/x-protobuf"
    assert send(receiver.port, "/v1/traces", message.SerializeToString(), kind)[:2] == (200, b"")
    measured = ParseDict(metrics(POWER, TOKENS), metrics_service_pb2.ExportMetricsServiceRequest())
    body = gzip.compress(measured.SerializeToString())
    assert send(receiver.port, "/v1/metrics", body, kind, Content_Encoding="gzip")[:2] == (200, b"")
    rows, _ = requests_of(tmp_path / "spool/requests", tenant=["tenant.id"])
    assert [(row["tenant"], row["output_tokens"]) for row in rows] == [("acme", 20)]
    assert sorted(samples_of(SpoolCollector("otlp", tmp_path / "spool"))) == [
        "gen_ai_client_inference_usage_output_tokens_total",
        "hw_power_watts",
    ]
    assert [text for text in PLANTED if text.encode() in everything_in(tmp_path)] == []
    late = ParseDict(traces({**span(1), "startTimeUnixNano": "1"}), trace_service_pb2.ExportTraceServiceRequest())
    status, body, _ = send(receiver.port, "/v1/traces", late.SerializeToString(), kind)
    answer = trace_service_pb2.ExportTraceServiceResponse.FromString(body)
    assert (status, answer.partial_success.rejected_spans) == (200, 1)
    assert send(receiver.port, "/v1/traces", b"\xff\xff", kind)[0] == 400
