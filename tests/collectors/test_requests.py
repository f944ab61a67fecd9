"""Requests as their logs hold them: literal lines in, literal rows out, and tokens counted in one way."""

from __future__ import annotations

import csv
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.records.access_logs import AccessLogCollector
from collectors.records.azure_trace import AzureTraceCollector
from collectors.records.litellm import LiteLLMFileCollector
from collectors.records.request_records import RequestCollector, instant_us
from collectors.records.usage import usage_tokens
from collectors.rows import Reject, Rejects
from collectors.samples import SourceError, Window

DAY = Window(datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 10, 2, tzinfo=UTC))
NOON_NS = 1_790_856_000_000_000_000  # 2026-10-01 12:00:00 UTC


def collected(collector: RequestCollector, window: Window = DAY) -> tuple[list[dict[str, Any]], Rejects]:
    """The requests of a window without what is unknown of them, and what was rejected."""
    rejects = Rejects()
    rows = [row for batch in collector.collect(window, rejects) for row in batch.to_pylist()]
    return [{name: value for name, value in row.items() if value is not None} for row in rows], rejects


def jsonl(path: Path, *rows: object) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return str(path)


def noon(seconds: float = 0) -> datetime:
    return datetime.fromtimestamp(NOON_NS / 1e9 + seconds, UTC)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        # OpenAI, chat and completions: prompt_tokens includes what came from the cache.
        (
            {
                "prompt_tokens": 1000,
                "completion_tokens": 50,
                "prompt_tokens_details": {"cached_tokens": 900},
                "completion_tokens_details": {"reasoning_tokens": 20},
            },
            (1000, 900, None, 50, 20),
        ),
        # OpenAI, responses: the same with other names.
        (
            {
                "input_tokens": 1000,
                "output_tokens": 50,
                "input_tokens_details": {"cached_tokens": 900},
                "output_tokens_details": {"reasoning_tokens": 0},
            },
            (1000, 900, None, 50, 0),
        ),
        # Anthropic: input_tokens is what is left beside the cache.
        (
            {
                "input_tokens": 60,
                "cache_read_input_tokens": 900,
                "cache_creation_input_tokens": 40,
                "output_tokens": 50,
            },
            (1000, 900, 40, 50, None),
        ),
        ({"input_tokens": 60, "cache_read_input_tokens": 0, "output_tokens": 5}, (60, 0, None, 5, None)),
        # vLLM: no details unless it was started with them, hence unknown, not 0.
        ({"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": None}, (7, None, None, 3, None)),
        # DeepSeek's own name.
        (
            {"prompt_tokens": 10, "completion_tokens": 1, "prompt_cache_hit_tokens": 8, "prompt_cache_miss_tokens": 2},
            (10, 8, None, 1, None),
        ),
        # LiteLLM in front of Anthropic: OpenAI's total with Anthropic's parts beside it.
        (
            {
                "prompt_tokens": 1000,
                "completion_tokens": 50,
                "cache_read_input_tokens": 900,
                "cache_creation_input_tokens": 40,
            },
            (1000, 900, 40, 50, None),
        ),
        # xAI: the total shows that reasoning is beside the completion; OpenAI's shows that it is within.
        (
            {
                "prompt_tokens": 1000,
                "completion_tokens": 400,
                "total_tokens": 1700,
                "completion_tokens_details": {"reasoning_tokens": 300},
            },
            (1000, None, None, 700, 300),
        ),
        (
            {
                "prompt_tokens": 1000,
                "completion_tokens": 400,
                "total_tokens": 1400,
                "completion_tokens_details": {"reasoning_tokens": 300},
            },
            (1000, None, None, 400, 300),
        ),
        # Anthropic's names, filled by an SDK that counts the cache within the input.
        (
            {"input_tokens": 1000, "cache_read_input_tokens": 900, "output_tokens": 50, "total_tokens": 1050},
            (1000, 900, None, 50, None),
        ),
        (
            {"input_tokens": 1000, "cache_read_input_tokens": 900, "output_tokens": 50, "total_tokens": 1950},
            (1900, 900, None, 50, None),
        ),
        (
            {
                "promptTokenCount": 100,
                "cachedContentTokenCount": 40,
                "candidatesTokenCount": 20,
                "thoughtsTokenCount": 30,
                "toolUsePromptTokenCount": 5,
                "totalTokenCount": 155,
            },
            (105, 40, None, 50, 30),
        ),
        # Bedrock: beside the input; of a stream, what was written is within.
        (
            {
                "inputTokens": 60,
                "outputTokens": 50,
                "cacheReadInputTokens": 900,
                "cacheWriteInputTokens": 40,
                "totalTokens": 1050,
            },
            (1000, 900, 40, 50, None),
        ),
        (
            {
                "inputTokens": 100,
                "outputTokens": 50,
                "cacheReadInputTokens": 900,
                "cacheWriteInputTokens": 40,
                "totalTokens": 1050,
            },
            (1000, 900, 40, 50, None),
        ),
        (
            {
                "inputTokens": 1000,
                "outputTokens": 50,
                "totalTokens": 1050,
                "reasoningTokens": 20,
                "cachedInputTokens": 900,
            },
            (1000, 900, None, 50, 20),
        ),
        ({"input": 70, "input_cached_tokens": 30, "output": 50, "total": 150}, (100, 30, None, 50, None)),
        ({"input": 100, "input_cached_tokens": 30, "output": 50, "total": 150}, (100, 30, None, 50, None)),
        ({"tokens_prompt": 120, "tokens_completion": 400, "tokens_reasoning": 50}, (120, None, None, 400, 50)),
        ({"prompt_eval_count": 26, "eval_count": 259}, (26, None, None, 259, None)),
        # An embedding writes nothing; a count of all alone does not show of what.
        ({"prompt_tokens": 8, "total_tokens": 8}, (8, None, None, None, None)),
        ({"total_tokens": 150}, (None, None, None, None, None)),
        (None, (None, None, None, None, None)),
        ({}, (None, None, None, None, None)),
    ],
)
def test_every_apis_tokens_are_counted_as_openai_counts_them(usage: Any, expected: tuple) -> None:
    found = usage_tokens(usage)
    names = ("input_tokens", "cached_input_tokens", "cache_write_input_tokens", "output_tokens")
    assert tuple(found[name] for name in (*names, "reasoning_output_tokens")) == expected
    assert found["tokens_basis"] == (None if expected[0] is None else "reported")


CACHED_CHAT = {"prompt_tokens": 1000, "completion_tokens": 400, "prompt_tokens_details": {"cached_tokens": 300}}


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        # 1000 + 400 = 1400, with the cached ones beside 1700: 1000 is neither. The counts are read as documented.
        (CACHED_CHAT | {"total_tokens": 1000}, (1000, 400, "contradicted")),
        # Read and reasoned alike: 1700 is of one of them, and does not show of which.
        (
            CACHED_CHAT | {"total_tokens": 1700, "completion_tokens_details": {"reasoning_tokens": 300}},
            (1000, 400, "contradicted"),
        ),
        # Bedrock's total leaves out what was read, and has what was written: 100 + 50 + 40 = 190 beside, 150 within.
        (
            {
                "inputTokens": 100,
                "outputTokens": 50,
                "cacheReadInputTokens": 900,
                "cacheWriteInputTokens": 40,
                "totalTokens": 170,
            },
            (1040, 50, "contradicted"),
        ),
        # A kind of token with a name that is not read (60 + 30 + 50 = 140 of 150): what is counted is too little.
        (
            {"input": 60, "input_cached_tokens": 30, "input_audio": 10, "output": 50, "total": 150},
            (90, 50, "contradicted"),
        ),
        # A right total, none, the 0 of a request that failed after its prompt, and one without an output.
        (CACHED_CHAT | {"total_tokens": 1400}, (1000, 400, "reported")),
        (CACHED_CHAT, (1000, 400, "reported")),
        (CACHED_CHAT | {"total_tokens": 0}, (1000, 400, "reported")),
        ({"prompt_tokens": 8, "total_tokens": 8}, (8, None, "reported")),
    ],
)
def test_a_total_that_no_reading_has_is_a_doubt(usage: Any, expected: tuple) -> None:
    found = usage_tokens(usage)
    assert (found["input_tokens"], found["output_tokens"], found["tokens_basis"]) == expected


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": -1, "completion_tokens": 3},
        {"prompt_tokens": float("nan"), "completion_tokens": 3},
        {"prompt_tokens": 1.5, "completion_tokens": 3},
        {"prompt_tokens": True, "completion_tokens": 3},
        {"prompt_tokens": "many", "completion_tokens": 3},
        {"prompt_tokens": 1 << 41, "completion_tokens": 3},
        {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 11}, "completion_tokens": 3},
        {"prompt_tokens": 10, "completion_tokens": 3, "completion_tokens_details": {"reasoning_tokens": 4}},
        {"tokens_in": 10, "tokens_out": 3},
        [10, 3],
    ],
)
def test_a_usage_that_cannot_be_is_no_request(usage: Any) -> None:
    with pytest.raises(Reject):
        usage_tokens(usage)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_the_same_request_counts_the_same_at_both_providers(left: int, read: int, written: int, out: int) -> None:
    openai = usage_tokens(
        {
            "prompt_tokens": left + read + written,
            "completion_tokens": out,
            "prompt_tokens_details": {"cached_tokens": read, "cache_creation_tokens": written},
        }
    )
    anthropic = usage_tokens(
        {
            "input_tokens": left,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": written,
            "output_tokens": out,
        }
    )
    openai.pop("reading", None)
    assert openai == anthropic


@pytest.mark.parametrize(
    ("given", "unit", "seconds"),
    [
        ("2026-10-01T12:00:00Z", "s", 0),
        ("2026-10-01 12:00:00.5", "s", 0.5),
        ("2026-10-01T14:00:00+02:00", "s", 0),
        ("2026-10-01 12:00:00.9799600", "s", 0.97996),
        (1_790_856_000, "s", 0),
        ("1790856000.25", "s", 0.25),
        (1_790_856_000_125, "ms", 0.125),
        (1_790_856_000_000_000_999, "ns", 0),
        (datetime(2026, 10, 1, 12), "s", 0),  # noqa: DTZ001 (as from a column without time zone)
    ],
)
def test_times_are_utc_and_whole_microseconds(given: Any, unit: str, seconds: float) -> None:
    assert instant_us(given, "at", unit) == NOON_NS // 1000 + round(seconds * 1e6)


def test_a_time_without_an_offset_is_utc_wherever_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/Los_Angeles")
    time.tzset()
    try:
        assert instant_us("2026-10-01T12:00:00", "at") == NOON_NS // 1000
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("given", ["yesterday", 1_790_856_000_000, -5, float("inf"), "1790", True, [], "2026-13-01"])
def test_what_is_no_time_of_this_century_is_no_time(given: Any) -> None:
    with pytest.raises(Reject, match="at: got"):
        instant_us(given, "at")


def test_an_access_log_of_plain_openai_answers_needs_no_mapping(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 12, "completion_tokens": 30, "total_tokens": 42}
    answer = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1_790_856_000, "model": "gpt", "usage": usage}
    path = jsonl(tmp_path / "a.jsonl", answer, {**answer, "id": "chatcmpl-2", "created": 1_790_856_000 + 86_400})
    rows, rejects = collected(AccessLogCollector("log", path, {}))
    assert rows == [
        {
            "source_kind": "access_log",
            "request_id": "chatcmpl-1",
            "started_at": noon(),
            "model": "gpt",
            "input_tokens": 12,
            "output_tokens": 30,
            "tokens_basis": "reported",
        }
    ]
    assert rejects.rows == 0


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        # 300 of xAI's 700 are reasoning beside the completion; the other log counts the same 700 as one.
        ({"prompt_tokens": 1000, "completion_tokens": 400, "total_tokens": 1700,
          "completion_tokens_details": {"reasoning_tokens": 300}}, (1000, 700)),
        ({"prompt_tokens": 1000, "completion_tokens": 700, "total_tokens": 1700,
          "completion_tokens_details": {"reasoning_tokens": 300}}, (1000, 700)),
        ({"input_tokens": 100, "cache_read_input_tokens": 90, "output_tokens": 5, "total_tokens": 105}, (100, 5)),
    ],
)  # fmt: skip
def test_a_log_counts_by_the_total_of_its_rows(tmp_path: Path, usage: dict[str, Any], tokens: tuple[int, int]) -> None:
    answer = {"id": "a", "created": 1_790_856_000, "model": "grok", "usage": usage}
    path = jsonl(tmp_path / "a.jsonl", *[answer] * 3)
    rows, _ = collected(AccessLogCollector("log", path, {}))
    assert [(row["input_tokens"], row["output_tokens"]) for row in rows] == [tokens] * 3


@pytest.mark.parametrize(
    ("counts", "columns"),
    [
        ({"prompt_tokens": 70, "completion_tokens": 50}, {}),
        ({"prompt_tokens": "70", "completion_tokens": "50", "total_tokens": "120"}, {}),
        ({"tokens_in": 70, "tokens_out": 50}, {"input_tokens": "tokens_in", "output_tokens": "tokens_out"}),
        # What was asked and answered is text, and no count.
        ({"input": "How much?", "output": "42", "input_tokens": 70, "output_tokens": 50}, {}),
    ],
)
@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_a_log_without_a_usage_object_has_its_counts_by_name(
    tmp_path: Path, counts: dict[str, Any], columns: dict[Any, str], kind: str
) -> None:
    row = {"id": "a", "created": 1_790_856_000, "model": "m", **counts}
    path = tmp_path / f"log.{kind}"
    if kind == "csv":
        path.write_text(",".join(row) + "\n" + ",".join(map(str, row.values())) + "\n", encoding="utf-8")
    else:
        jsonl(path, row)
    rows, rejects = collected(AccessLogCollector("log", str(path), {}, columns))
    assert [(one["input_tokens"], one["output_tokens"], rejects.rows) for one in rows] == [(70, 50, 0)]


def test_a_log_without_counts_has_requests_all_the_same(tmp_path: Path) -> None:
    row = {"id": "a", "created": 1_790_856_000, "model": "m", "reasoning": "high", "input": "How much?", "output": "42"}
    rows, rejects = collected(AccessLogCollector("log", jsonl(tmp_path / "log.jsonl", row), {}))
    assert ([row["request_id"] for row in rows], rejects.rows) == (["a"], 0)
    assert "output_tokens" not in rows[0]


def test_a_usage_of_unknown_names_is_refused_with_them(tmp_path: Path) -> None:
    answer = {"id": "a", "created": 1_790_856_000, "model": "m", "usage": {"tokens_in": 70, "tokens_out": 50}}
    with pytest.raises(SourceError, match="usage: got the names tokens_in, tokens_out, expected those of an API that"):
        collected(AccessLogCollector("log", jsonl(tmp_path / "a.jsonl", answer), {}))


def test_a_mapped_access_log_gives_times_status_tenant_and_no_key(tmp_path: Path) -> None:
    line = {
        "time": "2026-10-01T12:00:05Z",
        "request": {"id": 17, "auth": "Bearer sk-secret", "org": "acme"},
        "response": {
            "code": 200,
            "usage": {"input_tokens": 3, "cache_read_input_tokens": 5, "output_tokens": 2},
        },
        "took_ms": 5000,
        "first_ms": 250,
    }
    columns = {
        "request_id": "request.id",  # the log has no start: it is the end minus the duration
        "ended_at": "time",
        "duration_ms": "took_ms",
        "ttft_ms": "first_ms",
        "status": "response.code",
        "usage": "response.usage",
        "tenant": "request.org",
        "key": "request.auth",
    }
    path = jsonl(tmp_path / "a.jsonl", line)
    rows, _ = collected(AccessLogCollector("log", path, {"engine": "vllm-0", "model": "llama"}, columns))
    assert rows == [
        {
            "source_kind": "access_log",
            "request_id": "17",
            "started_at": noon(),
            "ended_at": noon(5),
            "ttft_seconds": 0.25,
            "end_to_end_seconds": 5.0,
            "status": "200",
            "is_ok": True,
            "model": "llama",
            "engine": "vllm-0",
            "tenant": "acme",
            # printf sk-secret | sha256sum
            "key_hash": "746b4ad1ca9129e1caf080bf9406d43531b8bbf97f42cc1597ee4f3d4663938e",
            "input_tokens": 8,
            "cached_input_tokens": 5,
            "output_tokens": 2,
            "tokens_basis": "reported",
        }
    ]


SPEND_LOG = {
    "request_id": "chatcmpl-1",
    "call_type": "acompletion",
    "api_key": "88dc28d0f030c55ed4ab77ed8faf098196cb1c05df778539800c9f1243fe6b4b",
    "spend": 0.0042,
    "total_tokens": 1050,
    "prompt_tokens": 1000,
    "completion_tokens": 50,
    "startTime": "2026-10-01T12:00:00.000Z",
    "endTime": "2026-10-01T12:00:04.000Z",
    "completionStartTime": "2026-10-01T12:00:00.500Z",
    "model": "claude-sonnet-4-5",
    "api_base": "https://api.anthropic.com",
    "user": "default_user_id",
    "metadata": {
        "additional_usage_values": {
            "cache_read_input_tokens": 900,
            "cache_creation_input_tokens": 40,
            "prompt_tokens_details": {"cached_tokens": 900, "cache_creation_tokens": 40},
            "completion_tokens_details": {"reasoning_tokens": 20},
        }
    },
    "cache_hit": "False",
    "team_id": "search",
    "end_user": "acme",
    "status": "success",
}
REQUEST = {
    "source_kind": "litellm",
    "request_id": "chatcmpl-1",
    "started_at": noon(),
    "ended_at": noon(4),
    "ttft_seconds": 0.5,
    "end_to_end_seconds": 4.0,
    "status": "success",
    "is_ok": True,
    "is_gateway_cached": False,
    "model": "claude-sonnet-4-5",
    "api_base": "https://api.anthropic.com",
    "team": "search",
    "tenant": "acme",
    "key_hash": "88dc28d0f030c55ed4ab77ed8faf098196cb1c05df778539800c9f1243fe6b4b",
    "input_tokens": 1000,
    "cached_input_tokens": 900,
    "cache_write_input_tokens": 40,
    "output_tokens": 50,
    "reasoning_output_tokens": 20,
    "tokens_basis": "reported",
    "spend_usd": 0.0042,
}


def litellm_rows(folder: Path, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    found, rejects = collected(LiteLLMFileCollector("gateway", jsonl(folder / "spend.jsonl", *rows), {}))
    assert rejects.rows == 0
    return found


def test_a_row_of_litellms_spend_log(tmp_path: Path) -> None:
    as_text = {**SPEND_LOG, "metadata": json.dumps(SPEND_LOG["metadata"])}  # as a database dump has it
    assert litellm_rows(tmp_path, SPEND_LOG, as_text) == [REQUEST, REQUEST]


def test_litellms_own_total_tells_of_reasoning_beside_the_completion(tmp_path: Path) -> None:
    usage = {"usage_object": {"completion_tokens_details": {"reasoning_tokens": 300}}}
    grok = {**SPEND_LOG, "prompt_tokens": 1000, "completion_tokens": 400, "total_tokens": 1700, "metadata": usage}
    found = litellm_rows(tmp_path, grok, {**grok, "completion_tokens": 700}, {**grok, "total_tokens": 1400})
    assert [(row["input_tokens"], row["output_tokens"]) for row in found] == [(1000, 700), (1000, 700), (1000, 400)]


def test_an_answer_that_is_read_again_is_no_request_of_litellm(tmp_path: Path) -> None:
    read = {**SPEND_LOG, "request_id": "again", "call_type": "aget_responses"}
    made = {**SPEND_LOG, "call_type": "aresponses"}
    assert litellm_rows(tmp_path, read, made, read, {**read, "call_type": "list_input_items"}) == [REQUEST]


def test_litellms_table_as_csv_is_the_same_request(tmp_path: Path) -> None:
    row = {**SPEND_LOG, "metadata": json.dumps(SPEND_LOG["metadata"])}
    path = tmp_path / "LiteLLM_SpendLogs.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, row)
        writer.writeheader()
        writer.writerows([row, {**row, "call_type": "aget_responses"}])
    rows, rejects = collected(LiteLLMFileCollector("gateway", str(path), {}))
    assert (rows, rejects.rows) == ([REQUEST], 0)


def test_a_litellm_callbacks_payload_is_the_same_request(tmp_path: Path) -> None:
    payload = {
        "id": "chatcmpl-1",
        "response_cost": 0.0042,
        "status": "success",
        "prompt_tokens": 1000,
        "completion_tokens": 50,
        "startTime": 1_790_856_000.0,
        "endTime": 1_790_856_004.0,
        "completionStartTime": 1_790_856_000.5,
        "model": "claude-sonnet-4-5",
        "api_base": "https://api.anthropic.com",
        "cache_hit": False,
        "end_user": "acme",
        "metadata": {
            "user_api_key_hash": SPEND_LOG["api_key"],
            "user_api_key_team_id": "search",
            "usage_object": SPEND_LOG["metadata"]["additional_usage_values"],
        },
    }
    assert litellm_rows(tmp_path, payload) == [REQUEST]


def test_what_litellm_writes_for_unknown_is_unknown(tmp_path: Path) -> None:
    unpriced, failed, cached, whole, passed_through = litellm_rows(
        tmp_path,
        {**SPEND_LOG, "spend": 0.0},
        {**SPEND_LOG, "status": "failure", "spend": 0.0, "prompt_tokens": 0, "completion_tokens": 0, "metadata": {}},
        {**SPEND_LOG, "cache_hit": "True", "spend": 0.0},
        {**SPEND_LOG, "completionStartTime": SPEND_LOG["endTime"]},
        {**SPEND_LOG, "prompt_tokens": 60},
    )
    # A model of one's own has no price in LiteLLM's list, which has 0.
    assert unpriced == {name: value for name, value in REQUEST.items() if name != "spend_usd"}
    assert failed["is_ok"] is False
    assert {"input_tokens", "output_tokens", "tokens_basis", "spend_usd"} & failed.keys() == set()
    # LiteLLM's own cache answered: no engine worked for it.
    assert (cached["is_gateway_cached"], cached["spend_usd"]) == (True, 0.0)
    assert "ttft_seconds" not in whole
    assert passed_through["input_tokens"] == 60 + 900 + 40


def test_the_azure_traces_times_are_utc_and_its_last_line_counts(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2026-10-01 12:00:00.9799600,4808,10\n2026-10-02 00:00:00,1,2"
    )
    whole = Window(DAY.start_at, datetime(2026, 10, 3, tzinfo=UTC))
    rows, _ = collected(AzureTraceCollector("trace", str(path), {}), whole)
    assert rows == [
        {
            "source_kind": "azure_trace",
            "started_at": noon(0.97996),
            "input_tokens": 4808,
            "output_tokens": 10,
            "tokens_basis": "reported",
        },
        {
            "source_kind": "azure_trace",
            "started_at": DAY.end_at,
            "input_tokens": 1,
            "output_tokens": 2,
            "tokens_basis": "reported",
        },
    ]
    assert len(collected(AzureTraceCollector("trace", str(path), {}))[0]) == 1


def test_an_access_log_of_a_clock_in_a_stated_zone(tmp_path: Path) -> None:
    """Berlin is two hours ahead of UTC on the first line; the second one's hour is there twice."""
    path = tmp_path / "log.jsonl"
    times = ("2026-10-01 14:00:00", "2026-10-25 02:30:00", "2026-10-01T14:00:00+02:00")
    path.write_text("".join(json.dumps({"created": at, "model": "m"}) + "\n" for at in times), encoding="utf-8")
    window = Window(datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC))
    rejects = Rejects()
    collector = AccessLogCollector("log", str(path), {}, time_zone="Europe/Berlin")
    rows = [row["started_at"] for batch in collector.collect(window, rejects) for row in batch.to_pylist()]
    assert rows == [datetime(2026, 10, 1, 12, tzinfo=UTC)] * 2
    assert rejects.rows == 1
    assert "which the clocks of Europe/Berlin had twice or never" in rejects.first[0]
