"""OTLP documents as JSON: which spans are requests, which metrics are of the catalogue, and what of each is kept.

Add here what of OpenTelemetry's data the ledger reads, by name: nothing else is ever written or returned, so no prompt
and no answer is. Keep out how documents arrive (`otlp_files`, `devices.otlp_receiver`), and what a family means.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, NamedTuple

from collectors.personal_labels import PersonalLabels, is_mail
from collectors.readings import Reading, labels_json

# Tokens by their names of 2026, of 2024 and of vLLM; the first that a span has counts.
INPUT = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
OUTPUT = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
CACHED = ("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens")
CACHE_WRITTEN = ("gen_ai.usage.cache_creation.input_tokens", "gen_ai.usage.cache_write.input_tokens")
REASONING = ("gen_ai.usage.reasoning.output_tokens",)
MODEL = ("gen_ai.response.model", "gen_ai.request.model")
REQUEST_ID = ("gen_ai.response.id", "gen_ai.request.id")
TTFT = ("gen_ai.response.time_to_first_chunk", "gen_ai.latency.time_to_first_token")
OPERATION, STATUS = "gen_ai.operation.name", "http.response.status_code"
SPAN_ATTRIBUTES = frozenset(
    {*INPUT, *OUTPUT, *CACHED, *CACHE_WRITTEN, *REASONING, *MODEL, *REQUEST_ID, *TTFT, OPERATION, STATUS}
)
# An agent's span has the sum of the spans below it; a tool's has no tokens of its own.
INFERENCES = frozenset({"chat", "text_completion", "generate_content", "embeddings"})
# What a resource is called among the labels that a scraper adds.
RESOURCE_LABELS = {
    "service.name": "job",
    "service.instance.id": "instance",
    "k8s.cluster.name": "k8s_cluster_name",
    "k8s.namespace.name": "namespace",
    "k8s.pod.name": "pod",
    "k8s.container.name": "container",
    "host.name": "node",
    "k8s.node.name": "node",
}
RESOURCE_ATTRIBUTES = frozenset(RESOURCE_LABELS)
# As OpenTelemetry's rules for Prometheus write a unit into a name; one in braces is left out.
_UNITS = {"J": "_joules", "W": "_watts", "s": "_seconds", "ms": "_milliseconds", "By": "_bytes", "%": "_percent"}
TEXT_CHARACTERS = 200
# Exporters send each minute: the first points of a process still show its start. Before it nothing is known.
FRESH_NANOSECONDS = 90_000_000_000
_LEVELS = {
    "traces": ("resourceSpans", "scopeSpans", "spans"),
    "metrics": ("resourceMetrics", "scopeMetrics", "metrics"),
}
# Of one document: a metric's name is in its reason.
REASONS = 5
_CUMULATIVE = (2, "AGGREGATION_TEMPORALITY_CUMULATIVE")
_NO_VALUE = 1
_INT64 = 2**63


class Malformed(ValueError):
    """The document is no OTLP; the message names where and what was expected."""


class Part(NamedTuple):
    """A span or a metric, and the resource that it is of."""

    resource: Mapping[str, Any]
    held: Mapping[str, Any]


class Bounds(NamedTuple):
    """What of a request is taken: times from `first_ns` to before `end_ns`, and at most `rows` spans or readings."""

    first_ns: int
    end_ns: int
    rows: int

    def broken(self, rows: int, *times_ns: int) -> str | None:
        """Why a further one of these times is not taken, where `rows` are; None where it is."""
        if rows >= self.rows:
            return f"more than {self.rows:,} in one request: send fewer at once"
        if all(self.first_ns <= at_ns < self.end_ns for at_ns in times_ns):
            return None
        first, end = (datetime.fromtimestamp(at_ns // 1_000_000_000, UTC) for at_ns in self[:2])
        return f"expected times from {first:%Y-%m-%d} to {end:%Y-%m-%dT%H:%MZ}: is the clock set?"


class Span(NamedTuple):
    """A span of one inference: its resource's and its own attributes that are kept, and its own fields."""

    resource: Mapping[str, Any]
    attributes: Mapping[str, Any]
    fields: Mapping[str, Any]


class NotTaken(Counter[str]):
    """How many spans or points are not taken, by the reason."""

    def __str__(self) -> str:
        return "; ".join(f"{count:,}: {reason}" for reason, count in list(self.items())[:REASONS])


@dataclass
class Readings:
    """What of a document's metrics is of the catalogue, within the bounds, and what of it is not taken."""

    bounds: Bounds | None = None
    kept: list[Reading] = field(default_factory=list)
    unknown: dict[str, int] = field(default_factory=dict)
    not_taken: NotTaken = field(default_factory=NotTaken)


def parts_of_document(document: Any, signal: str) -> Iterator[Part]:
    """The spans (`traces`) or metrics (`metrics`) of a document."""
    of_each, scopes, held = _LEVELS[signal]
    for of_one in _list(_object(document, "the document"), of_each):
        resource = _member(of_one, "resource")
        for scope in _list(of_one, scopes):
            for one in _list(scope, held):
                yield Part(resource, one)


def inferences(found: Iterable[Part], stated: Collection[str] = ()) -> Iterator[Span]:
    """The spans with tokens of a model's answer. `stated` are further attributes that are kept, of spans and resources:
    those that name who asked."""
    allowed, of_resource = SPAN_ATTRIBUTES | set(stated), RESOURCE_ATTRIBUTES | set(stated)
    held: Mapping[str, Any] | None = None
    resource: dict[str, Any] = {}
    for part in found:
        attributes = kept_attributes(part.held, allowed)
        is_inference = attributes.get(OPERATION, "chat") in INFERENCES
        if not is_inference or not any(name in attributes for name in (*INPUT, *OUTPUT)):
            continue
        if part.resource is not held:
            held, resource = part.resource, kept_attributes(part.resource, of_resource)
        yield Span(resource, attributes, _fields(part.held))


def kept_document(spans: Sequence[Span]) -> dict[str, Any]:
    """The spans as OTLP again; those of one resource that follow each other have it in common."""
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _as_list(resource)},
                "scopeSpans": [
                    {"spans": [{**span.fields, "attributes": _as_list(span.attributes)} for span in of_one]}
                ],
            }
            for resource, of_one in groupby(spans, lambda span: span.resource)
        ]
    }


def readings(
    parts_of_metrics: Iterable[Part],
    families: Mapping[str, str],
    labels: PersonalLabels,
    bounds: Bounds | None = None,
) -> Readings:
    """The points of the metrics that are of the catalogue (`families`: name -> kind of source). A counter that started
    less than FRESH_NANOSECONDS before its point is also read at its start, where it was 0."""
    found = Readings(bounds)
    resource: Mapping[str, Any] | None = None
    added: dict[str, str] = {}
    for part in parts_of_metrics:
        if part.resource is not resource:
            resource = part.resource
            known = kept_attributes(resource, RESOURCE_ATTRIBUTES)
            added = {label: str(known[name]) for name, label in RESOURCE_LABELS.items() if name in known}
        _of_metric(part.held, added, families, labels, found)
    return found


def kept_attributes(held: Mapping[str, Any], allowed: Collection[str]) -> dict[str, Any]:
    """The attributes that are allowed, if their values are short and no e-mail addresses."""
    found: dict[str, Any] = {}
    for item in _list(held, "attributes"):
        name = item.get("key")
        if isinstance(name, str) and name in allowed:
            value = _scalar(_member(item, "value"))
            if value is not None and not (isinstance(value, str) and (len(value) > TEXT_CHARACTERS or is_mail(value))):
                found[name] = value
    return found


def nanoseconds(held: Mapping[str, Any], name: str) -> int:
    """A time of OTLP. Malformed where it is no number."""
    return _integer(held, name, "nanoseconds since 1970")


def _of_metric(
    metric: Mapping[str, Any],
    added: Mapping[str, str],
    families: Mapping[str, str],
    personal: PersonalLabels,
    found: Readings,
) -> None:
    shape = next((shape for shape in ("sum", "gauge", "histogram") if metric.get(shape) is not None), None)
    if shape is None:
        return
    held = _object(metric[shape], shape)
    points = _list(held, "dataPoints")
    family = _family(metric, shape, held, families)
    if family is None:
        found.unknown[_text(metric, "name")[:TEXT_CHARACTERS]] = len(points)
        return
    is_counter = shape == "histogram" or bool(held.get("isMonotonic"))
    if is_counter and held.get("aggregationTemporality") not in _CUMULATIVE:
        found.not_taken[f"{family}: expected cumulative temporality; set it in the exporter"] += len(points)
        return
    kind = families[family]
    for point in points:
        if _integer(point, "flags", "a number") & _NO_VALUE:
            continue
        value = _number(point, "sum" if shape == "histogram" else None)
        if value is None:
            found.not_taken[f"{family}: a point has no value"] += 1
            continue
        at_ns, started_ns = nanoseconds(point, "timeUnixNano"), nanoseconds(point, "startTimeUnixNano")
        broken = found.bounds and found.bounds.broken(len(found.kept), at_ns)
        if broken:
            found.not_taken[broken] += 1
            continue
        texts = {name.replace(".", "_"): text for name, text in _texts(point)}
        if texts.get("hw_type") == "gpu":
            # What a board draws as a whole; a sensor elsewhere is a part of it.
            texts.setdefault("hw_sensor_location", "package")
        labels = labels_json(personal.known(kind, {**added, **texts}))
        if is_counter and 0 < at_ns - started_ns <= FRESH_NANOSECONDS:
            found.kept.append(Reading(started_ns // 1000, kind, family, labels, 0.0))
        found.kept.append(Reading(at_ns // 1000, kind, family, labels, value))


def _family(metric: Mapping[str, Any], shape: str, held: Mapping[str, Any], families: Mapping[str, str]) -> str | None:
    """The catalogue's name: the metric's own, else as Prometheus would store it."""
    name, unit = _text(metric, "name"), _text(metric, "unit")
    bare = name.replace(".", "_")
    suffix = _UNITS.get(unit, "" if unit == "1" or "{" in unit else f"_{unit}" if unit else "")
    tail = "_sum" if shape == "histogram" else "_total" if shape == "sum" and held.get("isMonotonic") else ""
    candidates = (name + ("_sum" if shape == "histogram" else ""), f"{bare}{suffix}{tail}", f"{bare}{tail}")
    return next((candidate for candidate in candidates if candidate in families), None)


def _texts(point: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for item in _list(point, "attributes"):
        value = _scalar(_member(item, "value"))
        if isinstance(item.get("key"), str) and value is not None and len(str(value)) <= TEXT_CHARACTERS:
            yield item["key"], str(value)


def _fields(span: Mapping[str, Any]) -> dict[str, Any]:
    status = _member(span, "status")
    return {
        "traceId": _text(span, "traceId")[:64],
        "spanId": _text(span, "spanId")[:32],
        "startTimeUnixNano": str(nanoseconds(span, "startTimeUnixNano")),
        "endTimeUnixNano": str(nanoseconds(span, "endTimeUnixNano")),
        "status": {"code": 2} if status.get("code") in (2, "STATUS_CODE_ERROR") else {},
    }


def _as_list(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in attributes.items()]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": value}


def _scalar(value: Mapping[str, Any]) -> str | int | float | None:
    try:
        if value.get("stringValue") is not None:
            return str(value["stringValue"])
        if value.get("intValue") is not None:
            whole = int(value["intValue"])
            return whole if -_INT64 <= whole < _INT64 else None
        if value.get("doubleValue") is not None:
            number = float(value["doubleValue"])
            return number if math.isfinite(number) else None
    except (TypeError, ValueError):
        return None
    return None


def _number(point: Mapping[str, Any], name: str | None) -> float | None:
    names = (name,) if name else ("asDouble", "asInt")
    held = next((point[one] for one in names if point.get(one) is not None), None)
    try:
        return None if held is None else float(held)
    except (TypeError, ValueError):
        return None


# Of ProtoJSON null is the default of whatever it is the value of: as if it were not there.


def _integer(held: Mapping[str, Any], name: str, expected: str) -> int:
    value = held.get(name)
    try:
        return 0 if value is None else int(value)
    except (TypeError, ValueError):
        raise Malformed(f"{name}: got {type(value).__name__}, expected {expected}") from None


def _text(held: Mapping[str, Any], name: str) -> str:
    value = held.get(name)
    return "" if value is None else str(value)


def _member(held: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = held.get(name)
    return {} if value is None else _object(value, name)


def _object(held: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(held, Mapping):
        raise Malformed(f"{name}: got {type(held).__name__}, expected an object")
    return held


def _list(held: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    found = held.get(name)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(one, Mapping) for one in found):
        raise Malformed(f"{name}: expected a list of objects")
    return found
