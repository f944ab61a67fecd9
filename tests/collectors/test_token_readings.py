"""Rows without a total of their own are read as the other rows of their source, API and model show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from collectors.records import request_records
from collectors.records.access_logs import AccessLogCollector
from collectors.records.litellm import LiteLLMFileCollector
from collectors.records.otlp_spans import OtlpSpanCollector
from collectors.rows import Rejects
from tests.collectors.test_requests import DAY, NOON_NS, SPEND_LOG, jsonl

Counts = dict[str, tuple[int, int]]


def chat(name: str, model: str, total: int | None = None, read: int = 0, reasoning: int = 300) -> dict[str, Any]:
    usage: dict[str, Any] = {
        "prompt_tokens": 1000,
        "completion_tokens": 400,
        "prompt_tokens_details": {"cached_tokens": read},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }
    return {
        "id": name,
        "created": NOON_NS // 10**9,
        "model": model,
        "usage": usage | ({} if total is None else {"total_tokens": total}),
    }


def counts(collector: Any) -> Counts:
    """Input and output tokens by request, after whatever was held."""
    rejects = Rejects()
    rows = [row for batch in collector.collect(DAY, rejects) for row in batch.to_pylist()]
    assert rejects.rows == 0
    return {row["request_id"]: (row["input_tokens"], row["output_tokens"]) for row in rows}


def of_log(tmp_path: Path, *rows: dict[str, Any], constants: dict[str, str] | None = None) -> Counts:
    return counts(AccessLogCollector("log", jsonl(tmp_path / "log.jsonl", *rows), constants or {}))


# 1000 + 400 + 300 = 1700 shows reasoning beside the completion, 1000 + 400 = 1400 within.
def test_a_row_without_a_total_is_read_as_the_others_of_its_model(tmp_path: Path) -> None:
    found = of_log(
        tmp_path,
        chat("early", "grok"),
        chat("shown", "grok", 1700),
        chat("zero", "grok", 0),
        chat("late", "grok"),
        chat("other", "gpt"),
        chat("within", "gpt", 1400),
    )
    beside, within = (1000, 700), (1000, 400)
    assert found == {
        "early": beside, "shown": beside, "zero": beside, "late": beside, "other": within, "within": within,
    }  # fmt: skip


def test_what_one_row_shows_and_another_denies_is_as_documented(tmp_path: Path) -> None:
    found = of_log(tmp_path, chat("open", "m"), chat("beside", "m", 1700), chat("within", "m", 1400))
    assert found == {"open": (1000, 400), "beside": (1000, 700), "within": (1000, 400)}


def test_a_part_is_read_as_the_rows_show_that_have_it(tmp_path: Path) -> None:
    """The row with a total has no cached token: it shows of reasoning alone."""
    found = of_log(tmp_path, chat("shown", "m", 1700), chat("open", "m", read=900))
    assert found["open"] == (1000, 700)


def test_lines_that_are_read_by_column_show_it_too(tmp_path: Path) -> None:
    """A file whose lines all have plain totals is read many lines at a time; the other file's rows contradict it."""
    folder = tmp_path / "logs"
    jsonl(folder / "a.jsonl", chat("within", "m", 1400))
    jsonl(folder / "b.jsonl", chat("beside", "m", 1700), chat("open", "m"))
    found = counts(AccessLogCollector("log", str(folder), {}))
    assert found == {"within": (1000, 400), "beside": (1000, 700), "open": (1000, 400)}


def test_a_stated_model_is_the_model_of_every_row(tmp_path: Path) -> None:
    rows = (chat("open", "a"), chat("shown", "b", 1700))
    assert of_log(tmp_path, *rows)["open"] == (1000, 400)
    assert of_log(tmp_path, *rows, constants={"model": "one"})["open"] == (1000, 700)


def test_what_an_api_documents_stays(tmp_path: Path) -> None:
    """Anthropic's input leaves the cache out: 100 + 900 = 1000, although another row's total has the cache within."""
    usage = {"input_tokens": 100, "cache_read_input_tokens": 90, "output_tokens": 5}
    row = {"created": NOON_NS // 10**9, "model": "m"}
    found = of_log(
        tmp_path, row | {"id": "shown", "usage": usage | {"total_tokens": 105}}, row | {"id": "open", "usage": usage}
    )
    assert found == {"shown": (100, 5), "open": (190, 5)}


def test_rows_are_held_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two is counted as documented when there is no room; the third after what the source has shown."""
    monkeypatch.setattr(request_records, "MOST_HELD", 2)
    rows = (chat("1", "m"), chat("2", "m"), chat("shown", "m", 1700), chat("3", "m"))
    assert of_log(tmp_path, *rows) == {"1": (1000, 400), "2": (1000, 400), "shown": (1000, 700), "3": (1000, 700)}


def test_a_span_whose_cache_exceeds_its_input_shows_how_its_model_counts(tmp_path: Path) -> None:
    """60 beside 900 is an input of 960; so 1000 beside 900 is 1900. Another model's spans may have it within."""

    def span(number: int, model: str, asked: int, read: int) -> dict[str, Any]:
        tokens = {"gen_ai.usage.input_tokens": asked, "gen_ai.usage.cache_read.input_tokens": read}
        return {
            "traceId": f"{number:032x}",
            "spanId": f"{number:016x}",
            "name": "chat",
            "startTimeUnixNano": str(NOON_NS),
            "endTimeUnixNano": str(NOON_NS + 10**9),
            "attributes": [
                {"key": "gen_ai.request.model", "value": {"stringValue": model}},
                {"key": "gen_ai.response.id", "value": {"stringValue": str(number)}},
                {"key": "gen_ai.usage.output_tokens", "value": {"intValue": "50"}},
                *({"key": key, "value": {"intValue": str(value)}} for key, value in tokens.items()),
            ],
        }

    spans = [span(1, "claude", 1000, 900), span(2, "claude", 60, 900), span(3, "gpt", 1000, 900)]
    path = tmp_path / "spans.jsonl"
    path.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}) + "\n", encoding="utf-8")
    assert counts(OtlpSpanCollector("s", str(path), {})) == {"1": (1900, 50), "2": (960, 50), "3": (1000, 50)}


def test_a_spend_log_is_read_by_its_own_rows(tmp_path: Path) -> None:
    """Of a pass-through endpoint: 60 of which 900 were read shows that the cache is beside. No row has a total."""

    def row(name: str, model: str, asked: int) -> dict[str, Any]:
        held = {key: value for key, value in SPEND_LOG.items() if key != "total_tokens"}
        usage = {"cache_read_input_tokens": 900}
        return held | {"request_id": name, "model": model, "prompt_tokens": asked, "metadata": {"usage_object": usage}}

    rows = (row("1", "claude", 1000), row("2", "claude", 60), row("3", "gpt", 1000))
    found = counts(LiteLLMFileCollector("gateway", jsonl(tmp_path / "log.jsonl", *rows), {}))
    assert found == {"1": (1900, 50), "2": (960, 50), "3": (1000, 50)}
