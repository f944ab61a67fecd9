"""Files of requests, results and runs: JSON documents, JSON Lines and CSV with the names that their tools write.

Add a tool by the names that only it writes. Keep out how its rows are read (`collectors.records`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from collectors.cells import TimeForm
from collectors.formats.found_columns import basis_of
from collectors.formats.openings import Opening
from collectors.recognition.recognised import Kind, RecognisedFile, Section
from collectors.recognition.sample_kinds import CLOCK
from collectors.recognition.spans import moments

_KEY = re.compile(r'"((?:[^"\\]|\\.){1,80})"\s*:')
_MODEL = re.compile(r'"(?:model|model_id|model_name|modelName)"\s*:\s*"([^"]{1,200})"')
# Output of vLLM's run-batch and of OpenAI's batch API: a line has the answer as the server gave it.
BATCH = {
    "request_id": "response.body.id", "status": "response.status_code", "model": "response.body.model",
    "usage": "response.body.usage",
}  # fmt: skip
OPENROUTER = {
    "request_id": "generation_id", "started_at": "created_at", "duration_ms": "generation_time_ms",
    "ttft_ms": "time_to_first_token_ms", "model": "model_permaslug", "spend_usd": "cost_total",
}  # fmt: skip
_OF_A_CLOCK = ("codecarbon", "sacct", "envoy", "run_windows", "usage_log", "openrouter")
GATEWAY = {"started_at": "start_time", "duration_ms": "duration", "status": "response_code"}


@dataclass(frozen=True)
class Shape:
    """Files that have all names of `needs` and, if there are such, one of `one_of`; of them `at_top` are in the row
    itself, where the reader looks for them. `times` are where a row has its time; `reason` is why files of it are not
    read; `entry` is what a fleet file states beside kind and path."""

    format: str
    kind: Kind
    section: Section | None
    needs: frozenset[str]
    one_of: frozenset[str] = frozenset()
    times: tuple[str, ...] = ()
    entry: Mapping[str, Any] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()
    reason: str | None = None
    at_top: frozenset[str] = frozenset()


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ACCELERATORS = "The file does not state on which accelerators it ran: state accelerator and accelerators."
# The order counts: the first that fits has the file.
JSON_SHAPES = (
    Shape("aiperf", "requests", "requests", _names("metadata metrics request_start_ns"), times=("request_start_ns",)),
    Shape("genai_perf", "requests", "requests", _names("experiments response_timestamps"), times=("timestamp",)),
    Shape(
        "aiperf_summary", "named only", None, _names("input_config"), _names("request_throughput request_latency"),
        reason="is the summary of a load test, without its requests; keep the profile_export.jsonl (AIPerf) or"
        " profile_export.json (GenAI-Perf) beside it",
    ),
    Shape("guidellm", "benchmark results", "benchmarks", _names("benchmarks output_tokens_per_second"),
          _names("scheduler_metrics run_stats time_to_first_token_ms"), doubts=(_ACCELERATORS,)),
    Shape("inferencex", "benchmark results", "benchmarks", _names("hardware metrics conc tput_per_gpu")),
    Shape("inferencex", "benchmark results", "benchmarks", _names("hw conc"), _names("tput_per_gpu request_metrics")),
    Shape("mlperf", "benchmark results", "benchmarks", _names("Performance_Result Performance_Units Scenario")),
    Shape("ml_energy", "benchmark results", "benchmarks", _names("configurations gpu_model energy_per_token_joules")),
    Shape("vllm_bench", "benchmark results", "benchmarks", _names("completed output_throughput model_id"),
          times=("date",), doubts=(_ACCELERATORS,)),
    Shape("sglang_bench", "benchmark results", "benchmarks", _names("completed output_throughput"),
          _names("server_info dataset_name input_throughput"), doubts=(_ACCELERATORS,)),
    Shape("litellm", "requests", "requests", _names("startTime"), _names("spend response_cost"), times=("startTime",),
          at_top=_names("startTime")),
    Shape(
        "envoy_ai_gateway", "requests", "requests", _names("start_time gen_ai.usage.output_tokens"),
        times=("start_time",),
        entry={"kind": "access_log", "columns": {**GATEWAY, "model": "gen_ai.request.model", "usage": "gen_ai.usage"}},
        at_top=_names("start_time"),
    ),
    Shape(
        "envoy", "requests", "requests", _names("start_time duration response_code"), times=("start_time",),
        entry={"kind": "access_log", "columns": GATEWAY}, doubts=("Its lines have no tokens: requests alone.",),
        at_top=_names("start_time"),
    ),
    *(
        Shape(
            "openai_batch", "requests", "requests", _names(f"custom_id response body usage {created}"),
            times=(created,),
            entry={"kind": "access_log", "columns": {**BATCH, "started_at": f"response.body.{created}"}},
            at_top=_names("custom_id response"),
        )
        for created in ("created", "created_at")
    ),
    Shape(
        "openai_answers", "requests", "requests", _names("id created model usage"), times=("created",),
        entry={"kind": "access_log"}, at_top=_names("id created model usage"),
    ),
    *(
        Shape(
            "usage_log", "requests", "requests", _names(f"model usage {time}"), times=(time,),
            entry={"kind": "access_log", "columns": {"started_at": time}}, at_top=_names(f"model usage {time}"),
        )
        for time in ("started_at", "start_time", "created_at", "timestamp", "time", "ts")
    ),
    Shape(
        "query_range", "named only", None, _names("status data resultType result"), at_top=_names("status data"),
        reason="is an answer of Prometheus that was saved: name the server under sources, kind: prometheus, or write"
        " its samples as CSV with the columns observed_at, metric, labels (JSON) and value",
    ),
    Shape(
        "redfish_power", "named only", None, _names("PowerControl PowerConsumedWatts"), at_top=_names("PowerControl"),
        reason="is one reading of a BMC: record it with redfish_exporter (docs/sources/redfish_exporter.md)",
    ),
    Shape(
        "litellm_prices", "prices", None, _names("input_cost_per_token output_cost_per_token"),
        reason="is a price list: name it under prices.files",
    ),
)  # fmt: skip
CSV_SHAPES = (
    Shape("litellm", "requests", "requests", _names("request_id call_type startTime prompt_tokens completion_tokens"),
          times=("startTime",)),
    Shape(
        "openrouter", "requests", "requests", _names("generation_id created_at tokens_prompt tokens_completion"),
        times=("created_at",), entry={"kind": "access_log", "columns": OPENROUTER},
    ),
    Shape("azure_trace", "requests", "requests", _names("TIMESTAMP ContextTokens GeneratedTokens"),
          times=("TIMESTAMP",)),
    Shape(
        "codecarbon", "run windows", "run_windows", _names("timestamp run_id duration emissions energy_consumed"),
        times=("timestamp",), entry={"format": "codecarbon"},
        doubts=("Its energy is of whole runs and is not booked beside a meter's. Its node is the name of the folder:"
                " write the host's.",),
    ),
    Shape(
        "sacct", "run windows", "run_windows", _names("JobID Start End NodeList"), times=("Start", "End"),
        entry={"format": "sacct"},
        doubts=("Its energy is of whole jobs and is not booked beside a meter's.",),
    ),
    Shape("run_windows", "run windows", "run_windows", _names("window_id start_at end_at"),
          _names("node engine model"), times=("start_at", "end_at")),
    Shape("ml_energy", "benchmark results", "benchmarks", _names("gpu_model energy_per_token_joules num_gpus")),
    Shape(
        "focus", "named only", None, _names("BilledCost ChargePeriodStart"),
        reason="is a provider's FOCUS export: name it under focus_exports",
    ),
)  # fmt: skip


def records(opening: Opening) -> RecognisedFile | None:
    """A file of requests, results or runs; None for any other."""
    start = opening.head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if start in (b"{", b"[") and _KEY.search(opening.text):
        return _json(opening)
    rows = opening.cells()
    header = rows[0] if rows else []
    if any(name.startswith("Carbon Intensity gCO") or name.startswith("Carbon intensity gCO") for name in header):
        why = "is grid intensity of Electricity Maps: name it under grid_intensity.files"
        return RecognisedFile(opening.path, "electricity_maps", "named only", reason=why, columns=tuple(header))
    if {"concurrency"} <= {re.sub(r"\(.*?\)", "", name).strip().lower() for name in header} and any(
        "system output throughput" in name.lower() for name in header
    ):
        shape = Shape("artificial_analysis", "benchmark results", "benchmarks", frozenset())
        return _recognised(opening, shape, header, [])
    fitting = _fitting(CSV_SHAPES, {*header}, {*header})
    if fitting is None:
        return None
    lines = [*rows[1:], *opening.cells(opening.ending)]
    found = [dict(zip(header, row, strict=True)) for row in lines if len(row) == len(header) and row != header]
    return _recognised(opening, fitting, header, found)


def _json(opening: Opening) -> RecognisedFile | None:
    keys = list(dict.fromkeys(_KEY.findall(opening.text)))
    rows = list(_objects(opening))
    shape = _fitting(JSON_SHAPES, {*keys}, {key for row in rows for key in row})
    if shape is None:
        there = ", ".join(keys[:20])
        why = f"is JSON of no known shape; its keys are {there}"[:300] + _mapping_of(opening.path, rows)
        return RecognisedFile(opening.path, None, "unknown", reason=why)
    missing = _without_latency(shape, {*keys}, keys)
    return _recognised(opening, shape, keys[:60], rows, missing)


def _mapping_of(path: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """How the entry of lines with times begins, for whoever knows that they are requests."""
    texts = {key: str(value) for row in rows[:1] for key, value in row.items() if isinstance(value, str | int | float)}
    time = next((key for key, text in texts.items() if (basis_of([text]) or ("",))[0] in ("moment", "clock")), None)
    if time is None or len(rows) < 2:
        return ""
    return (
        f". If its lines are requests, write under requests {{kind: access_log, path: {Path(path).name}, columns:"
        f" {{started_at: {time}, model: …, input_tokens: …, output_tokens: …}}}} (docs/sources/access_logs.md)"
    )


def _fitting(shapes: tuple[Shape, ...], names: set[str], at_top: set[str]) -> Shape | None:
    return next(
        (
            shape
            for shape in shapes
            if shape.needs <= names and (not shape.one_of or shape.one_of & names) and shape.at_top <= at_top
        ),
        None,
    )


def _without_latency(shape: Shape, keys: set[str], listed: list[str]) -> tuple[str, ...]:
    known = {"median_tpot_ms", "median_ttft_ms", "median_e2el_ms", "median_e2e_latency_ms"}
    if shape.format not in ("vllm_bench", "sglang_bench") or known & keys:
        return ()
    there = ", ".join(listed[:40])
    return (f"No latency of it is known, so it has no place on a curve; its keys are {there}.",)


def _objects(opening: Opening) -> Iterator[Mapping[str, Any]]:
    """The objects of a file of lines, of its opening and its ending; of a document that is read whole, the document."""
    if len(opening.lines) > 1 or not opening.is_whole:
        for line in (*opening.lines, *opening.ending):
            try:
                held = orjson.loads(line)
            except orjson.JSONDecodeError:
                continue
            if isinstance(held, dict):
                yield held
    elif opening.is_whole:
        held = orjson.loads(opening.text)
        yield from (one for one in (held if isinstance(held, list) else [held]) if isinstance(one, dict))


def _recognised(
    opening: Opening, shape: Shape, columns: list[str], rows: Sequence[Mapping[str, Any]], doubts: tuple[str, ...] = ()
) -> RecognisedFile:
    texts = [text for row in rows for name in shape.times if (text := _found(row, name))]
    if not texts and shape.times and not rows:
        pattern = re.compile(rf'"{re.escape(shape.times[0])}"\s*:\s*"?([^",}}\s]+)')
        texts = [found for line in (*opening.lines, *opening.ending) for found in pattern.findall(line)]
    first, last, is_stated = _span(texts)
    # Its publisher states UTC.
    is_stated = is_stated if shape.format != "azure_trace" else True
    entry: dict[str, Any] | None = None
    if shape.section in ("requests", "benchmarks"):
        entry = {"kind": shape.format, "path": opening.path, **shape.entry}
    elif shape.section == "run_windows":
        placed = {"node": Path(opening.path).parent.name} if shape.format == "codecarbon" else {}
        entry = {"path": opening.path, **shape.entry, **placed}
    reaches = last if opening.is_whole or opening.ending else None
    clock = (CLOCK,) if is_stated is False and shape.format in _OF_A_CLOCK else ()
    return RecognisedFile(
        opening.path, shape.format, shape.kind, shape.section, entry, shape.reason, tuple(columns),
        models=tuple(dict.fromkeys(_MODEL.findall(opening.text)))[:20],
        first_at=first, last_at=reaches, is_zone_stated=is_stated, doubts=(*shape.doubts, *doubts, *clock),
    )  # fmt: skip


def _found(row: Mapping[str, Any], name: str) -> str:
    if name in row:
        return str(row[name] if row[name] is not None else "")
    below = (_found(value, name) for value in row.values() if isinstance(value, dict))
    return next((text for text in below if text), "")


def _span(texts: list[str]) -> tuple[datetime | None, datetime | None, bool | None]:
    """First, last, and whether the zone is stated."""
    stamped = [re.sub(r"^(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)(\d\d)$", r"\1-\2-\3 \4:\5:\6", text) for text in texts]
    # Seven digits of a second are one more than a time has here.
    stamped = [re.sub(r"(\.\d{6})\d+", r"\1", text) for text in stamped]
    how = basis_of(stamped)
    if how is None or how[0] not in ("moment", "clock"):
        return None, None, None
    found = moments(stamped, TimeForm(how[1]))
    return (found[0], found[-1], how[0] == "moment") if found else (None, None, None)
