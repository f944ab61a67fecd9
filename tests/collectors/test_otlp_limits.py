"""What a receiver of OTLP bears: requests that grow, wait, name or date without end; and large ones, which it takes."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

import pytest

from collectors.devices import otlp_receiver
from collectors.devices.otlp_receiver import Receiver
from collectors.personal_labels import is_mail
from tests.collectors.test_limits import peak_of
from tests.collectors.test_otlp import (
    NOON_NS,
    POWER,
    metrics,
    point,
    requests_of,
    send,
    sent,
    span,
    traces,
)

DAY_SECONDS = 86_400


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


def test_what_is_taken_can_be_read(receiver: Receiver, tmp_path: Path) -> None:
    """A request's spans were one line, and a line of more than 8 MiB is refused where files are read."""
    names = ("gen_ai__request__model", "gen_ai__response__model", "gen_ai__request__id", "gen_ai__operation__name")
    texts = {name: "é" * 200 for name in names} | {"gen_ai__operation__name": "chat"}
    spans = [span(number, **texts, gen_ai__response__id=f"{number:0200d}") for number in range(8192)]
    body = gzip.compress(json.dumps(traces(*spans), ensure_ascii=False).encode(), 1)
    assert send(receiver.port, "/v1/traces", body, Content_Encoding="gzip")[:2] == (200, b"{}")
    [written] = (tmp_path / "spool/requests").rglob("*.jsonl")
    assert written.stat().st_size > 8 << 20
    rows, rejects = requests_of(tmp_path / "spool/requests")
    assert (len({row["request_id"] for row in rows}), rejects.rows) == (8192, 0)


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


def test_a_long_text_is_searched_for_an_address_in_little_time() -> None:
    """8,192 spans with five texts of 200 characters took 20 s; this one would take minutes."""
    began = time.monotonic()
    assert not is_mail("x" * 100_000)
    assert is_mail("x" * 100_000 + "@acme.example")
    assert not is_mail("x" * 100_000 + "@acme. example")
    assert time.monotonic() - began < 2
