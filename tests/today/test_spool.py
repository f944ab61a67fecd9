"""A spool is emptied by the run that lands it, never by a tick; a tick takes over what the run has landed."""

from __future__ import annotations

import shutil
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

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


def write(spool: Path, first: int, last: int) -> None:
    """Readings of a board that draws 100 W, a minute apart, from minute `first` to before `last` of the day."""
    writer = SpoolWriter(Spool(spool), "gpu-a")
    labels = labels_json({"uuid": "GPU-1", "node": "gpu-a"})
    for minute in range(first, last):
        at = microseconds(MIDNIGHT + timedelta(minutes=minute))
        writer.add([Reading(at, "nvml", "nvml_power_watts", labels, WATTS)])
    assert writer.flush()


def waiting(spool: Path) -> int:
    return sum(1 for path in spool.rglob("*.parquet"))


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

    # The night: of the day itself it lands the first hour.
    book = Book.of(path, tmp_path / "data", marts=("model_hourly",))
    book.run(DAY - timedelta(days=1), DAY)
    assert waiting(spool) == 0
    # Another fleet file, or another version: the tick's own warehouse starts with nothing.
    shutil.rmtree(book.fleet.root / ticks.WORK)
    write(spool, 51, 121)
    assert joules(path, tmp_path / "data", MIDNIGHT + timedelta(hours=2, seconds=1)) == WATTS * 7200
    assert waiting(spool) == 1
