"""Published benchmarks in one vocabulary: payloads in the publishers' shapes, made up here, to literal rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pytest

from collectors.records.benchmark_files import BenchmarkFile
from collectors.rows import Rejects
from collectors.samples import SourceError
from pipelines.fleet.fleet_file import Fleet, load_fleet
from pipelines.landing import benchmark_landing, request_assets
from pipelines.warehouse import database
from pipelines.warehouse.raw_tables import create_tables
from tests.books import validation_data

MLPERF = {
    "ID": "v4.1-0999",
    "Submitter": "Acme",
    "Availability": "available",
    "Category": "closed",
    "Suite": "datacenter",
    "System": "Acme box (8x H200-SXM-141GB, TensorRT)",
    "Platform": "H200-SXM-141GBx8_TRT",
    "UsedModel": "llama2-70b-99",
    "Model": "llama2-70b-99",
    "Scenario": "Offline",
    "Accuracy": "ROUGE1: 44.5  ROUGE2: 22.1  ROUGEL: 28.7  TOKENS_PER_SAMPLE: 293.7",
    "Nodes": 2,
    "Accelerator": "NVIDIA H200-SXM-141GB",
    "a#": 8.0,
    "Software": "TensorRT 10.2.0",
    "version": "v4.1",
    "has_power": True,
    "weight_data_types": "fp8",
    "Performance_Result": 50000.0,
    "Performance_Units": "Tokens/s",
    "Power_Result": 12000.0,
    "Power_Units": "Watts",
}
INFERENCEX = {
    "hw": "h200",
    "conc": 64,
    "model": "openai/gpt-oss-120b",
    "framework": "vllm",
    "precision": "fp4",
    "spec_decoding": "none",
    "disagg": False,
    "isl": 1024,
    "osl": 8192,
    "is_multinode": False,
    "tp": 8,
    "ep": 1,
    "dp_attention": "false",
    "tput_per_gpu": 900.0,
    "output_tput_per_gpu": 800.0,
    "input_tput_per_gpu": 100.0,
    "mean_ttft": 0.3,
    "median_ttft": 0.25,
    "median_tpot": 0.0125,
    "median_intvty": 80.0,
    "median_e2el": 102.6,
    "power_metric_schema_version": 2,
    "power_valid": 1,
    "avg_power_w": 400.0,
    "avg_total_gpu_power_w": 3200.0,
}
AGENTIC = {
    "hw": "cluster:h100-dgxc",
    "conc": 4,
    "model": "deepseek",
    "framework": "sglang",
    "precision": "fp4",
    "disagg": False,
    "scenario_type": "agentic-coding",
    "num_gpus": 8,
    "tp": 8,
    "request_metrics": {
        "latency": {"ttft": {"p50": 1.5}, "e2el": {"p50": 2.75}, "intvty": {"p50": 113.0}},
        "throughput": {"per_gpu": {"total_tput_tps": 400.0, "output_tput_tps": 3.0}},
    },
    "power_valid": 0,
    "avg_total_gpu_power_w": 2365.0,
}
PUBLISHED = {
    "hardware": "b200",
    "framework": "sglang",
    "model": "dsr1",
    "precision": "fp8",
    "spec_method": "mtp",
    "disagg": False,
    "is_multinode": False,
    "prefill_tp": 8,
    "prefill_ep": 8,
    "prefill_dp_attention": False,
    "prefill_num_workers": 0,
    "decode_tp": 8,
    "decode_ep": 8,
    "decode_dp_attention": False,
    "decode_num_workers": 0,
    "num_prefill_gpu": 64,
    "num_decode_gpu": 64,
    "isl": 8192,
    "osl": 1024,
    "conc": 4,
    "image": "sglang:v9",
    "metrics": {
        "tput_per_gpu": 300.0,
        "input_tput_per_gpu": 260.0,
        "output_tput_per_gpu": 40.0,
        "median_intvty": 50.0,
        "median_ttft": 0.5,
        "p99_ttft": 1.5,
        "p99_tpot": 0.025,
        "median_e2el": 20.5,
        "avg_power_w": 600.0,
    },
    "workers": None,
    "date": "2026-05-18",
    "run_url": "https://example.org/runs/1",
}
# Two prefill GPUs of 500 input tokens a second, four that decode of 125: (2 × 500 + 4 × 125) / 6 = 250 each.
SPLIT = PUBLISHED | {
    "disagg": True,
    "prefill_num_workers": 1,
    "decode_num_workers": 2,
    "prefill_tp": 2,
    "decode_tp": 2,
    "num_prefill_gpu": 2,
    "num_decode_gpu": 4,
    "metrics": {"tput_per_gpu": 250.0, "input_tput_per_gpu": 500.0, "output_tput_per_gpu": 125.0},
}
ML_ENERGY = {
    "model_id": "Qwen/Qwen3-32B",
    "task": "gpqa",
    "architecture": "Dense Transformer",
    "weight_precision": "bfloat16",
    "output_length_distribution": {"bins": [1.0], "counts": []},
    "configurations": [
        {
            "gpu_model": "B200",
            "num_gpus": 2,
            "max_num_seqs": 8,
            "avg_output_len": 7000.5,
            "avg_power_watts": 800.0,
            "median_itl_ms": 25.0,
            "output_throughput_tokens_per_sec": 400.0,
            "energy_per_token_joules": 2.0,
            "parallelization": {"data_parallel": 1, "expert_parallel": 1, "tensor_parallel": 2, "notes": ""},
        }
    ],
}
VLLM_BENCH = {
    "date": "20260518-134502",
    "backend": "vllm",
    "label": None,
    "model_id": "Qwen/Qwen3-32B",
    "max_concurrency": 16,
    "request_rate": "inf",
    "duration": 100.0,
    "completed": 200,
    "total_input_tokens": 204800,
    "total_output_tokens": 102400,
    "output_throughput": 1024.0,
    "total_token_throughput": 3072.0,
    "median_ttft_ms": 250.0,
    "p99_ttft_ms": 900.0,
    "median_tpot_ms": 20.0,
    "p99_tpot_ms": 40.0,
}
SGLANG_BENCH = {
    "backend": "sglang",
    "dataset_name": "random",
    "request_rate": 4.0,
    "max_concurrency": None,
    "server_info": {"model_path": "Qwen/Qwen3-32B", "version": "0.5.5"},
    "completed": 100,
    "total_input_tokens": 102400,
    "total_output_tokens": 51200,
    "input_throughput": 2000.0,
    "output_throughput": 1000.0,
    "median_e2e_latency_ms": 10500.0,
    "median_ttft_ms": 500.0,
    "p99_ttft_ms": 1250.0,
    "median_tpot_ms": 12.5,
    "p99_tpot_ms": 25.0,
}
GUIDELLM = {
    "metadata": {"version": 2, "guidellm_version": "0.7.0"},
    "benchmarks": [
        {
            "type_": "generative_benchmark",
            "config": {
                "run_index": 0,
                "strategy": {"type_": "concurrent", "streams": 8},
                "backend": {"model": "Qwen/Qwen3-8B", "target": "http://n1:8000"},
            },
            "scheduler_metrics": {"requests_made": {"successful": 95, "errored": 5}},
            "start_time": 1790841600.0,
            "metrics": {
                "output_tokens_per_second": {"successful": {"mean": 640.0, "median": 0.0}},
                "tokens_per_second": {"successful": {"mean": 1280.0}},
                "prompt_token_count": {"successful": {"mean": 256.0}},
                "output_token_count": {"successful": {"mean": 128.0}},
                "time_to_first_token_ms": {"successful": {"median": 40.0, "percentiles": {"p99": 70.0}}},
                "inter_token_latency_ms": {"successful": {"median": 12.5, "percentiles": {"p99": 25.0}}},
                "request_latency": {"successful": {"median": 1.6}},
            },
        }
    ],
}
AA = (
    "System,Accelerator,Number of Accelerators,Model,Precision,Concurrency,System Output Throughput (tokens/s),"
    "Output Speed per Query (tokens/s),End-to-End Latency per Query (s)\n"
    '8xH100,NVIDIA H100,8,Llama 3.3 70B,FP8,64,"2,133.5",33.9,30.1\n'
)


def results(kind: str, folder: Path, text: str, name: str = "file.json", **constants: Any) -> list[dict[str, Any]]:
    (folder / name).write_text(text)
    return BenchmarkFile(kind, str(folder / name), constants).results(Rejects())


def test_mlperf_is_of_the_whole_system_at_the_wall(tmp_path: Path) -> None:
    in_samples = MLPERF | {"Performance_Units": "Samples/s", "Power_Units": "millijoules", "Accuracy": "F1: 90.3"}
    tokens, samples = results("mlperf", tmp_path, json.dumps([MLPERF, in_samples]))
    assert tokens == {
        "file": "file.json",
        "result_id": "v4.1-0999/llama2-70b-99/Offline",
        "submitter": "Acme",
        "system": "Acme box (8x H200-SXM-141GB, TensorRT)",
        "accelerator": "NVIDIA H200-SXM-141GB",
        "accelerators": 16.0,
        "model": "llama2-70b-99",
        "precision": "fp8",
        "framework": "TensorRT 10.2.0",
        "scenario": "Offline",
        "output_length_tokens": 293.7,
        "output_tokens_per_second": 50000.0,
        "watts": 12000.0,
        "watts_basis": "measured_wall_node",
        "result_value": 50000.0,
        "result_unit": "Tokens/s",
    }
    # Samples are no tokens, and millijoules per stream no watts.
    assert {"output_tokens_per_second", "watts", "watts_basis", "output_length_tokens"} & samples.keys() == set()
    assert (samples["result_value"], samples["result_unit"]) == (50000.0, "Samples/s")


def test_inferencex_is_multiplied_by_the_gpus_that_it_was_divided_by(tmp_path: Path) -> None:
    (flat,) = results("inferencex", tmp_path, json.dumps(INFERENCEX))
    assert flat == {
        "file": "file.json",
        "result_id": "h200/vllm/openai/gpt-oss-120b/fp4/none/8/1/1024/8192/64",
        "system": "h200",
        "accelerator": "h200",
        "accelerators": 8.0,
        "model": "openai/gpt-oss-120b",
        "precision": "fp4",
        "framework": "vllm",
        "speculation": "none",
        "input_length_tokens": 1024.0,
        "output_length_tokens": 8192.0,
        "concurrency": 64.0,
        "total_tokens_per_second_per_gpu": 900.0,
        "total_tokens_per_second": 7200.0,
        "output_tokens_per_second": 6400.0,
        "output_tokens_per_second_per_user": 80.0,
        "output_tokens_per_second_per_user_basis": "1 / median TPOT",
        "ttft_seconds": 0.25,
        "end_to_end_seconds": 102.6,
        "watts": 3200.0,
        "watts_basis": "measured_board",
    }
    split = INFERENCEX | {"is_multinode": True, "disagg": True, "num_prefill_gpu": 4, "num_decode_gpu": 12}
    old = {name: INFERENCEX[name] for name in ("hw", "tp", "conc", "model", "tput_per_gpu", "output_tput_per_gpu")}
    disaggregated, oldest, agentic = results("inferencex", tmp_path, json.dumps([split, old, AGENTIC]))
    # Output is per GPU that decodes, total per GPU of either role.
    assert (disaggregated["accelerators"], disaggregated["total_tokens_per_second"]) == (16.0, 14400.0)
    assert disaggregated["output_tokens_per_second"] == 9600.0
    assert (oldest["accelerators"], oldest["output_tokens_per_second"]) == (8.0, 6400.0)
    assert {"watts", "input_length_tokens"} & oldest.keys() == set()
    assert {name: agentic[name] for name in ("accelerator", "total_tokens_per_second", "output_tokens_per_second")} == {
        "accelerator": "h100",
        "total_tokens_per_second": 3200.0,
        "output_tokens_per_second": 24.0,
    }
    assert (agentic["ttft_seconds"], agentic["output_tokens_per_second_per_user"]) == (1.5, 113.0)
    assert "watts" not in agentic  # its power was marked as not valid


def test_a_published_row_has_the_gpus_of_its_parallelism_not_tp_times_ep(tmp_path: Path) -> None:
    (row,) = results("inferencex", tmp_path, json.dumps([PUBLISHED]))
    assert row == {
        "file": "file.json",
        "result_id": "b200/sglang/dsr1/fp8/mtp/tp 8, ep 8/8192/1024/4",
        "system": "b200",
        "accelerator": "b200",
        "accelerators": 8.0,
        "model": "dsr1",
        "precision": "fp8",
        "framework": "sglang",
        "software": "sglang:v9",
        "scenario": "8192 in, 1024 out",
        "configuration": "tp 8, ep 8",
        "is_disaggregated": False,
        "speculation": "mtp",
        "input_length_tokens": 8192.0,
        "output_length_tokens": 1024.0,
        "concurrency": 4.0,
        "total_tokens_per_second_per_gpu": 300.0,
        "total_tokens_per_second": 2400.0,
        "output_tokens_per_second": 320.0,
        "output_tokens_per_second_per_user": 50.0,
        "output_tokens_per_second_per_user_basis": "1 / median TPOT",
        "ttft_seconds": 0.5,
        "ttft_p99_seconds": 1.5,
        "tpot_p99_seconds": 0.025,
        "end_to_end_seconds": 20.5,
        "watts": 4800.0,
        "watts_basis": "measured_board",
        "measured_on": date(2026, 5, 18),
        "run_url": "https://example.org/runs/1",
    }


def test_roles_with_gpus_of_their_own_are_added_up(tmp_path: Path) -> None:
    no_workers = SPLIT | {"prefill_num_workers": 0, "decode_num_workers": 0, "num_prefill_gpu": 4}
    split, undivided = results("inferencex", tmp_path, json.dumps([SPLIT, no_workers]))
    # Output is published per GPU that decodes.
    assert (split["accelerators"], split["total_tokens_per_second"]) == (6, 1500)
    assert split["output_tokens_per_second"] == 500
    assert split["configuration"] == "1 prefill on 2 GPUs (tp 2, ep 8) + 2 decode on 4 GPUs (tp 2, ep 8)"
    # Without workers the GPUs that decode are all. The roles' rates do not add up to the total: output is unknown.
    assert (undivided["accelerators"], undivided["total_tokens_per_second"]) == (4.0, 1000.0)
    assert "output_tokens_per_second" not in undivided


def test_watts_are_of_the_boards_that_the_rows_workers_metered(tmp_path: Path) -> None:
    """4 GPUs prefill and 8 decode, on 8 + 8 metered boards of 766.5 W on average: 12,264 W for 12 × 200 tokens a second
    are 5.11 J per token, as published. 12 × 766.5 W would be 3.83."""
    workers = [
        {"role": "prefill", "hosts": ["a"], "num_gpus": 8, "worker_idx": 0, "avg_power_w": 820.0},
        {"role": "decode", "hosts": ["b"], "num_gpus": 8, "worker_idx": 0, "avg_power_w": 713.0},
    ]
    power = {"avg_power_w": 766.5, "joules_per_total_token": 5.11}
    measured = {"tput_per_gpu": 200.0, "input_tput_per_gpu": 400.0, "output_tput_per_gpu": 100.0, **power}
    split = SPLIT | {"num_prefill_gpu": 4, "num_decode_gpu": 8, "decode_num_workers": 1, "metrics": measured}
    frontend = {"role": "frontend", "hosts": ["c"], "num_gpus": 0, "worker_idx": 0}
    rows = [
        split | {"workers": workers},
        split | {"workers": [*workers, frontend]},
        split | {"workers": None},
        split | {"workers": workers[1:]},
        split | {"workers": [workers[0], {**workers[1], "num_gpus": None}]},
        split | {"workers": None, "metrics": measured | {"avg_total_gpu_power_w": 12264.0}},
        split | {"workers": workers, "metrics": measured | {"power_valid": 0}},
        split | {"workers": workers, "metrics": measured | {"power_valid": 1}},
        PUBLISHED | {"workers": []},
    ]
    found = results("inferencex", tmp_path, json.dumps(rows))
    assert [row.get("watts") for row in found] == [
        12264.0,
        12264.0,  # a frontend has no board
        9198.0,  # without workers the mean is that of the row's GPUs
        None,  # four of the twelve GPUs at least were not metered
        None,  # how many were is not known
        12264.0,  # the total, where it is published
        None,  # marked as not valid
        12264.0,
        4800.0,
    ]
    assert [row.get("watts_basis") for row in found if "watts" not in row] == [None, None, None]
    assert found[0]["watts"] / found[0]["total_tokens_per_second"] == pytest.approx(5.11)


def test_a_published_row_without_gpus_keeps_what_is_published_for_each(tmp_path: Path) -> None:
    gone = {name: value for name, value in PUBLISHED.items() if name not in ("decode_tp", "num_decode_gpu")}
    (row,) = results("inferencex", tmp_path, json.dumps([gone]))
    assert row["total_tokens_per_second_per_gpu"] == 300.0
    assert {"accelerators", "total_tokens_per_second", "output_tokens_per_second", "watts"} & row.keys() == set()


def test_ml_energys_own_json_is_read_like_its_table(tmp_path: Path) -> None:
    (row,) = results("ml_energy", tmp_path, json.dumps(ML_ENERGY))
    assert row == {
        "file": "file.json",
        "result_id": "gpqa/Qwen/Qwen3-32B/bfloat16/B200/2/8/2/1/1",
        "submitter": "ML.ENERGY",
        "system": "2xB200",
        "accelerator": "B200",
        "accelerators": 2.0,
        "model": "Qwen/Qwen3-32B",
        "architecture": "Dense Transformer",
        "precision": "bfloat16",
        "scenario": "gpqa",
        "configuration": "tp 2, ep 1, dp 1",
        "output_length_tokens": 7000.5,
        "concurrency": 8.0,
        "output_tokens_per_second": 400.0,
        "output_tokens_per_second_per_user": 40.0,
        "output_tokens_per_second_per_user_basis": "1 / median inter-token latency",
        "watts": 800.0,
        "watts_basis": "measured_board",
        "result_value": 2.0,
        "result_unit": "J/output token",
    }


def test_load_generators_totals_become_means_per_request(tmp_path: Path) -> None:
    (vllm,) = results("vllm_bench", tmp_path, json.dumps(VLLM_BENCH), accelerator="h200", accelerators=8)
    assert vllm == {
        "file": "file.json",
        "result_id": "run/16.0 at once/inf/204800/102400/200",
        "framework": "vllm",
        "accelerator": "h200",
        "accelerators": 8,
        "model": "Qwen/Qwen3-32B",
        "input_length_tokens": 1024.0,
        "output_length_tokens": 512.0,
        "concurrency": 16.0,
        "total_tokens_per_second": 3072.0,
        "output_tokens_per_second": 1024.0,
        "output_tokens_per_second_per_user": 50.0,
        "output_tokens_per_second_per_user_basis": "1 / median TPOT",
        "ttft_seconds": 0.25,
        "ttft_p99_seconds": 0.9,
        "tpot_p99_seconds": 0.04,
        "measured_on": date(2026, 5, 18),
    }
    two_lines = json.dumps(SGLANG_BENCH) + "\n" + json.dumps(SGLANG_BENCH | {"total_throughput": 3500.0}) + "\n"
    older, newer = results("sglang_bench", tmp_path, two_lines, "runs.jsonl")
    # A rate of requests is no concurrency. Versions that lack the total have both of its parts.
    assert "concurrency" not in older
    assert (older["total_tokens_per_second"], newer["total_tokens_per_second"]) == (3000.0, 3500.0)
    assert (older["model"], older["software"], older["scenario"]) == ("Qwen/Qwen3-32B", "0.5.5", "random")
    assert (older["input_length_tokens"], older["output_length_tokens"]) == (1024.0, 512.0)
    assert (older["output_tokens_per_second_per_user"], older["end_to_end_seconds"]) == (80.0, 10.5)


def test_artificial_analysis_tables_are_read_by_their_column_names(tmp_path: Path) -> None:
    (row,) = results("artificial_analysis", tmp_path, AA, "table.csv", precision="FP8")
    assert row == {
        "file": "table.csv",
        "result_id": "8xH100/Llama 3.3 70B/64.0",
        "submitter": "Artificial Analysis",
        "system": "8xH100",
        "accelerator": "NVIDIA H100",
        "accelerators": 8.0,
        "model": "Llama 3.3 70B",
        "precision": "FP8",
        "scenario": "system load test",
        "input_length_tokens": 1000.0,
        "output_length_tokens": 1000.0,
        "concurrency": 64.0,
        "output_tokens_per_second": 2133.5,
        "output_tokens_per_second_per_user": 33.9,
        "output_tokens_per_second_per_user_basis": "median query after first chunk",
        "end_to_end_seconds": 30.1,
    }


def fleet_of(folder: Path, entries: str, **environ: str) -> Fleet:
    path = folder / "fleet.yaml"
    path.write_text(
        "fleet: mine\nperiod: {start: 2026-10-01, end: 2026-10-04}\n"
        "sources: [{name: cluster, kind: prometheus, url: 'http://prometheus:9090', interval_seconds: 15}]\n"
        f"benchmarks:\n{entries}"
    )
    return load_fleet(path, {"WATTLEDGER_DATA": str(folder / "data"), **environ})


@pytest.mark.needs("validation-data")
def test_the_ml_energy_runs_land_and_their_watts_explain_their_joules(
    tmp_path: Path, held: duckdb.DuckDBPyConnection
) -> None:
    entry = "  - {name: ml, kind: ml_energy, path: '${DATA}/ml_energy_v3/llm_runs.csv', as_of: 2026-02-01}\n"
    fleet = fleet_of(tmp_path, entry, DATA=str(validation_data()))
    for _ in range(2):
        assert benchmark_landing.write_benchmark_results(held, fleet) == [benchmark_landing.Reading("ml", 838)]
    (found,) = held.execute(
        """
        select count(distinct result_id), count(distinct model), array_agg(distinct accelerator order by accelerator),
            max(abs(watts / output_tokens_per_second / result_value - 1)) < 1e-12,
            count(output_tokens_per_second_per_user), any_value(as_of), any_value(benchmark)
        from raw.benchmark_results
        """
    ).fetchall()
    # Three configurations were measured twice.
    assert found == (835, 34, ["B200", "H100"], True, 838, date(2026, 2, 1), "ml_energy")


@pytest.mark.needs("validation-data")
def test_the_published_tables_of_inferencex_land_whole(tmp_path: Path, held: duckdb.DuckDBPyConnection) -> None:
    entries = "".join(
        f"  - {{name: {name}, kind: {kind}, path: '${{DATA}}/{path}', as_of: 2026-06-11}}\n"
        for name, kind, path in (
            ("now", "inferencex", "inferencex/benchmarks.json"),
            ("earlier", "inferencex", "inferencex/history.json"),
            ("models", "ml_energy", "ml_energy_v3/models"),
        )
    )
    fleet = fleet_of(tmp_path, entries, DATA=str(validation_data()))
    assert benchmark_landing.write_benchmark_results(held, fleet) == [
        benchmark_landing.Reading("now", 435),
        benchmark_landing.Reading("earlier", 816),
        benchmark_landing.Reading("models", 37),
    ]
    found = held.execute(
        """
        select source, count(distinct accelerator), count(run_url), count(accelerators), count(watts), max(accelerators)
        from raw.benchmark_results where benchmark = 'inferencex' group by 1 order by 1 desc
        """
    ).fetchall()
    assert found == [("now", 9, 435, 435, 17, 80.0), ("earlier", 4, 816, 816, 0, 96.0)]


def test_files_that_cannot_be_read_keep_what_they_gave_and_harm_no_other(tmp_path: Path) -> None:
    (tmp_path / "mlperf.json").write_text(json.dumps([MLPERF]))
    (tmp_path / "aa.csv").write_text(AA)
    fleet = fleet_of(
        tmp_path,
        "  - {name: rounds, kind: mlperf, path: mlperf.json, as_of: 2024-08-28}\n"
        "  - {name: load, kind: artificial_analysis, path: aa.csv, as_of: 2026-01-01}\n",
    )
    asset = request_assets.request_assets(fleet)[1]

    def checks() -> dict[str, tuple[bool, int]]:
        done = dg.materialize([asset], raise_on_error=False)
        found = {
            check.check_name: (check.passed, check.metadata["rows"].value)
            for check in done.get_asset_check_evaluations()
        }
        return {**found, "run": (done.success, 0)}

    assert checks() == {"benchmark_rounds_is_read": (True, 1), "benchmark_load_is_read": (True, 1), "run": (True, 0)}
    (tmp_path / "mlperf.json").write_text("<html>login</html>")
    (tmp_path / "aa.csv").write_text(AA + AA.splitlines()[1].replace("64", "128") + "\n")
    assert checks() == {"benchmark_rounds_is_read": (False, 1), "benchmark_load_is_read": (True, 2), "run": (True, 0)}
    # Not even where none can be read: the asset runs before the energy book, which needs none of them.
    (tmp_path / "aa.csv").unlink()
    assert checks() == {"benchmark_rounds_is_read": (False, 1), "benchmark_load_is_read": (False, 2), "run": (True, 0)}


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (None, "mlperf.json: cannot be read as mlperf: TypeError: a reader tripped"),
        ([{"result_id": "a", "watts": "many"}], "a value does not fit its column of raw.benchmark_results"),
        ([{"watts": 1.0}, {"watts": "many"}], "mlperf.json: cannot be read as mlperf: Arrow"),
    ],
)
def test_whatever_a_file_does_to_its_reader_costs_its_own_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[dict] | None, reason: str
) -> None:
    (tmp_path / "mlperf.json").write_text(json.dumps([MLPERF]))
    (tmp_path / "aa.csv").write_text(AA)
    fleet = fleet_of(
        tmp_path,
        "  - {name: rounds, kind: mlperf, path: mlperf.json, as_of: 2024-08-28}\n"
        "  - {name: load, kind: artificial_analysis, path: aa.csv, as_of: 2026-01-01}\n",
    )
    right = BenchmarkFile.results

    def trips(file: BenchmarkFile, rejects: Rejects) -> list[dict]:
        if file.kind != "mlperf":
            return right(file, rejects)
        if rows is None:
            raise TypeError("a reader tripped")
        return rows

    monkeypatch.setattr(BenchmarkFile, "results", trips)
    with closing(database.connect(":memory:")) as connection:
        create_tables(connection)
        rounds, load = benchmark_landing.write_benchmark_results(connection, fleet)
    assert (rounds.rows, rounds.failure is not None and reason in rounds.failure) == (0, True), rounds.failure
    assert (load.rows, load.failure) == (1, None)


def broken(**changes: Any) -> str:
    return json.dumps([MLPERF | changes])


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        ("mlperf", json.dumps([MLPERF])[:-30], "is not JSON"),
        ("mlperf", "<!DOCTYPE html><html>", "it begins with '<!DOCTYPE html><html>'"),
        ("mlperf", "", "is not JSON"),
        ("mlperf", "[]", "holds no result of mlperf"),
        ("mlperf", '{"ID": 1}', "is a dict, expected a list of results"),
        ("mlperf", "[7]", "[0]: is a int, expected an object"),
        ("mlperf", broken(Performance_Result=None), "file.json[0]: Performance_Result: missing"),
        ("mlperf", broken(Performance_Result=-1), "Performance_Result: got -1, expected a number, 0 to 1e+15"),
        ("mlperf", broken(Power_Result="many"), "Power_Result: got 'many'"),
        ("mlperf", '[{"Performance_Result": NaN}]', "is not JSON"),
        ("inferencex", json.dumps({"hw": "h200"}), "tput_per_gpu: missing; there are hw"),
        ("inferencex", json.dumps([PUBLISHED | {"metrics": {}}]), "file.json[0]: tput_per_gpu: missing"),
        (
            "inferencex",
            json.dumps([PUBLISHED | {"date": "soon"}]),
            "date: got 'soon', expected a date such as 2026-05-18",
        ),
        ("vllm_bench", json.dumps({"completed": 2}), "output_throughput: missing; there are completed"),
        ("vllm_bench", "[1]", "[0]: is a int, expected an object"),
        ("sglang_bench", '{"completed": 1, "output_throughput": "fast"}', "output_throughput: got 'fast'"),
        ("sglang_bench", "not json", "is not JSON"),
        ("inferencex", json.dumps(INFERENCEX | {"tput_per_gpu": None}), "tput_per_gpu: missing"),
        ("inferencex", json.dumps(INFERENCEX | {"tput_per_gpu": "inf"}), "tput_per_gpu: got 'inf'"),
        ("artificial_analysis", "a,b\n1,2\n", "no column for concurrency; there are 'a', 'b'"),
        ("artificial_analysis", AA + "8xH100,NVIDIA\n" * 2, "file.json:3: has 2 cells, the header 9"),
        ("artificial_analysis", AA.replace("33.9", "-1"), "file.json:2: output_tokens_per_second_per_user: got '-1'"),
        ("artificial_analysis", AA.splitlines()[0], "holds no result"),
        ("ml_energy", "task,model_id\nchat,m\n", "gpu_model: missing; there are task, model_id"),
    ],
)
def test_what_is_not_the_publishers_is_named(tmp_path: Path, kind: str, text: str, reason: str) -> None:
    with pytest.raises(SourceError) as refusal:
        results(kind, tmp_path, text)
    assert reason in str(refusal.value)
    assert "file.json" in str(refusal.value)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    bad: list[tuple[str, Callable[[Path], Any]]] = [
        ("mlperf", lambda path: path.write_bytes(b"\xff\xfe[{}]")),
        ("ml_energy", lambda path: path.write_bytes(b"task\n\xff\xfe\n")),
        ("ml_energy", lambda path: path.write_bytes(b'task\n"open\n')),
    ]
    for kind, write in bad:
        write(tmp_path / "file")
        with pytest.raises(SourceError, match=r"is not (JSON|CSV)"):
            BenchmarkFile(kind, str(tmp_path / "file"), {}).results(Rejects())
