"""Published benchmarks in one vocabulary: MLPerf, InferenceX, Artificial Analysis' load test, ML.ENERGY, generators.

Add a publisher's format here, or in a module of its own where it needs more than a screen: what its fields mean in the
words of raw.benchmark_results (docs/sources/benchmarks.md). Keep out comparisons: those are SQL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from collectors.records.benchmark_rows import (
    Result,
    csv_rows,
    needed_number,
    needed_text,
    number,
    objects,
    plain,
    text,
)
from collectors.records.inferencex import inferencex
from collectors.records.serving_benchmarks import sglang_bench, vllm_bench
from collectors.samples import SourceError
from collectors.text_files import document, lines, paths_of


class BenchmarkFile:
    """Files of one publisher. `kind` is a key of READERS; `constants` are columns that the files lack."""

    def __init__(self, kind: str, path: str, constants: Mapping[str, Any]) -> None:
        self.kind = kind
        self.path = path
        self.constants = constants

    def results(self) -> list[Result]:
        """Every result of the files, a key per column that is known. SourceError names the file, the row and the field
        that is not what the publisher writes: a table of results is taken whole or not at all."""
        found = []
        for path in paths_of(self.path, _NAMES[self.kind]):
            rows = [
                {name: value for name, value in row.items() if value is not None} for row in READERS[self.kind](path)
            ]
            if not rows:
                raise SourceError(path, None, f"holds no result of {self.kind}")
            found += [{"file": path.rpartition("/")[2], **row, **self.constants} for row in rows]
        return found


def _mlperf(path: str) -> Iterator[Result]:
    """summary_results.json of a round of MLPerf Inference: a list of results of one system, model and scenario each."""
    for where, row in objects(path, document(path)):
        unit = needed_text(where, row, "Performance_Units")
        value = needed_number(where, row, "Performance_Result")
        nodes = number(where, row, "Nodes")
        per_node = number(where, row, "a#")
        power_unit = (text(where, row, "Power_Units") or "").lower()
        watts = number(where, row, "Power_Result") if power_unit in ("watts", "w") else None
        generated = re.search(r"TOKENS_PER_SAMPLE: *([0-9.]+)", text(where, row, "Accuracy") or "")
        yield {
            "result_id": f"{needed_text(where, row, 'ID')}/{row.get('Model')}/{row.get('Scenario')}",
            "submitter": text(where, row, "Submitter"),
            "system": text(where, row, "System"),
            "accelerator": text(where, row, "Accelerator"),
            "accelerators": None if per_node is None else per_node * (nodes or 1),
            "model": needed_text(where, row, "Model"),
            "precision": text(where, row, "weight_data_types"),
            "framework": text(where, row, "Software"),
            "scenario": text(where, row, "Scenario"),
            "output_length_tokens": float(generated[1]) if generated else None,
            "output_tokens_per_second": value if unit.lower() in ("tokens/s", "tokens/sec") else None,
            "watts": watts,
            "watts_basis": None if watts is None else "measured_wall_node",
            "result_value": value,
            "result_unit": unit,
        }


def _artificial_analysis(path: str) -> Iterator[Result]:
    """A table of Artificial Analysis' System Load Test as CSV, with the column names of its pages; units in brackets
    behind a name are passed over. Each query has 1,000 tokens in and 1,000 out."""
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
    for where, row in csv_rows(path):
        cells = {names[key]: value for key, value in ((plain(name), row[name]) for name in row) if key in names}
        missing = [name for name in needed if name not in cells]
        if missing:
            raise SourceError(where, None, f"no column for {missing[0]}; there are {', '.join(map(repr, row))}"[:500])
        texts = ("system", "accelerator", "model", "precision")
        found: dict[str, Any] = {name: text(where, cells, name) for name in texts}
        found |= {name: number(where, cells, name) for name in set(cells) - set(found)}
        yield {
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


def _ml_energy(path: str) -> Iterator[Result]:
    """Runs of the ML.ENERGY leaderboard: its JSON file of a model and task, or a CSV with a row per configuration.
    Watts are summed over the GPUs."""
    _, first = next(lines(path), (0, b""))
    for where, row in _ml_energy_configurations(path) if first.lstrip()[:1] == b"{" else csv_rows(path):
        latency_ms = number(where, row, "median_itl_ms")
        parallel = "/".join(
            str(row.get(name) or "") for name in ("tensor_parallel", "expert_parallel", "data_parallel")
        )
        yield {
            "result_id": "/".join(
                str(row.get(name) or "")
                for name in ("task", "model_id", "weight_precision", "gpu_model", "num_gpus", "max_num_seqs")
            )
            + f"/{parallel}",
            "submitter": "ML.ENERGY",
            "system": f"{row.get('num_gpus')}x{row.get('gpu_model')}",
            "accelerator": needed_text(where, row, "gpu_model"),
            "accelerators": needed_number(where, row, "num_gpus"),
            "model": needed_text(where, row, "model_id"),
            "architecture": text(where, row, "architecture"),
            "precision": text(where, row, "weight_precision"),
            "scenario": text(where, row, "task"),
            "configuration": "tp {}, ep {}, dp {}".format(*parallel.split("/")),
            "output_length_tokens": number(where, row, "avg_output_len"),
            "concurrency": number(where, row, "max_num_seqs"),
            "output_tokens_per_second": needed_number(where, row, "output_throughput_tokens_per_sec"),
            "output_tokens_per_second_per_user": 1000 / latency_ms if latency_ms else None,
            "output_tokens_per_second_per_user_basis": "1 / median inter-token latency" if latency_ms else None,
            "watts": needed_number(where, row, "avg_power_watts"),
            "watts_basis": "measured_board",
            "result_value": number(where, row, "energy_per_token_joules"),
            "result_unit": "J/output token",
        }


def _ml_energy_configurations(path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The configurations of a file of one model and task, each with what the file has for all of them."""
    held = document(path)
    if not isinstance(held, dict):
        raise SourceError(path, None, f"is a {type(held).__name__}, expected an object with configurations")
    shared = {name: value for name, value in held.items() if not isinstance(value, list | dict)}
    for where, row in objects(f"{path}: configurations", held.get("configurations")):
        parallel = row.get("parallelization")
        yield where, {**shared, **row, **(parallel if isinstance(parallel, dict) else {})}


READERS: Mapping[str, Callable[[str], Iterator[Result]]] = {
    "mlperf": _mlperf,
    "inferencex": inferencex,
    "artificial_analysis": _artificial_analysis,
    "ml_energy": _ml_energy,
    "vllm_bench": vllm_bench,
    "sglang_bench": sglang_bench,
}
# What is taken where the fleet file names a folder.
_NAMES = {
    "mlperf": "summary_results.json",
    "inferencex": "*.json",
    "artificial_analysis": "*.csv",
    "ml_energy": "*.[cj]s*",
    "vllm_bench": "*.json",
    "sglang_bench": "*.jsonl",
}
