"""Odd pages, spool files, grid intensity, run windows and GPU prices: kinds of `odd_files` whose readers are here.

Add here a kind that is no list of requests, prices or samples in a file. Keep out how its parts become odd
(`odd_inputs`), and what may come of it (`odd_files`).
"""

from __future__ import annotations

from contextlib import closing
from datetime import date
from functools import cache
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from collectors.devices.spool import UNKNOWN_KEY, Spool
from collectors.devices.spool_collector import SPOOL_SCHEMA, SpoolCollector
from collectors.protocols.exposition import parse_page
from collectors.protocols.grid_apis import UkCarbonIntensityCollector
from collectors.rows import Rejects
from collectors.samples import SourceError, Window
from collectors.series import SeriesRegister
from pipelines.fleet.grid_sources import GridFile
from pipelines.fleet.money.cost_rates import CostRateFile
from pipelines.fleet.run_windows import RunWindowFile
from pipelines.landing.grid_landing import land_grid
from pipelines.warehouse import database
from pipelines.warehouse.raw_tables import create_tables
from tests.collectors.test_spool_damaged import FAMILIES, NOON, POWER
from tests.odd_inputs import csv_text, json_text, odd_cell, odd_object, odd_rows
from tests.servers import http_server, reply

DAY = date(2026, 10, 1)


def as_json(random: Random, held: Any) -> bytes:
    return json_text(odd_object(random, held)).encode()


def as_csv(random: Random, rows: list[list[str]]) -> bytes:
    return csv_text(random, odd_rows(random, rows)).encode("utf-8", "replace")


def page(random: Random, rows: list[list[str]]) -> bytes:
    """A page of metric, label, value and time, of which some cells are odd."""
    lines = ["# TYPE watts gauge"]
    for row in odd_rows(random, rows):
        name, label, value, *others = [*row, "", "", ""]
        lines.append(f'{name}{{gpu="{label}"}} {value} {"".join(others)}'.rstrip(" "))
    return "\n".join([*lines, "# EOF", ""]).encode("utf-8", "replace")


def pages(*, is_openmetrics: bool) -> Any:
    def read(path: str) -> list[dict[str, Any]]:
        rejects = Rejects()
        text = Path(path).read_bytes().decode("utf-8", "replace")
        try:
            found, _ = parse_page(text, rejects, is_openmetrics=is_openmetrics)
        except ValueError as refusal:
            raise SourceError(path, None, str(refusal)) from refusal
        rejects.check(path)
        assert len(found) == rejects.read
        # Values are checked where they land.
        return [{"metric": sample.metric, "labels": str(dict(sample.labels))[:10_000]} for sample in found]

    return read


def spool_file(random: Random, labels: dict[str, str]) -> bytes:
    texts = [json_text(odd_object(random, labels) if random.random() < 0.1 else labels) for _ in range(3)]
    rows = len(texts)
    odd = random.random() < 0.2
    metadata = {UNKNOWN_KEY: as_json(random, {"other_watts": 3}) if odd else b"{}"}
    columns = {
        "observed_at": [NOON] * rows,
        "source_kind": ["dcgm"] * rows,
        "metric": [odd_cell(random) if random.random() < 0.1 else POWER for _ in texts],
        "labels": texts,
        "value": [250.5] * rows,
    }
    columns["metric"] = [metric.encode("utf-8", "replace").decode() for metric in columns["metric"]]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns, SPOOL_SCHEMA).replace_schema_metadata(metadata), sink)
    return sink.getvalue().to_pybytes()


def spooled(path: str) -> list[dict[str, Any]]:
    """The rows of an odd file beside a good one, whose rows always come."""
    held = Path(path).read_bytes()
    folder = Path(path).parent / "spool"
    spool = Spool(folder)
    for name, content in (("a", held), ("b", _good_spool_file())):
        spool.put(f"host={name}/date={DAY}/1.parquet", content)
    window = Window.of_day(DAY)
    collector = SpoolCollector("agents", folder)
    register = SeriesRegister("agents", window)
    values = [v for batch in collector.collect(window, FAMILIES, register) for v in batch.samples["value"].to_pylist()]
    assert values.count(300.0) == 1
    assert len(collector.problems) <= 1
    if collector.problems:
        raise SourceError(path, None, collector.problems[0].encode("ascii", "replace").decode()[:500])
    return [{"value": "read"} for _ in values[1:]]


@cache
def _good_spool_file() -> bytes:
    rows = {"observed_at": [NOON], "source_kind": ["dcgm"], "metric": [POWER], "labels": ["{}"], "value": [300.0]}
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(rows, SPOOL_SCHEMA), sink)
    return sink.getvalue().to_pybytes()


@cache
def _warehouse() -> duckdb.DuckDBPyConnection:
    connection = database.connect(":memory:")
    create_tables(connection)
    return connection


def grid_file(path: str) -> list[dict[str, Any]]:
    fields = {"path": path, "zone": "ES", "time": "at", "values": {"direct_gco2e_per_kwh": "direct"}}
    file = GridFile.model_construct(**{**GridFile.model_construct().__dict__, **fields})
    fleet: Any = SimpleNamespace(grid_intensity=SimpleNamespace(files=[file], sources=()))
    (landing,) = land_grid(_warehouse(), fleet, DAY, date(2026, 10, 2), run_id="drawn")
    if landing.outcome == "failed":
        raise SourceError(path, None, (landing.detail or "")[:2_000])
    held = _warehouse().execute(
        "select start_at, end_at, direct_gco2e_per_kwh as value from raw.grid_intensity where source = ?",
        [landing.source],
    )
    return [dict(zip(("start_at", "end_at", "value"), row, strict=True)) for row in held.fetchall()]


def uk_answer(path: str) -> list[dict[str, Any]]:
    held = Path(path).read_bytes()
    with http_server(lambda handler: reply(handler, 200, held)) as url:
        collector = UkCarbonIntensityCollector("uk", url, region_id=None)
        with closing(collector.server):
            table = collector.collect(Window.of_day(DAY))
    # What is no number is NaN, and counted where it lands.
    return [{"at": at} for at in table.column("start_at").to_pylist() if at is not None]


def run_windows(path: str) -> list[dict[str, Any]]:
    rejects = Rejects()
    found = list(RunWindowFile.model_construct(path=path, columns={}).windows(path, set(), rejects))
    rejects.check(path)
    return [window.model_dump() for window in found]


def gpu_prices(path: str) -> list[dict[str, Any]]:
    fields = {"path": path, "source": "list", "device_types": {"H100": "h100-sxm5-80gb"}}
    file = CostRateFile.model_construct(**{**CostRateFile.model_construct().__dict__, **fields})
    return [{"price": rate["usd_per_gpu_hour"]} for rate in file.rates(Rejects())]


PAGE = [["watts", f"GPU-{n}", f"{n}.5", ""] for n in range(8)]
GRID = [["at", "direct"], *([f"2026-10-01 {n:02}:00", str(100 + n)] for n in range(12))]
WINDOWS = [
    ["window_id", "node", "start_at", "end_at", "output_tokens"],
    *([f"w{n}", "n1", f"2026-10-01T{n:02}:00:00Z", f"2026-10-01T{n:02}:30:00Z", "7"] for n in range(9)),
]
GPUS = [["gpu", "gpu_count", "usd_per_hour_ondemand"], *(["H100", str(n), str(3 * n)] for n in range(1, 9))]
UK = {
    "data": [
        {"from": f"2026-10-01T{n:02}:00Z", "to": f"2026-10-01T{n:02}:30Z", "intensity": {"forecast": 200, "actual": 1}}
        for n in range(8)
    ]
}
ALL = {
    "prometheus_page": ("page.prom", PAGE, page, pages(is_openmetrics=False)),
    "openmetrics_page": ("page.prom", PAGE, page, pages(is_openmetrics=True)),
    "spool": ("file.parquet", {"UUID": "GPU-a", "node": "n1"}, spool_file, spooled),
    "grid_file": ("grid.csv", GRID, as_csv, grid_file),
    "uk_carbon_intensity": ("answer.json", UK, as_json, uk_answer),
    "run_windows": ("windows.csv", WINDOWS, as_csv, run_windows),
    "gpu_prices": ("gpus.csv", GPUS, as_csv, gpu_prices),
}
