"""Requests from access logs: JSON Lines, one object per request, with a `usage` object in any of the usual shapes.

Add here what logs of requests share. Keep out the table of one gateway (`litellm`), and everything that a column
mapping of the fleet file can state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from collectors.records import askers as who
from collectors.records import log_columns
from collectors.records.askers import NO_USERS, Askers
from collectors.records.log_words import status_of
from collectors.records.request_records import (
    FileCollector,
    between,
    instant_us,
    key_hash,
    seconds,
    text,
    usd,
)
from collectors.records.usage import FLAT, WHOLES, usage_tokens
from collectors.rows import Reject, Rejects, is_object
from collectors.samples import SourceError
from collectors.text_files import csv_rows, lines

# The paths in an OpenAI-compatible server's own answers: a file of these is read without any mapping.
USUAL = {"request_id": "id", "started_at": "created", "model": "model", "usage": "usage"}
SHOWN_KEYS = 40
_MISSING = object()
# Counts of a log that has no usage object, by names of its own: input with what a cache gave, as OpenAI counts.
_COUNTS = ("input_tokens", "cached_input_tokens", "output_tokens")
_TEXTS = ("request_id", "status", "model", "engine", "api_base", "team", "tenant", "user")
Column = Literal[
    "request_id", "started_at", "ended_at", "duration_seconds", "duration_ms", "ttft_seconds", "ttft_ms", "status",
    "model", "engine", "api_base", "team", "tenant", "user", "key", "usage", "input_tokens", "cached_input_tokens",
    "output_tokens", "spend_usd",
]  # fmt: skip


class AccessLogCollector(FileCollector):
    """Reads .jsonl and CSV files (also .gz). `columns` is where each Column of a request is in a line: a dotted path
    such as `response.usage`, whose dots may divide objects or be part of a key (`"gen_ai.usage.input_tokens": 5` is at
    `gen_ai.usage`). A column that is not mapped has its path in USUAL, if any. `time_unit` is the unit of times
    written as numbers, `time_zone` that of texts without an offset. SourceError where no line has one of the `columns`.
    """

    source_kind, inside = "access_log", "*.jsonl*"
    has_columns = True

    def __init__(
        self,
        source: str,
        path: str,
        constants: Mapping[str, Any],
        columns: Mapping[Column, str] | None = None,
        *,
        time_unit: str = "s",
        time_zone: str = "UTC",
        askers: Askers = NO_USERS,
    ) -> None:
        super().__init__(source, path, constants, askers)
        self._time_unit = time_unit
        self._time_zone = time_zone
        self._columns = dict(columns or {})
        self._places = USUAL | self._columns
        self._unseen = dict(self._columns)
        self._first_keys: list[str] = []

    def read(self, path: str, rejects: Rejects) -> tuple[Iterator[tuple[str, Any]], Callable[[Any], dict[str, Any]]]:
        """The lines of a file, or the rows of a CSV."""
        _, first = next(lines(path, Rejects()), (0, b"{"))
        if not first.lstrip().startswith((b"{", b"[")) and any(one in first for one in (b",", b";", b"\t")):
            return csv_rows(path, rejects)[1], self._request_of
        return numbered_lines(path, rejects), lambda line: self._request_of(json_object(line))

    def columns_of(self, rows: Sequence[bytes]) -> Mapping[str, pa.Array] | None:
        """All columns of plain lines at once."""
        if not isinstance(rows[0], bytes) or self._columns.keys() & {*_COUNTS}:
            return None
        try:
            held = log_columns.objects(rows)
            if any(WHOLES & one.keys() for one in held):
                return None
            values = {name: log_columns.at(held, place, rows) for name, place in self._places.items()}
            usages = values.pop("usage", None)
            found = {name: column for name, of in values.items() if (column := log_columns.column(of)) is not None}
            if self._unseen.keys() - found.keys() - ({"usage"} if usages and any(usages) else set()):
                return None  # where a column is null or missing, the reader of rows knows which
            made = self._plain_columns(found) | (log_columns.chat_tokens(usages) if usages else {})
        except (log_columns.NotPlain, pa.ArrowException):
            return None
        self._unseen = {}
        self._first_keys = self._first_keys or list(islice(_paths(held[0]), SHOWN_KEYS))
        return made

    def _plain_columns(self, found: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
        missing = {"duration_seconds", "duration_ms", "ttft_seconds", "ttft_ms"}
        if len(missing & found.keys()) > len({name.split("_")[0] for name in missing & found.keys()}):
            raise log_columns.NotPlain  # a duration is there in two units
        times = {
            name: log_columns.instants(found[name], self._time_unit, self._time_zone)
            for name in ("started_at", "ended_at")
            if name in found
        }
        took = _plain_seconds(found, "duration")
        if "started_at" not in times or times["started_at"].null_count:
            raise log_columns.NotPlain  # a start follows from the end
        start, end = times["started_at"], times.get("ended_at")
        if took is not None:
            later = log_columns.after(start, took)
            end = later if end is None else pc.coalesce(end, later)
        made = {name: log_columns.texts(found[name]) for name in _TEXTS if name in found}
        made["started_at"] = start
        if end is not None:
            made |= {"ended_at": end, "end_to_end_seconds": log_columns.lasted(start, end)}
        if (first := _plain_seconds(found, "ttft")) is not None:
            made["ttft_seconds"] = first
        if "team" in made:
            made["team"] = log_columns.of_each(made["team"], who.team, pa.string())
        if "tenant" in made or "user" in made:
            users = made.pop("user", None)
            made["tenant"] = log_columns.tenants(self.askers, made.get("tenant"), users)
        if "status" in made:
            made["status"] = log_columns.of_each(made["status"], status_of, pa.string())
            made["is_ok"] = log_columns.of_each(made["status"], is_ok, pa.bool_())
        if "key" in found:
            keys = log_columns.texts(found["key"])
            made["key_hash"] = log_columns.of_each(keys, lambda key: key_hash(key, "key"), pa.string())
        if "spend_usd" in found:
            made["spend_usd"] = log_columns.dollars(found["spend_usd"])
        return made

    def check(self) -> None:
        """SourceError where a mapped column is in no line of all files."""
        if self._first_keys and self._unseen:
            name, place = next(iter(self._unseen.items()))
            there = ", ".join(map(repr, self._first_keys))
            reason = f"no line has {place!r}, which columns states for {name}; the first line has {there}"
            raise SourceError(self.path, None, f"{reason[:500]}. Correct `columns` in the fleet file")

    def _request_of(self, held: Mapping[str, Any]) -> dict[str, Any]:
        self._first_keys = self._first_keys or list(islice(_paths(held), SHOWN_KEYS))
        places = {name: _at(held, place) for name, place in self._places.items()}
        fields = {name: value for name, value in places.items() if value is not _MISSING}
        if self._unseen:
            self._unseen = {name: place for name, place in self._unseen.items() if name not in fields}
        started_us = instant_us(fields.get("started_at"), "started_at", self._time_unit, self._time_zone)
        ended_us = instant_us(fields.get("ended_at"), "ended_at", self._time_unit, self._time_zone)
        took = _seconds(fields, "duration")
        if started_us is None and ended_us is not None and took is not None:
            started_us = ended_us - round(took * 1e6)  # nginx and Envoy stamp the end
        if started_us is None:
            raise Reject(f"started_at: there is nothing at {self._places['started_at']}")
        if ended_us is None and took is not None:
            ended_us = started_us + round(took * 1e6)
        status = status_of(text(fields.get("status"), "status"))
        return {
            "request_id": text(fields.get("request_id"), "request_id"),
            "started_at": started_us,
            "ended_at": ended_us,
            "ttft_seconds": _seconds(fields, "ttft"),
            "end_to_end_seconds": between(started_us, ended_us, "ended_at"),
            "status": status,
            "is_ok": is_ok(status),
            **{name: text(fields.get(name), name) for name in ("model", "engine", "api_base")},
            "team": who.team(text(fields.get("team"), "team")),
            "tenant": self.askers.tenant(text(fields.get("tenant"), "tenant"), text(fields.get("user"), "user")),
            "key_hash": key_hash(fields.get("key"), "key"),
            "spend_usd": usd(fields.get("spend_usd"), "spend_usd"),
            **usage_tokens(self._usage(held, fields)),
        }

    def _usage(self, held: Mapping[str, Any], fields: Mapping[str, Any]) -> Any:
        """The usage object of a row; where the log has none, its counts by their names."""
        counted = {name: fields[name] for name in _COUNTS if name in fields}
        if counted:
            details = {"cached_tokens": counted.pop("cached_input_tokens", None)}
            return {**counted, "input_tokens_details": details}
        if "usage" in fields or "usage" in self._columns:
            return fields.get("usage")
        return {name: held[name] for name in FLAT & held.keys() if held[name] != ""} if WHOLES & held.keys() else None


def _plain_seconds(found: Mapping[str, pa.Array], name: str) -> pa.Array | None:
    if f"{name}_ms" in found:
        return log_columns.durations(found[f"{name}_ms"], 1e3)
    return log_columns.durations(found[f"{name}_seconds"]) if f"{name}_seconds" in found else None


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


def _at(held: Any, place: str) -> Any:
    """What a line has at a dotted path, _MISSING where it has nothing. The keys below a path that is no key of its own
    are an object: `{"usage.input": 1}` has `{"input": 1}` at `usage`."""
    if not isinstance(held, Mapping):
        return _MISSING
    if place in held:
        return held[place]
    dots = [n for n, character in enumerate(place) if character == "."]
    for dot in reversed(dots):
        if place[:dot] in held:
            found = _at(held[place[:dot]], place[dot + 1 :])
            if found is not _MISSING:
                return found
    below = {key[len(place) + 1 :]: value for key, value in held.items() if key.startswith(f"{place}.")}
    return _nested(below) if below else _MISSING


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in flat.items():
        *above, last = key.split(".")
        inner = found
        for part in above:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                break
        else:
            inner.setdefault(last, value)
    return found


def _paths(held: Mapping[str, Any], above: str = "", depth: int = 3) -> Iterator[str]:
    for key, value in held.items():
        if isinstance(value, Mapping) and value and depth:
            yield from _paths(value, f"{above}{key}.", depth - 1)
        else:
            yield above + key
