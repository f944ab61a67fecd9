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
AA = (
    "System,Accelerator,Number of Accelerators,Model,Precision,Concurrency,System Output Throughput (tokens/s),"
    "Output Speed per Query (tokens/s),End-to-End Latency per Query (s)\n"
    '8xH100,NVIDIA H100,8,Llama 3.3 70B,FP8,64,"2,133.5",33.9,30.1\n'
)


def results(kind: str, folder: Path, text: str, name: str = "file.json", **constants: Any) -> list[dict[str, Any]]:
    (folder / name).write_text(text)
    return BenchmarkFile(kind, str(folder / name), constants).results()


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
        "input_length_tokens": 1024.0,
        "output_length_tokens": 8192.0,
        "concurrency": 64.0,
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
        done = dg.materialize([asset], instance=dg.DagsterInstance.ephemeral(), raise_on_error=False)
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

    def trips(file: BenchmarkFile) -> list[dict]:
        if file.kind != "mlperf":
            return right(file)
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
        ("mlperf", "[7]", "[0] is a int, expected an object"),
        ("mlperf", broken(Performance_Result=None), "file.json[0]: Performance_Result: missing"),
        ("mlperf", broken(Performance_Result=-1), "Performance_Result: got -1, expected a number, 0 or more"),
        ("mlperf", broken(Power_Result="many"), "Power_Result: got 'many'"),
        ("mlperf", '[{"Performance_Result": NaN}]', "is not JSON"),
        ("inferencex", json.dumps({"hw": "h200"}), "tp: missing; there are hw"),
        ("inferencex", json.dumps(INFERENCEX | {"tput_per_gpu": None}), "tput_per_gpu: missing"),
        ("inferencex", json.dumps(INFERENCEX | {"tput_per_gpu": "inf"}), "tput_per_gpu: got 'inf'"),
        ("artificial_analysis", "a,b\n1,2\n", "no column for concurrency; there are 'a', 'b'"),
        ("artificial_analysis", AA + "8xH100,NVIDIA\n", "line 3 has 2 columns, the header 9"),
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
            BenchmarkFile(kind, str(tmp_path / "file"), {}).results()
