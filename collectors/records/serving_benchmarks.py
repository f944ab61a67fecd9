"""Result files of load generators that write no requests: `vllm bench serve` and SGLang's `bench_serving`.

Add a generator that writes one object of totals and latencies per run. Neither knows the accelerators behind the
server: the entry of the fleet file states `accelerator` and `accelerators`. Keep out generators that write each request
(`load_tests`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from collectors.records.access_logs import json_object
from collectors.records.benchmark_rows import (
    Result,
    day,
    joined,
    needed_number,
    number,
    per_second,
    seconds,
    text,
)


def vllm_bench(row: Mapping[str, Any]) -> Result:
    """The object that `vllm bench serve --save-result` writes, with or without each request's figures."""
    completed = needed_number(row, "completed")
    return {
        "framework": "vllm",
        "software": text(row, "vllm_version"),
        "model": text(row, "model_id"),
        "scenario": text(row, "label"),
        "measured_on": day(row, "date"),
        "input_length_tokens": _mean(number(row, "total_input_tokens"), completed),
        "output_length_tokens": _mean(number(row, "total_output_tokens"), completed),
        "total_tokens_per_second": number(row, "total_token_throughput"),
        "end_to_end_seconds": seconds(number(row, "median_e2el_ms")),
        **_measured(row),
    }


def sglang_bench(line: bytes) -> Result:
    """A line that SGLang's `bench_serving --output-file` adds, one per run."""
    row = json_object(line)
    completed = needed_number(row, "completed")
    output = needed_number(row, "output_throughput")
    given = number(row, "input_throughput")
    total = number(row, "total_throughput")
    server = row.get("server_info")
    server = server if isinstance(server, dict) else {}
    return {
        "framework": "sglang",
        "software": text(server, "version"),
        "model": text(server, "served_model_name") or text(server, "model_path"),
        "scenario": text(row, "tag") or text(row, "dataset_name"),
        "input_length_tokens": _mean(number(row, "total_input_tokens"), completed),
        "output_length_tokens": _mean(number(row, "total_output_tokens"), completed),
        "total_tokens_per_second": output + given if total is None and given is not None else total,
        "end_to_end_seconds": seconds(number(row, "median_e2e_latency_ms")),
        **_measured(row),
    }


def _measured(row: Mapping[str, Any]) -> Result:
    """What both name alike. A fixed rate of requests has no concurrency."""
    tpot_ms = number(row, "median_tpot_ms")
    concurrency = number(row, "max_concurrency")
    name = text(row, "label") or text(row, "tag") or "run"
    load = joined(row, "request_rate", "total_input_tokens", "total_output_tokens", "completed")
    return {
        "result_id": f"{name}/{concurrency} at once/{load}",
        "concurrency": concurrency,
        "output_tokens_per_second": needed_number(row, "output_throughput"),
        "output_tokens_per_second_per_user": per_second(tpot_ms),
        "output_tokens_per_second_per_user_basis": "1 / median TPOT" if tpot_ms else None,
        "ttft_seconds": seconds(number(row, "median_ttft_ms")),
        "ttft_p99_seconds": seconds(number(row, "p99_ttft_ms")),
        "tpot_p99_seconds": seconds(number(row, "p99_tpot_ms")),
    }


def _mean(tokens: float | None, requests: float) -> float | None:
    return None if tokens is None or not requests else tokens / requests
