"""Requests that OpenTelemetry's spans of model calls are: files of the Collector's file exporter, or of the agent.

Add here which attribute of a span is which column of a request. Keep out which attributes may be read at all: that is
`protocols.otlp`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from collectors.protocols.otlp import (
    CACHE_WRITTEN,
    CACHED,
    INPUT,
    MODEL,
    OUTPUT,
    REASONING,
    REQUEST_ID,
    STATUS,
    TTFT,
    Malformed,
    Span,
    inferences,
    parts_of_document,
)
from collectors.records import askers as who
from collectors.records import token_readings
from collectors.records.access_logs import is_ok, json_object, numbered_lines
from collectors.records.askers import NO_USERS, Askers
from collectors.records.request_records import FileCollector, between, instant_us, seconds, text, tokens
from collectors.records.usage import SPANS, token_columns
from collectors.rows import Reject, Rejects


class OtlpSpanCollector(FileCollector):
    """Reads JSON Lines of OTLP (also .gz). `tenant` and `team` are the attributes that name who asked, of a span or its
    resource, the first that is there; of other `services` (attribute service.name) than those stated no span counts."""

    source_kind, inside = "otlp", "*.jsonl*"

    def __init__(
        self,
        source: str,
        path: str,
        constants: Mapping[str, Any],
        *,
        tenant: Sequence[str] = (),
        team: Sequence[str] = (),
        services: Sequence[str] = (),
        askers: Askers = NO_USERS,
    ) -> None:
        super().__init__(source, path, constants, askers)
        self.names = {"tenant": tuple(tenant), "team": tuple(team)}
        self.services = frozenset(services)

    def read(self, path: str, rejects: Rejects) -> tuple[Iterator[tuple[str, Any]], Callable[[Any], dict[str, Any]]]:
        """The spans of a file; a line that is no OTLP is a row that is refused."""
        return self._rows(path, rejects), self._request

    def _rows(self, path: str, rejects: Rejects) -> Iterator[tuple[str, Span | Reject]]:
        stated = {name for names in self.names.values() for name in names}
        for place, line in numbered_lines(path, rejects):
            try:
                for span in inferences(parts_of_document(json_object(line), "traces"), stated):
                    if not self.services or span.resource.get("service.name") in self.services:
                        yield place, span
            except Reject as reason:
                yield place, reason
            except Malformed as error:
                yield place, Reject(str(error))

    def _request(self, span: Span | Reject) -> dict[str, Any]:
        if isinstance(span, Reject):
            raise span
        attributes, fields = span.attributes, span.fields
        started_us = instant_us(int(fields["startTimeUnixNano"]), "startTimeUnixNano", "ns")
        ended_us = instant_us(int(fields["endTimeUnixNano"]) or None, "endTimeUnixNano", "ns")
        if started_us is None:
            raise Reject("startTimeUnixNano: missing")
        status = "error" if fields["status"].get("code") == 2 else text(attributes.get(STATUS), STATUS) or "ok"
        named = {**span.resource, **attributes}
        return {
            # Spans of one request in two programs have one answer's id.
            "request_id": text(_first(attributes, REQUEST_ID), "id") or f"{fields['traceId']}:{fields['spanId']}",
            "started_at": started_us,
            "ended_at": ended_us,
            "ttft_seconds": seconds(_first(attributes, TTFT), TTFT[0]),
            "end_to_end_seconds": between(started_us, ended_us, "endTimeUnixNano"),
            "status": status,
            "is_ok": is_ok(status),
            "model": text(_first(attributes, MODEL), MODEL[0]),
            "tenant": self.askers.tenant(text(_first(named, self.names["tenant"]), "tenant")),
            "team": who.team(text(_first(named, self.names["team"]), "team")),
            **_tokens(attributes),
        }


def _tokens(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """By the conventions input includes what was read from and written to a cache; Anthropic's own count does not."""
    parts = {
        token_readings.READ: tokens(_first(attributes, CACHED), "cached"),
        token_readings.WRITTEN: tokens(_first(attributes, CACHE_WRITTEN), "written"),
        token_readings.REASONING: tokens(_first(attributes, REASONING), REASONING[0]),
    }
    asked, made = tokens(_first(attributes, INPUT), INPUT[0]), tokens(_first(attributes, OUTPUT), OUTPUT[0])
    return token_columns(asked, made, parts, None, api=SPANS)


def _first(held: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((held[name] for name in names if name in held), None)
