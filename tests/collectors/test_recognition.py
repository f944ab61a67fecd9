"""What the files of a folder are: each known shape by its content, whatever its name, as an entry of the fleet file
that loads and lands.

The shapes are those that each tool documents or writes in its own source: vllm-project/vllm benchmarks/serve.py,
sgl-project/sglang bench_serving.py, ai-dynamo/aiperf, triton-inference-server/perf_analyzer (GenAI-Perf),
vllm-project/guidellm benchmark/schemas, BerriAI/litellm spend logs, envoyproxy/ai-gateway's access log, CodeCarbon's
emissions.csv, Slurm's sacct. The values are invented.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, BinaryIO

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from collectors.recognition.file_kinds import recognised_file
from collectors.recognition.folders import recognise
from collectors.recognition.recognised import RecognisedFile
from collectors.recognition.spans import Span, disjoint
from collectors.samples import SourceError
from pipelines.fleet.fleet_file import Fleet, load_fleet
from pipelines.landing import benchmark_landing, fleet_landing, landing_days, request_landing
from pipelines.warehouse import database
from pipelines.warehouse.raw_tables import create_tables
from tests.books import validation_data
from tests.collectors.test_load_tests import aiperf_record
from tests.collectors.test_named_formats import DMON, SMI, packed
from tests.collectors.test_requests import SPEND_LOG
from tests.landing.test_benchmarks import AA, AGENTIC, GUIDELLM, INFERENCEX, MLPERF, PUBLISHED, SGLANG_BENCH, VLLM_BENCH

DAY, NEXT, NOW = date(2026, 10, 1), date(2026, 10, 2), datetime(2026, 10, 3, tzinfo=UTC)
ENVOY = {
    "start_time": "2026-10-01T09:05:00.123Z",
    "response_code": 200,
    "duration": 1840,
    "gen_ai.request.model": "qwen",
    "gen_ai.usage.input_tokens": 512,
    "gen_ai.usage.output_tokens": 128,
}
# A line of the output of vLLM's run-batch; OpenAI's has the same keys.
BATCH = {
    "id": "vllm-1",
    "custom_id": "a",
    "response": {
        "status_code": 200,
        "request_id": "vllm-batch-1",
        "body": {
            "id": "chatcmpl-9",
            "created": 1790841600,
            "model": "qwen",
            "choices": [],
            "usage": {"prompt_tokens": 100, "total_tokens": 150, "completion_tokens": 50},
        },
    },
    "error": None,
}
SPEND_TABLE = (
    "request_id,call_type,api_key,spend,total_tokens,prompt_tokens,completion_tokens,startTime,endTime,model,status\n"
    "r1,acompletion,hash,0.002,521,121,400,2026-10-01 08:00:00.000,2026-10-01 08:00:05.000,openai/qwen,success\n"
)
ACTIVITY = (
    "generation_id,created_at,cost_total,tokens_prompt,tokens_completion,tokens_reasoning,tokens_cached,model_permaslug,"
    "generation_time_ms,time_to_first_token_ms\n"
    "gen-0,2026-10-01 08:00:00.000,0.001,120,400,50,20,acme/llm-7b-20260101,5100,300\n"
)
GENAI_PERF = {
    "experiments": [
        {
            "experiment": {"mode": "concurrency", "value": 2},
            "requests": [
                {
                    "timestamp": 1790841600000000000,
                    "response_timestamps": [1790841600100000000, 1790841601000000000],
                    "request_inputs": {"payload": '{"model": "qwen"}'},
                    "response_outputs": [
                        {"response": 'data: {"usage": {"prompt_tokens": 100, "completion_tokens": 20}}'}
                    ],
                }
            ],
        }
    ]
}
OPENAI = {"id": "c1", "created": 1790841600, "model": "qwen", "usage": {"prompt_tokens": 9, "completion_tokens": 4}}
CODECARBON = (
    "timestamp,project_name,run_id,experiment_id,duration,emissions,emissions_rate,gpu_energy,energy_consumed\n"
    "2026-10-01T10:30:00,train,r1,e,1800.0,0.1,0.00005,0.5,0.6\n"
    "2026-10-01T11:00:00,train,r1,e,3600.0,0.2,0.00005,1.0,1.2\n"
    "2026-10-01T14:00:00,eval,r2,e,60.0,0.01,0.00005,0.1,0.1\n"
)
SACCT = (
    "JobID|JobName|Start|End|NodeList|State|ConsumedEnergyRaw\n"
    "41|serve|2026-10-01T08:00:00|2026-10-01T09:00:00|gpu[01-02]|COMPLETED|3600000\n"
    "41.batch|batch|2026-10-01T08:00:00|2026-10-01T09:00:00|gpu01|COMPLETED|3600000\n"
    "42|serve|2026-10-01T09:00:00|Unknown|gpu07|RUNNING|\n"
)
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2026-10-01 18:17:03.9799600,4808,10\n"


def written(folder: Path, text: str, name: str = "some.log") -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def fleet_of(folder: Path, parts: dict[str, Any], **changes: Any) -> Fleet:
    """The fleet that the parts make, through the ordinary loader."""
    stated = {"fleet": "found", "period": {"start": DAY}, **parts, **changes}
    path = folder / "fleet.yaml"
    path.write_text(yaml.safe_dump(stated, sort_keys=False), encoding="utf-8")
    return load_fleet(path, {"WATTLEDGER_DATA": str(folder / "data"), "WATTLEDGER_VALIDATION_DATA": str(folder)})


@pytest.fixture
def landing(tmp_path: Path) -> Callable[[str], duckdb.DuckDBPyConnection]:
    """Everything of a folder, recognised and landed by the ordinary readers; where its rows are."""

    def land(folder: str) -> duckdb.DuckDBPyConnection:
        fleet = fleet_of(tmp_path, recognise(folder).fleet_parts(DAY))
        with closing(database.connect(tmp_path / "w.duckdb")) as connection:
            create_tables(connection)
            for result in landing_days.land_days(connection, fleet, DAY, NEXT, run_id="t", now=NOW):
                assert result.outcome in ("landed", "empty"), result  # neighbours of the day are empty
            for source in fleet.requests:
                list(request_landing.land(connection, source.collector(), DAY, NEXT, run_id="t"))
            benchmark_landing.write_benchmark_results(connection, fleet)
            fleet_landing.write_run_windows(connection, fleet)
        return duckdb.connect(str(tmp_path / "w.duckdb"), read_only=True)

    return land


def moment(hour: int, minute: int = 0, second: float = 0) -> datetime:
    return datetime(2026, 10, 1, hour, minute, int(second), round(second % 1 * 1e6), tzinfo=UTC)


# --- one file ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "format_", "kind"),
    [
        (SMI, "nvidia_smi", "power samples"),
        (DMON, "nvidia_smi_dmon", "power samples"),
        (json.dumps(VLLM_BENCH), "vllm_bench", "benchmark results"),
        (json.dumps(VLLM_BENCH, indent=2), "vllm_bench", "benchmark results"),
        (json.dumps(SGLANG_BENCH) + "\n" + json.dumps(SGLANG_BENCH) + "\n", "sglang_bench", "benchmark results"),
        (json.dumps(GUIDELLM), "guidellm", "benchmark results"),
        (json.dumps(INFERENCEX), "inferencex", "benchmark results"),
        (json.dumps([AGENTIC]), "inferencex", "benchmark results"),
        (json.dumps([PUBLISHED], indent=1), "inferencex", "benchmark results"),
        (json.dumps([MLPERF]), "mlperf", "benchmark results"),
        (AA, "artificial_analysis", "benchmark results"),
        (json.dumps(aiperf_record(1, 0, 1)) + "\n", "aiperf", "requests"),
        (json.dumps(GENAI_PERF), "genai_perf", "requests"),
        (json.dumps(SPEND_LOG) + "\n", "litellm", "requests"),
        (json.dumps(ENVOY) + "\n", "envoy_ai_gateway", "requests"),
        (json.dumps(OPENAI) + "\n" + json.dumps(OPENAI) + "\n", "openai_answers", "requests"),
        (json.dumps(BATCH) + "\n", "openai_batch", "requests"),
        (
            '{"id": "o", "ts": "2026-10-01T08:00:00Z", "model": "m", "usage": {"input": 70, "output": 50}}\n',
            "usage_log",
            "requests",
        ),
        (SPEND_TABLE, "litellm", "requests"),
        (ACTIVITY, "openrouter", "requests"),
        (AZURE, "azure_trace", "requests"),
        (CODECARBON, "codecarbon", "run windows"),
        (SACCT, "sacct", "run windows"),
        ("window_id,node,start_at,end_at\nw,n1,2026-10-01T08:00:00Z,2026-10-01T09:00:00Z\n", "run_windows",
         "run windows"),
        ("node,ts_utc,watts\nn1,2026-10-01T08:00:00Z,2351.0\n", "wall_meter", "power samples"),
        ("at,engine,output_tokens_total\n2026-10-01T08:00:00Z,e,5\n", "token_log", "token samples"),
        ("timestamp,GPU0 [W],GPU1 [W]\n1790841600.1,199.9,256.5\n", "boards_side_by_side", "power samples"),
        ("timestamp,GPU 0,GPU 1\n1790841600.1,199.9 W,256.5 W\n", "boards_side_by_side", "power samples"),
        ("time,GPU0 [mW]\n2026-10-01T08:00:00Z,5\n", "boards_side_by_side", "power samples"),
        # rocm-smi, whose second column of watts has none; xpu-smi; and boards by their uuid.
        (
            "timestamp,device,Max Power (W),Current Socket Power (W),Average Graphics Package Power (W)\n"
            "2026-10-01T08:00:00Z,card0,300,N/A,170.0\n",
            "boards_in_rows",
            "power samples",
        ),
        (
            "Timestamp, DeviceId, GPU Utilization (%), GPU Power (W)\n2026-10-01T08:00:00.671,    0, 50.00, 142.99\n",
            "boards_in_rows",
            "power samples",
        ),
        ("time,uuid,board power\n2026-10-01T08:00:00Z,GPU-a,170 W\n", "boards_in_rows", "power samples"),
        ("# HELP up Is it.\n# TYPE up gauge\nup 1\n", "metrics_page", "metrics page"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("how", ["plain", "gz", "zst", "Windows", "BOM"])
def test_each_shape_is_known_by_its_content(tmp_path: Path, text: str, format_: str, kind: str, how: str) -> None:
    (tmp_path / "x").write_bytes(packed(text, how))
    found = recognised_file(str(tmp_path / "x"))
    assert (found.format, found.kind, found.reason is None) == (format_, kind, kind != "metrics page")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty"),
        ("\x7fELF\0\0", "is no text"),
        ("Dear diary,\nnothing today.\n", "is of no known format; it begins with 'Dear diary,'"),
        ('{"name": "x", "version": 3}', "is JSON of no known shape; its keys are name, version"),
        # The reader looks for these keys in the row itself.
        (
            json.dumps({"line": {"id": 1, "created": 2, "model": "m", "usage": {}}}),
            "is JSON of no known shape; its keys",
        ),
        ("a,b\n1,2\n", "is of no known format; it begins with 'a,b'"),
        # A CSV of a time and numbers without a telling name stays unknown: nothing is guessed to be watts.
        ("time,value\n2026-10-01T08:00:00Z,5\n", "is of no known format; it begins with 'time,value'"),
        ("time,temperature\n2026-10-01T08:00:00Z,5\n", "is of no known format; it begins with 'time,temperature'"),
        # Degrees are no watts, and numbers alone may be degrees.
        (
            "Time,GPU 0,GPU 1\n2026-10-01 08:00:00,61 °C,58 °C\n",
            "is of no known format; it begins with 'Time,GPU 0,GPU 1'",
        ),
        (
            "Time,GPU 0,GPU 1\n2026-10-01 08:00:00,61,58\n",
            "has columns GPU 0, GPU 1 without a unit: degrees or percent of boards, or watts? If they are watts, write",
        ),
        ("time,device,Power Limit (W)\n2026-10-01T08:00:00Z,card0,300\n", "is of no known format; it begins with"),
        ("index, power.draw [W]\n0, 20 W\n", "has no column timestamp: add timestamp to --query-gpu"),
        (":::MLLOG {}\n", "is MLPerf LoadGen's detail log"),
        ("| NVIDIA-SMI 580.1   Driver |\n", "is nvidia-smi's table for people; log with `nvidia-smi --query-gpu"),
        ('[2016-04-15T20:17:00.310Z] "POST /v1 HTTP/2" 204\n', "is Envoy's access log as text, which has no tokens"),
        (
            "<?xml version='1.0'?>\n<nvidia_smi_log>\n",
            "is one reading of `nvidia-smi -x`; log with `nvidia-smi --query-gpu",
        ),
        ("Time_Of_Day_Seconds\tCore\tPkgWatt\n1.5\t-\t180\n", "is turbostat's log of CPU packages; record them with"),
        (
            "    Instantaneous power reading:   220 Watts\n",
            "is one reading of `ipmitool dcmi`; record the BMC with ipmi",
        ),
        (
            '{"status": "success", "data": {"resultType": "matrix", "result": []}}',
            "is an answer of Prometheus that was",
        ),
        ('{"PowerControl": [{"PowerConsumedWatts": 812}]}', "is one reading of a BMC: record it with redfish_exporter"),
        (
            "time,load\n2026-10-01T08:00:00Z,5\n",
            "is of no known format; it begins with 'time,load'. Its columns are time (times), load (numbers). If one"
            " is power or tokens, write under sources, kind: files, {path: some.log, time: time, values:"
            " {nvml_power_watts: load}} (docs/sources/wall_meter.md)",
        ),
        # Tokens are no watts; two rows show whether they count on.
        (
            "time,model,engine,output_tokens,input_tokens\n2026-10-01T08:00:00Z,m,e,5,9\n2026-10-01T08:00:10Z,m,e,9,9\n",
            "is of no known format; it begins with 'time,model,engine,output_tokens,input_tokens'. Its columns are time"
            " (times), model (texts), engine (texts), output_tokens (numbers that rise), input_tokens (numbers). If one"
            " is power or tokens, write under sources, kind: files, {path: some.log, time: time, labels:"
            " {model: model, engine: engine}, values: {output_tokens_total: output_tokens, input_tokens_total:"
            " input_tokens}} (docs/sources/wall_meter.md)",
        ),
        (
            "time,output_tokens\n2026-10-01T08:00:00Z,5\n2026-10-01T08:00:10Z,4\n",
            "is of no known format; it begins with 'time,output_tokens'. Its columns are time (times), output_tokens"
            " (numbers). If one is power or tokens, write under sources, kind: files, temporality: delta, {path:",
        ),
        (
            "Time,GPU 0,GPU 1\n2026-10-01 08:00:00,61 °C,58 °C\n",
            "is of no known format; it begins with 'Time,GPU 0,GPU 1'. Its columns are Time (times), GPU 0 (°C), GPU 1",
        ),
        (
            '{"at": "2026-10-01T08:00:00Z", "llm": {"counts": {"in": 5}}}\n{"at": "2026-10-01T08:00:01Z", "llm": {}}\n',
            "is JSON of no known shape; its keys are at, llm, counts, in. If its lines are requests, write under"
            " requests {kind: access_log, path: some.log, columns: {started_at: at, model: …, input_tokens: …,"
            " output_tokens: …}} (docs/sources/access_logs.md)",
        ),
        ("JobID  Start  End\n------ ----- ----\n41  a  b\n", "is sacct's table for people"),
    ],
)
def test_what_is_not_read_says_why(tmp_path: Path, text: str, reason: str) -> None:
    found = recognised_file(written(tmp_path, text))
    assert found.entry is None
    assert (found.reason or "").startswith(reason)


def test_a_log_says_its_columns_units_boards_and_span(tmp_path: Path) -> None:
    found = recognised_file(written(tmp_path, SMI))
    assert found.columns[:3] == ("timestamp", "index", "uuid")
    assert found.units["power.draw [W]"] == "W"
    assert found.boards == ("GPU-a", "GPU-b")
    assert (found.first_at, found.last_at, found.is_zone_stated) == (moment(8), moment(8, 0, 10), False)
    assert found.interval_seconds == 10
    assert found.doubts == ("Its times are of a clock in an unknown zone and are taken as UTC: state its time_zone.",)
    assert found.entry == {"path": str(tmp_path / "some.log"), "format": "nvidia_smi"}
    assert str(found).endswith(
        "some.log: nvidia_smi (power samples), 2026-10-01 08:00:00 to 2026-10-01 08:00:10 by its own clock"
    )


def test_the_last_time_of_a_long_file_is_that_of_its_end(tmp_path: Path) -> None:
    rows = "".join(f"{1790841600 + n},GPU-a,100\n" for n in range(20_000))
    found = recognised_file(written(tmp_path, f"timestamp,uuid,power.draw\n{rows}"))
    assert (found.first_at, found.last_at) == (moment(8), moment(13, 33, 19))
    assert (found.is_zone_stated, found.interval_seconds) == (True, 1)


def test_parquet_is_read_like_a_table(tmp_path: Path) -> None:
    at = pa.array([moment(8), moment(8, 0, 10)], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"node": ["n1", "n1"], "time": at, "watts": [1.0, 2.0]}), tmp_path / "x")
    found = recognised_file(str(tmp_path / "x"))
    assert (found.format, found.first_at, found.last_at) == ("wall_meter", moment(8), moment(8, 0, 10))
    assert (found.is_zone_stated, found.interval_seconds) == (True, 10)
    pq.write_table(pa.table({"a": [1]}), tmp_path / "y")
    assert recognised_file(str(tmp_path / "y")).reason == "is Parquet of no known shape; its columns are a"


def test_the_files_of_a_spool_are_one_entry(tmp_path: Path) -> None:
    times = pa.array([moment(8)], pa.timestamp("us", "UTC"))
    texts = {name: [text] for name, text in (("source_kind", "nvml"), ("metric", "nvml_power_watts"), ("labels", "{}"))}
    table = pa.table({"observed_at": times, **texts, "value": [1.0]})
    for host in ("a", "b"):
        folder = tmp_path / f"host={host}" / "date=2026-10-01"
        folder.mkdir(parents=True)
        pq.write_table(table, folder / "1-x-1.parquet")
    found = recognise(tmp_path)
    assert {file.kind for file in found.files} == {"spool"}
    ((entry,),) = [source["files"] for source in found.fleet_parts()["sources"]]
    assert entry == {
        "path": str(tmp_path / "host=*" / "date=*" / "*.parquet"),
        "time": "observed_at",
        "metric": "metric",
        "labels_json": "labels",
        "value": "value",
    }


def test_a_benchmark_without_a_known_latency_says_which_keys_it_has(tmp_path: Path) -> None:
    bare = {"model_id": "m", "completed": 5, "output_throughput": 10.0, "mean_ttft_s": 0.2}
    (doubt,) = [doubt for doubt in recognised_file(written(tmp_path, json.dumps(bare))).doubts if "latency" in doubt]
    assert doubt.endswith("its keys are model_id, completed, output_throughput, mean_ttft_s.")
    assert not [one for one in recognised_file(written(tmp_path, json.dumps(VLLM_BENCH))).doubts if "latency" in one]


# --- landed by the ordinary readers ----------------------------------------------------------------------------------


def test_samples_land(tmp_path: Path, landing: Callable[..., duckdb.DuckDBPyConnection]) -> None:
    """By what they have, whatever they are called: a mapped file was refused that did not end in .csv."""
    logs = tmp_path / "logs"
    written(logs, SMI, "gpu.log")
    written(logs, DMON, "n2.txt")
    written(logs, "timestamp,GPU0,GPU1\n1790841600,100,300\n1790841610,200,300\n", "two_power.log")
    written(
        logs,
        "timestamp,device,Average Graphics Package Power (W),Current Socket Graphics Package Power (W)\n"
        "2026-10-01T08:00:00Z,card0,170.0,N/A\n2026-10-01T08:00:01Z,card0,180.0,N/A\n",
        "rocm",
    )
    written(logs, "node,ts_utc,watts\nn3,2026-10-01T08:00:00Z,1000\nn3,2026-10-01T08:00:10Z,2000\n", "wall.txt")
    written(logs, "at,engine,output_tokens_total\n2026-10-01T08:00:00Z,e,5\n2026-10-01T08:01:00Z,e,65\n", "tok.dat")
    pq.write_table(pa.table({"at": ["2026-10-01T08:00:00Z"], "node": ["n4"], "watts": [1000.0]}), logs / "wall.pq")
    with closing(landing(str(logs))) as raw:
        rows = raw.sql(
            "select metric, coalesce(labels ->> 'uuid', (labels ->> 'node') || ':' || (labels ->> 'index'),"
            " labels ->> 'node', labels ->> 'engine') as what, list(value order by observed_at)"
            " from (from raw.power_samples union all by name from raw.token_samples)"
            " join raw.series using (series_id) where metric similar to '.*(power_watts|tokens_total)' group by all"
        ).fetchall()
    assert sorted(rows) == [
        ("nvml_power_watts", "GPU-a", [100, 200]),
        ("nvml_power_watts", "n2:0", [100, 200]),
        ("nvml_power_watts", "rocm:card0", [170, 180]),
        ("nvml_power_watts", "two_power:0", [100, 200]),
        ("nvml_power_watts", "two_power:1", [300, 300]),
        ("output_tokens_total", "e", [5, 65]),
        ("wall_power_watts", "n3", [1000, 2000]),
        ("wall_power_watts", "n4", [1000]),
    ]


def test_requests_land(tmp_path: Path, landing: Callable[..., duckdb.DuckDBPyConnection]) -> None:
    logs = tmp_path / "logs"
    written(logs, json.dumps(SPEND_LOG) + "\n", "a")
    written(logs, json.dumps(ENVOY) + "\n", "b")
    written(logs / "run", json.dumps(GENAI_PERF), "c")
    written(logs, json.dumps(OPENAI) + "\n", "d")
    written(logs, AZURE, "e")
    written(logs, ACTIVITY, "g")
    usage = {"input": 70, "input_cached_tokens": 30, "output": 50, "total": 150}
    written(logs, json.dumps({"id": "o", "ts": "2026-10-01T10:00:00Z", "model": "m", "usage": usage}) + "\n", "h")
    written(logs, json.dumps(BATCH) + "\n" + json.dumps({**BATCH, "custom_id": "b"}) + "\n", "f")
    with closing(landing(str(logs))) as raw:
        found = raw.sql("select source, input_tokens, output_tokens from raw.requests order by source").fetchall()
    assert found == [
        ("azure_trace", 4808, 10),
        ("envoy_ai_gateway", 512, 128),
        ("genai_perf", 100, 20),
        ("litellm", 1000, 50),
        ("openai_answers", 9, 4),
        ("openai_batch", 100, 50),  # one answer, whatever asked for it
        ("openrouter", 120, 400),
        ("usage_log", 100, 50),
    ]


def test_results_land(tmp_path: Path, landing: Callable[..., duckdb.DuckDBPyConnection]) -> None:
    logs = tmp_path / "logs"
    texts = {"a": json.dumps(VLLM_BENCH), "b": json.dumps(SGLANG_BENCH) + "\n", "c": json.dumps(GUIDELLM),
             "d": json.dumps([PUBLISHED]), "e": json.dumps(INFERENCEX), "f": json.dumps([MLPERF]), "g": AA}  # fmt: skip
    for name, text in texts.items():
        written(logs, text, name)
    with closing(landing(str(logs))) as raw:
        found = raw.sql(
            "select file, benchmark, output_tokens_per_second, ttft_seconds from raw.benchmark_results order by file"
        ).fetchall()
    assert found == [
        ("a", "vllm_bench", 1024.0, 0.25),
        ("b", "sglang_bench", 1000.0, 0.5),
        ("c", "guidellm", 640.0, 0.04),
        ("d", "inferencex", 320.0, 0.5),  # 40 a GPU on eight
        ("e", "inferencex", 6400.0, 0.25),  # 800 a GPU on eight
        ("f", "mlperf", 50000.0, None),
        ("g", "artificial_analysis", 2133.5, None),
    ]


def test_the_energy_of_runs_becomes_windows_and_no_meter(
    tmp_path: Path, landing: Callable[..., duckdb.DuckDBPyConnection]
) -> None:
    logs = tmp_path / "logs"
    written(logs / "n1", CODECARBON, "emissions.csv")
    written(logs, SACCT, "jobs.txt")
    written(logs, AZURE, "requests.csv")  # windows alone are no fleet
    with closing(landing(str(logs))) as raw:
        windows = raw.sql("select window_id, node, start_at, end_at from raw.run_windows order by window_id").fetchall()
        ((samples,),) = raw.sql("select count(*) from raw.power_samples").fetchall()
    # The second row of r1 has its whole hour; job 42 runs still; the step 41.batch is in its job.
    assert [(name, node, start.astimezone(UTC), end.astimezone(UTC)) for name, node, start, end in windows] == [
        ("41/gpu01", "gpu01", moment(8), moment(9)),
        ("41/gpu02", "gpu02", moment(8), moment(9)),
        ("r1", "n1", moment(10), moment(11)),
        ("r2", "n1", moment(13, 59), moment(14)),
    ]
    assert samples == 0


def test_times_of_windows_in_a_stated_zone(tmp_path: Path) -> None:
    path = written(tmp_path, SACCT, "jobs.txt")
    fleet = fleet_of(
        tmp_path,
        {"run_windows": {"files": [{"path": path, "format": "sacct", "time_zone": "America/Los_Angeles"}]}},
        requests=[{"name": "r", "kind": "azure_trace", "path": path}],
    )
    with closing(database.connect(tmp_path / "w.duckdb")) as connection:
        create_tables(connection)
        fleet_landing.write_run_windows(connection, fleet)
        ((start,),) = connection.sql("select start_at from raw.run_windows where node = 'gpu01'").fetchall()
    assert start.astimezone(UTC) == moment(15)  # 08:00 PDT


@pytest.mark.needs("validation-data")
def test_the_real_files_are_what_they_are(tmp_path: Path) -> None:
    found = {Path(file.path).name: file for file in recognise(validation_data()).files}
    assert {name: file.format for name, file in found.items() if file.entry} == {
        "AzureLLMInferenceTrace_code.csv": "azure_trace",
        "AzureLLMInferenceTrace_conv.csv": "azure_trace",
        "Qwen__Qwen3-14B__gpqa.json": "ml_energy",
        "Qwen__Qwen3-32B__gpqa.json": "ml_energy",
        "Qwen__Qwen3-8B__lm-arena-chat.json": "ml_energy",
        "benchmarks.json": "inferencex",
        "envoy_ai_gateway.jsonl": "envoy_ai_gateway",
        "gpu_power_log_stalls.csv": "boards_side_by_side",
        "history.json": "inferencex",
        "llm_runs.csv": "ml_energy",
        "nvidia_smi_50ms.csv": "nvidia_smi",
        "nvidia_smi_no_identity.csv": "nvidia_smi",
        "power.csv": "wall_meter",
        "tokens.csv": "token_log",
        "windows.csv": "run_windows",
    }
    assert {file.format for name, file in found.items() if name.endswith(".prom")} == {"metrics_page"}
    assert {file.format for name, file in found.items() if name.endswith("_hourly.csv.gz")} == {"electricity_maps"}
    assert found["nvidia_smi_50ms.csv"].interval_seconds == 0.05
    assert (found["power.csv"].first_at, found["power.csv"].is_zone_stated) == (
        datetime(2024, 7, 17, 6, 42, 43, 877000, tzinfo=UTC),
        True,
    )


# --- folders ----------------------------------------------------------------------------------------------------------


def test_equal_files_of_a_folder_are_one_glob(tmp_path: Path) -> None:
    for n in range(3):
        written(tmp_path, SMI, f"gpu-{n}.csv")
    (source,) = recognise(tmp_path).fleet_parts()["sources"]
    assert source == {
        "name": "nvidia_smi",
        "kind": "files",
        "interval_seconds": 10,
        "files": [{"format": "nvidia_smi", "path": str(tmp_path / "*.csv")}],
    }
    (beside,) = recognise(tmp_path).fleet_parts(beside=tmp_path)["sources"]
    assert beside["files"][0]["path"] == "*.csv"
    written(tmp_path, "a,b\n1,2\n", "other.csv")  # which the glob would take, too
    (source,) = recognise(tmp_path).fleet_parts()["sources"]
    assert [Path(file["path"]).name for file in source["files"]] == ["gpu-0.csv", "gpu-1.csv", "gpu-2.csv"]


def test_a_result_of_another_year_makes_no_date_to_book(tmp_path: Path) -> None:
    """The benchmark is of 18 May, the log of 1 October: 136 dates without anything would be booked."""
    written(tmp_path, json.dumps(VLLM_BENCH), "b.json")
    assert recognise(tmp_path).period() == (date(2026, 5, 18), date(2026, 5, 19))
    written(tmp_path, SMI, "gpu.csv")
    assert recognise(tmp_path).period() == (DAY, NEXT)


def test_each_of_a_thousand_files_is_looked_at(tmp_path: Path) -> None:
    for n in range(1_000):
        (tmp_path / f"{n:05d}.log").write_text(SMI if n % 2 else "nothing of ours\n", encoding="utf-8")
    found = recognise(tmp_path)
    assert (found.counted, len(list(found.readable()))) == (1_000, 500)


def test_odd_things_in_a_folder_are_a_line_each_and_the_rest_is_found(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    written(logs, SMI, "gpu.csv")
    (logs / "circle").symlink_to(logs)
    (logs / "outside").symlink_to(written(tmp_path, SMI, "outside.csv"))
    (logs / "nowhere").symlink_to(logs / "missing")
    os.mkfifo(logs / "pipe")
    (logs / "half.csv.gz").write_bytes(gzip.compress(SMI.encode())[:40])
    found = recognise(logs)
    assert [Path(file.path).name for file in found.readable()] == ["gpu.csv"]
    assert sorted(line.removeprefix(f"{logs}/").partition(". ")[0] for line in found.skipped) == [
        "circle: is a link to a folder and is not followed",
        "nowhere: is a link that leads nowhere",
        f"outside: is a link that leads out of {logs}",
        "pipe: is no regular file",
    ]
    (half,) = [file for file in found.files if file.path.endswith("half.csv.gz")]
    assert (half.reason or "").startswith("cannot be read: ")


def test_a_file_that_may_not_be_read_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read every file, so the refusal is made here."""
    secret = written(tmp_path, SMI, "secret.csv")
    written(tmp_path, SMI, "gpu.csv")

    def refuse(path: str) -> BinaryIO:
        if path == secret:
            raise PermissionError(13, "Permission denied")
        return open(path, "rb")  # noqa: PTH123 (what is replaced)

    monkeypatch.setattr("collectors.formats.openings.unpacked", refuse)
    found = {Path(file.path).name: file for file in recognise(tmp_path).files}
    assert (found["gpu.csv"].format, found["secret.csv"].format) == ("nvidia_smi", None)
    assert found["secret.csv"].reason == "cannot be read: [Errno 13] Permission denied"


def test_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="there is no such file or folder"):
        recognise(tmp_path / "none")


def test_more_files_than_are_looked_at_are_reported(tmp_path: Path) -> None:
    for n in range(3):
        written(tmp_path, SMI, f"{n}.csv")
    found = recognise(tmp_path, most_files=2)
    assert (len(found.files), found.skipped) == (
        2,
        (f"{tmp_path}: has 3 files, of which the first 2 were looked at",),
    )


# --- spans ------------------------------------------------------------------------------------------------------------


def test_power_and_tokens_seven_hours_apart() -> None:
    power = Span("gpu.csv", moment(1, 0), moment(1, 30))
    tokens = Span("requests.jsonl", moment(8, 1), moment(8, 29))
    assert disjoint([power], [tokens]) == (
        "power and tokens were not measured at the same time: gpu.csv from 2026-10-01T01:00:00Z to"
        " 2026-10-01T01:30:00Z, requests.jsonl from 2026-10-01T08:01:00Z to 2026-10-01T08:29:00Z. They begin 7 h apart:"
        " one may be of a clock in another zone; state its time_zone"
    )


def test_a_folder_whose_power_is_of_another_clock_has_both_spans(tmp_path: Path) -> None:
    written(tmp_path, SMI, "gpu.csv")  # from 08:00 by its own clock
    written(tmp_path, json.dumps(SPEND_LOG) + "\n", "spend.jsonl")  # at noon, UTC
    reason = recognise(tmp_path).disjoint() or ""
    assert "gpu.csv from 2026-10-01T08:00:00Z to 2026-10-01T08:00:10Z" in reason
    assert "spend.jsonl from 2026-10-01T12:00:00Z to 2026-10-01T12:00:00Z. They begin 4 h apart" in reason
    written(tmp_path, json.dumps({**SPEND_LOG, "startTime": "2026-10-01T08:00:05Z"}) + "\n", "more.jsonl")
    assert recognise(tmp_path).disjoint() is None


def test_spans_that_overlap_or_are_missing_are_right() -> None:
    power, tokens = Span("p", moment(1), moment(3)), Span("t", moment(3), moment(4))
    assert disjoint([power], [tokens]) is None
    assert disjoint([power], []) is None
    assert disjoint([], [tokens]) is None
    far = Span("old", moment(9), moment(10))
    assert disjoint([far, power], [tokens]) is None  # a second log that overlaps is enough


def test_spans_of_different_days_are_no_other_zone() -> None:
    later = Span("t", datetime(2026, 10, 5, 1, 7, tzinfo=UTC), datetime(2026, 10, 5, 2, tzinfo=UTC))
    reason = disjoint([Span("p", moment(1), moment(3))], [later])
    assert reason is not None
    assert "zone" not in reason


def test_a_file_without_times_is_in_no_span() -> None:
    assert RecognisedFile("x", "mlperf", "benchmark results").first_at is None
