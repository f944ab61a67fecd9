"""What a run itself takes: counters of the processors, shares of runs in one process, and the row that is noted."""

from __future__ import annotations

import os
import re
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipelines.command_line import run
from pipelines.fleet.fleet_file import Fleet, FleetError, load_fleet
from pipelines.upkeep import run_costs
from pipelines.upkeep.package_energy import PackageEnergy
from pipelines.upkeep.process_meter import ProcessMeter
from pipelines.warehouse import database
from pipelines.warehouse.raw_tables import create_tables

FILE = "fleet: mine\nperiod: {start: 2026-11-15}\nsources: [{name: agents, kind: spool}]\n"


def zone(folder: Path, number: str, name: str, microjoules: int, most: int = 262_143_328_850) -> None:
    """A counter as the kernel shows it; replaced in one step, since a thread reads it."""
    made = folder / f"intel-rapl:{number}"
    made.mkdir(exist_ok=True)
    (made / "name").write_text(f"{name}\n")
    (made / "max_energy_range_uj").write_text(f"{most}\n")
    (made / "fresh").write_text(f"{microjoules}\n")
    (made / "fresh").replace(made / "energy_uj")


def processors(path: Path, user: int, idle: int) -> Path:
    """/proc/stat of a machine: `user` hundredths of a second of work of users, and 6 of nice, system and interrupts."""
    path.write_text(f"cpu  {user} 1 2 {idle} 500 1 2 0 0 0\ncpu0 9 9 9 9 9 9 9 9 9 9\nintr 1\n")
    return path


def test_the_packages_add_up_and_their_parts_count_once(tmp_path: Path) -> None:
    def counters(*millijoules: int) -> None:
        for (number, name), count in zip(names.items(), millijoules, strict=True):
            zone(tmp_path, number, name, 1000 * count)

    names = {"0": "package-0", "0:0": "core", "0:1": "dram", "1": "package-1", "2": "psys"}
    counters(7_000, 100, 200, 9_000, 30_000)
    energy = PackageEnergy(tmp_path)
    assert energy.joules() == 0
    counters(9_500, 1_100, 1_200, 9_250, 60_000)
    assert energy.joules() == pytest.approx(2.75)
    counters(10_500, 1_100, 1_200, 9_250, 60_000)
    assert energy.joules() == pytest.approx(3.75)


def test_a_counter_that_wraps_goes_on(tmp_path: Path) -> None:
    zone(tmp_path, "0", "package-0", 262_143_000_000)
    energy = PackageEnergy(tmp_path)
    zone(tmp_path, "0", "package-0", 671_150)  # 328,850 up to its highest value, and 671,150
    assert energy.joules() == pytest.approx(1.0)
    zone(tmp_path, "0", "package-0", 671_150)
    assert energy.joules() == pytest.approx(1.0)


def test_a_counter_is_read_often_enough_to_wrap_twice(tmp_path: Path) -> None:
    zone(tmp_path, "0", "package-0", 0, most=1_000_000)
    energy = PackageEnergy(tmp_path, look_seconds=0.01)
    for microjoules in (600_000, 200_000, 800_000, 400_000):
        zone(tmp_path, "0", "package-0", microjoules, most=1_000_000)
        time.sleep(0.5)  # in which it is read by itself
    assert energy.joules() == pytest.approx(2.4)


@pytest.mark.parametrize("machine", ["virtual", "not ours to read", "of another kind"])
def test_a_machine_without_counters_has_no_joules(tmp_path: Path, machine: str) -> None:
    if machine == "not ours to read":
        zone(tmp_path, "0", "package-0", 5)
        (tmp_path / "intel-rapl:0" / "energy_uj").unlink()
        (tmp_path / "intel-rapl:0" / "energy_uj").mkdir()  # root may read whatever its permissions are
    if machine == "of another kind":
        zone(tmp_path, "0", "psys", 5)
    assert PackageEnergy(tmp_path).joules() is None


def test_a_counter_that_goes_away_leaves_no_joules(tmp_path: Path) -> None:
    zone(tmp_path, "0", "package-0", 5)
    energy = PackageEnergy(tmp_path)
    (tmp_path / "intel-rapl:0" / "energy_uj").unlink()
    assert energy.joules() is None
    zone(tmp_path, "0", "package-0", 9)  # what it rose by meanwhile is not known
    assert energy.joules() is None


def test_what_the_machine_does_beside_is_busy_time(tmp_path: Path) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    stat = processors(tmp_path / "stat", user=100, idle=1000)
    meter = ProcessMeter(PackageEnergy(tmp_path / "none"), stat)
    processors(stat, user=100 + 3 * ticks, idle=90_000)
    used = meter.of_run("a")
    assert used.busy_core_seconds == pytest.approx(3)
    assert used.package_joules is None
    assert ProcessMeter(PackageEnergy(tmp_path / "none"), tmp_path / "no file").of_run("a").busy_core_seconds is None


def test_the_first_run_has_the_start_of_its_process_and_a_second_one_what_came_after(tmp_path: Path) -> None:
    zone(tmp_path, "0", "package-0", 0)
    before = time.process_time()
    meter = ProcessMeter(PackageEnergy(tmp_path), processors(tmp_path / "stat", user=0, idle=0))
    zone(tmp_path, "0", "package-0", 2_000_000)
    first = meter.of_run("a")
    zone(tmp_path, "0", "package-0", 5_000_000)
    later = meter.of_run("a")
    zone(tmp_path, "0", "package-0", 6_000_000)
    second = meter.of_run("b")
    assert before <= first.core_seconds <= later.core_seconds
    assert second.core_seconds < before
    assert [used.package_joules for used in (first, later, second)] == pytest.approx([2, 5, 1])
    assert (first.began_at, second.began_at) == (later.began_at, later.measured_at)
    assert 2**20 < first.peak_memory_bytes <= second.peak_memory_bytes


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    monkeypatch.setenv("WATTLEDGER_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    path = tmp_path / "mine.yaml"
    path.write_text(FILE + "machine: {watts_per_core: 3.5}\n", encoding="utf-8")
    made = load_fleet(path)
    made.root.mkdir(parents=True)
    return made


def test_a_run_is_one_row_with_what_was_measured_last(tmp_path: Path, fleet: Fleet) -> None:
    meter = ProcessMeter(PackageEnergy(tmp_path / "none"), tmp_path / "no file")
    with database.connect(fleet.warehouse) as connection:
        create_tables(connection)
        run_costs.note(connection, fleet, "a", meter=meter)
        # Before anything is booked there is no mart.
        assert connection.execute("select measured_until, held_gpu_seconds from raw.run_costs").fetchall() == [
            ("publication", None)
        ]
        connection.execute("create schema marts")
        connection.execute("create table marts.fleet_daily as select unnest([86400, null, 43200]) as gpu_seconds")
        (fleet.root / "logs").mkdir()
        (fleet.root / "logs" / "run.log").write_bytes(b"x" * 5_000_000)
        run_costs.note(connection, fleet, "a", run_costs.END, meter)
        run_costs.note(connection, fleet, "b", meter=meter)
        rows = connection.execute(
            "select run_id, measured_until, watts_per_core, held_gpu_seconds, package_joules, busy_core_seconds,"
            " began_at < measured_at, measured_at <= $1, held_bytes from raw.run_costs order by run_id",
            [datetime.now(UTC)],
        ).fetchall()
    assert rows == [
        ("a", "end", 3.5, 129600, None, None, True, True, 5_000_000),
        ("b", "publication", 3.5, 129600, None, None, True, True, 5_000_000),
    ]


def test_a_run_ends_with_what_it_took_or_why_that_is_not_noted(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = run.cost_noted(fleet, "a", is_success=True)
    assert re.fullmatch(r": [\d,]+\.\d core-seconds and \d+\.\d [MG]B of memory", words)
    assert capsys.readouterr().err == ""
    with database.writing(fleet.warehouse, "another run"):
        assert run.cost_noted(fleet, "b", is_success=False) == ""  # at once
        assert capsys.readouterr().err == ""
        monkeypatch.setenv("WATTLEDGER_LOCK_SECONDS", "0")
        assert run.cost_noted(fleet, "b", is_success=True) == ""
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"what this run took could not be noted: {fleet.warehouse} is being written by process ")
    with database.connect(fleet.warehouse) as connection:
        assert connection.execute("select run_id, measured_until from raw.run_costs").fetchall() == [("a", "end")]


def test_watts_are_unknown_until_they_are_stated(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(FILE, encoding="utf-8")
    assert load_fleet(path).machine.watts_per_core is None
    path.write_text(FILE + "machine: {watts_per_core: 0}\n", encoding="utf-8")
    with pytest.raises(FleetError, match=r"machine\.watts_per_core"):
        load_fleet(path)
