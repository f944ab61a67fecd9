"""Results of guidellm: one JSON report of a run, with a benchmark for each load that it tried.

Add here what guidellm's fields mean. Keep out its requests: it samples them, so they are not all there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from collectors.records.benchmark_rows import Result, needed, number, objects, per_second, seconds, text
from collectors.rows import Rejects
from collectors.samples import END_US, FIRST_US, SourceError
from collectors.text_files import document


def guidellm_rows(path: str, rejects: Rejects) -> Iterator[tuple[str, Any]]:
    """The benchmarks of a report. SourceError where there are none."""
    held = document(path)
    if not isinstance(held, dict):
        raise SourceError(path, None, f"is a {type(held).__name__}, expected an object with benchmarks")
    version = _inside(held, "metadata").get("guidellm_version")
    for where, row in objects(f"{path}: benchmarks", held.get("benchmarks")):
        yield where, {**row, "guidellm_version": version} if isinstance(row, dict) else row


def guidellm(row: Mapping[str, Any]) -> Result:
    """One load. Throughput and latencies are those of requests that succeeded."""
    config, metrics = _inside(row, "config"), _inside(row, "metrics")
    strategy, backend = _inside(config, "strategy"), _inside(config, "backend")
    concurrency = next(
        (found for key in ("max_concurrency", "streams") if (found := number(strategy, key)) is not None), None
    )
    tpot_ms = _of(metrics, "time_per_output_token_ms", "median")
    itl_ms = _of(metrics, "inter_token_latency_ms", "median")
    per_token_ms = tpot_ms if itl_ms is None else itl_ms
    mean_concurrency = _of(metrics, "request_concurrency", "mean")
    output = _of(metrics, "output_tokens_per_second", "mean")
    model = text(backend, "model") or text(config, "model")
    load = text(strategy, "type_") or text(strategy, "kind")
    rate = text(strategy, "rate")
    return {
        "result_id": f"{model or 'run'}/{load}/{rate or concurrency}/{text(config, 'run_index')}",
        "model": model,
        "scenario": load,
        "measured_on": _day(row),
        "input_length_tokens": _of(metrics, "prompt_token_count", "mean"),
        "output_length_tokens": _of(metrics, "output_token_count", "mean"),
        # A fixed rate has no concurrency of its own: what ran at a time was measured.
        "concurrency": mean_concurrency if concurrency is None else concurrency,
        "output_tokens_per_second": needed(metrics, "output_tokens_per_second", output),
        "total_tokens_per_second": _of(metrics, "tokens_per_second", "mean"),
        "output_tokens_per_second_per_user": per_second(per_token_ms),
        "output_tokens_per_second_per_user_basis": "1 / median inter-token latency" if per_token_ms else None,
        "ttft_seconds": seconds(_of(metrics, "time_to_first_token_ms", "median")),
        "ttft_p99_seconds": seconds(_of(metrics, "time_to_first_token_ms", "p99")),
        "tpot_p99_seconds": seconds(_of(metrics, "inter_token_latency_ms", "p99")),
        "end_to_end_seconds": _of(metrics, "request_latency", "median"),
    }


def _of(metrics: Mapping[str, Any], name: str, figure: str) -> float | None:
    """A figure of the requests that succeeded."""
    held = _inside(_inside(metrics, name), "successful")
    percentiles = _inside(held, "percentiles")
    return number(percentiles, figure) if figure in percentiles else number(held, figure)


def _inside(row: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = row.get(name)
    return found if isinstance(found, dict) else {}


def _day(row: Mapping[str, Any]) -> Any:
    at = number(row, "start_time")
    return datetime.fromtimestamp(at, UTC).date() if at and FIRST_US <= at * 1e6 < END_US else None
