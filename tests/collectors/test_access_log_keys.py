"""Where an access log has the columns of a request: dots that divide objects, dots within a key, and keys that no line
has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collectors.records.access_logs import AccessLogCollector
from collectors.rows import Rejects
from collectors.samples import SourceError, Window
from tests.books import validation_data
from tests.collectors.test_requests import DAY, collected, jsonl, noon

NOON = "2026-10-01T12:00:00Z"
FLAT = {"started_at": "start_time", "model": "gen_ai.request.model", "usage": "gen_ai.usage"}


def requests(path: Path, columns: dict[str, str], *rows: dict[str, Any]) -> list[dict[str, Any]]:
    return collected(AccessLogCollector("edge", jsonl(path, *rows), {}, columns))[0]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "line",
    [
        {"gen_ai.request.model": "qwen", "gen_ai.usage.input_tokens": 512, "gen_ai.usage.output_tokens": 128},
        {"gen_ai": {"request": {"model": "qwen"}, "usage": {"input_tokens": 512, "output_tokens": 128}}},
        {"gen_ai.request": {"model": "qwen"}, "gen_ai.usage": {"input_tokens": 512, "output_tokens": 128}},
        {"gen_ai": {"request.model": "qwen", "usage.input_tokens": 512, "usage.output_tokens": 128}},
    ],
    ids=["flat", "objects", "flat objects", "an object of flat keys"],
)
def test_a_path_is_found_however_its_dots_divide_it(tmp_path: Path, line: dict[str, Any]) -> None:
    (row,) = requests(tmp_path / "log.jsonl", FLAT, {"start_time": NOON, **line})
    assert (row["started_at"], row["model"], row["input_tokens"], row["output_tokens"]) == (noon(), "qwen", 512, 128)


def test_flat_keys_below_a_usage_are_its_objects(tmp_path: Path) -> None:
    line = {
        "start_time": NOON,
        "u.prompt_tokens": 1000,
        "u.completion_tokens": 50,
        "u.prompt_tokens_details.cached_tokens": 900,
    }
    (row,) = requests(tmp_path / "log.jsonl", {"started_at": "start_time", "usage": "u"}, line)
    assert (row["input_tokens"], row["cached_input_tokens"], row["output_tokens"]) == (1000, 900, 50)


def test_a_mapped_key_that_no_line_has_is_refused_with_the_keys_that_there_are(tmp_path: Path) -> None:
    line = {"start_time": NOON, "gen_ai.usage.input_tokens": 512, "response": {"code": 200}}
    path = jsonl(tmp_path / "log.jsonl", line, line)
    columns = {"started_at": "start_time", "usage": "gen_ai.usage", "tenant": "session"}
    with pytest.raises(SourceError) as refused:
        list(AccessLogCollector("edge", path, {}, columns).collect(DAY, Rejects()))  # type: ignore[arg-type]
    assert refused.value.reason == (
        "no line has 'session', which columns states for tenant; the first line has 'start_time',"
        " 'gen_ai.usage.input_tokens', 'response.code'. Correct `columns` in the fleet file"
    )


def test_a_mapped_key_that_one_line_has_or_that_is_null_is_no_fault(tmp_path: Path) -> None:
    columns = {"started_at": "at", "tenant": "org", "team": "group"}
    rows = requests(
        tmp_path / "log.jsonl", columns, {"at": NOON}, {"at": NOON, "org": "acme"}, {"at": NOON, "group": None}
    )
    assert [row.get("tenant") for row in rows] == [None, "acme", None]
    assert requests(tmp_path / "empty.jsonl", columns) == []


@pytest.mark.needs("validation-data")
def test_envoy_ai_gateways_access_log(tmp_path: Path) -> None:
    log = validation_data() / "logs" / "envoy_ai_gateway.jsonl"
    columns = {**FLAT, "duration_ms": "duration", "status": "response_code", "tenant": "session.id"}
    day = Window(noon().replace(2025, 1, 24, 0), noon().replace(2025, 1, 25, 0))
    rows, rejects = collected(AccessLogCollector("edge", str(log), {}, columns), day)  # type: ignore[arg-type]
    assert [
        (
            row["model"],
            row["input_tokens"],
            row["output_tokens"],
            row["end_to_end_seconds"],
            row["tenant"],
            row["is_ok"],
        )
        for row in rows
    ] == [("qwen3-4b", 512, 128, 1.84, "s1", True), ("qwen3-4b", 256, 64, 0.92, "s2", True)]
    assert str(rejects) == ""
