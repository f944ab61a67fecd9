"""Requests from access logs: JSON Lines, one object per request, with a `usage` object in any of the usual shapes.

Add here what logs of requests share. Keep out the table of one gateway (`litellm`), and everything that a column
mapping of the fleet file can state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import orjson

from collectors.records.request_records import (
    FileCollector,
    between,
    instant_us,
    key_hash,
    seconds,
    text,
    usage_tokens,
    usd,
)
from collectors.rows import Reject, Rejects, is_object
from collectors.text_files import lines

# The paths in an OpenAI-compatible server's own answers: a file of these is read without any mapping.
USUAL = {"request_id": "id", "started_at": "created", "model": "model", "usage": "usage"}
Column = Literal[
    "request_id", "started_at", "ended_at", "duration_seconds", "duration_ms", "ttft_seconds", "ttft_ms", "status",
    "model", "engine", "api_base", "team", "tenant", "key", "usage", "spend_usd",
]  # fmt: skip


class AccessLogCollector(FileCollector):
    """Reads .jsonl files (also .gz). `columns` is where each Column of a request is in a line: a dotted path such as
    `response.usage`. A column that is not mapped has its path in USUAL, if any. `time_unit` is the unit of times
    written as numbers.
    """

    source_kind, inside = "access_log", "*.jsonl*"

    def __init__(
        self,
        source: str,
        path: str,
        constants: Mapping[str, Any],
        columns: Mapping[Column, str] | None = None,
        time_unit: str = "s",
    ) -> None:
        super().__init__(source, path, constants)
        self._time_unit = time_unit
        self._places = {name: place.split(".") for name, place in (USUAL | dict(columns or {})).items()}

    def read(
        self, path: str, rejects: Rejects
    ) -> tuple[Iterator[tuple[str, bytes]], Callable[[bytes], dict[str, Any]]]:
        """The lines of a file."""
        return numbered_lines(path, rejects), self._request

    def _request(self, line: bytes) -> dict[str, Any]:
        held = json_object(line)
        fields = {name: _at(held, place) for name, place in self._places.items()}
        started_us = instant_us(fields.get("started_at"), "started_at", self._time_unit)
        ended_us = instant_us(fields.get("ended_at"), "ended_at", self._time_unit)
        took = _seconds(fields, "duration")
        if started_us is None and ended_us is not None and took is not None:
            started_us = ended_us - round(took * 1e6)  # nginx and Envoy stamp the end
        if started_us is None:
            raise Reject(f"started_at: there is nothing at {'.'.join(self._places['started_at'])}")
        if ended_us is None and took is not None:
            ended_us = started_us + round(took * 1e6)
        status = text(fields.get("status"), "status")
        return {
            "request_id": text(fields.get("request_id"), "request_id"),
            "started_at": started_us,
            "ended_at": ended_us,
            "ttft_seconds": _seconds(fields, "ttft"),
            "end_to_end_seconds": between(started_us, ended_us, "ended_at"),
            "status": status,
            "is_ok": is_ok(status),
            **{name: text(fields.get(name), name) for name in ("model", "engine", "api_base", "team", "tenant")},
            "key_hash": key_hash(fields.get("key"), "key"),
            "spend_usd": usd(fields.get("spend_usd"), "spend_usd"),
            **usage_tokens(fields.get("usage")),
        }


def numbered_lines(path: str, rejects: Rejects) -> Iterator[tuple[str, bytes]]:
    """(place, line) of every line of a file that is not blank."""
    return ((f"{path}:{number}", line) for number, line in lines(path, rejects))


def json_object(line: bytes) -> Mapping[str, Any]:
    """The object of one line; Reject where there is none."""
    try:
        held = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise Reject(f"is not JSON: {error}") from None
    return is_object(held)


def is_ok(status: str | None) -> bool | None:
    """Whether a status means that the request was answered; None for an unknown status."""
    if status is None:
        return None
    if status.isdigit() and len(status) == 3:
        return 200 <= int(status) < 400
    word = status.lower()
    if word in ("ok", "success", "succeeded", "completed", "stop", "length"):
        return True
    return False if word in ("error", "failure", "failed", "cancelled", "canceled", "timeout", "aborted") else None


def _seconds(fields: Mapping[str, Any], name: str) -> float | None:
    of_milliseconds = seconds(fields.get(f"{name}_ms"), f"{name}_ms", 1e3)
    return seconds(fields.get(f"{name}_seconds"), f"{name}_seconds") if of_milliseconds is None else of_milliseconds


def _at(held: Any, place: list[str]) -> Any:
    for part in place:
        held = held.get(part) if isinstance(held, Mapping) else None
    return held
