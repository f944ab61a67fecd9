"""OTLP documents as JSON: which spans are requests, which metrics are of the catalogue, and what of each is kept.

Add here what of OpenTelemetry's data the ledger reads, by name: nothing else is ever written or returned, so no prompt
and no answer is. Keep out how documents arrive (`otlp_files`, `devices.otlp_receiver`), and what a family means.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
_CUMULATIVE = (2, "AGGREGATION_TEMPORALITY_CUMULATIVE")
_NO_VALUE = 1


class Malformed(ValueError):
    """The document is no OTLP; the message names where and what was expected."""


class Span(NamedTuple):
    """A span of one inference: its resource's and its own attributes that are kept, and its own fields."""

    resource: Mapping[str, Any]
    attributes: Mapping[str, Any]
    fields: Mapping[str, Any]


@dataclass
class Readings:
    """What of a document's metrics is of the catalogue; points that cannot be read, and the first reason."""

    kept: list[Reading] = field(default_factory=list)
    unknown: dict[str, int] = field(default_factory=dict)
    rejected: int = 0
    reason: str = ""

    def reject(self, points: int, reason: str) -> None:
        """Count points that cannot be read."""
        self.rejected += points
        self.reason = self.reason or reason


def inferences(document: Any, stated: Collection[str] = ()) -> Iterator[Span]:
    """The spans with tokens of a model's answer. `stated` are further attributes that are kept, of spans and resources:
    those that name who asked."""
    allowed, of_resource = SPAN_ATTRIBUTES | set(stated), RESOURCE_ATTRIBUTES | set(stated)
    for of_one in _list(_object(document, "the document"), "resourceSpans"):
        resource = kept_attributes(_object(of_one.get("resource", {}), "resource"), of_resource)
        for scope in _list(of_one, "scopeSpans"):
            for span in _list(scope, "spans"):
                attributes = kept_attributes(span, allowed)
                is_inference = attributes.get(OPERATION, "chat") in INFERENCES
                if is_inference and any(name in attributes for name in (*INPUT, *OUTPUT)):
                    yield Span(resource, attributes, _fields(span))


def kept_document(spans: Sequence[Span]) -> dict[str, Any]:
    """The spans as OTLP again, one resource each."""
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _as_list(span.resource)},
                "scopeSpans": [{"spans": [{**span.fields, "attributes": _as_list(span.attributes)}]}],
            }
            for span in spans
        ]
    }


def readings(document: Any, families: Mapping[str, str], labels: PersonalLabels) -> Readings:
    """The points of the metrics that are of the catalogue (`families`: name -> kind of source). A counter that started
    less than FRESH_NANOSECONDS before its point is also read at its start, where it was 0."""
    found = Readings()
    for of_one in _list(_object(document, "the document"), "resourceMetrics"):
        resource = kept_attributes(_object(of_one.get("resource", {}), "resource"), RESOURCE_ATTRIBUTES)
        added = {label: str(resource[name]) for name, label in RESOURCE_LABELS.items() if name in resource}
        for scope in _list(of_one, "scopeMetrics"):
            for metric in _list(scope, "metrics"):
                _of_metric(metric, added, families, labels, found)
    return found


def kept_attributes(held: Mapping[str, Any], allowed: Collection[str]) -> dict[str, Any]:
    """The attributes that are allowed, if their values are short and no e-mail addresses."""
    found: dict[str, Any] = {}
    for item in _list(held, "attributes"):
        name = item.get("key")
        if isinstance(name, str) and name in allowed:
            value = _scalar(_object(item.get("value", {}), f"the value of {name}"))
            if value is not None and not (isinstance(value, str) and (len(value) > TEXT_CHARACTERS or is_mail(value))):
                found[name] = value
    return found


def nanoseconds(held: Mapping[str, Any], name: str) -> int:
    """A time of OTLP. Malformed where it is no number."""
    value = held.get(name, 0)
    try:
        return int(value)
    except (TypeError, ValueError):
        raise Malformed(f"{name}: got {type(value).__name__}, expected nanoseconds since 1970") from None


def _of_metric(
    metric: Mapping[str, Any],
    added: Mapping[str, str],
    families: Mapping[str, str],
    personal: PersonalLabels,
    found: Readings,
) -> None:
    shape = next((shape for shape in ("sum", "gauge", "histogram") if shape in metric), None)
    if shape is None:
        return
    held = _object(metric[shape], shape)
    points = _list(held, "dataPoints")
    family = _family(metric, shape, held, families)
    if family is None:
        found.unknown[str(metric.get("name", ""))[:TEXT_CHARACTERS]] = len(points)
        return
    is_counter = shape == "histogram" or bool(held.get("isMonotonic"))
    if is_counter and held.get("aggregationTemporality") not in _CUMULATIVE:
        found.reject(len(points), f"{family}: expected cumulative temporality; set it in the exporter")
        return
    kind = families[family]
    for point in points:
        if int(point.get("flags", 0)) & _NO_VALUE:
            continue
        value = _number(point, "sum" if shape == "histogram" else None)
        if value is None:
            found.reject(1, f"{family}: a point has no value")
            continue
        texts = {name.replace(".", "_"): text for name, text in _texts(point)}
        if texts.get("hw_type") == "gpu":
            # What a board draws as a whole; a sensor elsewhere is a part of it.
            texts.setdefault("hw_sensor_location", "package")
        labels = labels_json(personal.known(kind, {**added, **texts}))
        at_ns, started_ns = nanoseconds(point, "timeUnixNano"), nanoseconds(point, "startTimeUnixNano")
        if is_counter and 0 < at_ns - started_ns <= FRESH_NANOSECONDS:
            found.kept.append(Reading(started_ns // 1000, kind, family, labels, 0.0))
        found.kept.append(Reading(at_ns // 1000, kind, family, labels, value))


def _family(metric: Mapping[str, Any], shape: str, held: Mapping[str, Any], families: Mapping[str, str]) -> str | None:
    """The catalogue's name: the metric's own, else as Prometheus would store it."""
    name, unit = str(metric.get("name", "")), str(metric.get("unit", ""))
    bare = name.replace(".", "_")
    suffix = _UNITS.get(unit, "" if unit == "1" or "{" in unit else f"_{unit}" if unit else "")
    tail = "_sum" if shape == "histogram" else "_total" if shape == "sum" and held.get("isMonotonic") else ""
    candidates = (name + ("_sum" if shape == "histogram" else ""), f"{bare}{suffix}{tail}", f"{bare}{tail}")
    return next((candidate for candidate in candidates if candidate in families), None)


def _texts(point: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for item in _list(point, "attributes"):
        value = _scalar(_object(item.get("value", {}), "value"))
        if isinstance(item.get("key"), str) and value is not None and len(str(value)) <= TEXT_CHARACTERS:
            yield item["key"], str(value)


def _fields(span: Mapping[str, Any]) -> dict[str, Any]:
    status = _object(span.get("status", {}), "status")
    return {
        "traceId": str(span.get("traceId", ""))[:64],
        "spanId": str(span.get("spanId", ""))[:32],
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
    if "stringValue" in value:
        return str(value["stringValue"])
    try:
        if "intValue" in value:
            return int(value["intValue"])
        if "doubleValue" in value:
            number = float(value["doubleValue"])
            return number if math.isfinite(number) else None
    except (TypeError, ValueError):
        return None
    return None


def _number(point: Mapping[str, Any], name: str | None) -> float | None:
    names = (name,) if name else ("asDouble", "asInt")
    held = next((point[one] for one in names if one in point), None)
    try:
        return None if held is None else float(held)
    except (TypeError, ValueError):
        return None


def _object(held: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(held, Mapping):
        raise Malformed(f"{name}: got {type(held).__name__}, expected an object")
    return held


def _list(held: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    found = held.get(name, [])
    if not isinstance(found, list) or not all(isinstance(one, Mapping) for one in found):
        raise Malformed(f"{name}: expected a list of objects")
    return found
