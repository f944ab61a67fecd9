"""A composed cluster, and what its book must show: one hour of everything that a fleet has at once, by hand.

Add here a device, engine or label that some real cluster has, with the watts and tokens that it was given: expectations
follow from those alone. Keep out assertions. Samples are a minute apart from 10:00 to 11:00 on 15 October 2026; power
is constant, so that joules are watts × seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import yaml

DAY = date(2026, 10, 15)
START = datetime(2026, 10, 15, 10, tzinfo=UTC)
MINUTES = 60
HOUR_SECONDS = 3600

# Board -> node, watts, labels of its workload. Half the nodes report Hostname, half hostname.
BOARDS = {
    # Its own scrape job: of one that carries exported_ labels, the others are the exporter's.
    "GPU-solo": (
        "n1",
        300,
        {"job": "operator", "exported_namespace": "llm", "exported_pod": "solo-0", "exported_container": "engine"},
    ),
    "GPU-big-0": ("n2", 400, {"namespace": "llm", "pod": "big-0", "container": "engine"}),
    "GPU-big-1": ("n2", 410, {"namespace": "llm", "pod": "big-0", "container": "engine"}),
    "GPU-big-2": ("n3", 420, {"namespace": "llm", "pod": "big-0-1", "container": "engine"}),
    "GPU-big-3": ("n3", 430, {"namespace": "llm", "pod": "big-0-1", "container": "engine"}),
    "GPU-sg": ("n4", 500, {"namespace": "sg", "pod": "sg-0", "container": "engine"}),
    "GPU-prefill": ("n5", 350, {"namespace": "dyn", "pod": "prefill-0", "container": "engine"}),
    "GPU-decode": ("n5", 250, {"namespace": "dyn", "pod": "decode-0", "container": "engine"}),
    "GPU-idle": ("n6", 60, {}),
    "GPU-job": ("n7", 200, {"hpc_job": "4711"}),
}
MIG_BOARD, MIG_WATTS = "GPU-mig", 360
# Instance -> profile, pod, activity. Half of the memory and 4/7 of the compute are 15/14 of a board: 7/15 and 8/15 of
# the 93 W that its type draws without work; of the rest, three slices at 0.5 and four at 0.75 weigh 1.5 and 3.
MIG = {"1": ("3g.40gb", "mig-a-0", 0.5), "2": ("4g.40gb", "mig-b-0", 0.75)}
# The fleet file assigns it: shift-a until 10:30, shift-b from then on.
SHIFTED_BOARD, SHIFTED_WATTS = "GPU-shift", 220
# Only a gauge, silent from 10:10 to 10:50.
GAUGE_BOARD, GAUGE_WATTS, GAUGE_SECONDS = "GPU-gauge", 600, 2 * 600

JOULES = {
    "solo": 300 * HOUR_SECONDS,
    "big": (400 + 410 + 420 + 430) * HOUR_SECONDS,
    "sg": 500 * HOUR_SECONDS,
    "pd": (350 + 250) * HOUR_SECONDS,
    "mig-a": (93 * 7 / 15 + (MIG_WATTS - 93) * 1.5 / 4.5) * HOUR_SECONDS,
    "mig-b": (93 * 8 / 15 + (MIG_WATTS - 93) * 3.0 / 4.5) * HOUR_SECONDS,
    "shift-a": SHIFTED_WATTS * HOUR_SECONDS / 2,
    "shift-b": SHIFTED_WATTS * HOUR_SECONDS / 2,
    "batch": 200 * HOUR_SECONDS,
    "__unallocated__": 60 * HOUR_SECONDS,
    "__unknown__": GAUGE_WATTS * GAUGE_SECONDS,  # a pod that no engine is known of
}
TOKENS = {
    # 30 minutes of 60 and 30 tokens; at 10:20 the engine restarts and counts from 0 again.
    ("solo", "input"): 30 * 60,
    ("solo", "output"): 30 * 30,
    ("big", "input"): 60 * 500,
    ("big", "output"): 60 * 250,
    ("sg", "computed_input"): 60 * 100,
    ("sg", "cached_input"): 60 * 50,
    ("sg", "input"): 60 * 150,
    ("sg", "output"): 60 * 200,
    ("pd", "input"): 60 * 90,
    ("pd", "computed_input"): 60 * 90,
    ("pd", "output"): 60 * 45,
    ("mig-a", "output"): 60 * 10,
    ("mig-b", "output"): 60 * 20,
    ("shift-a", "output"): 30 * 40,
    ("shift-b", "output"): 30 * 80,
    ("batch", "output"): 60 * 5,
    # An engine of which no board is known, and a gateway before a model that has no other source.
    ("ghost", "output"): 60 * 1000,
    ("remote", "output"): 60 * 7,
}

Samples = list[tuple[float, float]]
Series = tuple[str, dict[str, str], Samples]


def fleet(folder: Path, *names: str, **source: object) -> Path:
    """The fleet file, with the keys of its source; several names are servers that saw the same."""
    contents = {
        "fleet": "composed",
        "period": {"start": DAY, "end": DAY + timedelta(days=1)},
        "sources": [
            {"name": name, "kind": "prometheus", "interval_seconds": 60, "replica_labels": ["replica"], **source}
            for name in names or ("cluster",)
        ],
        # One name within the other: only equality places a node.
        "sites": [
            {"name": "cal", "zone": "US-CAL-CISO", "pue": 1.2, "tariff": [{"usd_per_kwh": 0.1}]},
            {"name": "cal-2", "zone": "ES", "pue": 1.5},
        ],
        "nodes": [
            *({"name": f"n{n}", "site": "cal", "host_watts": 100} for n in range(1, 8)),
            {"name": "n8", "site": "cal-2", "aliases": ["10.0.0.8"]},
            {"name": "n9", "site": "cal-2"},
        ],
        "models": [{"name": "pd", "aliases": ["org/pd"]}],
        "engines": [
            {"engine": "llm/big-0", "pods": ["llm/big-0-*"]},
            {"engine": "dyn/prefill-*", "role": "prefill", "deployment": "pd"},
            {"engine": "dyn/decode-*", "role": "decode", "deployment": "pd"},
        ],
        "cost_rates": [
            {"device_type": "a100-sxm4-80gb", "usd_per_gpu_hour": 2.0, "valid_from": DAY, "source": "a contract"}
        ],
        "assignments": [
            {"device_uuid": SHIFTED_BOARD, "engine": "10.0.0.8:8000", "start_at": START - timedelta(days=1),
             "end_at": START + timedelta(minutes=30)},
            {"device_uuid": SHIFTED_BOARD, "engine": "10.0.0.8:8001", "start_at": START + timedelta(minutes=30)},
        ],
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "fleet.yaml"
    path.write_text(yaml.safe_dump(contents, sort_keys=False), encoding="utf-8")
    return path


def series() -> list[Series]:
    """Every series of the cluster, those of one metric together."""
    return sorted((*_power(), *_tokens()), key=lambda one: (one[0], sorted(one[1].items())))


def _counter(per_minute: float, start: float = 0, first: int = 0, last: int = MINUTES) -> Samples:
    """A counter that rises from minute `first` to minute `last`, read each minute of the hour."""
    return [
        ((START + timedelta(minutes=n)).timestamp(), start + per_minute * min(max(n - first, 0), last - first))
        for n in range(MINUTES + 1)
    ]


def _gauge(value: float, *silent: range) -> Samples:
    minutes = [n for n in range(MINUTES + 1) if not any(n in span for span in silent)]
    return [((START + timedelta(minutes=n)).timestamp(), value) for n in minutes]


def _power() -> Iterator[Series]:
    for n, (uuid, (node, watts, workload)) in enumerate(BOARDS.items()):
        labels = {
            "UUID": uuid,
            "Hostname" if int(node[1]) < 4 else "hostname": node,
            "modelName": "NVIDIA A100-SXM4-80GB",
            **workload,
        }
        millijoules = _counter(watts * 60_000, start=1e9 * (n + 1))
        # Two redundant servers saw every board.
        for replica in ("a", "b"):
            seen = {**labels, "replica": replica}
            yield "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", seen, millijoules
            yield "DCGM_FI_DEV_POWER_USAGE", seen, _gauge(watts)
    # The same board by a second and a third exporter.
    elsewhere = {"uuid": "GPU-solo", "gpu_uuid": "GPU-solo", "node": "n1", "node_name": "n1"}
    yield "nvml_total_energy_millijoules", elsewhere, _counter(300 * 60_000, start=7e9)
    yield "kepler_node_gpu_joules_total", elsewhere, _counter(300 * 60, start=5e6)
    # Each MIG instance repeats its board's energy.
    for instance, (profile, pod, activity) in MIG.items():
        labels = {"UUID": MIG_BOARD, "Hostname": "n6", "modelName": "NVIDIA A100-SXM4-80GB", "GPU_I_ID": instance,
                  "GPU_I_PROFILE": profile, "namespace": "llm", "pod": pod, "container": "engine"}  # fmt: skip
        yield "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", labels, _counter(MIG_WATTS * 60_000, start=3e9)
        yield "DCGM_FI_PROF_GR_ENGINE_ACTIVE", labels, _gauge(activity)
    shifted = {"UUID": SHIFTED_BOARD, "hostname": "n8", "modelName": "NVIDIA A100-SXM4-80GB"}
    yield "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", shifted, _counter(SHIFTED_WATTS * 60_000, start=2e9)
    # DCGM's blanks, in the place of energy that an old board does not measure.
    lone = {"UUID": GAUGE_BOARD, "hostname": "n9", "modelName": "prototype", "namespace": "lab", "pod": "train-0"}
    yield "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", lone, _gauge(9223372036854775794.0)
    yield "DCGM_FI_DEV_POWER_USAGE", lone, _gauge(GAUGE_WATTS, range(11, 50))


def _tokens() -> Iterator[Series]:
    solo = _vllm("llm", "solo-0", "solo")
    yield "vllm:prompt_tokens_total", solo, _restarted(60)
    yield "vllm:generation_tokens_total", solo, _restarted(30)
    big = _vllm("llm", "big-0", "big")
    yield "vllm:prompt_tokens_total", big, _counter(500)
    # Two engine cores of one process add up.
    yield "vllm:generation_tokens_total", big, _counter(150)
    yield "vllm:generation_tokens_total", {**big, "engine": "1"}, _counter(100)
    yield "vllm:generation_tokens_total", _vllm("llm", "ghost-0", "ghost"), _counter(1000)
    for instance, rate in (("1", 10), ("2", 20)):
        pod = MIG[instance][1]
        yield "vllm:generation_tokens_total", _vllm("llm", pod, pod.removesuffix("-0")), _counter(rate)
    bare = {"model_name": "batch", "engine": "0", "instance": "n7:8000", "job": "vllm"}
    yield "vllm:generation_tokens_total", bare, _counter(5)
    for port, model, rate, first, last in ((8000, "shift-a", 40, 0, 30), (8001, "shift-b", 80, 30, 60)):
        labels = {"model_name": model, "engine": "0", "instance": f"10.0.0.8:{port}"}
        yield "vllm:generation_tokens_total", labels, _counter(rate, first=first, last=last)
    # SGLang counts tokens as batches run (on every rank), and again when requests finish.
    for rank in ("0", "1"):
        labels = {"model_name": "sg", "namespace": "sg", "pod": "sg-0", "tp_rank": rank, "engine_type": "unified"}
        for mode, rate in (("prefill_compute", 100), ("prefill_cache", 50), ("decode", 200)):
            yield "sglang:realtime_tokens_total", {**labels, "mode": mode}, _counter(rate)
    finished = {"model_name": "sg", "namespace": "sg", "pod": "sg-0", "engine_type": "unified"}
    yield "sglang:prompt_tokens_total", finished, _counter(140)
    yield "sglang:generation_tokens_total", finished, _counter(190)
    # Prefill and decode: both count the prompt, the prefill engine one token of each answer, the frontend everything.
    prefill, decode = _vllm("dyn", "prefill-0", "org/pd"), _vllm("dyn", "decode-0", "org/pd")
    yield "vllm:prompt_tokens_total", prefill, _counter(90)
    yield "vllm:prompt_tokens_by_source_total", {**prefill, "source": "local_compute"}, _counter(90)
    yield "vllm:generation_tokens_total", prefill, _counter(1)
    yield "vllm:prompt_tokens_total", decode, _counter(90)
    yield "vllm:prompt_tokens_by_source_total", {**decode, "source": "external_kv_transfer"}, _counter(90)
    yield "vllm:generation_tokens_total", decode, _counter(45)
    front = {"model": "org/pd", "namespace": "dyn", "pod": "frontend-0"}
    yield "dynamo_frontend_input_sequence_tokens_sum", front, _counter(90)
    yield "dynamo_frontend_output_tokens_total", front, _counter(45)
    for model, rate in (("org/pd", 44), ("remote", 7)):
        yield "litellm_output_tokens_metric_total", {"model": model, "instance": "proxy:4000"}, _counter(rate)


def _vllm(namespace: str, pod: str, model: str) -> dict[str, str]:
    return {"model_name": model, "engine": "0", "namespace": namespace, "pod": pod, "container": "engine"}


def _restarted(per_minute: float) -> Samples:
    """Rises until 10:20, is 0 again then, rises until 10:30 and then stops."""
    before, after = _counter(per_minute, start=1e6, last=20), _counter(per_minute, first=20, last=30)
    return before[:21] + after[21:]
