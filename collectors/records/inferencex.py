"""Results of InferenceX (formerly InferenceMAX): a run's file, the agentic scenario, and rows as its site has them.

Add here what InferenceX's fields mean, and its next shape. Keep out which row may be compared: that is SQL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from collectors.records.benchmark_rows import (
    Result,
    day,
    needed_number,
    needed_text,
    number,
    objects,
    text,
)
from collectors.text_files import document

_LATENCIES = ("intvty", "ttft", "e2el")


def inferencex(path: str) -> Iterator[Result]:
    """One result or a list of them. What was measured is in the row itself, under `metrics` or `request_metrics`."""
    held = document(path)
    for where, row in objects(path, held if isinstance(held, list) else [held]):
        metrics, nested = row.get("metrics"), row.get("request_metrics")
        if isinstance(metrics, dict):
            yield _published(where, row, metrics)
        else:
            yield _of_a_run(where, row, row if not isinstance(nested, dict) else _flattened(nested))


def _of_a_run(where: str, row: Mapping[str, Any], measured: Mapping[str, Any]) -> Result:
    """The file that a run of the benchmark writes."""
    gpus = _gpus_of_a_run(where, row)
    # Where roles have GPUs of their own, InferenceX divides output by those that decode.
    decoding = number(where, row, "num_decode_gpu") if row.get("disagg") else None
    is_measured = number(where, row, "power_valid") == 1
    watts = number(where, row, "avg_total_gpu_power_w") if is_measured else None
    names = ("hw", "framework", "model", "precision", "spec_decoding", "tp", "ep", "isl", "osl", "conc")
    return {
        "result_id": "/".join(str(row.get(name)) for name in names),
        "system": needed_text(where, row, "hw"),
        "accelerator": (text(where, row, "hw") or "").removeprefix("cluster:").partition("-")[0] or None,
        "scenario": text(where, row, "scenario_type"),
        "speculation": text(where, row, "spec_decoding"),
        **_shared(where, row, measured, gpus, decoding or gpus),
        "watts": watts,
        "watts_basis": None if watts is None else "measured_board",
    }


def _published(where: str, row: Mapping[str, Any], measured: Mapping[str, Any]) -> Result:
    """A row of the published table: `hardware`, both roles, and everything measured under `metrics`."""
    is_split = row.get("disagg") is True
    gpus = _published_gpus(where, row)
    decoding = number(where, row, "num_decode_gpu") if is_split else gpus
    names = ("hardware", "framework", "model", "precision", "spec_method")
    placed = _placed(row, is_split)
    lengths = "/".join(str(row.get(name)) for name in ("isl", "osl", "conc"))
    mean_watts = number(where, measured, "avg_power_w")
    watts = None if mean_watts is None or gpus is None else mean_watts * gpus
    shared = _shared(where, row, measured, gpus, decoding)
    if not _adds_up(where, row, measured, gpus if is_split else None):
        shared["output_tokens_per_second"] = None
    return {
        "result_id": "/".join([*(str(row.get(name)) for name in names), placed, lengths]),
        "system": needed_text(where, row, "hardware"),
        "accelerator": needed_text(where, row, "hardware"),
        "scenario": f"{row.get('isl')} in, {row.get('osl')} out",
        "speculation": text(where, row, "spec_method"),
        "configuration": placed,
        "is_disaggregated": is_split,
        "software": text(where, row, "image"),
        "measured_on": day(where, row, "date"),
        "run_url": text(where, row, "run_url"),
        **shared,
        "watts": watts,
        "watts_basis": None if watts is None else "measured_board",
    }


def _shared(
    where: str, row: Mapping[str, Any], measured: Mapping[str, Any], gpus: float | None, decoding: float | None
) -> Result:
    """What both shapes have under the same names. Throughput is published per GPU."""
    per_gpu = needed_number(where, measured, "tput_per_gpu")
    output_per_gpu = number(where, measured, "output_tput_per_gpu")
    interactivity = number(where, measured, "median_intvty")
    is_output_known = output_per_gpu is not None and decoding is not None
    return {
        "accelerators": gpus,
        "model": needed_text(where, row, "model"),
        "precision": text(where, row, "precision"),
        "framework": text(where, row, "framework"),
        "input_length_tokens": number(where, row, "isl"),
        "output_length_tokens": number(where, row, "osl"),
        "concurrency": number(where, row, "conc"),
        "total_tokens_per_second_per_gpu": per_gpu,
        "total_tokens_per_second": None if gpus is None else per_gpu * gpus,
        "output_tokens_per_second": (output_per_gpu or 0) * (decoding or 0) if is_output_known else None,
        "output_tokens_per_second_per_user": interactivity,
        "output_tokens_per_second_per_user_basis": None if interactivity is None else "1 / median TPOT",
        "ttft_seconds": number(where, measured, "median_ttft"),
        "ttft_p99_seconds": number(where, measured, "p99_ttft"),
        "tpot_p99_seconds": number(where, measured, "p99_tpot"),
        "end_to_end_seconds": number(where, measured, "median_e2el"),
    }


def _gpus_of_a_run(where: str, row: Mapping[str, Any]) -> float | None:
    stated = number(where, row, "num_gpus")
    if stated is None and row.get("is_multinode"):
        stated = sum(needed_number(where, row, name) for name in ("num_prefill_gpu", "num_decode_gpu"))
    width = number(where, row, "tp")
    return (None if width is None else width * (number(where, row, "pp") or 1)) if stated is None else stated


def _published_gpus(where: str, row: Mapping[str, Any]) -> float | None:
    """GPUs of the whole configuration. Where one engine does both roles, `num_decode_gpu` is often tp × ep, so its
    tensor parallelism counts instead."""
    if row.get("disagg") is not True:
        return number(where, row, "decode_tp")
    decoding = number(where, row, "num_decode_gpu")
    prefilling = number(where, row, "num_prefill_gpu")
    workers = number(where, row, "prefill_num_workers"), number(where, row, "decode_num_workers")
    if all(workers) and decoding is not None and prefilling is not None:
        return prefilling + decoding
    return decoding


def _adds_up(where: str, row: Mapping[str, Any], measured: Mapping[str, Any], gpus: float | None) -> bool:
    """Whether the roles' published throughputs, times their GPUs, make the published total. Not asked where one engine
    does both roles (`gpus` is None)."""
    output, given = number(where, measured, "output_tput_per_gpu"), number(where, measured, "input_tput_per_gpu")
    decoding, prefilling = number(where, row, "num_decode_gpu"), number(where, row, "num_prefill_gpu")
    if gpus is None or output is None or given is None or decoding is None or prefilling is None:
        return True
    total = needed_number(where, measured, "tput_per_gpu") * gpus
    return abs(output * decoding + given * prefilling - total) <= 0.01 * total


def _placed(row: Mapping[str, Any], is_split: bool) -> str:
    """How the model is spread over GPUs, as one text."""

    def role(name: str) -> str:
        attention = ", dp attention" if row.get(f"{name}_dp_attention") is True else ""
        return f"tp {row.get(f'{name}_tp')}, ep {row.get(f'{name}_ep')}{attention}"

    if is_split:
        roles = ((name, row.get(f"{name}_num_workers"), row.get(f"num_{name}_gpu")) for name in ("prefill", "decode"))
        return " + ".join(f"{workers} {name} on {gpus} GPUs ({role(name)})" for name, workers, gpus in roles)
    both = role("decode")
    return both if role("prefill") == both else f"{both} (prefill {role('prefill')})"


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
        **{f"median_{name}": at("latency", name, "p50") for name in _LATENCIES},
    }
