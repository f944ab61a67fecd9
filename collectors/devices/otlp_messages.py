"""OTLP's protobuf messages as the JSON documents that they are, and answers in either encoding.

Add here what the package `opentelemetry-proto` (the agent's extra `otlp`) is needed for. Keep out what of a document is
read (`protocols.otlp`): without the package documents come as JSON alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

PROTOBUF, JSON = "application/x-protobuf", "application/json"
# What of an answer each signal calls its refused parts.
REJECTED = {"traces": "rejectedSpans", "metrics": "rejectedDataPoints"}


def reads_protobuf() -> bool:
    """Whether the extra is installed."""
    return find_spec("opentelemetry") is not None and find_spec("opentelemetry.proto") is not None


def document_of(signal: str, body: bytes) -> Mapping[str, Any]:
    """The document of an export request; ValueError where the bytes are none."""
    from google.protobuf.json_format import MessageToDict  # noqa: PLC0415 (an extra)
    from google.protobuf.message import DecodeError  # noqa: PLC0415

    message = _messages(signal)[0]()
    try:
        message.ParseFromString(body)
    except DecodeError as error:
        raise ValueError(f"is no {message.DESCRIPTOR.name}: {error}") from None
    held: Mapping[str, Any] = MessageToDict(message, use_integers_for_enums=True)
    return held


def answer(signal: str, kind: str, rejected: int, reason: str) -> bytes:
    """The body of a success: empty of a whole one, else how much was refused and why."""
    partial = {REJECTED[signal]: str(rejected), "errorMessage": reason} if rejected else {}
    held = {"partialSuccess": partial} if partial else {}
    if kind == JSON:
        return json.dumps(held).encode()
    from google.protobuf.json_format import ParseDict  # noqa: PLC0415 (an extra)

    whole: bytes = ParseDict(held, _messages(signal)[1]()).SerializeToString()
    return whole


def refusal(kind: str, reason: str) -> bytes:
    """The body of a refusal: a google.rpc.Status whose message is the reason. Of its protobuf only field 2 is set."""
    if kind != PROTOBUF:
        return json.dumps({"message": reason}).encode()
    text = reason.encode()[:1000]
    length, rest = [], len(text)
    while rest > 0x7F:
        length.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([0x12, *length, rest]) + text


def _messages(signal: str) -> tuple[Any, Any]:
    if signal == "traces":
        from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces  # noqa: PLC0415

        return traces.ExportTraceServiceRequest, traces.ExportTraceServiceResponse
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics  # noqa: PLC0415

    return metrics.ExportMetricsServiceRequest, metrics.ExportMetricsServiceResponse
