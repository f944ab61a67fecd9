"""What exporters would have reported of a served fleet: Parquet of dcgm-exporter's and vLLM's series.

Add here a metric that advice reads. Keep out what an engine did (`served_load`), and every figure of advice: those are
the product's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.fleet_day import FIRST_DAY, Series
from bench.served_fleet import COLD_START_SECONDS, CONTEXT_TOKENS, DAY, FIRST_TOKEN_SECONDS, Deployment
from bench.served_load import Served
from collectors.devices.spool_collector import SPOOL_SCHEMA

SAMPLE_SECONDS = 120
ATTAINMENT_RATIO = 0.95
EPOCH_US = int(datetime(FIRST_DAY.year, FIRST_DAY.month, FIRST_DAY.day, tzinfo=UTC).timestamp()) * 1_000_000
FIRST_TOKEN_EDGES = (0.5, 1.0, 2.5, FIRST_TOKEN_SECONDS, 10.0, 40.0, np.inf)


def fleet_lines(fleet: list[Deployment]) -> list[str]:
    """`models:` and `nodes:` of the fleet file: what each promises, and what no telemetry reports."""
    lines = ["models:"]
    for one in fleet:
        slo = {"ttft_seconds": FIRST_TOKEN_SECONDS, "tpot_seconds": round(one.slo_seconds, 6)}
        slo |= {"attainment_ratio": ATTAINMENT_RATIO}
        stated = {"name": one.name, "context_tokens": CONTEXT_TOKENS, "cold_start_seconds": COLD_START_SECONDS}
        lines.append(f"  - {json.dumps(stated | ({} if np.isnan(one.slo_seconds) else {'slo': slo}))}")
    lines.append("nodes:")
    for one in fleet:
        for replica in range(one.replicas):
            lines.append(f"  - {{name: {_node(one, replica)}, site: west, host_watts: 400}}")
    return lines


def write(out: Path, fleet: list[Deployment], served: list[list[Served]], days: int) -> int:
    """Write so many days under `out`, a file per stream and day; returns the rows."""
    rows = 0
    streams = {
        "power": [one for deployment, replicas in zip(fleet, served, strict=True)
                  for number, engine in enumerate(replicas) for one in _boards(deployment, number, engine)],
        "tokens": [one for deployment, replicas in zip(fleet, served, strict=True)
                   for number, engine in enumerate(replicas) for one in _engine(deployment, number, engine)],
    }  # fmt: skip
    each = round(DAY / SAMPLE_SECONDS)
    for stream, series in streams.items():
        metrics = list(dict.fromkeys(one.metric for one in series))
        labels = [json.dumps(one.labels, sort_keys=True) for one in series]
        codes = np.repeat(np.arange(len(series), dtype=np.int32), each)
        metric_of = np.array([metrics.index(one.metric) for one in series], dtype=np.int32)
        for day in range(days):
            part = slice(day * each, (day + 1) * each)
            times = EPOCH_US + (np.arange(each) + day * each) * SAMPLE_SECONDS * 1_000_000
            table = pa.Table.from_arrays(
                [
                    pa.array(np.tile(times, len(series))).cast(SPOOL_SCHEMA.field("observed_at").type),
                    pa.DictionaryArray.from_arrays(np.zeros(len(codes), dtype=np.int32), [stream]),
                    pa.DictionaryArray.from_arrays(metric_of[codes], metrics),
                    pa.DictionaryArray.from_arrays(codes, labels),
                    pa.array(np.concatenate([one.values[part] for one in series]).astype(float)),
                ],
                schema=SPOOL_SCHEMA,
            )
            folder = out / stream / "host=bench" / f"date={FIRST_DAY + timedelta(day)}"
            folder.mkdir(parents=True)
            pq.write_table(table, folder / "samples.parquet", compression="zstd", compression_level=1)
            rows += table.num_rows
    return rows


def _node(one: Deployment, replica: int) -> str:
    return f"{one.name.lower()}-{replica}"


def _pod(one: Deployment, replica: int) -> dict[str, str]:
    return {"namespace": "llm", "pod": f"{one.name.lower()}-engine-{replica}", "container": "engine"}


def _boards(one: Deployment, replica: int, served: Served) -> Iterator[Series]:
    """An energy counter per board; all boards of an engine do the same."""
    node = _node(one, replica)
    for gpu in range(one.engine.boards):
        labels = {"gpu": str(gpu), "UUID": f"GPU-{node}-{gpu}", "Hostname": node, **_pod(one, replica)}
        labels["modelName"] = "NVIDIA A100-SXM4-80GB"
        millijoules = np.floor(1000 * served.joules / one.engine.boards)
        yield Series("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", labels, millijoules)


def _engine(one: Deployment, replica: int, served: Served) -> Iterator[Series]:
    """Tokens, the batch, the queue and the KV cache; where an SLO is stated, latencies as well."""
    labels = {"model_name": one.name, "engine": "0", **_pod(one, replica)}
    computed = {"source": "local_compute"}
    yield Series("vllm:prompt_tokens_total", labels, served.prompt_tokens)
    yield Series("vllm:prompt_tokens_by_source_total", labels | computed, served.prompt_tokens)
    yield Series("vllm:generation_tokens_total", labels, np.floor(served.output_tokens))
    yield Series("vllm:num_requests_running", labels, served.running)
    yield Series("vllm:num_requests_waiting", labels, served.waiting)
    yield Series("vllm:kv_cache_usage_perc", labels, served.kv_ratio)
    yield Series("vllm:num_preemptions_total", labels, served.preemptions)
    started = np.full(len(served.sampled_at), EPOCH_US / 1e6 - 3600)
    yield Series("process_start_time_seconds", _pod(one, replica), started)
    if np.isnan(one.slo_seconds):
        return
    finished = ~np.isnan(served.finished_at)
    first = (served.first_token_at - served.requests.arrived_at)[finished]
    each = ((served.finished_at - served.first_token_at) / served.requests.output)[finished]
    token_edges = tuple(one.slo_seconds * np.array([0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.5, 3.0, np.inf]))
    for metric, values, edges in (
        ("vllm:time_to_first_token_seconds_bucket", first, FIRST_TOKEN_EDGES),
        ("vllm:request_time_per_output_token_seconds_bucket", each, token_edges),
    ):
        for edge in edges:
            at = np.sort(served.finished_at[finished][values <= edge])
            le = "+Inf" if edge == np.inf else f"{edge:.6f}".rstrip("0").rstrip(".")
            yield Series(metric, labels | {"le": le}, np.searchsorted(at, served.sampled_at, side="right") * 1.0)
