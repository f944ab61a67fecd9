"""Requests of load tests: the per-request records of NVIDIA's AIPerf and of its predecessor GenAI-Perf.

A run of either is a folder; each of its phases becomes a window (`window_id`) from the start of its first request to
the end of its last. Add another load generator's files here. Keep out what is made of the requests: that is SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from collectors.cells import shown
from collectors.records.access_logs import json_object, numbered_lines
from collectors.records.request_records import (
    TEXT_CHARACTERS,
    FileCollector,
    between,
    concurrency,
    instant_us,
    seconds,
    text,
    tokens,
)
from collectors.records.token_readings import checked_tokens
from collectors.records.usage import usage_tokens
from collectors.rows import Reject, Rejects
from collectors.samples import SourceError
from collectors.text_files import before_glob, document

_PER_SECOND = {"ns": 1e9, "us": 1e6, "ms": 1e3, "s": 1.0, "sec": 1.0}


class AIPerfCollector(FileCollector):
    """Reads every `profile_export.jsonl` in a folder, and what the `profile_export_aiperf.json` beside it has about the
    run: model, server, concurrency.

    Records of the warm-up are requests too, but of no window.
    """

    source_kind, inside = "aiperf", "profile_export.jsonl"

    def read(
        self, path: str, rejects: Rejects
    ) -> tuple[Iterator[tuple[str, bytes]], Callable[[bytes], dict[str, Any]]]:
        """The records of a run. What its summary has and cannot be is a reject, and unknown."""
        name = f"{self.source}/{run_name(self.path, path)}"
        return numbered_lines(path, rejects), partial(_aiperf_request, name, _run_of(path, rejects))


def _aiperf_request(run_name: str, run: Mapping[str, Any], line: bytes) -> dict[str, Any]:
    record = json_object(line)
    metadata, metrics = record.get("metadata"), record.get("metrics")
    if not isinstance(metadata, dict) or not isinstance(metrics, dict):
        raise Reject("expected an object with metadata and metrics, as AIPerf's --export-level records writes it")
    started_us = instant_us(metadata.get("request_start_ns"), "metadata.request_start_ns", "ns")
    ended_us = instant_us(metadata.get("request_end_ns"), "metadata.request_end_ns", "ns")
    if started_us is None:
        raise Reject("metadata.request_start_ns: missing")
    error = record.get("error")
    failed = bool(error) or metadata.get("was_cancelled") is True
    phase = metadata.get("phase_name") or metadata.get("benchmark_phase")
    phase = text(phase, "phase") if isinstance(phase, str) else None
    is_warmup = "warmup" in (metadata.get("benchmark_phase"), metadata.get("phase_kind"))
    # A run whose phase has no name of its own has its folder's name.
    named = phase not in (None, "profiling")
    return {
        "request_id": text(metadata.get("x_request_id"), "metadata.x_request_id"),
        "window_id": None if is_warmup else f"{run_name}/{phase}" if named else run_name,
        "started_at": started_us,
        "ended_at": ended_us,
        "ttft_seconds": _metric_seconds(metrics, "time_to_first_token"),
        "end_to_end_seconds": between(started_us, ended_us, "metadata.request_end_ns"),
        "status": _status(error) if failed else "ok",
        "is_ok": not failed,
        "model": run["model"],
        "api_base": run["api_base"],
        "stated_concurrency": run["concurrency"].get(phase, run["concurrency"].get(None)),
        **_aiperf_tokens(metrics),
    }


def _aiperf_tokens(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The server's own counts where it sent them (AIPerf makes every API's input include its cached part), else what
    AIPerf's tokenizer counted, which knows no chat template."""
    read = tokens(_value(metrics, "usage_prompt_cache_read_tokens"), "usage_prompt_cache_read_tokens")
    written = tokens(_value(metrics, "usage_prompt_cache_write_tokens"), "usage_prompt_cache_write_tokens")
    input_count = tokens(_value(metrics, "usage_prompt_tokens"), "usage_prompt_tokens")
    output = tokens(_value(metrics, "usage_completion_tokens"), "usage_completion_tokens")
    if input_count is not None and output is not None:
        reasoning = tokens(_value(metrics, "usage_reasoning_tokens"), "usage_reasoning_tokens")
        return checked_tokens(input_count, read, written, output, reasoning, basis="reported")
    counted = tokens(_value(metrics, "input_sequence_length"), "input_sequence_length")
    output = tokens(_value(metrics, "output_sequence_length"), "output_sequence_length")
    reasoning = tokens(_value(metrics, "reasoning_token_count"), "reasoning_token_count")
    return checked_tokens(counted, None, None, output, reasoning, basis="client_counted")


def _metric_seconds(metrics: Mapping[str, Any], name: str) -> float | None:
    value = _value(metrics, name)
    if value is None:
        return None
    unit = metrics[name].get("unit") if isinstance(metrics[name], dict) else None
    if not isinstance(unit, str) or unit not in _PER_SECOND:
        raise Reject(f"{name}: got the unit {shown(unit)}, expected one of {', '.join(_PER_SECOND)}")
    return seconds(value, name, _PER_SECOND[unit])


def _value(metrics: Mapping[str, Any], name: str) -> Any:
    held = metrics.get(name)
    return held.get("value") if isinstance(held, dict) else held


def _status(error: Any) -> str:
    if isinstance(error, dict):
        code = error.get("code") or error.get("type")
        return str(code)[:100] if isinstance(code, str | int) else "error"
    return "cancelled"


def _run_of(path: str, rejects: Rejects) -> dict[str, Any]:
    """Model, server and concurrency by phase (None: of any) of the run whose records are at `path`; None for each that
    its summary lacks. A run that was stopped has no summary."""
    found: dict[str, Any] = {"model": None, "api_base": None, "concurrency": {}}
    summary = Path(path).with_name("profile_export_aiperf.json")
    if not summary.is_file():
        return found
    try:
        held = document(str(summary))
    except SourceError as refusal:
        rejects.add(refusal.url, refusal.reason)
        return found
    config = held.get("input_config") if isinstance(held, dict) else None
    if not isinstance(config, dict):
        rejects.add(str(summary), "expected an object with input_config, as AIPerf writes it")
        return found
    models, endpoint, load = config.get("models"), config.get("endpoint"), config.get("loadgen")
    endpoint = endpoint if isinstance(endpoint, dict) else {}
    items = models.get("items") if isinstance(models, dict) else None
    names = [item.get("name") for item in _listed(items) if isinstance(item, dict)]
    # Before 0.10 AIPerf wrote the names, the server and the load in other places.
    found["model"] = _only(names or endpoint.get("model_names"))
    found["api_base"] = _only(endpoint.get("urls") or [endpoint.get("url")])
    if isinstance(load, dict):
        found["concurrency"][None] = _stated_concurrency(load.get("concurrency"), f"{summary}: loadgen", rejects)
    for nth, phase in enumerate(_listed(config.get("phases"))):
        if not isinstance(phase, dict):
            continue
        stated = _stated_concurrency(phase.get("concurrency"), f"{summary}: phases[{nth}]", rejects)
        if stated is not None:
            if isinstance(phase.get("name"), str):
                found["concurrency"][phase["name"]] = stated
            if phase.get("kind", phase.get("name")) != "warmup" and found["concurrency"].get(None) is None:
                found["concurrency"][None] = stated
    return found


def _stated_concurrency(value: Any, where: str, rejects: Rejects) -> float | None:
    """A load test's concurrency; unknown, and a reject, where it is not one."""
    try:
        return concurrency(value, "concurrency")
    except Reject as reason:
        rejects.add(where, reason)
        return None


def _listed(held: Any) -> list[Any]:
    return held if isinstance(held, list) else []


def _only(names: Any) -> str | None:
    name = names[0] if isinstance(names, list) and len(names) == 1 else None
    return name if isinstance(name, str) and len(name) <= TEXT_CHARACTERS else None


def run_name(pattern: str, path: str) -> str:
    """The name of this file's run among those of the pattern: its folder below the part before any glob."""
    fixed = before_glob(Path(pattern))
    root = fixed if fixed.is_dir() else fixed.parent
    folder = Path(path).parent.relative_to(root).as_posix()
    return Path(path).parent.name if folder == "." else folder


# --- GenAI-Perf -------------------------------------------------------------------------------------------------------


class GenAIPerfCollector(FileCollector):
    """Reads every `profile_export.json` in a folder: GenAI-Perf's record of what it sent and got, one document a run.

    Tokens are in it only where the server reported its usage; elsewhere they are unknown: GenAI-Perf counts with a
    tokenizer that it does not write down.
    """

    source_kind, inside = "genai_perf", "profile_export.json"

    def read(self, path: str, rejects: Rejects) -> tuple[Iterator[tuple[str, Any]], Callable[[Any], dict[str, Any]]]:
        """The requests of a run, experiment by experiment."""
        held = document(path)
        experiments = held.get("experiments") if isinstance(held, dict) else None
        if not isinstance(experiments, list):
            raise SourceError(path, None, "expected an object with experiments, as GenAI-Perf writes it")
        name = f"{self.source}/{run_name(self.path, path)}"
        return _experiments(path, name, experiments, rejects), _genai_perf_request


def _experiments(
    path: str, run_name: str, experiments: list[Any], rejects: Rejects
) -> Iterator[tuple[str, tuple[str, float | None, Any]]]:
    """(place, (window, concurrency, request)) of each request."""
    for nth, experiment in enumerate(experiments):
        place = f"{path}: experiments[{nth}]"
        requests = experiment.get("requests") if isinstance(experiment, dict) else None
        if not isinstance(requests, list):
            rejects.add(place, "requests: expected a list, as GenAI-Perf writes it")
            continue
        load = experiment.get("experiment")
        is_stated = isinstance(load, dict) and load.get("mode") == "concurrency"
        level = _stated_concurrency(load.get("value"), f"{place}.experiment", rejects) if is_stated else None
        window = run_name if len(experiments) == 1 else f"{run_name}/{nth + 1}"
        for number, request in enumerate(requests):
            yield f"{place}.requests[{number}]", (window, level, request)


def _genai_perf_request(row: tuple[str, float | None, Any]) -> dict[str, Any]:
    window, level, request = row
    if not isinstance(request, dict):
        raise Reject("expected an object with timestamp and response_timestamps")
    started_us = instant_us(request.get("timestamp"), "timestamp", "ns")
    if started_us is None:
        raise Reject("timestamp: missing")
    answers = request.get("response_timestamps") or []
    if not isinstance(answers, list):
        raise Reject("response_timestamps: expected a list")
    times = [instant_us(at, "response_timestamps", "ns") for at in answers]
    ended_us = times[-1] if times else None
    return {
        "window_id": window,
        "started_at": started_us,
        "ended_at": ended_us,
        # One answer came whole: there was no first token.
        "ttft_seconds": between(started_us, times[0], "response_timestamps") if len(times) > 1 else None,
        "end_to_end_seconds": between(started_us, ended_us, "response_timestamps"),
        "status": "ok" if times else "error",
        "is_ok": bool(times),
        "model": _sent_model(request),
        "stated_concurrency": level,
        **usage_tokens(_reported_usage(request)),
    }


def _sent_model(request: Mapping[str, Any]) -> str | None:
    inputs = request.get("request_inputs")
    payload = inputs.get("payload") if isinstance(inputs, dict) else None
    try:
        sent = orjson.loads(payload) if isinstance(payload, str) else None
    except orjson.JSONDecodeError:
        return None
    return text(sent.get("model"), "model") if isinstance(sent, dict) else None


def _reported_usage(request: Mapping[str, Any]) -> Any:
    """The usage of the last answer that has one: servers send it with the last chunk of a stream."""
    for answer in reversed(_listed(request.get("response_outputs"))):
        body = answer.get("response") if isinstance(answer, dict) else None
        for line in reversed(body.splitlines() if isinstance(body, str) else []):
            try:
                held = orjson.loads(line.removeprefix("data:").strip() or "null")
            except orjson.JSONDecodeError:
                continue
            if isinstance(held, dict) and held.get("usage") is not None:
                return held["usage"]
    return None
