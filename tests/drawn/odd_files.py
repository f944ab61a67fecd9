"""Odd files of every reader, drawn from a seed: what comes of them are rows that can be, or the one error.

Add here a kind of file with a good example and its reader. Keep out how a part of it becomes odd (`odd_inputs`), and
telemetry that has landed (`odd_cells`).
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from collectors.protocols.mapped_files import FileMapping
from collectors.protocols.sample_files import FilesCollector
from collectors.records.benchmark_files import BenchmarkFile
from collectors.records.price_lists import read_price_list
from collectors.rows import Rejects
from collectors.samples import SourceError, Window
from collectors.series import SeriesRegister
from tests.collectors.test_files import FAMILIES
from tests.collectors.test_load_tests import aiperf_record, aiperf_summary
from tests.collectors.test_requests import NOON_NS, SPEND_LOG
from tests.collectors.test_requests_bad_input import GENAI_PERF, OPENAI, READERS
from tests.drawn import odd_settings
from tests.drawn.odd_settings import as_csv, as_json
from tests.landing.test_benchmarks import (
    AA,
    AGENTIC,
    INFERENCEX,
    ML_ENERGY,
    MLPERF,
    PUBLISHED,
    SGLANG_BENCH,
    VLLM_BENCH,
)
from tests.odd_inputs import json_text, odd_bytes, odd_gzip, odd_object, odd_rows

CENTURY = Window(datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC))
YEAR = Window(datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC))
LATEST = datetime(2100, 1, 31, tzinfo=UTC)  # the end of the longest request that began in the century
TOKENS = ("input_tokens", "cached_input_tokens", "cache_write_input_tokens", "output_tokens", "reasoning_output_tokens")
ACCESS = OPENAI | {"duration": 1.5, "ended": NOON_NS // 10**9 + 2, "status": 200}


class Reader(NamedTuple):
    """A kind of file: its name, a good one, an odd one of the same shape, and how it is read into rows."""

    name: str
    good: Any
    written: Callable[[Random, Any], bytes]
    rows: Callable[[str], list[dict[str, Any]]]


def jsonl(random: Random, rows: list[Any]) -> bytes:
    """Lines, of which every other one is odd."""
    return b"".join(json_text(odd_object(random, row) if n % 2 else row).encode() + b"\n" for n, row in enumerate(rows))


def requests(kind: str) -> Callable[[str], list[dict[str, Any]]]:
    columns: dict[str, Any] = {"duration_seconds": "duration", "ended_at": "ended", "status": "status"}

    def read(path: str) -> list[dict[str, Any]]:
        collector = READERS[kind][1](path)
        if kind == "access_log":
            collector = type(collector)("s", path, {}, columns)  # type: ignore[call-arg]
        rejects = Rejects()
        rows = [row for batch in collector.collect(CENTURY, rejects) for row in batch.to_pylist()]
        assert len(rows) <= rejects.read
        assert rejects.rows <= rejects.read
        return rows

    return read


def benchmarks(kind: str) -> Callable[[str], list[dict[str, Any]]]:
    return lambda path: BenchmarkFile(kind, path, {}).results(Rejects())


def prices(path: str) -> list[dict[str, Any]]:
    return read_price_list(path).prices.to_pylist()


def samples(**mapping: Any) -> Callable[[str], list[dict[str, Any]]]:
    def read(path: str) -> list[dict[str, Any]]:
        register = SeriesRegister("wall", YEAR)
        batches = list(FilesCollector("wall", [FileMapping(path, **mapping)]).collect(YEAR, FAMILIES, register))
        register.chunk_table()
        # Values land as the meter wrote them; the register counts those that cannot be.
        return [{"at": at} for batch in batches for at in batch.samples.column("observed_at").to_pylist()]

    return read


def parquet(random: Random, rows: list[list[str]]) -> bytes:
    held = odd_rows(random, rows)
    width = min(map(len, held))
    sink = pa.BufferOutputStream()
    names = [f"{name}{n}" if held[0][:n].count(name) else name for n, name in enumerate(held[0][:width])]
    pq.write_table(pa.table({name: [row[n] for row in held[1:]] for n, name in enumerate(names)}), sink)
    return sink.getvalue().to_pybytes()


def table(text: str) -> list[list[str]]:
    return list(csv.reader(text.strip().splitlines()))


WALL = table("at,node,watts\n" + "".join(f"2026-10-01T00:{n:02}:00Z,n{n % 2},{300 + n}\n" for n in range(12)))
EPOCH = [WALL[0], *([str(1_790_856_000 + 60 * n), *row[1:]] for n, row in enumerate(WALL[1:]))]
LONG = table("at,metric,labels,value\n" + "".join(f"2026-10-01 00:{n:02},wall_power_watts,{{}},5\n" for n in range(9)))
LONG_COLUMNS = {"time": "at", "metric": "metric", "labels_json": "labels", "value": "value"}
WIDE = {"time": "at", "labels": {"node": "node"}, "values": {"wall_power_watts": "watts"}}
LITELLM = {
    f"model-{n}": {
        "litellm_provider": "x",
        "mode": "chat",
        "input_cost_per_token": 3e-07,
        "output_cost_per_token": "1e-06",
    }
    for n in range(6)
}
CSV_PRICES = table(
    "model,input_usd_per_mtok,output_usd_per_mtok,provider\n" + "".join(f"m{n},1,2,x\n" for n in range(8))
)
TRACE = table("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "2026-10-01 12:00:00.1234567,900,40\n" * 8)
GENAI = {"experiments": [{"experiment": {"mode": "concurrency", "value": 4}, "requests": [GENAI_PERF] * 5}]}

ALL = {
    "access_log": Reader("log.jsonl", [ACCESS] * 6, jsonl, requests("access_log")),
    "litellm": Reader("log.jsonl", [SPEND_LOG] * 6, jsonl, requests("litellm")),
    "aiperf": Reader("profile_export.jsonl", [aiperf_record(n, n, n + 1) for n in range(6)], jsonl, requests("aiperf")),
    "genai_perf": Reader("profile_export.json", GENAI, as_json, requests("genai_perf")),
    "azure_trace": Reader("trace.csv", TRACE, as_csv, requests("azure_trace")),
    "mlperf": Reader("summary_results.json", [MLPERF] * 5, as_json, benchmarks("mlperf")),
    "inferencex": Reader("a.json", [INFERENCEX, PUBLISHED, AGENTIC] * 2, as_json, benchmarks("inferencex")),
    "artificial_analysis": Reader("a.csv", table(AA) + table(AA)[1:] * 5, as_csv, benchmarks("artificial_analysis")),
    "ml_energy": Reader("a.json", ML_ENERGY, as_json, benchmarks("ml_energy")),
    "vllm_bench": Reader("a.json", [VLLM_BENCH] * 4, as_json, benchmarks("vllm_bench")),
    "sglang_bench": Reader("a.jsonl", [SGLANG_BENCH] * 6, jsonl, benchmarks("sglang_bench")),
    "litellm_prices": Reader("prices.json", LITELLM, as_json, prices),
    "csv_prices": Reader("prices.csv", CSV_PRICES, as_csv, prices),
    "wide_csv": Reader("power.csv", WALL, as_csv, samples(**WIDE)),
    "epoch_csv": Reader("power.csv", EPOCH, as_csv, samples(**WIDE, time_unit="s")),
    "long_csv": Reader(
        "power.csv", LONG, as_csv, samples(time="at", metric="metric", labels_json="labels", value="value")
    ),
    "parquet": Reader("power.parquet", WALL, parquet, samples(**WIDE)),
    **{kind: Reader(*parts) for kind, parts in odd_settings.ALL.items()},
}
GZIPPED = {"access_log", "litellm", "aiperf", "azure_trace", "sglang_bench", "wide_csv"}


def odd_file(random: Random, kind: str, folder: Path) -> str:
    """A file of a kind that is odd in its fields, its bytes, its compression, or in several of them."""
    reader = ALL[kind]
    held = reader.written(random, reader.good)
    how = random.random()
    ending = ""
    if how < 0.3:
        held = odd_bytes(random, held)
    elif how < 0.45 and kind in GZIPPED:
        held, ending = odd_gzip(random, held), ".gz"
    path = folder / (reader.name + ending)
    path.write_bytes(held)
    if kind == "aiperf":
        summary = json_text(odd_object(random, aiperf_summary(2)))
        (folder / "profile_export_aiperf.json").write_text(summary, encoding="utf-8")
    return str(path)


def read(random: Random, kind: str, folder: Path) -> list[dict[str, Any]] | None:
    """The rows of an odd file, each of which can be; None for one that is refused."""
    path = odd_file(random, kind, folder)
    try:
        rows = ALL[kind].rows(path)
    except SourceError as refusal:
        assert refusal.reason.isprintable()
        assert len(refusal.reason) <= 2_000
        return None
    for row in rows:
        for name, value in row.items():
            check(row, name, value)
    return rows


def check(row: dict[str, Any], name: str, value: Any) -> None:
    if isinstance(value, float | int):
        assert math.isfinite(value), (name, row)
        assert 0 <= value <= 1e15, (name, row)
    elif isinstance(value, datetime):
        assert CENTURY.start_at <= value < LATEST, (name, row)
    elif isinstance(value, date):
        assert 2000 <= value.year < 2100, (name, row)
    elif isinstance(value, str):
        assert len(value) <= 11_000, (name, row)
    if name in TOKENS and value is not None and "window_id" not in row:  # a window may be a month of a fleet
        assert value <= 10**10, (name, row)
    if name.endswith("_seconds") and value is not None and "started_at" in row:
        assert value <= 30 * 86_400


def findings(number: int, count: int, folder: Path, kinds: Iterable[str] = tuple(ALL)) -> Iterator[str]:
    """Read `count` odd files of each kind; a sentence for each that ends otherwise than it may."""
    for kind in kinds:
        for nth in range(count):
            try:
                read(Random(f"{number}/{kind}/{nth}"), kind, folder)
            except Exception as error:
                yield f"odd file {nth} of {kind}: {type(error).__name__}: {str(error)[:300]}"
