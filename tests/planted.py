"""Planted fleets: series written out by hand for a day or a few, and the book that is made of them.

Add here a way to write an exporter's samples. Keep out what a book should show: a test works that out by hand from what
it planted. A series is (metric, labels, samples as (Unix seconds, value)), as in `composed`, so that a real Prometheus
can serve it too (`servers.openmetrics`). Power is constant unless a test sets it otherwise: joules are watts × seconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import yaml

from pipelines.warehouse.raw_tables import create_tables
from tests.books import Book, files_source, record

DAY = date(2026, 10, 15)
DAY_SECONDS = 86_400
HOURS = 3_600
A100 = "NVIDIA A100-SXM4-80GB"  # limit 400 W: up to 600 W are accepted; idle floor 93 W by reference
ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
WATTS = "DCGM_FI_DEV_POWER_USAGE"
INPUT, OUTPUT = "vllm:prompt_tokens_total", "vllm:generation_tokens_total"
START_TIME = "process_start_time_seconds"

Samples = list[tuple[float, float]]
Series = tuple[str, dict[str, str], Samples]


def moment(seconds: float) -> float:
    """Unix seconds of a moment so many seconds after the first midnight."""
    return datetime(DAY.year, DAY.month, DAY.day, tzinfo=UTC).timestamp() + seconds


def steady(value: float, first: float = 0, last: float = DAY_SECONDS, *, step: float = 60) -> Samples:
    """A gauge that reports `value` every `step` seconds from `first` to `last`, both included."""
    return [(moment(second), value) for second in _times(first, last, step)]


def rising(
    per_second: float, first: float = 0, last: float = DAY_SECONDS, *, start: float = 1e6, step: float = 60
) -> Samples:
    """A counter that holds `start` at `first` and rises until `last`, read every `step` seconds."""
    return [(moment(second), start + per_second * (second - first)) for second in _times(first, last, step)]


def without(samples: Samples, first: float, last: float) -> Samples:
    """The samples without those strictly between two moments."""
    return [sample for sample in samples if not moment(first) < sample[0] < moment(last)]


def board(uuid: str, node: str, **labels: str) -> dict[str, str]:
    """What dcgm-exporter reports of an A100."""
    return {"UUID": uuid, "Hostname": node, "modelName": A100, **labels}


def pod(name: str, namespace: str = "llm", **labels: str) -> dict[str, str]:
    """The labels of a pod that serves."""
    return {"namespace": namespace, "pod": name, "container": "engine", **labels}


def vllm(name: str, model: str, **labels: str) -> dict[str, str]:
    """What the vLLM of a pod reports."""
    return {"model_name": model, "engine": "0", **pod(name), **labels}


def plant(
    folder: Path,
    series: Iterable[Series] | Mapping[str, Iterable[Series]],
    *,
    days: int = 1,
    marts: tuple[str, ...] = (),
    more_sources: Sequence[Mapping[str, object]] = (),
    **fleet: object,
) -> Book:
    """Write the fleet file and the samples of each source (`cluster`, where there is one); nothing is landed.

    `more_sources` of the fleet file read what the test wrote itself.
    Keys of `fleet` are written into the fleet file as they are. `Book.run()` lands and books it; see Book for `marts`.
    """
    by_source = series if isinstance(series, Mapping) else {"cluster": series}
    for source, of_source in by_source.items():
        record(table_of(list(of_source)), folder / "recorded" / source)
    stated = {
        "fleet": "planted",
        "period": {"start": DAY, "end": DAY + timedelta(days=days)},
        "sources": [files_source(source, f"recorded/{source}/*.parquet") for source in by_source] + list(more_sources),
        "sites": [{"name": "west", "zone": "US-CAL-CISO", "pue": 1.2, "tariff": [{"usd_per_kwh": 0.1}]}],
        **fleet,
    }
    path = folder / "fleet.yaml"
    path.write_text(yaml.safe_dump(stated, sort_keys=False), encoding="utf-8")
    return Book.of(path, folder / "data", marts=marts)


def _times(first: float, last: float, step: float) -> list[float]:
    return [first + n * step for n in range(int((last - first) // step) + 1)]


def table_of(series: Sequence[Series]) -> pa.Table:
    rows = [(metric, json.dumps(labels), at, value) for metric, labels, samples in series for at, value in samples]
    metrics, labels, times, values = zip(*rows, strict=True)
    return pa.table(
        {
            "metric": list(metrics),
            "labels": list(labels),
            "observed_at": pa.array([round(at * 1e6) for at in times], pa.int64()).view(pa.timestamp("us", "UTC")),
            "value": pa.array(values, pa.float64()),
        }
    )


def name_keys(book: Book, *names: str) -> None:
    """Let these names be the keys of their tenants, as in a warehouse of an older version: the book shows them."""
    book.start_empty()
    with book.connection() as connection:
        create_tables(connection)
        for name in names:
            connection.execute("insert into raw.tenant_names (tenant_key, tenant) values ($1, $1)", [name])
