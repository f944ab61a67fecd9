"""Results of InferenceX (formerly InferenceMAX): a run's file, the agentic scenario, and rows as its site has them.

Add here what InferenceX's fields mean, and its next shape. Keep out which row may be compared: that is SQL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from collectors.records.benchmark_rows import (
    Result,
    day,
    joined,
    needed_number,
    needed_text,
    number,
    text,
)

_LATENCIES = ("intvty", "ttft", "e2el")


def inferencex(row: Mapping[str, Any]) -> Result:
    """One result. What was measured is in the row itself, under `metrics` or `request_metrics`."""
    metrics, nested = row.get("metrics"), row.get("request_metrics")
    if isinstance(metrics, dict):
        return _published(row, metrics)
    return _of_a_run(row, row if not isinstance(nested, dict) else _flattened(nested))


def _of_a_run(row: Mapping[str, Any], measured: Mapping[str, Any]) -> Result:
    """The file that a run of the benchmark writes."""
    gpus = _gpus_of_a_run(row)
    # Where roles have GPUs of their own, InferenceX divides output by those that decode.
    decoding = number(row, "num_decode_gpu") if row.get("disagg") else None
    is_measured = number(row, "power_valid") == 1
    watts = number(row, "avg_total_gpu_power_w") if is_measured else None
    names = ("hw", "framework", "model", "precision", "spec_decoding", "tp", "ep", "isl", "osl", "conc")
    return {
        "result_id": joined(row, *names),
        "system": needed_text(row, "hw"),
        "accelerator": (text(row, "hw") or "").removeprefix("cluster:").partition("-")[0] or None,
        "scenario": text(row, "scenario_type"),
        "speculation": text(row, "spec_decoding"),
        **_shared(row, measured, gpus, decoding or gpus),
        "watts": watts,
        "watts_basis": None if watts is None else "measured_board",
    }


def _published(row: Mapping[str, Any], measured: Mapping[str, Any]) -> Result:
    """A row of the published table: `hardware`, both roles, and everything measured under `metrics`."""
    is_split = row.get("disagg") is True
    gpus = _published_gpus(row)
    decoding = number(row, "num_decode_gpu") if is_split else gpus
    names = ("hardware", "framework", "model", "precision", "spec_method")
    placed = _placed(row, is_split)
    lengths = joined(row, "isl", "osl", "conc")
    watts = _published_watts(row, measured, gpus)
    shared = _shared(row, measured, gpus, decoding)
    if not _adds_up(row, measured, gpus if is_split else None):
        shared["output_tokens_per_second"] = None
    return {
        "result_id": "/".join([joined(row, *names), placed, lengths]),
        "system": needed_text(row, "hardware"),
        "accelerator": needed_text(row, "hardware"),
        "scenario": f"{text(row, 'isl')} in, {text(row, 'osl')} out",
        "speculation": text(row, "spec_method"),
        "configuration": placed,
        "is_disaggregated": is_split,
        "software": text(row, "image"),
        "measured_on": day(row, "date"),
        "run_url": text(row, "run_url"),
        **shared,
        "watts": watts,
        "watts_basis": None if watts is None else "measured_board",
    }


def _shared(row: Mapping[str, Any], measured: Mapping[str, Any], gpus: float | None, decoding: float | None) -> Result:
    """What both shapes have under the same names. Throughput is published per GPU."""
    per_gpu = needed_number(measured, "tput_per_gpu")
    output_per_gpu = number(measured, "output_tput_per_gpu")
    interactivity = number(measured, "median_intvty")
    is_output_known = output_per_gpu is not None and decoding is not None
    return {
        "accelerators": gpus,
        "model": needed_text(row, "model"),
        "precision": text(row, "precision"),
        "framework": text(row, "framework"),
        "input_length_tokens": number(row, "isl"),
        "output_length_tokens": number(row, "osl"),
        "concurrency": number(row, "conc"),
        "total_tokens_per_second_per_gpu": per_gpu,
        "total_tokens_per_second": None if gpus is None else per_gpu * gpus,
        "output_tokens_per_second": (output_per_gpu or 0) * (decoding or 0) if is_output_known else None,
        "output_tokens_per_second_per_user": interactivity,
        "output_tokens_per_second_per_user_basis": None if interactivity is None else "1 / median TPOT",
        "ttft_seconds": number(measured, "median_ttft"),
        "ttft_p99_seconds": number(measured, "p99_ttft"),
        "tpot_p99_seconds": number(measured, "p99_tpot"),
        "end_to_end_seconds": number(measured, "median_e2el"),
    }


def _gpus_of_a_run(row: Mapping[str, Any]) -> float | None:
    stated = number(row, "num_gpus")
    if stated is None and row.get("is_multinode"):
        stated = sum(needed_number(row, name) for name in ("num_prefill_gpu", "num_decode_gpu"))
    width = number(row, "tp")
    return (None if width is None else width * (number(row, "pp") or 1)) if stated is None else stated


def _published_gpus(row: Mapping[str, Any]) -> float | None:
    """GPUs of the whole configuration. Where one engine does both roles, `num_decode_gpu` is often tp × ep, so its
    tensor parallelism counts instead."""
    if row.get("disagg") is not True:
        return number(row, "decode_tp")
    decoding = number(row, "num_decode_gpu")
    prefilling = number(row, "num_prefill_gpu")
    workers = number(row, "prefill_num_workers"), number(row, "decode_num_workers")
    if all(workers) and decoding is not None and prefilling is not None:
        return prefilling + decoding
    return decoding


def _published_watts(row: Mapping[str, Any], measured: Mapping[str, Any], gpus: float | None) -> float | None:
    """Watts of all metered boards: the published total, else their mean times their number. None where the power is
    marked as not valid, or boards of the configuration were not metered."""
    mean_watts = number(measured, "avg_power_w")
    if number(measured, "power_valid") == 0 or gpus is None:
        return None
    total_watts = number(measured, "avg_total_gpu_power_w")
    if total_watts is not None or mean_watts is None:
        return total_watts
    boards = _metered_boards(row, gpus)
    return None if boards is None or boards < gpus else mean_watts * boards


def _metered_boards(row: Mapping[str, Any], gpus: float) -> float | None:
    """Boards that `avg_power_w` is the mean of: those of the workers that state power, which may be more than the
    configuration takes. Without such workers its GPUs. None where a worker does not state how many it has."""
    workers = row.get("workers")
    metered = [
        number(worker, "num_gpus")
        for worker in (workers if isinstance(workers, list) else [])
        if isinstance(worker, dict) and number(worker, "avg_power_w") is not None
    ]
    if not metered:
        return gpus
    return None if None in metered else sum(boards for boards in metered if boards is not None)


def _adds_up(row: Mapping[str, Any], measured: Mapping[str, Any], gpus: float | None) -> bool:
    """Whether the roles' published throughputs, times their GPUs, make the published total. Not asked where one engine
    does both roles (`gpus` is None)."""
    output, given = number(measured, "output_tput_per_gpu"), number(measured, "input_tput_per_gpu")
    decoding, prefilling = number(row, "num_decode_gpu"), number(row, "num_prefill_gpu")
    if gpus is None or output is None or given is None or decoding is None or prefilling is None:
        return True
    total = needed_number(measured, "tput_per_gpu") * gpus
    return abs(output * decoding + given * prefilling - total) <= 0.01 * total


def _placed(row: Mapping[str, Any], is_split: bool) -> str:
    """How the model is spread over GPUs, as one text."""

    def role(name: str) -> str:
        attention = ", dp attention" if row.get(f"{name}_dp_attention") is True else ""
        return f"tp {text(row, f'{name}_tp')}, ep {text(row, f'{name}_ep')}{attention}"

    if is_split:
        roles = (
            (name, text(row, f"{name}_num_workers"), text(row, f"num_{name}_gpu")) for name in ("prefill", "decode")
        )
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
