"""The records of load tests: AIPerf's and GenAI-Perf's files in, literal rows out, with the load that was stated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from collectors.records.load_tests import AIPerfCollector, GenAIPerfCollector
from tests.collectors.test_requests import NOON_NS, collected, jsonl, noon


def aiperf_record(number: int, start: float, end: float, **more: Any) -> dict[str, Any]:
    metrics = {
        "request_latency": {"value": (end - start) * 1e3, "unit": "ms"},
        "time_to_first_token": {"value": 100.0, "unit": "ms"},
        "input_sequence_length": {"value": 1000, "unit": "tokens"},
        "output_sequence_length": {"value": 500, "unit": "tokens"},
        "output_token_count": {"value": 400, "unit": "tokens"},
        "reasoning_token_count": {"value": 100, "unit": "tokens"},
        "inter_chunk_latency": {"value": [1.5, 2.5], "unit": "ms"},
    }
    return {
        "metadata": {
            "session_num": number,
            "x_request_id": f"r{number}",
            "conversation_id": f"session_{number:06d}",
            "turn_index": 0,
            "request_start_ns": NOON_NS + int(start * 1e9),
            "request_end_ns": NOON_NS + int(end * 1e9),
            "worker_id": "worker_1",
            "record_processor_id": "record_processor_1",
            "benchmark_phase": more.pop("phase", "profiling"),
            "was_cancelled": False,
        },
        "metrics": more.pop("metrics", metrics),
        "error": None,
        **more,
    }


def aiperf_summary(concurrency: int, model: str = "Qwen/Qwen3-0.6B") -> dict[str, Any]:
    return {
        "schema_version": "1.4",
        "aiperf_version": "0.13.0",
        "input_config": {
            "models": {"strategy": "round_robin", "items": [{"name": model}]},
            "endpoint": {"type": "chat", "urls": ["http://127.0.0.1:8000"], "streaming": True},
            "phases": [
                {"name": "warmup", "kind": "warmup", "type": "concurrency", "concurrency": 1},
                {"name": "profiling", "kind": "profiling", "type": "concurrency", "concurrency": concurrency},
            ],
        },
        # Naive and in the time zone of whoever ran it; it must not be read.
        "start_time": "2026-10-01T05:00:00.000000",
        "end_time": "2026-10-01T05:03:00.000000",
    }


def test_the_records_of_an_aiperf_run(tmp_path: Path) -> None:
    folder = tmp_path / "artifacts" / "concurrency2"
    reported = {
        "time_to_first_token": {"value": 100.0, "unit": "ms"},
        "input_sequence_length": {"value": 1000, "unit": "tokens"},
        "output_sequence_length": {"value": 500, "unit": "tokens"},
        "usage_prompt_tokens": {"value": 1010, "unit": "tokens"},
        "usage_completion_tokens": {"value": 501, "unit": "tokens"},
        "usage_prompt_cache_read_tokens": {"value": 992, "unit": "tokens"},
    }
    jsonl(
        folder / "profile_export.jsonl",
        aiperf_record(0, 0, 1, phase="warmup"),
        aiperf_record(1, 10, 12.5),
        aiperf_record(2, 11, 14, metrics=reported),
        aiperf_record(3, 14, 14.25, metrics={}, error={"code": 503, "type": "HTTPError", "message": "busy"}),
    )
    (folder / "profile_export_aiperf.json").write_text(json.dumps(aiperf_summary(2)))
    rows, rejects = collected(AIPerfCollector("load", str(tmp_path / "artifacts"), {}))
    assert rejects.rows == 0
    common = {
        "source_kind": "aiperf",
        "model": "Qwen/Qwen3-0.6B",
        "api_base": "http://127.0.0.1:8000",
    }
    run = {**common, "window_id": "load/concurrency2", "stated_concurrency": 2.0}
    ok = {"status": "ok", "is_ok": True, "ttft_seconds": 0.1}
    counted = {
        "input_tokens": 1000,
        "output_tokens": 500,
        "reasoning_output_tokens": 100,
        "tokens_basis": "client_counted",
    }
    assert rows == [
        {
            **common,
            **ok,
            **counted,
            "request_id": "r0",
            "started_at": noon(0),
            "ended_at": noon(1),
            "end_to_end_seconds": 1.0,
            "stated_concurrency": 1.0,
        },
        {
            **run,
            **ok,
            **counted,
            "request_id": "r1",
            "started_at": noon(10),
            "ended_at": noon(12.5),
            "end_to_end_seconds": 2.5,
        },
        {
            **run,
            **ok,
            "request_id": "r2",
            "started_at": noon(11),
            "ended_at": noon(14),
            "end_to_end_seconds": 3.0,
            "input_tokens": 1010,
            "cached_input_tokens": 992,
            "output_tokens": 501,
            "tokens_basis": "reported",
        },
        {
            **run,
            "request_id": "r3",
            "started_at": noon(14),
            "ended_at": noon(14.25),
            "end_to_end_seconds": 0.25,
            "status": "503",
            "is_ok": False,
        },
    ]


def test_a_run_without_a_summary_is_still_a_run(tmp_path: Path) -> None:
    jsonl(tmp_path / "c4" / "trial_1" / "profile_export.jsonl", aiperf_record(1, 10, 12))
    (row,), _ = collected(
        AIPerfCollector("load", str(tmp_path / "*" / "*" / "profile_export.jsonl"), {"model": "mine"})
    )
    assert (row["window_id"], row["model"]) == ("load/c4/trial_1", "mine")
    assert "stated_concurrency" not in row


def test_phases_of_one_aiperf_run_are_windows_of_their_own(tmp_path: Path) -> None:
    records = [aiperf_record(number, 10 * number, 10 * number + 5) for number in (1, 2)]
    for record, phase in zip(records, ("c1", "c64"), strict=True):
        record["metadata"] |= {"phase_name": phase, "phase_kind": "profiling"}
    jsonl(tmp_path / "sweep" / "profile_export.jsonl", *records)
    summary = aiperf_summary(1)
    summary["input_config"]["phases"] = [{"name": "c1", "concurrency": 1}, {"name": "c64", "concurrency": 64}]
    (tmp_path / "sweep" / "profile_export_aiperf.json").write_text(json.dumps(summary))
    rows, _ = collected(AIPerfCollector("load", str(tmp_path / "sweep"), {}))
    assert [(row["window_id"], row["stated_concurrency"]) for row in rows] == [
        ("load/sweep/c1", 1.0),
        ("load/sweep/c64", 64.0),
    ]


def test_the_requests_of_a_genai_perf_run(tmp_path: Path) -> None:
    usage = {"usage": {"prompt_tokens": 9, "completion_tokens": 4}, "choices": []}
    streamed = {
        "timestamp": NOON_NS,
        "request_inputs": {"payload": json.dumps({"model": "llama", "stream": True})},
        "response_timestamps": [NOON_NS + 200_000_000, NOON_NS + 1_000_000_000],
        "response_outputs": [
            {"response": 'data: {"choices":[{"delta":{"content":"a"}}],"usage":null}\n\n'},
            {"response": f"data: {json.dumps(usage)}\n\ndata: [DONE]\n\n"},
        ],
    }
    silent = {**streamed, "response_outputs": [], "response_timestamps": []}
    experiment = {"experiment": {"mode": "concurrency", "value": 8}, "requests": [streamed, silent]}
    (tmp_path / "profile_export.json").write_text(
        json.dumps({"service_kind": "openai", "endpoint": "v1/chat/completions", "experiments": [experiment]})
    )
    rows, rejects = collected(GenAIPerfCollector("old", str(tmp_path), {}))
    assert rejects.rows == 0
    run = {
        "source_kind": "genai_perf",
        "window_id": f"old/{tmp_path.name}",
        "model": "llama",
        "stated_concurrency": 8.0,
    }
    assert rows == [
        {
            **run,
            "started_at": noon(),
            "ended_at": noon(1),
            "ttft_seconds": 0.2,
            "end_to_end_seconds": 1.0,
            "status": "ok",
            "is_ok": True,
            "input_tokens": 9,
            "output_tokens": 4,
            "tokens_basis": "reported",
        },
        {**run, "started_at": noon(), "status": "error", "is_ok": False},
    ]


def test_a_concurrency_that_cannot_be_is_unknown_and_named(tmp_path: Path) -> None:
    path = tmp_path / "profile_export.jsonl"
    jsonl(path, *(aiperf_record(n, n, n + 1) for n in range(4)))
    summary = aiperf_summary(2)
    summary["input_config"] |= {
        "loadgen": {"concurrency": -5.5},
        "phases": [{"name": "profiling", "concurrency": "many"}],
    }
    (tmp_path / "profile_export_aiperf.json").write_text(json.dumps(summary))
    rows, rejects = collected(AIPerfCollector("load", str(path), {}))
    assert [row.get("stated_concurrency") for row in rows] == [None] * 4
    place = f"{tmp_path}/profile_export_aiperf.json: "
    assert rejects.first == [
        f"{place}loadgen: concurrency: got -5.5, expected a number of requests at once, at most 1,000,000",
        f"{place}phases[0]: concurrency: got a text of 4 characters, expected a number",
    ]
    assert (rejects.rows, rejects.read) == (2, 4)
