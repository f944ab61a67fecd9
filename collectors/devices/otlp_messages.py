"""OTLP's protobuf messages as the JSON documents that they are, and answers in either encoding.

Add here what the package `opentelemetry-proto` (the agent's extra `otlp`) is needed for. Keep out what of a document is
read (`protocols.otlp`): without the package documents come as JSON alone.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from importlib.util import find_spec
from itertools import count
from typing import Any

from collectors.protocols.otlp import NotTaken, Part

PROTOBUF, JSON = "application/x-protobuf", "application/json"
# Collectors send 8,192 spans at once, of some kB each; prompts make one larger.
MOST_PARTS = 200_000
MOST_PART_BYTES = 8 << 20
# The outer levels are field 1 of a request, the resource is 1 of each, the scopes are 2, the parts are 2 of a scope.
_FIRST, _INNER = 1, 2
# What of an answer each signal calls its refused parts.
REJECTED = {"traces": "rejectedSpans", "metrics": "rejectedDataPoints"}


class TooMuch(ValueError):
    """The document has more than can be decoded in bounded memory; the message has what was expected."""


def reads_protobuf() -> bool:
    """Whether the extra is installed."""
    return find_spec("opentelemetry") is not None and find_spec("opentelemetry.proto") is not None


def parts_of_message(signal: str, body: bytes, attributes: Collection[str], not_taken: NotTaken) -> Iterator[Part]:
    """The spans (with these attributes alone) or metrics of an export request, each decoded by itself. ValueError where
    the bytes are none, TooMuch where they are too many messages.

    A message of two bytes takes up to 170 in memory, so that a request is never decoded as one message: its three outer
    levels are split by the lengths in the wire format. What is in them has at most MOST_PART_BYTES.
    """
    from google.protobuf.json_format import MessageToDict  # noqa: PLC0415 (an extra)
    from google.protobuf.message import DecodeError  # noqa: PLC0415
    from opentelemetry.proto.resource.v1.resource_pb2 import Resource  # noqa: PLC0415

    part_class = _class_of(signal)
    left = count(MOST_PARTS, -1)
    try:
        for of_one in _contents(body, left)[_FIRST]:
            levels = _contents(of_one, left)
            merged = b"".join(levels[_FIRST])
            if len(merged) > MOST_PART_BYTES:
                raise TooMuch(f"a resource has more than {MOST_PART_BYTES:,} bytes")
            resource = MessageToDict(Resource.FromString(merged), use_integers_for_enums=True)
            for scope in levels[_INNER]:
                for one in _contents(scope, left)[_INNER]:
                    if len(one) > MOST_PART_BYTES:
                        not_taken[f"{part_class.DESCRIPTOR.name} of more than {MOST_PART_BYTES:,} bytes"] += 1
                        continue
                    message = part_class.FromString(one)
                    if signal == "traces":
                        _shorten(message, attributes)
                    yield Part(resource, MessageToDict(message, use_integers_for_enums=True))
    except DecodeError as error:
        raise ValueError(f"is no export of {signal}: {error}") from None


def _class_of(signal: str) -> Any:
    if signal == "traces":
        from opentelemetry.proto.trace.v1.trace_pb2 import Span  # noqa: PLC0415 (an extra)

        return Span
    from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric  # noqa: PLC0415

    return Metric


def _contents(message: Any, left: Iterator[int]) -> Mapping[int, list[memoryview]]:
    """Field -> the contents of each message that it has; ValueError where the bytes are no protobuf."""
    found: dict[int, list[memoryview]] = defaultdict(list)
    held, at = memoryview(message), 0
    try:
        while at < len(held):
            if next(left) <= 0:
                raise TooMuch(f"expected at most {MOST_PARTS:,} resources, scopes, spans and metrics")
            tag, at = _varint(held, at)
            wire_type = tag & 7
            if wire_type == 2:
                length, at = _varint(held, at)
                found[tag >> 3].append(held[at : at + length])
                at += length
            elif wire_type == 0:
                _, at = _varint(held, at)
            else:
                at += {1: 8, 5: 4}[wire_type]
    except (IndexError, KeyError):
        raise ValueError("is no protobuf") from None
    if at > len(held):
        raise ValueError("ends early")
    return found


def _varint(held: memoryview, at: int) -> tuple[int, int]:
    number = shift = 0
    while held[at] > 0x7F and shift < 63:
        number |= (held[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return number | held[at] << shift, at + 1


def _shorten(span: Any, attributes: Collection[str]) -> None:
    """Leave out what is never kept, before it becomes Python's."""
    kept = [one for one in span.attributes if one.key in attributes]
    for name in ("attributes", "events", "links"):
        span.ClearField(name)
    span.attributes.extend(kept)


def answer(signal: str, kind: str, rejected: int, reason: str) -> bytes:
    """The body of a success: empty of a whole one, else how much was refused and why."""
    partial = {REJECTED[signal]: str(rejected), "errorMessage": reason} if rejected else {}
    held = {"partialSuccess": partial} if partial else {}
    if kind == JSON:
        return json.dumps(held).encode()
    from google.protobuf.json_format import ParseDict  # noqa: PLC0415 (an extra)

    whole: bytes = ParseDict(held, _answer_of(signal)).SerializeToString()
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


def _answer_of(signal: str) -> Any:
    if signal == "traces":
        from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces  # noqa: PLC0415

        return traces.ExportTraceServiceResponse()
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics  # noqa: PLC0415

    return metrics.ExportMetricsServiceResponse()
