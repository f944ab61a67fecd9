"""Published benchmarks in one vocabulary: MLPerf, InferenceX, Artificial Analysis' load test, ML.ENERGY.

Add a publisher's format here: what its fields mean in the words of raw.benchmark_results (docs/sources/benchmarks.md).
Keep out comparisons: those are SQL.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from collectors.samples import SourceError
from collectors.text_files import document, lines, paths_of

# Column of raw.benchmark_results -> value. Throughput and watts are those of the whole system of `accelerators`.
Result = dict[str, Any]
_Value = TypeVar("_Value", str, float)


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
    for where, row in _objects(path, document(path)):
        unit = _needed_text(where, row, "Performance_Units")
        value = _needed_number(where, row, "Performance_Result")
        nodes = _number(where, row, "Nodes")
        per_node = _number(where, row, "a#")
        power_unit = (_text(where, row, "Power_Units") or "").lower()
        watts = _number(where, row, "Power_Result") if power_unit in ("watts", "w") else None
        generated = re.search(r"TOKENS_PER_SAMPLE: *([0-9.]+)", _text(where, row, "Accuracy") or "")
        yield {
            "result_id": f"{_needed_text(where, row, 'ID')}/{row.get('Model')}/{row.get('Scenario')}",
            "submitter": _text(where, row, "Submitter"),
            "system": _text(where, row, "System"),
            "accelerator": _text(where, row, "Accelerator"),
            "accelerators": None if per_node is None else per_node * (nodes or 1),
            "model": _needed_text(where, row, "Model"),
            "precision": _text(where, row, "weight_data_types"),
            "framework": _text(where, row, "Software"),
            "scenario": _text(where, row, "Scenario"),
            "output_length_tokens": float(generated[1]) if generated else None,
            "output_tokens_per_second": value if unit.lower() in ("tokens/s", "tokens/sec") else None,
            "watts": watts,
            "watts_basis": None if watts is None else "measured_wall_node",
            "result_value": value,
            "result_unit": unit,
        }


def _inferencex(path: str) -> Iterator[Result]:
    """Aggregated results of InferenceX (formerly InferenceMAX): one object, or a list of them, flat or nested."""
    held = document(path)
    for where, row in _objects(path, held if isinstance(held, list) else [held]):
        gpus = _inferencex_gpus(where, row)
        nested = row.get("request_metrics")
        flat = row if not isinstance(nested, dict) else _flattened(nested)
        per_gpu = _needed_number(where, flat, "tput_per_gpu")
        output_per_gpu = _number(where, flat, "output_tput_per_gpu")
        # Where roles have GPUs of their own, InferenceX divides output by those that decode.
        decoding = _number(where, row, "num_decode_gpu") if row.get("disagg") else None
        is_measured = _number(where, row, "power_valid") == 1
        watts = _number(where, row, "avg_total_gpu_power_w") if is_measured else None
        interactivity = _number(where, flat, "median_intvty")
        yield {
            "result_id": "/".join(
                str(row.get(name))
                for name in ("hw", "framework", "model", "precision", "spec_decoding", "tp", "ep", "isl", "osl", "conc")
            ),
            "system": _needed_text(where, row, "hw"),
            "accelerator": (_text(where, row, "hw") or "").removeprefix("cluster:").partition("-")[0] or None,
            "accelerators": gpus,
            "model": _needed_text(where, row, "model"),
            "precision": _text(where, row, "precision"),
            "framework": _text(where, row, "framework"),
            "scenario": _text(where, row, "scenario_type"),
            "input_length_tokens": _number(where, row, "isl"),
            "output_length_tokens": _number(where, row, "osl"),
            "concurrency": _number(where, row, "conc"),
            "total_tokens_per_second": per_gpu * gpus,
            "output_tokens_per_second": None if output_per_gpu is None else output_per_gpu * (decoding or gpus),
            "output_tokens_per_second_per_user": interactivity,
            "output_tokens_per_second_per_user_basis": None if interactivity is None else "1 / median TPOT",
            "ttft_seconds": _number(where, flat, "median_ttft"),
            "end_to_end_seconds": _number(where, flat, "median_e2el"),
            "watts": watts,
            "watts_basis": None if watts is None else "measured_board",
        }


def _inferencex_gpus(where: str, row: Mapping[str, Any]) -> float:
    stated = _number(where, row, "num_gpus")
    if stated is None and row.get("is_multinode"):
        stated = sum(_needed_number(where, row, name) for name in ("num_prefill_gpu", "num_decode_gpu"))
    return _needed_number(where, row, "tp") * (_number(where, row, "pp") or 1) if stated is None else stated


def _flattened(nested: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of flat results, from the nested ones of the agentic scenario."""

    def at(*names: str) -> Any:
        held: Any = nested
        for name in names:
            held = held.get(name) if isinstance(held, Mapping) else None
        return held

    return {
        "tput_per_gpu": at("throughput", "per_gpu", "total_tput_tps"),
        "output_tput_per_gpu": at("throughput", "per_gpu", "output_tput_tps"),
        **{f"median_{name}": at("latency", name, "p50") for name in ("intvty", "ttft", "e2el")},
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
    for where, row in _csv_rows(path):
        cells = {names[key]: value for key, value in ((_plain(name), row[name]) for name in row) if key in names}
        missing = [name for name in needed if name not in cells]
        if missing:
            raise SourceError(where, None, f"no column for {missing[0]}; there are {', '.join(map(repr, row))}"[:500])
        texts = ("system", "accelerator", "model", "precision")
        found: dict[str, Any] = {name: _text(where, cells, name) for name in texts}
        found |= {name: _number(where, cells, name) for name in set(cells) - set(found)}
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
    """Runs of the ML.ENERGY leaderboard as CSV: a row per measured configuration; watts are summed over its GPUs."""
    for where, row in _csv_rows(path):
        latency_ms = _number(where, row, "median_itl_ms")
        yield {
            "result_id": "/".join(
                row.get(name) or ""
                for name in (
                    *("task", "model_id", "weight_precision", "gpu_model", "num_gpus", "max_num_seqs"),
                    *("tensor_parallel", "expert_parallel", "data_parallel"),
                )
            ),
            "submitter": "ML.ENERGY",
            "system": f"{row.get('num_gpus')}x{row.get('gpu_model')}",
            "accelerator": _needed_text(where, row, "gpu_model"),
            "accelerators": _needed_number(where, row, "num_gpus"),
            "model": _needed_text(where, row, "model_id"),
            "precision": _text(where, row, "weight_precision"),
            "scenario": _text(where, row, "task"),
            "output_length_tokens": _number(where, row, "avg_output_len"),
            "concurrency": _number(where, row, "max_num_seqs"),
            "output_tokens_per_second": _needed_number(where, row, "output_throughput_tokens_per_sec"),
            "output_tokens_per_second_per_user": 1000 / latency_ms if latency_ms else None,
            "output_tokens_per_second_per_user_basis": "1 / median inter-token latency" if latency_ms else None,
            "watts": _needed_number(where, row, "avg_power_watts"),
            "watts_basis": "measured_board",
            "result_value": _number(where, row, "energy_per_token_joules"),
            "result_unit": "J/output token",
        }


READERS: Mapping[str, Callable[[str], Iterator[Result]]] = {
    "mlperf": _mlperf,
    "inferencex": _inferencex,
    "artificial_analysis": _artificial_analysis,
    "ml_energy": _ml_energy,
}
# What is taken where the fleet file names a folder.
_NAMES = {
    "mlperf": "summary_results.json",
    "inferencex": "*.json",
    "artificial_analysis": "*.csv",
    "ml_energy": "*.csv",
}


def _objects(path: str, held: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if not isinstance(held, list):
        raise SourceError(path, None, f"is a {type(held).__name__}, expected a list of results")
    for number, row in enumerate(held):
        if not isinstance(row, dict):
            raise SourceError(path, None, f"[{number}] is a {type(row).__name__}, expected an object")
        yield f"{path}[{number}]", row


def _csv_rows(path: str) -> Iterator[tuple[str, dict[str, str]]]:
    held = lines(path)
    try:
        header = next(csv.reader([next(held, (0, b""))[1].decode("utf-8-sig")]), [])
        for number, line in held:
            cells = next(csv.reader(io.StringIO(line.decode("utf-8")), strict=True), [])
            if len(cells) != len(header):
                raise SourceError(path, None, f"line {number} has {len(cells)} columns, the header {len(header)}")
            yield f"{path}:{number}", dict(zip(header, cells, strict=True))
    except (csv.Error, UnicodeDecodeError) as error:
        raise SourceError(path, None, f"is not CSV: {error}") from error


def _plain(name: str) -> str:
    return re.sub(r"\(.*?\)|\[.*?\]", "", name).strip().lower()


def _text(where: str, row: Mapping[str, Any], name: str) -> str | None:
    value = row.get(name)
    return None if value in (None, "") else str(value)


def _needed_text(where: str, row: Mapping[str, Any], name: str) -> str:
    return _needed(where, row, name, _text(where, row, name))


def _needed_number(where: str, row: Mapping[str, Any], name: str) -> float:
    return _needed(where, row, name, _number(where, row, name))


def _needed(where: str, row: Mapping[str, Any], name: str, value: _Value | None) -> _Value:
    if value is None:
        raise SourceError(where, None, f"{name}: missing; there are {', '.join(map(str, row))}"[:500])
    return value


def _number(where: str, row: Mapping[str, Any], name: str) -> float | None:
    value = row.get(name)
    if value in (None, "", "N/A", "-"):
        return None
    try:
        number = float(str(value).replace(",", "")) if not isinstance(value, bool) else math.nan
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise SourceError(where, None, f"{name}: got {value!r}, expected a number, 0 or more"[:500])
    return number
