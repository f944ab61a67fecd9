"""What a receiver of OTLP bears: requests that grow, wait, name or date without end; and large ones, which it takes."""

from __future__ import annotations

import contextlib
import copy
import gzip
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collectors.__main__ import main
from collectors.devices import otlp_messages, otlp_receiver
from collectors.devices.otlp_receiver import Receiver, Refused
from collectors.devices.spool import Spool
from pipelines.fleet.places import PROJECT
from tests.collectors.test_limits import peak_of
from tests.collectors.test_otlp import (
    NOON_NS,
    POWER,
    TOKENS,
    attributes,
    metrics,
    point,
    receiving,
    requests_of,
    send,
    span,
    traces,
)
from tests.servers import http_server

JSON, PROTOBUF = "application/json", "application/x-protobuf"
DAY_SECONDS = 86_400


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    with receiving(tmp_path) as taking:
        yield taking


def sent(receiver: Receiver, path: str, document: object) -> tuple[int, dict[str, Any], str | None]:
    status, body, after = send(receiver.port, path, json.dumps(document).encode())
    return status, json.loads(body), after


# --- memory ---

# A receiver in a process of its own; `taken(path, kind, body)` prints the status.
IN_A_CHILD = """
import gzip
from collectors.devices.otlp_receiver import Receiver, Refused
from collectors.devices.spool import Spool
receiver = Receiver(("127.0.0.1", 0), Spool(sys.argv[1]), "h", {"hw_power_watts": "otel"}, clock=lambda: 1.8e9)
J, P, M = "application/json", "application/x-protobuf", 1 << 20
def message(tag, content):
    length, rest = [], len(content)
    while rest > 127:
        length.append(rest & 127 | 128)
        rest >>= 7
    return bytes([tag, *length, rest]) + content
def taken(path, kind, body):
    try:
        print(200, receiver.take(path, kind, "gzip", gzip.compress(body, 1)))
    except Refused as refused:
        print(refused.status)
"""


def test_a_small_request_that_grows_is_refused_in_little_memory(tmp_path: Path) -> None:
    """61 kB were 1.9 GB as JSON; as protobuf 63 kB were 7.9 GB."""
    bombs = """
taken("/v1/traces", J, b'{"resourceSpans":[' + b"{}," * (20 * M) + b"{}]}")
taken("/v1/traces", J, b'{"a":[' + b'"ab",' * (12 * M) + b"1]}")
taken("/v1/traces", J, b'{"a":[' + b"[]," * (20 * M) + b"1]}")
taken("/v1/traces", J, b'{"a":{' + b'"ab":1,' * (8 * M) + b'"a":1}}')
taken("/v1/traces", P, b"\\x0a\\x00" * (31 * M))
taken("/v1/traces", P, message(0x0A, message(0x12, b"\\x12\\x00" * (31 * M))))
taken("/v1/metrics", P, message(0x0A, b"\\x12\\x00" * (31 * M)))
taken("/v1/metrics", P, message(0x0A, b"\\x18\\x00" * (31 * M)))
taken("/v1/traces", P, message(0x0A, message(0x0A, b"\\x0a\\x00" * (31 * M))))
"""
    printed, peak_mib = peak_of(IN_A_CHILD + bombs, tmp_path)
    assert printed.split() == ["413"] * 9
    assert peak_mib < 400


# A span and a metric of 62 MB of empty messages each are refused alone, the one beside them is taken.
LARGE_PARTS = """
one = bytes.fromhex("39 0000d0dcb30afb18 41 0000d0dcb30afb18")
count = message(0x4A, message(0x0A, b"gen_ai.usage.input_tokens") + message(0x12, b"\\x18\\x07"))
spans = message(0x12, one + count) + message(0x12, b"\\x4a\\x00" * (31 * M))
taken("/v1/traces", P, message(0x0A, message(0x12, spans)))
taken("/v1/metrics", P, message(0x0A, message(0x12, message(0x12, message(0x2A, b"\\x0a\\x00" * (31 * M))))))
"""


def test_a_span_that_is_too_large_is_refused_alone(tmp_path: Path) -> None:
    printed, peak_mib = peak_of(IN_A_CHILD + LARGE_PARTS, tmp_path)
    lines = printed.splitlines()
    assert len(lines) == 2
    assert "1: Span of more than 8,388,608 bytes" in lines[0]
    assert "1: Metric of more than 8,388,608 bytes" in lines[1]
    [written] = (tmp_path / "requests").rglob("*.jsonl")
    assert written.parent.name == "date=2027-01-15"
    assert peak_mib < 400


# What passes the limits by a little is decoded, each kind of value at its largest.
AT_THE_LIMIT = """
taken("/v1/traces", J, b'{"resourceSpans":[' + (b'{"a":' * 900 + b"1" + b"}" * 900 + b",") * 3330 + b"{}]}")
taken("/v1/traces", J, b"{" + b",".join(b'"%07d":1' % n for n in range(2990000)) + b"}")
taken("/v1/metrics", P, message(0x0A, message(0x12, message(0x12, message(0x2A, b"\\x0a\\x00" * (4 * M - 30))))))
"""


@pytest.mark.rest
def test_what_the_limits_let_pass_fits_the_unit(tmp_path: Path) -> None:
    printed, peak_mib = peak_of(IN_A_CHILD + AT_THE_LIMIT, tmp_path, seconds=120)
    assert [line.split()[0] for line in printed.splitlines()] == ["200"] * 3
    assert peak_mib < 900


@pytest.mark.parametrize("kind", ["JSON", "protobuf"])
def test_an_export_of_8192_spans_of_100_attributes_is_taken_whole(tmp_path: Path, kind: str) -> None:
    held = {f"gen_ai__custom__attribute_{number}": f"value {number}" for number in range(92)}
    one = {**span(0, **held), "traceId": "0" * 32}
    assert len(one["attributes"]) == 100  # type: ignore[arg-type]
    (tmp_path / "one.json").write_text(json.dumps(one, separators=(",", ":")), "utf-8")
    program = f"""
from pathlib import Path
one = Path(sys.argv[2]).read_bytes()
body = b'{{"resourceSpans":[{{"scopeSpans":[{{"spans":[' + b",".join([one] * 8192) + b"]}}]}}]}}"
if {kind!r} == "protobuf":
    from google.protobuf.json_format import Parse
    from opentelemetry.proto.trace.v1.trace_pb2 import Span
    spans = message(0x12, Parse(one, Span()).SerializeToString()) * 8192
    body = message(0x0A, message(0x12, spans))
receiver._clock = lambda: {NOON_NS // 10**9}
taken("/v1/traces", {"J" if kind == "JSON" else "P"}, body)
"""
    printed, peak_mib = peak_of(IN_A_CHILD + program, tmp_path, tmp_path / "one.json")
    assert printed.strip() == ("200 b'{}'" if kind == "JSON" else "200 b''")
    rows, rejects = requests_of(tmp_path / "requests")
    assert (len(rows), rejects.rows) == (8192, 0)
    # JSON as Python's objects; as protobuf each span is decoded by itself.
    assert peak_mib < (900 if kind == "JSON" else 250)


def test_lack_of_memory_and_of_a_turn_are_asked_to_retry(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(otlp_receiver, "parts_of_document", lacking)
    assert sent(receiver, "/v1/traces", traces(span(0)))[0::2] == (503, "5")
    monkeypatch.undo()
    monkeypatch.setattr(otlp_receiver, "ANSWER_SECONDS", 0.2)
    with receiver._turn:
        assert sent(receiver, "/v1/traces", traces(span(0)))[0::2] == (503, "5")
    assert sent(receiver, "/v1/traces", traces(span(0)))[0] == 200


# --- times, days, names ---


def at(seconds: int, number: int = 0) -> dict[str, object]:
    """A span that began so many seconds after one o'clock, the receiver's time."""
    began = NOON_NS + (3600 + seconds) * 10**9
    return {**span(number), "startTimeUnixNano": str(began), "endTimeUnixNano": str(began)}


def test_a_queue_of_days_without_network_is_taken_whole(receiver: Receiver, tmp_path: Path) -> None:
    spans = [at(-hours * 3600, hours) for hours in range(73)]
    assert sent(receiver, "/v1/traces", traces(*spans))[:2] == (200, {})
    points = [point(250.0, 3600 - hours * 3600, hw__id="0", hw__type="gpu") for hours in range(73)]
    assert sent(receiver, "/v1/metrics", metrics({**POWER, "gauge": {"dataPoints": points}}))[:2] == (200, {})
    # From 13:00 of the fifteenth 72 hours back is 13:00 of the twelfth.
    assert len(list((tmp_path / "spool/requests").rglob("*.jsonl"))) == 4
    assert sum(path.read_text("utf-8").count("spanId") for path in (tmp_path / "spool").rglob("*.jsonl")) == 73
    assert len(list((tmp_path / "spool/host=gpu-a").rglob("*.parquet"))) == 4


def test_times_that_cannot_be_are_counted_and_the_others_taken(receiver: Receiver, tmp_path: Path) -> None:
    edges = [at(-30 * DAY_SECONDS), at(DAY_SECONDS - 1)]
    beyond = [at(-30 * DAY_SECONDS - 1), at(DAY_SECONDS), {**at(0), "endTimeUnixNano": str(253_402_300_799 * 10**9)}]
    # A clock that is not set, and a span that has not ended.
    others = [{**at(0), "startTimeUnixNano": 0}, {**at(0), "endTimeUnixNano": 0}]
    status, body, _ = sent(receiver, "/v1/traces", traces(*edges, *beyond, *others))
    assert (status, body["partialSuccess"]["rejectedSpans"]) == (200, "4")
    assert body["partialSuccess"]["errorMessage"] == (
        "4: expected times from 2026-09-15 to 2026-10-16T13:00Z: is the clock set?"
    )
    assert len(list((tmp_path / "spool/requests").rglob("*.jsonl"))) == 3
    points = [point(1.0, seconds, hw__id="0") for seconds in (0, 3600 + DAY_SECONDS, 3600 - 30 * DAY_SECONDS - 1)] + [
        {"timeUnixNano": year, "asDouble": 1.0} for year in ("0", str(253_402_300_799 * 10**9), "-1")
    ]
    status, body, _ = sent(receiver, "/v1/metrics", metrics({**POWER, "gauge": {"dataPoints": points}}))
    assert (status, body["partialSuccess"]["rejectedDataPoints"]) == (200, "5")
    assert len(list((tmp_path / "spool/host=gpu-a").rglob("*.parquet"))) == 1


def test_days_and_names_without_end_leave_few_files(receiver: Receiver, tmp_path: Path) -> None:
    """3,000 days were 3,000 files, 20,000 names on 100 days 459 MB."""
    days = [point(1.0, 3600 - day * DAY_SECONDS, hw__id="0") for day in range(3000)]
    others = [{"name": f"unknown.{n:05d}.{'x' * 180}", "gauge": {"dataPoints": [point(1.0)]}} for n in range(20_000)]
    status, body, _ = sent(receiver, "/v1/metrics", metrics({**POWER, "gauge": {"dataPoints": days}}, *others))
    # Today and 30 days before it are taken of the days, 500 of the names.
    assert (status, body["partialSuccess"]["rejectedDataPoints"]) == (200, str(3000 - 31 + 20_000 - 500))
    assert "19,500: more than 500 metrics that the catalogue does not have" in body["partialSuccess"]["errorMessage"]
    files = list((tmp_path / "spool").rglob("*.parquet"))
    assert len(files) == 31
    assert sum(path.stat().st_size for path in files) < 10_000_000
    status, body, _ = sent(receiver, "/v1/traces", traces(*(at(-day * DAY_SECONDS, day) for day in range(3000))))
    assert (status, body["partialSuccess"]["rejectedSpans"]) == (200, "2969")
    assert len(list((tmp_path / "spool/requests").rglob("*.jsonl"))) == 31


def test_rows_without_end_are_counted(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp_receiver, "MOST_ROWS", 3)
    status, body, _ = sent(receiver, "/v1/traces", traces(*(span(number) for number in range(5))))
    assert (status, body["partialSuccess"]["rejectedSpans"]) == (200, "2")
    points = [point(1.0, number, hw__id="0") for number in range(5)]
    status, body, _ = sent(receiver, "/v1/metrics", metrics({**POWER, "gauge": {"dataPoints": points}}))
    assert (status, body["partialSuccess"]["rejectedDataPoints"]) == (200, "2")
    # Spans that are no requests are none of them.
    assert sent(receiver, "/v1/traces", traces(*({"name": "GET"} for _ in range(5))))[:2] == (200, {})


# --- null ---


def places_of(held: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value of a document."""
    items = held.items() if isinstance(held, dict) else enumerate(held) if isinstance(held, list) else ()
    for key, one in items:
        yield (*path, key)
        yield from places_of(one, (*path, key))


WHOLE = {
    "/v1/traces": traces({**span(0), "status": {"code": 2}}, tenant__id="acme"),
    "/v1/metrics": metrics(
        {**POWER, "gauge": {"dataPoints": [{**point(1.0, hw__id="0"), "flags": 0, "startTimeUnixNano": "0"}]}},
        TOKENS,
        {
            "name": "gen_ai.client.token.usage",
            "unit": "token",
            "histogram": {"aggregationTemporality": 2, "dataPoints": [{"timeUnixNano": str(NOON_NS), "sum": 9}]},
        },
    ),
}


def with_value(document: Any, place: tuple[Any, ...], value: object) -> Any:
    changed = copy.deepcopy(document)
    *way, last = place
    held = changed
    for key in way:
        held = held[key]
    held[last] = value
    return changed


@pytest.mark.parametrize("path", WHOLE)
def test_null_is_the_default_and_no_value_is_a_failure(receiver: Receiver, path: str) -> None:
    places = list(places_of(WHOLE[path]))
    assert len(places) > 60
    for place in places:
        for value in (None, {}, [], "x", 7, [[]], True, 1e300):
            body = json.dumps(with_value(WHOLE[path], place, value)).encode()
            try:
                receiver.take(path, JSON, "", body)
                status = 200
            except Refused as refused:
                status = refused.status
            # In a list null is no value (https://protobuf.dev/programming-guides/json/); events are not read.
            expected = {400} if isinstance(place[-1], int) and "events" not in place else {200}
            assert status in (expected if value is None else {200, 400}), (place, value)


def test_null_of_a_point_is_what_its_absence_is(receiver: Receiver, tmp_path: Path) -> None:
    held = {**point(250.0, hw__id="0"), "flags": None, "startTimeUnixNano": None, "asInt": None, "exemplars": None}
    power = {"name": "hw.power", "unit": "W", "sum": None, "gauge": {"dataPoints": [held]}}
    assert sent(receiver, "/v1/metrics", metrics(power))[:2] == (200, {})
    assert len(list((tmp_path / "spool/host=gpu-a").rglob("*.parquet"))) == 1
    tokens = [{"key": "gen_ai.usage.input_tokens", "value": {"stringValue": None, "intValue": "100"}}]
    bare = {**span(0), "attributes": tokens, "status": None, "events": None}
    document = {"resourceSpans": [{"resource": None, "scopeSpans": [{"scope": None, "spans": [bare]}]}]}
    assert sent(receiver, "/v1/traces", document)[:2] == (200, {})
    [row] = requests_of(tmp_path / "spool/requests")[0]
    assert (row["input_tokens"], row["status"], row["model"]) == (100, "ok", None)


def test_bodies_that_are_not_whole_are_refused(receiver: Receiver) -> None:
    whole = json.dumps(traces(span(0))).encode()
    # What follows the first member of a gzip was lost, and answered with 200.
    two = gzip.compress(whole) + gzip.compress(whole)
    assert send(receiver.port, "/v1/traces", two, Content_Encoding="gzip")[0] == 400
    for length, status in (("\xb2", 411), ("9" * 5000, 413), ("-1", 411)):
        connection = http.client.HTTPConnection("127.0.0.1", receiver.port, timeout=20)
        connection.putrequest("POST", "/v1/traces")
        for name, text in (("Authorization", "Bearer t0ken"), ("Content-Type", JSON), ("Content-Length", length)):
            connection.putheader(name, text.encode("latin-1"))
        connection.endheaders()
        assert connection.getresponse().status == status
        connection.close()


@pytest.mark.parametrize("path", WHOLE)
def test_protobuf_that_is_cut_or_mixed_is_refused_or_taken(receiver: Receiver, path: str) -> None:
    from google.protobuf.json_format import ParseDict  # noqa: PLC0415 (an extra)
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2  # noqa: PLC0415
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2  # noqa: PLC0415

    request = {
        "/v1/traces": trace_service_pb2.ExportTraceServiceRequest,
        "/v1/metrics": metrics_service_pb2.ExportMetricsServiceRequest,
    }[path]
    whole = ParseDict(WHOLE[path], request()).SerializeToString()
    statuses = set()
    for body in [*(whole[:end] for end in range(len(whole))), *(whole[:i] + b"\xff" + whole[i:] for i in range(99))]:
        try:
            receiver.take(path, PROTOBUF, "", body)
            statuses.add(200)
        except Refused as refused:
            statuses.add(refused.status)
            with contextlib.suppress(Exception):
                request.FromString(body)
                pytest.fail(f"{body!r} is an export")
    assert statuses == {200, 400}  # an empty request is one


def test_the_levels_of_a_request_are_those_of_the_protocol() -> None:
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as of_metrics  # noqa: PLC0415
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as of_traces  # noqa: PLC0415

    for request in (of_traces.ExportTraceServiceRequest, of_metrics.ExportMetricsServiceRequest):
        [outer] = request.DESCRIPTOR.fields
        resource, scopes = (outer.message_type.fields_by_number[number] for number in (1, 2))
        parts = scopes.message_type.fields_by_number[2]
        assert (outer.number, resource.name, scopes.name[:6]) == (otlp_messages._FIRST, "resource", "scope_")
        assert (otlp_messages._INNER, parts.name in ("spans", "metrics")) == (2, True)


# --- slow clients ---


def dripping(port: int, head: bytes, every_seconds: float, halt: threading.Event) -> socket.socket:
    """A connection that has sent `head`, and then a byte now and again."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=20)
    connection.sendall(head)

    def drip() -> None:
        with contextlib.suppress(OSError):
            while not halt.wait(every_seconds):
                connection.sendall(b"x")

    threading.Thread(target=drip, daemon=True).start()
    return connection


@pytest.mark.parametrize("part", ["body", "header", "first line"])
def test_slow_clients_lose_their_place(receiver: Receiver, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    """Eight of them, a byte every nine seconds, held all places for good."""
    monkeypatch.setattr(otlp_receiver, "ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(otlp_receiver._Handler, "timeout", 1.0)
    head = b"POST /v1/traces HTTP/1.1\r\nAuthorization: Bearer t0ken\r\nContent-Type: application/json\r\n"
    head = {"body": head + b"Content-Length: 100000\r\n\r\n", "header": head + b"X-A: ", "first line": b"P"}[part]
    halt = threading.Event()
    clients = [dripping(receiver.port, head, 0.3, halt) for _ in range(otlp_receiver.MOST_AT_ONCE)]
    try:
        time.sleep(0.5)
        status, _, after = sent(receiver, "/v1/traces", traces(span(0)))
        assert (status, after) == ((429, "5") if part == "body" else (200, None))
        began = time.monotonic()
        while sent(receiver, "/v1/traces", traces(span(0)))[0] != 200:
            assert time.monotonic() - began < 4
            time.sleep(0.1)
        for client in clients:
            client.settimeout(5)
            with contextlib.suppress(ConnectionResetError):
                assert client.recv(1 << 16) is not None
    finally:
        halt.set()
        for client in clients:
            client.close()


def test_connections_without_end_leave_room_for_the_next(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp_receiver, "MOST_CONNECTIONS", 5)
    idle = [socket.create_connection(("127.0.0.1", receiver.port), timeout=5) for _ in range(20)]
    assert sent(receiver, "/v1/traces", traces(span(0)))[0] == 200
    assert idle[0].recv(1) == b""
    assert len(receiver._server.arriving) <= 5
    for one in idle:
        one.close()


def test_an_exporter_that_keeps_its_connection_is_no_slow_client(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp_receiver, "ANSWER_SECONDS", 1.5)
    connection = http.client.HTTPConnection("127.0.0.1", receiver.port, timeout=20)
    for number in range(4):
        time.sleep(0.8 if number else 0)
        # http.client would connect anew, were the connection ended.
        kept = connection.sock
        headers = {"Authorization": "Bearer t0ken", "Content-Type": JSON}
        connection.request("POST", "/v1/traces", json.dumps(traces(span(number))), headers)
        assert (connection.sock is kept or number == 0, connection.getresponse().read()) == (True, b"{}")
    connection.close()


# --- sampling apart ---


def test_sampling_and_receiving_are_two_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["agent", "--otlp", "127.0.0.1:0", "--page", "http://127.0.0.1:1/metrics", "--spool", str(tmp_path)])
    assert "what others send must not end the sampling. Run two agents" in capsys.readouterr().err
    commands = {}
    for name in ("agent", "otlp"):
        unit = (PROJECT / "deploy/systemd" / f"wattledger-{name}.service").read_text("utf-8").replace("\\\n", "")
        assert "Restart=always" in unit
        assert "MemoryMax=1G" in unit
        [commands[name]] = re.findall(r"^ExecStart=\S+ (.*)$", unit, re.MULTILINE)
    assert ("--otlp" in commands["agent"], "--nvml" in commands["agent"]) == (False, True)
    assert ("--otlp" in commands["otlp"], "--nvml" in commands["otlp"] or "--page" in commands["otlp"]) == (True, False)


def test_sampling_goes_on_when_the_receiver_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "collectors", "agent", "--spool", str(tmp_path), "--host", "gpu-a"]

    def agent(*options: str) -> subprocess.Popen[str]:
        return subprocess.Popen([*command, *options], cwd=PROJECT, stderr=subprocess.PIPE, text=True)

    def receiving_at(process: subprocess.Popen[str]) -> int:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "OTLP is received on port" in line)
        return int(line.split("port ")[1].split(",")[0])

    def files() -> int:
        return len(list((tmp_path / "host=gpu-a").rglob("*.parquet")))

    def page(handler: Any) -> None:
        body = b"# TYPE vllm:generation_tokens_total counter\nvllm:generation_tokens_total 1\n"
        handler.send_response(200)
        handler.send_header("Content-Type", "text/plain; version=0.0.4")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    with http_server(page) as url:
        sampler = agent("--page", f"{url}/metrics", "--page-interval", "0.2", "--rotate", "0.5")
        taker = agent("--otlp", "127.0.0.1:0")
        try:
            port = receiving_at(taker)
            os.kill(taker.pid, signal.SIGKILL)
            taker.wait()
            before, until = files(), time.monotonic() + 20
            while files() < before + 3:
                assert time.monotonic() < until
                time.sleep(0.1)
            assert sampler.poll() is None
            # As Restart=always does.
            taker = agent("--otlp", f"127.0.0.1:{port}")
            receiving_at(taker)
            held = {"startTimeUnixNano": time.time_ns(), "attributes": attributes(gen_ai__usage__input_tokens=1)}
            assert send(port, "/v1/traces", json.dumps(traces(held)).encode())[0] == 200
        finally:
            for process in (sampler, taker):
                process.kill()
                process.wait()
    assert len(list((tmp_path / "requests").rglob("*.jsonl"))) == 1
    assert Spool(tmp_path).hosts()
