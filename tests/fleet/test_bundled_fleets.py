"""The fleet files that ship with the project are valid, and describe the telemetry that they name."""

import csv
from datetime import UTC, datetime
from pathlib import Path

import pytest

from collectors.synthetic.demo_fleet import BOARDS, ENGINES
from pipelines.fleet.fleet_file import load_fleet
from pipelines.fleet.places import DEFAULT_FLEET, PROJECT
from tests.books import validation_data

NEEDED_BY = {"mlperf_data": ("validation-data",)}


@pytest.fixture(scope="module")
def mlperf_data() -> Path:
    return validation_data() / "mlperf_v4_1_h200"


def test_the_demo_fleet_file_speaks_of_the_generated_fleet():
    fleet = load_fleet(DEFAULT_FLEET)
    assert (fleet.fleet, fleet.synthetic, fleet.grid_seconds) == ("demo", True, 300)
    assert len(fleet.days(datetime(2026, 11, 21, tzinfo=UTC).date())) == 28
    assert {node.name for node in fleet.nodes} == {board.node for board in BOARDS}
    assert {model.name: model.aliases for model in fleet.models} == {e.model: (e.served_name,) for e in ENGINES}
    assert set(fleet.teams) == {engine.namespace for engine in ENGINES}
    readings = {window.window_id: (window.start_at, window.end_at) for window in fleet.run_windows.inline}
    steady_hour = (datetime(2026, 10, 14, 20, tzinfo=UTC), datetime(2026, 10, 14, 21, tzinfo=UTC))
    assert readings == {
        "mission_reading.gpt-oss-120b": steady_hour,
        "mission_reading.gemma-4-31B": steady_hour,
        "mission_reading.Qwen3.5-397B": steady_hour,
    }
    assert {window.window_id for window in fleet.run_windows.inline} == {
        f"mission_reading.{window.model}" for window in fleet.run_windows.inline
    }
    (site,) = fleet.sites
    priced = sorted(hour for tariff in site.tariff for hour in range(*tariff.local_hours))
    assert priced == list(range(24))


def test_the_mlperf_fleet_file_assigns_every_window_of_the_data(mlperf_data):
    fleet = load_fleet(PROJECT / "fleets/mlperf.yaml", {"WATTLEDGER_VALIDATION_DATA": str(mlperf_data.parent)})
    assert (fleet.synthetic, fleet.grid_seconds, len(fleet.days(datetime(2026, 11, 21, tzinfo=UTC).date()))) == (
        False,
        10,
        8,
    )
    assert [source.tokens_complete for source in fleet.sources] == [False, True]
    spans = {assignment.engine: assignment for assignment in fleet.assignments}
    with (mlperf_data / "power.csv").open() as lines:
        metered = {row["node"]: [] for row in csv.DictReader(lines)}
        lines.seek(0)
        for row in csv.DictReader(lines):
            metered[row["node"]].append(datetime.fromisoformat(row["ts_utc"]))
    with (mlperf_data / "windows.csv").open() as lines:
        windows = list(csv.DictReader(lines))
    assert (list(metered), len(windows)) == ([fleet.nodes[0].name], 12)
    ends = set()
    for window in windows:
        span = spans[f"{window['model']}-{window['scenario'].lower()}"]
        assert (span.node, span.model) == (window["node"], window["model"])
        assert span.start_at < datetime.fromisoformat(window["start_at"])
        assert datetime.fromisoformat(window["end_at"]) <= span.end_at
        ends.add(datetime.fromisoformat(window["end_at"]))
    (times,) = metered.values()
    assert {span.start_at for span in spans.values()} <= set(times)
    assert {span.end_at for span in spans.values()} <= ends
    unassigned = sum(not any(span.start_at <= time < span.end_at for span in spans.values()) for time in times)
    assert unassigned == 197  # 26-37 s after each engine's `run_1`, at 1 Hz
    with (mlperf_data / "tokens.csv").open() as lines:
        logged = {(row["engine"], row["model"]) for row in csv.DictReader(lines)}
    assert logged == {(span.engine, span.model) for span in spans.values()}
