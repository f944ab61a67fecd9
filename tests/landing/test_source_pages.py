"""The fleet-file lines that the pages of docs/sources show: each loads, and lands a row of each file that it names.

Each file is written from the page's own words: the columns that its lines name, or the shape that its publisher has.
Add a writer to WRITERS when a page names a file of another kind.
"""

from __future__ import annotations

import csv
import gzip
import json
import logging
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from collectors.devices.agent import BUNDLED_CATALOGUE, read_families
from collectors.rows import Rejects
from pipelines.fleet.fleet_file import Fleet, load_fleet
from pipelines.landing import (
    benchmark_landing,
    fleet_landing,
    grid_landing,
    landing_days,
    price_landing,
    request_landing,
)
from pipelines.warehouse import database
from pipelines.warehouse.raw_tables import create_tables
from tests.books import validation_data
from tests.collectors.test_load_tests import aiperf_record
from tests.collectors.test_requests import SPEND_LOG
from tests.fleet.test_focus_exports import csv_of
from tests.landing.test_benchmarks import AA, GUIDELLM, INFERENCEX, MLPERF, SGLANG_BENCH, VLLM_BENCH

DOCS = Path(__file__).parents[2] / "docs"
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
SECRETS = {
    *("PROM_TOKEN", "GRAFANA_USER", "GRAFANA_TOKEN", "ELECTRICITY_MAPS_TOKEN", "WATTTIME_USER", "WATTTIME_PASSWORD"),
    "LITELLM_DATABASE_URL",
}
VALIDATION = "${WATTLEDGER_VALIDATION_DATA}/"
NEEDS_DATA = pytest.mark.needs("validation-data")
# Of the files of the validation data: the day of which they hold something.
DAYS = {"azure_trace": date(2023, 11, 16), "electricity_maps": date(2023, 1, 1)}


def _examples() -> list[Any]:
    """(page, fleet-file lines) of every block of YAML, by page and number."""
    found = []
    for page in (*sorted((DOCS / "sources").glob("*.md")), DOCS / "agent.md"):
        blocks = page.read_text(encoding="utf-8").split("```yaml\n")[1:]
        found += [
            pytest.param(page, lines, id=f"{page.stem}-{number}", marks=NEEDS_DATA if VALIDATION in lines else ())
            for number, block in enumerate(blocks, 1)
            for lines in [block.partition("```")[0]]
        ]
    return found


def _loaded(folder: Path, lines: str) -> Fleet:
    opening = "fleet: shown\nperiod: {start: 2022-01-01}\n"
    if "sources" not in yaml.safe_load(lines):
        opening += (
            "synthetic: true\nsources: [{name: invented, kind: synthetic, scenario: demo, interval_seconds: 60}]\n"
        )
    (folder / "fleet.yaml").write_text(opening + lines, encoding="utf-8")
    environ = {"WATTLEDGER_DATA": str(folder / "data"), "LEDGER_SHARE": str(folder), **dict.fromkeys(SECRETS, "stub")}
    return load_fleet(folder / "fleet.yaml", {**environ, **_validation(lines)})


def _validation(lines: str) -> Mapping[str, str]:
    return {"WATTLEDGER_VALIDATION_DATA": str(validation_data())} if VALIDATION in lines else {}


# --- a file as the page has it ----------------------------------------------------------------------------------------


def _samples(path: Path, entry: Mapping[str, Any]) -> None:
    """One row: noon, the name of each label, 5 in each column of values."""
    labels = dict.fromkeys(entry.get("labels", {}).values(), "x")
    numbers = dict.fromkeys(entry.get("values", {}).values(), 5.0)
    if path.suffix == ".parquet":
        cells = {entry["time"]: NOON} | labels | numbers
        pq.write_table(pa.table({name: [cell] for name, cell in cells.items()}), path)
        return
    with path.open("w", newline="", encoding="utf-8") as text:
        writer = csv.writer(text)
        writer.writerow([entry["time"], *labels, *numbers])
        writer.writerow([NOON.isoformat(), *labels.values(), *numbers.values()])


def _access_log(path: Path, entry: Mapping[str, Any]) -> None:
    """One line with a value at each dotted path that the entry names."""
    values = {
        "started_at": int(NOON.timestamp() * 1000) if entry.get("time_unit") == "ms" else int(NOON.timestamp()),
        "duration_ms": 250,
        "status": "200",
        "model": "m",
        "usage": {"prompt_tokens": 7, "completion_tokens": 3},
        "tenant": "t",
        "key": "Bearer k",
    }
    usual = {"started_at": "created", "usage": "usage"}
    line: dict[str, Any] = {}
    for field, place in {**usual, **entry.get("columns", {})}.items():
        *above, last = place.split(".")
        held = line
        for part in above:
            held = held.setdefault(part, {})
        held[last] = values[field]
    _jsonl(path, line)


def _jsonl(path: Path, line: Mapping[str, Any]) -> None:
    path.write_bytes(gzip.compress(json.dumps(line).encode() + b"\n"))


def _spans(path: Path, entry: Mapping[str, Any]) -> None:
    """A span of a chat at noon, in a file or in a folder of them."""
    began = int(datetime(2026, 10, 1, 12, tzinfo=UTC).timestamp()) * 10**9
    tokens = {"gen_ai.usage.input_tokens": 7, "gen_ai.usage.output_tokens": 3}
    words = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
    span = {
        "traceId": "1" * 32,
        "spanId": "1" * 16,
        "startTimeUnixNano": str(began),
        "endTimeUnixNano": str(began + 10**9),
        "attributes": [
            *({"key": key, "value": {"stringValue": word}} for key, word in words.items()),
            *({"key": key, "value": {"intValue": str(count)}} for key, count in tokens.items()),
        ],
    }
    service = {"key": "service.name", "value": {"stringValue": next(iter(entry.get("services", ())), "one")}}
    document = {"resourceSpans": [{"resource": {"attributes": [service]}, "scopeSpans": [{"spans": [span]}]}]}
    file = path if path.suffix else path / "one.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(document) + "\n", encoding="utf-8")


def _load_test(path: Path, _: Mapping[str, Any]) -> None:
    path.mkdir()
    (path / "profile_export.jsonl").write_text(json.dumps(aiperf_record(1, 10, 12)) + "\n")


def _text(text: str) -> Callable[[Path, Mapping[str, Any]], None]:
    return lambda path, _: path.write_text(text, encoding="utf-8") and None


def _price_list(path: Path, _: Mapping[str, Any]) -> None:
    costs = {"input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6}
    listed = {"m": {"mode": "chat", "litellm_provider": "p", **costs}}
    own = "model,input_usd_per_mtok,output_usd_per_mtok\nm,1,2\n"
    path.write_text(json.dumps(listed) if path.suffix == ".json" else own, encoding="utf-8")


def _focus_export(path: Path, entry: Mapping[str, Any]) -> None:
    """A folder with one row, of the first SKU of the entry."""
    path.mkdir()
    charge = {"SkuId": next(iter(entry["skus"])), "PricingQuantity": "1", "EffectiveCost": "2", **entry["where"]}
    (path / "one.csv").write_text(csv_of([charge]), encoding="utf-8")


WRITERS: Mapping[str, Callable[[Path, Mapping[str, Any]], None]] = {
    "files": _samples,
    "access_log": _access_log,
    "otlp": _spans,
    "litellm": lambda path, _: _jsonl(path, SPEND_LOG),
    "aiperf": _load_test,
    "mlperf": _text(json.dumps([MLPERF])),
    "inferencex": _text(json.dumps([INFERENCEX])),
    "artificial_analysis": _text(AA),
    "vllm_bench": _text(json.dumps(VLLM_BENCH)),
    "sglang_bench": _text(json.dumps(SGLANG_BENCH)),
    "guidellm": _text(json.dumps(GUIDELLM)),
    "prices": _price_list,
    "focus": _focus_export,
}


def _write(folder: Path, lines: str) -> None:
    """The files that the lines name, but for those of the validation data, which are there."""
    fleet = yaml.safe_load(lines)
    entries = [("files", entry) for source in fleet.get("sources", ()) for entry in source.get("files", ())]
    entries += [(entry["kind"], entry) for key in ("requests", "benchmarks") for entry in fleet.get(key, ())]
    entries += [("prices", entry) for entry in fleet.get("prices", {}).get("files", ())]
    entries += [("focus", entry) for entry in fleet.get("focus_exports", ())]
    for kind, entry in entries:
        if "path" in entry and not entry["path"].startswith(VALIDATION):
            path = folder / entry["path"].replace("*", "one").replace("${LEDGER_SHARE}/", "")
            path.parent.mkdir(parents=True, exist_ok=True)
            WRITERS[kind](path, entry)


# --- what it lands ----------------------------------------------------------------------------------------------------


def _landed(folder: Path, fleet: Fleet) -> dict[str, int]:
    """Name of each part of the fleet that reads files -> rows that it landed."""
    found: dict[str, int] = {}
    with closing(database.connect(folder / "warehouse.duckdb")) as connection:
        create_tables(connection)
        only_files = fleet.model_copy(update={"sources": [s for s in fleet.sources if s.kind == "files"]})
        for result in landing_days.land_days(
            connection, only_files, NOON.date(), date(2026, 11, 2), run_id="t", now=NOON
        ):
            if result.window.end_at - result.window.start_at == timedelta(days=1):
                found[result.source] = result.rows
        for source in fleet.requests:
            if getattr(source, "path", None):
                day = DAYS.get(source.kind, date(2026, 10, 1) if source.kind != "access_log" else NOON.date())
                landings = request_landing.land(connection, source.collector(), day, _after(day), run_id="t")
                found[source.name] = sum(landing.rows for landing in landings)
        files = fleet.grid_intensity.model_copy(update={"sources": ()})
        of_files = fleet.model_copy(update={"grid_intensity": files})
        day = DAYS["electricity_maps"]
        for result in grid_landing.land_grid(connection, of_files, day, _after(day), run_id="t"):
            found[result.source] = result.rows
        for reading in benchmark_landing.write_benchmark_results(connection, fleet):
            found[reading.name] = reading.rows
        assert price_landing.land_prices(connection, fleet.prices.files) == []
        for source, rows in connection.execute("select source, count(*) from raw.model_prices group by 1").fetchall():
            found[source] = rows
        for file in fleet.cost_rate_files:
            found[file.source] = len(list(file.rates(Rejects())))
        for export in fleet.focus_exports:
            found[export.path] = len(list(export.figures().rates()))
        fleet_landing.write_fleet(connection, fleet)
    return found


def _after(day: date) -> date:
    return date.fromordinal(day.toordinal() + 1)


def _naming_files(fleet: Fleet) -> set[str]:
    return {
        *(source.name for source in fleet.sources if source.kind == "files"),
        *(source.name for source in fleet.requests if getattr(source, "path", None)),
        *(name for file in fleet.grid_intensity.files for name in grid_landing.names_of(file)),
        *(benchmark.name for benchmark in fleet.benchmarks),
        *(file.source for file in (*fleet.prices.files, *fleet.cost_rate_files)),
        *(export.path for export in fleet.focus_exports),
    }


@pytest.mark.parametrize(("page", "lines"), _examples())
def test_the_lines_of_a_page_load_and_land_a_row_of_each_file(
    tmp_path: Path, page: Path, lines: str, caplog: pytest.LogCaptureFixture
) -> None:
    _write(tmp_path, lines)
    with caplog.at_level(logging.WARNING, "pipelines"):
        fleet = _loaded(tmp_path, lines)
        landed = _landed(tmp_path, fleet)
    assert caplog.messages == []  # no page shows what is deprecated
    assert set(landed) == _naming_files(fleet)
    assert all(landed.values()), f"{page.name}: {landed}"


def test_every_source_kind_has_its_page() -> None:
    pages = {parameter.values[0].stem for parameter in _examples()}
    kinds = set(read_families(BUNDLED_CATALOGUE).values())
    # What gateways count by tenant is one page for all of them.
    gateways = {"agentgateway", "llm_d_router", "otel_genai"}
    assert kinds - gateways <= pages
    text = (DOCS / "sources" / "tenant_counters.md").read_text(encoding="utf-8")
    families = read_families(BUNDLED_CATALOGUE)
    assert {kind for family, kind in families.items() if f"`{family}`" in text} >= gateways
