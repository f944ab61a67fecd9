"""OTLP that is not as it should be: null, other types, bodies that are cut: taken or refused, never a failure."""

from __future__ import annotations

import contextlib
import copy
import gzip
import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collectors.devices import otlp_messages
from collectors.devices.otlp_messages import JSON, PROTOBUF
from collectors.devices.otlp_receiver import Receiver, Refused
from tests.collectors.test_otlp import (
    NOON_NS,
    POWER,
    TOKENS,
    metrics,
    point,
    requests_of,
    send,
    sent,
    span,
    traces,
)

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
    # No integer of the protocol: 64 bits.
    tokens += [{"key": "gen_ai.usage.output_tokens", "value": {"intValue": "9" * 4000}}]
    bare = {**span(0), "attributes": tokens, "status": None, "events": None}
    document = {"resourceSpans": [{"resource": None, "scopeSpans": [{"scope": None, "spans": [bare]}]}]}
    assert sent(receiver, "/v1/traces", document)[:2] == (200, {})
    [row] = requests_of(tmp_path / "spool/requests")[0]
    assert (row["input_tokens"], row["output_tokens"], row["status"], row["model"]) == (100, None, "ok", None)


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
