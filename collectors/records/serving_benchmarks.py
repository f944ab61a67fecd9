"""Result files of load generators that write no requests: `vllm bench serve` and SGLang's `bench_serving`.

Add a generator that writes one object of totals and latencies per run. Neither knows the accelerators behind the
server: the entry of the fleet file states `accelerator` and `accelerators`. Keep out generators that write each request
(`load_tests`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from collectors.records.benchmark_rows import (
    Result,
    day,
    needed_number,
    number,
    objects,
    per_second,
    seconds,
    text,
)
from collectors.text_files import document, lines, parsed


def vllm_bench(path: str) -> Iterator[Result]:
    """The file that `vllm bench serve --save-result` writes, with or without each request's figures."""
    held = document(path)
    for where, row in objects(path, held if isinstance(held, list) else [held]):
        completed = needed_number(where, row, "completed")
        yield {
            "framework": "vllm",
            "software": text(where, row, "vllm_version"),
            "model": text(where, row, "model_id"),
            "scenario": text(where, row, "label"),
            "measured_on": day(where, row, "date"),
            "input_length_tokens": _mean(number(where, row, "total_input_tokens"), completed),
            "output_length_tokens": _mean(number(where, row, "total_output_tokens"), completed),
            "total_tokens_per_second": number(where, row, "total_token_throughput"),
            "end_to_end_seconds": seconds(number(where, row, "median_e2el_ms")),
            **_measured(where, row),
        }


def sglang_bench(path: str) -> Iterator[Result]:
    """The lines that SGLang's `bench_serving --output-file` adds, one per run."""
    for line_number, line in lines(path):
        where = f"{path}:{line_number}"
        if not line.strip():
            continue
        (_, row), *_ = objects(where, [parsed(where, line)])
        completed = needed_number(where, row, "completed")
        output = needed_number(where, row, "output_throughput")
        given = number(where, row, "input_throughput")
        total = number(where, row, "total_throughput")
        server = row.get("server_info")
        server = server if isinstance(server, dict) else {}
        yield {
            "framework": "sglang",
            "software": text(where, server, "version"),
            "model": text(where, server, "served_model_name") or text(where, server, "model_path"),
            "scenario": text(where, row, "tag") or text(where, row, "dataset_name"),
            "input_length_tokens": _mean(number(where, row, "total_input_tokens"), completed),
            "output_length_tokens": _mean(number(where, row, "total_output_tokens"), completed),
            "total_tokens_per_second": output + given if total is None and given is not None else total,
            "end_to_end_seconds": seconds(number(where, row, "median_e2e_latency_ms")),
            **_measured(where, row),
        }


def _measured(where: str, row: Mapping[str, Any]) -> Result:
    """What both name alike. A fixed rate of requests has no concurrency."""
    tpot_ms = number(where, row, "median_tpot_ms")
    concurrency = number(where, row, "max_concurrency")
    rate = row.get("request_rate")
    lengths = (row.get("total_input_tokens"), row.get("total_output_tokens"), row.get("completed"))
    return {
        "result_id": "/".join(
            str(part)
            for part in (row.get("label") or row.get("tag") or "run", f"{concurrency} at once", rate, *lengths)
        ),
        "concurrency": concurrency,
        "output_tokens_per_second": needed_number(where, row, "output_throughput"),
        "output_tokens_per_second_per_user": per_second(tpot_ms),
        "output_tokens_per_second_per_user_basis": "1 / median TPOT" if tpot_ms else None,
        "ttft_seconds": seconds(number(where, row, "median_ttft_ms")),
        "ttft_p99_seconds": seconds(number(where, row, "p99_ttft_ms")),
        "tpot_p99_seconds": seconds(number(where, row, "p99_tpot_ms")),
    }


def _mean(tokens: float | None, requests: float) -> float | None:
    return None if tokens is None or not requests else tokens / requests
