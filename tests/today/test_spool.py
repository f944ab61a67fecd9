"""A spool is emptied by the run that lands it, never by a tick; a tick takes over what the run has landed."""

from __future__ import annotations

import shutil
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import duckdb
import pytest

from collectors.devices.spool import Spool
from collectors.devices.spool_writer import SpoolWriter
from collectors.readings import Reading, labels_json
from collectors.samples import microseconds
from pipelines.fleet.fleet_file import load_fleet
from pipelines.today import ticks, today_file
from tests.books import Book, environment

DAY = date(2026, 11, 10)
MIDNIGHT = datetime(2026, 11, 10, tzinfo=UTC)
WATTS = 100.0
# A histogram of latency: no figure of a tick is made of it.
BUCKET = "vllm:time_to_first_token_seconds_bucket"


def write(spool: Path, first: int, last: int) -> None:
    """Readings of a board that draws 100 W, a minute apart, from minute `first` to before `last` of the day."""
    writer = SpoolWriter(Spool(spool), "gpu-a")
    labels = labels_json({"uuid": "GPU-1", "node": "gpu-a"})
    for minute in range(first, last):
        at = microseconds(MIDNIGHT + timedelta(minutes=minute))
        writer.add([Reading(at, "nvml", "nvml_power_watts", labels, WATTS)])
        writer.add([Reading(at, "vllm", BUCKET, labels_json({"model_name": "m", "pod": "m-0", "le": "1.0"}), 5.0)])
    assert writer.flush()


def waiting(spool: Path) -> int:
    return sum(1 for path in spool.rglob("*.parquet"))


def metrics_of(warehouse: Path) -> list[str]:
    """The metrics that are landed there."""
    with duckdb.connect(str(warehouse), read_only=True) as connection:
        found = connection.execute("select distinct metric from raw.series order by metric").fetchall()
    return [name for (name,) in found]


def joules(fleet_file: Path, data: Path, at: datetime) -> float:
    """What a tick has of the day."""
    fleet = load_fleet(fleet_file, environment(data))
    ticks.refresh(fleet, at)
    made = today_file.read(fleet)
    assert made is not None
    assert list(made.problems()) == []
    return sum(one.energy_joules or 0 for one in made.models)


@pytest.mark.rest
def test_a_tick_empties_no_spool_and_misses_nothing_that_a_run_took(tmp_path: Path) -> None:
    spool = tmp_path / "data" / "spooled" / "spool"
    spool.mkdir(parents=True)
    path = tmp_path / "fleet.yaml"
    path.write_text(
        f"fleet: spooled\nperiod: {{start: {DAY - timedelta(days=1)}}}\n"
        "sources: [{name: hosts, kind: spool, interval_seconds: 60}]\n"
    )
    write(spool, -60, 0)
    write(spool, 0, 51)
    assert joules(path, tmp_path / "data", MIDNIGHT + timedelta(minutes=50, seconds=1)) == WATTS * 3000
    assert waiting(spool) == 2
    work = load_fleet(path, environment(tmp_path / "data")).root / ticks.WORK
    assert metrics_of(work / "warehouse.duckdb") == ["nvml_power_watts"]

    # The night: of the day itself it lands the first hour.
    book = Book.of(path, tmp_path / "data", marts=("model_hourly",))
    book.run(DAY - timedelta(days=1), DAY)
    assert waiting(spool) == 0
    assert metrics_of(book.fleet.warehouse) == ["nvml_power_watts", BUCKET]
    # Another fleet file, or another version: the tick's own warehouse starts with nothing.
    shutil.rmtree(book.fleet.root / ticks.WORK)
    write(spool, 51, 121)
    assert joules(path, tmp_path / "data", MIDNIGHT + timedelta(hours=2, seconds=1)) == WATTS * 7200
    assert waiting(spool) == 1
