"""One day of a fleet at 15 s, as the files that agents leave in a spool: `python -m bench.fleet_day --gpus 1000`.

Two spools, so that each can be landed and timed apart: `OUT/power` (per GPU power, energy counter and activity, as
dcgm-exporter names them) and `OUT/tokens` (one vLLM engine per 8 GPUs: 12 series and the buckets of 3 histograms).
Every day of a fleet is the same day, with counters that continue from one to the next: without gaps, resets or wrong
samples, so that the floor's few lines are correct. A landing from a spool removes its files: keep a copy.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from collectors.devices.spool_collector import SPOOL_SCHEMA

INTERVAL_SECONDS = 15
STEPS = 86_400 // INTERVAL_SECONDS
ROWS_PER_FILE = 1_000_000
FIRST_DAY = date(2026, 9, 1)
GPUS_PER_NODE = 8

# The bucket edges of vLLM 0.32 (a recorded page of a real server), seconds.
LATENCY_EDGES = (
    "0.3 0.5 0.8 1.0 1.5 2.0 2.5 5.0 10.0 15.0 20.0 30.0 40.0 50.0 60.0 120.0 240.0 480.0 960.0 1920.0 7680.0 +Inf"
)
FIRST_TOKEN_EDGES = (
    "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1.0 2.5 5.0 7.5 10.0 20.0 40.0 80.0 160.0 640.0 2560.0 +Inf"
)
INTER_TOKEN_EDGES = "0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1.0 2.5 5.0 7.5 10.0 20.0 40.0 80.0 +Inf"
HISTOGRAMS = {  # metric: (edges, median seconds)
    "vllm:e2e_request_latency_seconds_bucket": (LATENCY_EDGES.split(), 8.0),
    "vllm:time_to_first_token_seconds_bucket": (FIRST_TOKEN_EDGES.split(), 0.2),
    "vllm:inter_token_latency_seconds_bucket": (INTER_TOKEN_EDGES.split(), 0.03),
}


class Series(NamedTuple):
    """One series of the day: (5760,) values at the node's times."""

    metric: str
    labels: dict[str, str]
    values: np.ndarray


class Node(NamedTuple):
    """What one node did: times in microseconds since 1970 (5760,), milliwatts (8, 5760), tokens per step (5760,)."""

    name: str
    observed_us: np.ndarray
    milliwatts: np.ndarray
    tokens: np.ndarray


def node(number: int, day: date) -> Node:
    """The node's day, the same on every date but for the times."""
    random = np.random.Generator(np.random.Philox(key=[20_260_901, number]))
    wave = 0.55 + 0.4 * np.sin(2 * np.pi * (np.arange(STEPS) / STEPS + random.random()))
    stretches = np.repeat(random.random(STEPS // 40) > 0.15, 40)  # ten minutes, 15 % of them idle
    load = np.clip(wave + 0.1 * random.standard_normal(STEPS), 0.02, 1.0) * stretches
    watts = np.where(load > 0, 180.0 + 220.0 * load, 92.0) + 4.0 * random.standard_normal((GPUS_PER_NODE, STEPS))
    start = datetime(day.year, day.month, day.day, tzinfo=UTC)
    offset_us = number * 7_919_000 % (INTERVAL_SECONDS * 1_000_000)
    observed_us = int(start.timestamp()) * 1_000_000 + offset_us + np.arange(STEPS) * (INTERVAL_SECONDS * 1_000_000)
    return Node(
        f"node-{number:05d}",
        observed_us,
        np.rint(np.maximum(watts, 40.0) * 1000).astype(np.int64),
        np.rint(load * 1500.0 * INTERVAL_SECONDS).astype(np.int64),
    )


def _running_on(increments: np.ndarray, day: date, zero: date) -> np.ndarray:
    """A counter over (…, 5760) integer steps of a day that repeats; at `zero` it starts from 0."""
    total = increments.sum(axis=-1, keepdims=True)
    before = np.cumsum(increments, axis=-1) - increments
    return before + (day - zero).days * total


def millijoules(milliwatts: np.ndarray) -> np.ndarray:
    """Energy between each sample and the next (the last one's next is tomorrow's first), (…, 5760) int64."""
    return (milliwatts + np.roll(milliwatts, -1, axis=-1)) * INTERVAL_SECONDS // 2


def _pod(number: int) -> dict[str, str]:
    return {"namespace": f"team-{number % 7}", "pod": f"engine-{number:05d}-0", "container": "vllm"}


def board_series(
    this: Node, number: int, boards: int, day: date, gauge_only: bool, *, zero: date = FIRST_DAY
) -> Iterator[Series]:
    """Power, energy counter (unless `gauge_only`) and activity of the node's first `boards` boards."""
    counters = _running_on(millijoules(this.milliwatts), day, zero)
    for gpu in range(boards):
        labels = {
            "gpu": str(gpu),
            "UUID": f"GPU-{number:08x}-0000-4000-8000-{gpu:012x}",
            "device": f"nvidia{gpu}",
            "modelName": "NVIDIA A100-SXM4-80GB",
            "Hostname": this.name,
        } | _pod(number)
        yield Series("DCGM_FI_DEV_POWER_USAGE", labels, this.milliwatts[gpu] / 1000.0)
        if not gauge_only:
            yield Series("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", labels, counters[gpu])
        yield Series("DCGM_FI_DEV_GPU_UTIL", labels, np.where(this.tokens > 0, 90.0 + this.milliwatts[gpu] % 10, 0.0))


def engine_series(this: Node, number: int, day: date, *, zero: date = FIRST_DAY) -> Iterator[Series]:
    """The node's engine: 12 series and the 65 buckets of three histograms, all of them known to the catalogue."""
    output = this.tokens // 4
    prompt = this.tokens - output
    cached = prompt // 3
    finished = this.tokens // 2000
    labels = {"model_name": f"bench/model-{number % 5}", "engine": "0", "Hostname": this.name} | _pod(number)
    by_source = "vllm:prompt_tokens_by_source_total"
    running = np.where(this.tokens > 0, 1 + this.tokens // 800, 0)

    def counter(increments: np.ndarray) -> np.ndarray:
        return _running_on(increments, day, zero)

    yield Series("vllm:prompt_tokens_total", labels, counter(prompt))
    yield Series("vllm:generation_tokens_total", labels, counter(output))
    yield Series(by_source, labels | {"source": "local_compute"}, counter(prompt - cached))
    yield Series(by_source, labels | {"source": "local_cache_hit"}, counter(cached))
    yield Series(by_source, labels | {"source": "external_kv_transfer"}, np.zeros(STEPS))
    yield Series("vllm:prompt_tokens_cached_total", labels, counter(cached))
    yield Series("vllm:num_requests_running", labels, running)
    yield Series("vllm:num_requests_waiting", labels, np.maximum(running - 25, 0))
    yield Series("vllm:engine_sleep_state", labels | {"sleep_state": "awake"}, np.ones(STEPS))
    yield Series("vllm:request_success_total", labels | {"finished_reason": "stop"}, counter(finished))
    yield Series("vllm:request_success_total", labels | {"finished_reason": "length"}, counter(finished // 9))
    start = datetime(zero.year, zero.month, zero.day, tzinfo=UTC).timestamp() - 3600.0
    process = {name: value for name, value in labels.items() if name not in ("model_name", "engine")}
    yield Series("process_start_time_seconds", process, np.full(STEPS, start))
    for metric, (edges, median) in HISTOGRAMS.items():
        observed = counter(output if "inter_token" in metric else finished)
        for edge in edges:
            seconds = float(edge)
            share = 1.0 if seconds == np.inf else seconds**2 / (seconds**2 + median**2)
            yield Series(metric, labels | {"le": edge}, np.floor(observed * share))


class Spool:
    """Files of about a million rows, sorted by series and then time; one file's rows are in memory at a time."""

    def __init__(self, root: Path, day: date, source_kind: str) -> None:
        self.folder = root / "host=bench" / f"date={day.isoformat()}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.source_kind = source_kind
        self.files = self.rows = 0
        self._waiting: list[tuple[Series, np.ndarray]] = []

    def add(self, series: Series, observed_us: np.ndarray) -> None:
        self._waiting.append((series, observed_us))
        if len(self._waiting) * STEPS >= ROWS_PER_FILE:
            self.flush()

    def flush(self) -> None:
        if not self._waiting:
            return
        series = [waiting for waiting, _ in self._waiting]
        codes = np.repeat(np.arange(len(series), dtype=np.int32), STEPS)
        metrics = list(dict.fromkeys(one.metric for one in series))
        metric_of = np.array([metrics.index(one.metric) for one in series], dtype=np.int32)
        labels = [json.dumps(one.labels, sort_keys=True, separators=(",", ":")) for one in series]
        times = pa.array(np.concatenate([observed_us for _, observed_us in self._waiting]))
        columns = [
            times.view(SPOOL_SCHEMA.field("observed_at").type),
            pa.DictionaryArray.from_arrays(np.zeros(len(codes), dtype=np.int32), [self.source_kind]),
            pa.DictionaryArray.from_arrays(metric_of[codes], metrics),
            pa.DictionaryArray.from_arrays(codes, labels),
            pa.array(np.concatenate([one.values.astype(np.float64) for one in series])),
        ]
        table = pa.Table.from_arrays(columns, schema=SPOOL_SCHEMA)
        path = self.folder / f"bench-{self.files:05d}.parquet"
        pq.write_table(table, path, compression="zstd", compression_level=1, row_group_size=len(codes))
        self.files += 1
        self.rows += len(codes)
        self._waiting = []


def write(
    out: Path,
    gpus: int,
    day: date = FIRST_DAY,
    gauge_only: bool = False,
    with_tokens: bool = True,
    *,
    zero: date = FIRST_DAY,
) -> dict:
    """Write the day under `out`, with counters that start from 0 at `zero`; rows and files per spool."""
    power, tokens = Spool(out / "power", day, "dcgm_exporter"), Spool(out / "tokens", day, "vllm")
    for number in range(-(-gpus // GPUS_PER_NODE)):
        this = node(number, day)
        boards = min(GPUS_PER_NODE, gpus - number * GPUS_PER_NODE)
        for series in board_series(this, number, boards, day, gauge_only, zero=zero):
            power.add(series, this.observed_us)
        if with_tokens and boards == GPUS_PER_NODE:
            for series in engine_series(this, number, day, zero=zero):
                tokens.add(series, this.observed_us)
    power.flush()
    tokens.flush()
    return {"power_rows": power.rows, "token_rows": tokens.rows, "files": power.files + tokens.files}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.fleet_day", description=__doc__.partition("\n")[0])
    parser.add_argument("--gpus", type=int, default=1000)
    parser.add_argument("--out", type=Path, required=True, help="folder of the two spools `power` and `tokens`")
    parser.add_argument("--day", type=date.fromisoformat, default=FIRST_DAY, help="the first day")
    parser.add_argument("--days", type=int, default=1, help="how many days from --day on")
    parser.add_argument("--gauge-only", action="store_true", help="no energy counter")
    parser.add_argument("--no-tokens", action="store_true", help="power alone")
    options = parser.parse_args()
    if options.gpus < 1 or options.days < 1:
        parser.error("expected --gpus and --days of at least 1")
    zero = min(options.day, FIRST_DAY)
    began = time.perf_counter()
    for number in range(options.days):
        day = options.day + timedelta(number)
        written = write(options.out, options.gpus, day, options.gauge_only, not options.no_tokens, zero=zero)
        print(json.dumps({"day": f"{day}", **written, "seconds": round(time.perf_counter() - began, 2)}))


if __name__ == "__main__":
    main()
