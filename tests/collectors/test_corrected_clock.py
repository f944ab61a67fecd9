"""A source whose clock is wrong (`clock_offset_seconds`): asked by its own times, landed by true ones."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from collectors.corrected_clock import CorrectedClock
from collectors.samples import Window
from collectors.series import SeriesRegister
from pipelines.fleet import catalog
from pipelines.fleet.sources import FilesSource, reader

DAY = datetime(2026, 10, 15, tzinfo=UTC)
AHEAD = timedelta(minutes=20)
WINDOW = Window.of_day(date(2026, 10, 15))


def files(folder: Path, offset_seconds: float) -> FilesSource:
    """A board's watts of each minute from an hour before the day to an hour after it, its minute; stamped 20 minutes
    late."""
    lines = [f"{(DAY + timedelta(minutes=m) + AHEAD).isoformat()},GPU-late,{m + 100}" for m in range(-60, 25 * 60)]
    path = folder / "watts.csv"
    path.write_text("\n".join(["at,uuid,watts", *lines]), encoding="utf-8")
    file = {"path": str(path), "time": "at", "labels": {"UUID": "uuid"}, "values": {"DCGM_FI_DEV_POWER_USAGE": "watts"}}
    stated = {"name": "late", "kind": "files", "interval_seconds": 60, "files": [file]}
    context = {"roots": {"fleet": folder, "data": folder}, "environ": {}, "notices": []}
    return FilesSource.model_validate({**stated, "clock_offset_seconds": offset_seconds}, context=context)


@pytest.mark.parametrize(("offset_seconds", "first"), [(1200, 100), (0, 80), (-600, 70)])
def test_samples_of_a_day_are_those_of_true_time(tmp_path: Path, offset_seconds: float, first: int) -> None:
    register = SeriesRegister("late", WINDOW)
    batches = list(reader(files(tmp_path, offset_seconds)).collect(WINDOW, catalog.families(), register))
    values = [value for _, samples in batches for value in samples.column(2).to_pylist()]
    times = [at for _, samples in batches for at in samples.column(1).to_pylist()]
    assert values == [first + minute for minute in range(1440)]
    assert times == [DAY + timedelta(minutes=minute) for minute in range(1440)]
    (chunk,) = register.chunk_table().to_pylist()
    assert (chunk["first_at"], chunk["last_at"]) == (times[0], times[-1])


class Server:
    """What the landing asks of a server."""

    source, url = "server", "http://a:9090"

    def __init__(self) -> None:
        self.asked: list[Window] = []

    def counted(self, window: Window, families: object) -> object:
        self.asked.append(window)
        return families

    def collect(self, window: Window, families: object, register: SeriesRegister) -> None:
        raise NotImplementedError


def test_a_server_counts_by_its_own_clock_and_has_what_else_it_has() -> None:
    server = Server()
    corrected = CorrectedClock(server, -90)
    assert corrected.counted(WINDOW, "families") == "families"
    assert server.asked == [Window(DAY - timedelta(seconds=90), DAY + timedelta(days=1, seconds=-90))]
    assert corrected.url == server.url and not hasattr(corrected, "check")


def test_more_than_an_hour_is_another_mistake(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="less than or equal to 3600"):
        files(tmp_path, 3601)
