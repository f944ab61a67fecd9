"""A log read as columns is the log read row by row: the same requests, the same rejects, whatever is in one of its
lines."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from collectors.records.access_logs import AccessLogCollector
from collectors.records.litellm import LiteLLMFileCollector
from collectors.records.request_records import FileCollector
from collectors.rows import Rejects
from collectors.samples import Window

WINDOW = Window(datetime(2026, 10, 15, tzinfo=UTC), datetime(2026, 10, 16, tzinfo=UTC))
COLUMNS = {
    "duration_seconds": "seconds", "ttft_ms": "ttft", "status": "status", "tenant": "who.user", "team": "team",
    "key": "key", "spend_usd": "usd",
}  # fmt: skip
LINE: dict[str, Any] = {
    "id": "chatcmpl-1", "created": "2026-10-15T10:00:00.25+02:00", "seconds": 9.5, "ttft": 250, "status": 200,
    "model": "big", "who": {"user": "acme", "mail": "a@example.com"}, "team": "", "key": "sk-1", "usd": 0.5,
    "prompt": "ignored", "usage": {
        "prompt_tokens": 100, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 30},
        "completion_tokens_details": {"reasoning_tokens": 5}, "total_tokens": 120, "extra": "x",
    },
}  # fmt: skip
# What one line may have in place of a value; a dotted path leads to it. _GONE takes the key away.
_GONE = object()
ODD: list[tuple[str, Any]] = [
    *[("id", value) for value in (None, _GONE, "", 7, 1.5, True, "x" * 1001, ["a"], "é\u2028")],
    *[("created", value) for value in (None, _GONE, "", 1792058400, 1792058400.5, True)],
    *[("created", value) for value in ("2026-10-15", "2026", "20261015", "never")],
    *[("created", f"2026-10-15T{time}") for time in ("10:00:00", "10:00:00Z", "10:00:00.1234567Z", "10:00Z")],
    *[("created", f"{year}-10-15T10:00:00Z") for year in ("1999", "2125", "10000", "0001")],
    *[("seconds", value) for value in (None, _GONE, "9.5", 9, -1, 2_592_001, float("nan"), True, 0, 1e-7, 0.0000005)],
    *[("ttft", value) for value in (None, 1e400, 0.5, "250", 2_592_000_001)],
    *[("status", value) for value in (None, "ok", "503", 503, "aborted", "?", {"code": 200})],
    *[("who", value) for value in (None, _GONE, "acme", {}, {"user": None}, {"user": 5})],
    *[("who.user", value) for value in (None, "", 1.0)],
    *[("key", value) for value in (None, "a" * 64, "Bearer sk-1", 5)],
    *[("usd", value) for value in (None, 0, "0.5", -1, 1_000_001)],
    *[("usage", value) for value in (None, _GONE, {}, [], "5", {"input_tokens": 5, "output_tokens": 6})],
    *[("usage.prompt_tokens", value) for value in (None, _GONE, 0, 29, 100.0, "100", -1, 2**63, 10_000_000_001)],
    *[("usage.completion_tokens", value) for value in (None, _GONE, 0, 4, 20.5)],
    *[("usage.prompt_tokens_details", value) for value in (None, {}, {"cached_tokens": None}, 5)],
    ("usage.prompt_tokens_details.cached_tokens", 101),
    *[("usage.prompt_tokens_details.cache_creation_tokens", value) for value in (70, 71)],
    *[("usage.cache_read_input_tokens", value) for value in (7, "7")],
    *[("usage.prompt_cache_hit_tokens", value) for value in (7, None)],
    *[("usage.completion_tokens_details.reasoning_tokens", value) for value in (None, 21)],
    ("usage.prompt_tokens_details.cached_tokens.x", 1),
    *[("usage.total_tokens", value) for value in (None, _GONE, 0, 125, 119, "120")],
    ("unmapped", {"created": [1, {"a": None}]}),
]  # fmt: skip
RAW = [
    b"not json", b"{}", b"[]", b"5", b"null", b'{"id": 1} {"id": 2}', b'{"id": "a", "id": "b"}', b'{"id": "\xff"}',
    b'{"id": "\\ud800"}', b'{"who.user": "dotted", "created": "2026-10-15T10:00:00Z"}', b'{"created": 1e9}',
    b'{"usage.prompt_tokens": 5, "created": "2026-10-15T10:00:00Z"}', b'{"id": 01}', b'{"id": NaN}', b"\xef\xbb\xbf{}",
]  # fmt: skip


LITELLM: dict[str, Any] = {
    "request_id": "r-1", "api_key": "b" * 64, "spend": 0.25, "prompt_tokens": 100, "completion_tokens": 20,
    "total_tokens": 120, "startTime": "2026-10-15T10:00:00.123", "endTime": "2026-10-15T10:00:09", "model": "big",
    "completionStartTime": "2026-10-15T10:00:01", "api_base": "http://e-0:8000", "user": "u-1", "team_id": "search",
    "end_user": "acme", "cache_hit": "False", "status": "success",
    "metadata": {"usage_object": {"prompt_tokens_details": {"cached_tokens": 30}, "cache_read_input_tokens": None}},
}  # fmt: skip
ODD_LITELLM: list[tuple[str, Any]] = [
    *[("request_id", value) for value in (None, _GONE, "", 7, 1.5)],
    *[("startTime", value) for value in (None, _GONE, "", 1792058400.5, "2026-10-15T10:00:00Z", "late")],
    *[("endTime", value) for value in (None, _GONE, "2026-10-15T09:00:00", "2026-10-15T10:00:09+00:00")],
    *[("completionStartTime", value) for value in (None, "2026-10-15T10:00:09", "2026-10-15T09:00:00")],
    *[("end_user", value) for value in (None, "", _GONE, 5)],
    *[("team_id", value) for value in (None, "")],
    *[("api_key", value) for value in (None, "", "sk-1")],
    *[("spend", value) for value in (None, 0, 0.0, "0.5", -1, _GONE)],
    *[("cache_hit", value) for value in (True, "True", None, "")],
    *[("status", value) for value in (None, "failure", 429)],
    *[("prompt_tokens", value) for value in (None, 0, 29, 100.0, "100")],
    *[("completion_tokens", value) for value in (None, 0, -1)],
    *[("total_tokens", value) for value in (None, _GONE, 0, 119, 150)],
    *[("metadata", value) for value in (None, _GONE, "{}", "not json", '{"user_api_key_team_id": "x"}', 5, {})],
    *[("metadata.usage_object.cache_read_input_tokens", value) for value in (7, 101, "7", "")],
    *[("metadata.usage_object.completion_tokens_details", value) for value in (None, 5, {"reasoning_tokens": 21})],
    *[("metadata.additional_usage_values", value) for value in ({"cache_creation_input_tokens": 9}, 5)],
]  # fmt: skip


class ByRow(AccessLogCollector):
    """The same reader, row by row."""

    has_columns = False


class LiteLLMByRow(LiteLLMFileCollector):
    """The same reader, row by row."""

    has_columns = False


def changed(path: str, value: Any, of: Mapping[str, Any] = LINE) -> bytes:
    line = copy.deepcopy(dict(of))
    *above, last = path.split(".")
    inner = line
    for part in above:
        held = inner.get(part)
        inner[part] = held if isinstance(held, dict) else {}
        inner = inner[part]
    if value is _GONE:
        inner.pop(last)
    else:
        inner[last] = value
    return json.dumps(line).encode()


def read(kind: type[FileCollector], path: Path, *columns: Mapping[str, str], **more: Any) -> tuple[Any, ...]:
    rejects = Rejects(1.0)
    collector = kind("edge", str(path), {"engine": "e-0"}, *columns, **more)
    try:
        batches = list(collector.collect(WINDOW, rejects))
    except Exception as refusal:
        return str(refusal), rejects.read, rejects.rows, rejects.first
    rows = pa.Table.from_batches(batches).to_pylist() if batches else []
    return rows, rejects.read, rejects.rows, rejects.first


def written(folder: Path, *lines: bytes) -> Path:
    path = folder / "edge.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


@pytest.mark.parametrize("odd", [*(changed(*one) for one in ODD), *RAW], ids=lambda line: repr(line)[:60])
@pytest.mark.parametrize("at", [0, 1])
def test_a_line_is_what_the_reader_of_rows_makes_of_it(tmp_path: Path, odd: bytes, at: int) -> None:
    """As the line whose types count, and as one behind it."""
    plain = json.dumps(LINE).encode()
    lines = [plain, plain]
    lines.insert(at, odd)
    path = written(tmp_path, *lines)
    assert read(AccessLogCollector, path, COLUMNS) == read(ByRow, path, COLUMNS)


@pytest.mark.parametrize("odd", [changed(*one, LITELLM) for one in ODD_LITELLM], ids=lambda line: repr(line)[-60:])
@pytest.mark.parametrize("at", [0, 1])
def test_a_line_of_litellm_is_what_the_reader_of_rows_makes_of_it(tmp_path: Path, odd: bytes, at: int) -> None:
    plain = json.dumps(LITELLM).encode()
    lines = [plain, plain]
    lines.insert(at, odd)
    path = written(tmp_path, *lines)
    assert read(LiteLLMFileCollector, path) == read(LiteLLMByRow, path)


def test_a_usual_log_of_litellm_is_read_as_columns() -> None:
    columns = LiteLLMFileCollector("gateway", "", {}).columns_of([json.dumps(LITELLM).encode()] * 2)
    assert columns is not None
    found = [columns[name].to_pylist()[0] for name in ("tenant", "team", "spend_usd")]
    assert found == ["acme", "search", 0.25]
    assert columns["ttft_seconds"].to_pylist() == [0.877] * 2
    assert columns["cached_input_tokens"].to_pylist() == [30] * 2


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("value", [1_792_058_400.25, 1_792_058_400])
def test_times_as_numbers_of_every_unit(tmp_path: Path, unit: str, value: float) -> None:
    factor = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[unit]
    path = written(tmp_path, changed("created", value * factor), changed("created", value * factor + 1))
    found = read(AccessLogCollector, path, COLUMNS, time_unit=unit)
    assert found == read(ByRow, path, COLUMNS, time_unit=unit)
    assert found[0]


def test_a_usual_log_is_read_as_columns(tmp_path: Path) -> None:
    """Also where values are missing here and there, and one request began on another date."""
    lines = [json.dumps(LINE).encode(), changed("who", None), changed("status", None), changed("seconds", None)]
    lines.append(changed("created", "2026-10-16T10:00:00Z"))
    collector = AccessLogCollector("edge", "", {}, COLUMNS)
    columns = collector.columns_of(lines)
    assert columns is not None
    assert columns["tenant"].to_pylist() == ["acme", None, "acme", "acme", "acme"]
    assert columns["ttft_seconds"].to_pylist() == [0.25] * 5
    assert columns["cached_input_tokens"].to_pylist() == [30] * 5
    path = written(tmp_path, *lines)
    rows, count, *_ = read(AccessLogCollector, path, COLUMNS)
    assert (len(rows), count) == (4, 5)
    assert read(ByRow, path, COLUMNS)[0] == rows
