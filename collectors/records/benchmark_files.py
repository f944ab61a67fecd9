"""Published benchmarks in one vocabulary: MLPerf, InferenceX, Artificial Analysis' load test, ML.ENERGY, generators.

Add a publisher's format here, or in a module of its own where it needs more than a screen: what its fields mean in the
words of raw.benchmark_results (docs/sources/benchmarks.md). Keep out comparisons: those are SQL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from collectors.records.access_logs import numbered_lines
from collectors.records.benchmark_rows import (
    Result,
    csv_results,
    in_range,
    joined,
    needed_number,
    needed_text,
    number,
    objects,
    plain,
    text,
)
from collectors.records.guidellm import guidellm, guidellm_rows
from collectors.records.inferencex import inferencex
from collectors.records.serving_benchmarks import sglang_bench, vllm_bench
from collectors.rows import REASON_CHARACTERS, Reject, Rejects, is_object, readable
from collectors.samples import SourceError
from collectors.text_files import document, lines, paths_of


class BenchmarkFile:
    """Files of one publisher. `kind` is a key of FORMATS; `constants` are columns that the files lack."""

    def __init__(self, kind: str, path: str, constants: Mapping[str, Any]) -> None:
        self.kind = kind
        self.path = path
        self.constants = constants

    def results(self, rejects: Rejects) -> list[Result]:
        """Every result of the files, a key per column that is known. A row, or a file, that is not what the publisher
        writes is a reject. SourceError where too many are, or there is no result at all."""
        shape = FORMATS[self.kind]
        found = []
        for path in paths_of(self.path, shape.inside):
            try:
                rows = shape.rows(path, rejects)
            except SourceError as refusal:
                rejects.add(refusal.url, refusal.reason)
                continue
            name = path.rpartition("/")[2]
            found += [
                {"file": name, **row, **self.constants}
                for row in readable(rows, partial(_known, shape.result), rejects)
            ]
        rejects.check(self.path)
        if not found:
            raise SourceError(self.path, None, f"holds no result of {self.kind}")
        return found


class Format(NamedTuple):
    """How one publisher writes: (place, row) of each row of a file, what makes a result of a row, and what its files
    are called in a folder."""

    rows: Callable[[str, Rejects], Iterator[tuple[str, Any]]]
    result: Callable[[Any], Result]
    inside: str


def _known(result: Callable[[Any], Result], row: Any) -> Result:
    """What is known of a row's result; Reject where its numbers cannot be."""
    found = {name: value for name, value in result(row).items() if value is not None}
    for name, value in found.items():
        if isinstance(value, float):
            in_range(name, value, value)
    return found


def _of_object(result: Callable[[Mapping[str, Any]], Result]) -> Callable[[Any], Result]:
    return lambda row: result(is_object(row))


def _listed(path: str, rejects: Rejects) -> Iterator[tuple[str, Any]]:
    """The rows of a JSON list."""
    return objects(path, document(path))


def _one_or_listed(path: str, rejects: Rejects) -> Iterator[tuple[str, Any]]:
    """The rows of a JSON list, or the one object that there is instead."""
    held = document(path)
    return objects(path, held if isinstance(held, list) else [held])


def _mlperf(row: Mapping[str, Any]) -> Result:
    """An entry of summary_results.json of a round of MLPerf Inference: one system, model and scenario."""
    unit = needed_text(row, "Performance_Units")
    value = needed_number(row, "Performance_Result")
    nodes = number(row, "Nodes")
    per_node = number(row, "a#")
    power_unit = (text(row, "Power_Units") or "").lower()
    watts = number(row, "Power_Result") if power_unit in ("watts", "w") else None
    generated = re.search(r"TOKENS_PER_SAMPLE: *([0-9.]+)", text(row, "Accuracy") or "")
    return {
        "result_id": f"{needed_text(row, 'ID')}/{joined(row, 'Model', 'Scenario')}",
        "submitter": text(row, "Submitter"),
        "system": text(row, "System"),
        "accelerator": text(row, "Accelerator"),
        "accelerators": None if per_node is None else per_node * (nodes or 1),
        "model": needed_text(row, "Model"),
        "precision": text(row, "weight_data_types"),
        "framework": text(row, "Software"),
        "scenario": text(row, "Scenario"),
        "output_length_tokens": float(generated[1]) if generated else None,
        "output_tokens_per_second": value if unit.lower() in ("tokens/s", "tokens/sec") else None,
        "watts": watts,
        "watts_basis": None if watts is None else "measured_wall_node",
        "result_value": value,
        "result_unit": unit,
    }


def _artificial_analysis(row: Mapping[str, Any]) -> Result:
    """A row of a table of Artificial Analysis' System Load Test as CSV, with the column names of its pages; units in
    brackets behind a name are passed over. Each query has 1,000 tokens in and 1,000 out."""
    names = {
        "system": "system",
        "accelerator": "accelerator",
        "number of accelerators": "accelerators",
        "model": "model",
        "precision": "precision",
        "concurrency": "concurrency",
        "concurrent queries": "concurrency",
        "system output throughput": "output_tokens_per_second",
        "output speed per query": "output_tokens_per_second_per_user",
        "end-to-end latency per query": "end_to_end_seconds",
        "end-to-end latency": "end_to_end_seconds",
    }
    needed = ("concurrency", "output_tokens_per_second")
    cells = {names[key]: value for key, value in ((plain(name), row[name]) for name in row) if key in names}
    missing = [name for name in needed if name not in cells]
    if missing:
        raise Reject(f"no column for {missing[0]}; there are {', '.join(map(repr, row))}"[:REASON_CHARACTERS])
    texts = ("system", "accelerator", "model", "precision")
    found: dict[str, Any] = {name: text(cells, name) for name in texts}
    found |= {name: number(cells, name) for name in set(cells) - set(found)}
    return {
        "result_id": "/".join(str(found.get(name)) for name in ("system", "model", "concurrency")),
        "submitter": "Artificial Analysis",
        "scenario": "system load test",
        "input_length_tokens": 1000.0,
        "output_length_tokens": 1000.0,
        **found,
        "output_tokens_per_second_per_user_basis": (
            None if found.get("output_tokens_per_second_per_user") is None else "median query after first chunk"
        ),
    }


def _ml_energy(row: Mapping[str, Any]) -> Result:
    """A run of the ML.ENERGY leaderboard. Watts are summed over the GPUs."""
    latency_ms = number(row, "median_itl_ms")
    parallel = "/".join(text(row, name) or "" for name in ("tensor_parallel", "expert_parallel", "data_parallel"))
    return {
        "result_id": "/".join(
            text(row, name) or ""
            for name in ("task", "model_id", "weight_precision", "gpu_model", "num_gpus", "max_num_seqs")
        )
        + f"/{parallel}",
        "submitter": "ML.ENERGY",
        "system": f"{text(row, 'num_gpus')}x{text(row, 'gpu_model')}",
        "accelerator": needed_text(row, "gpu_model"),
        "accelerators": needed_number(row, "num_gpus"),
        "model": needed_text(row, "model_id"),
        "architecture": text(row, "architecture"),
        "precision": text(row, "weight_precision"),
        "scenario": text(row, "task"),
        "configuration": "tp {}, ep {}, dp {}".format(*parallel.split("/")),
        "output_length_tokens": number(row, "avg_output_len"),
        "concurrency": number(row, "max_num_seqs"),
        "output_tokens_per_second": needed_number(row, "output_throughput_tokens_per_sec"),
        "output_tokens_per_second_per_user": 1000 / latency_ms if latency_ms else None,
        "output_tokens_per_second_per_user_basis": "1 / median inter-token latency" if latency_ms else None,
        "watts": needed_number(row, "avg_power_watts"),
        "watts_basis": "measured_board",
        "result_value": number(row, "energy_per_token_joules"),
        "result_unit": "J/output token",
    }


def _ml_energy_rows(path: str, rejects: Rejects) -> Iterator[tuple[str, Any]]:
    """The runs of its JSON file of a model and task, or of a CSV with a row per configuration."""
    _, first = next(lines(path, Rejects()), (0, b""))
    return _ml_energy_configurations(path) if first.lstrip()[:1] == b"{" else csv_results(path, rejects)


def _ml_energy_configurations(path: str) -> Iterator[tuple[str, Any]]:
    """The configurations of a file of one model and task, each with what the file has for all of them."""
    held = document(path)
    if not isinstance(held, dict):
        raise SourceError(path, None, f"is a {type(held).__name__}, expected an object with configurations")
    shared = {name: value for name, value in held.items() if not isinstance(value, list | dict)}
    for where, row in objects(f"{path}: configurations", held.get("configurations")):
        parallel = row.get("parallelization") if isinstance(row, dict) else None
        more = parallel if isinstance(parallel, dict) else {}
        yield where, {**shared, **row, **more} if isinstance(row, dict) else row


FORMATS: Mapping[str, Format] = {
    "mlperf": Format(_listed, _of_object(_mlperf), "summary_results.json"),
    "inferencex": Format(_one_or_listed, _of_object(inferencex), "*.json"),
    "artificial_analysis": Format(csv_results, _of_object(_artificial_analysis), "*.csv"),
    "ml_energy": Format(_ml_energy_rows, _of_object(_ml_energy), "*.[cj]s*"),
    "guidellm": Format(guidellm_rows, _of_object(guidellm), "*.json"),
    "vllm_bench": Format(_one_or_listed, _of_object(vllm_bench), "*.json"),
    "sglang_bench": Format(numbered_lines, sglang_bench, "*.jsonl"),
}
