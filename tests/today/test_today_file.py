"""The file of a tick: the last tick of each date beside what was booked of it, and who may read it."""

from __future__ import annotations

import shutil
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import duckdb
import pytest

from pipelines.command_line.main import main
from pipelines.fleet.fleet_file import Fleet, load_fleet
from pipelines.serving.fleet_state import FleetState
from pipelines.serving.today_section import with_today
from pipelines.today import today_file
from pipelines.today.today_file import SourceState, Tick, Today
from tests.books import empty_warehouse, environment

DAY = date(2026, 11, 10)
NOON = datetime(2026, 11, 10, 12, 3, tzinfo=UTC)
NAME = "<b>llama</b>"


def fleet_of(folder: Path) -> Fleet:
    path = folder / "fleet.yaml"
    source = "{name: cluster, kind: prometheus, url: 'http://127.0.0.1:9', interval_seconds: 60}"
    path.write_text(f"fleet: mine\nperiod: {{start: 2026-11-01}}\nsources: [{source}]\n")
    fleet = load_fleet(path, environment(folder / "data"))
    fleet.root.mkdir(parents=True)
    return fleet


def hour(connection: duckdb.DuckDBPyConnection, at: datetime, **facts: float | str) -> None:
    """An hour of the model: 3.6 MJ of which a quarter is idle, 1000 output tokens, 0.5 USD; other `facts` instead, as
    SQL has them."""
    row = {
        "energy_joules": 3.6e6, "matched_joules": 3.6e6, "productive_joules": 2.7e6, "idle_joules": 0.9e6,
        "output_tokens": 1000, "total_tokens": 4000, "matched_output_tokens": 1000, "matched_total_tokens": 4000,
        "facility_energy_kwh": 1.3, "location_gco2e": 520, "compute_cost_usd": 0.5, "matched_compute_cost_usd": 0.5,
        "priced_output_tokens": 1000, "gpu_seconds": 3600, **facts,
    }  # fmt: skip
    connection.execute(
        f"insert into marts.model_hourly (date, hour_start_at, model, meter_scope, {', '.join(row)})"
        f" values (?, ?, ?, 'board', {', '.join(map(str, row.values()))})",
        [at.date(), at, NAME],
    )


def tick(fleet: Fleet, at: datetime, hours: int, **facts: float | str) -> Today:
    """A tick whose warehouse has so many hours of the date, from midnight on."""
    warehouse = fleet.root / ".today" / "warehouse.duckdb"
    warehouse.parent.mkdir(exist_ok=True)
    shutil.copyfile(empty_warehouse(), warehouse)
    midnight = at.replace(hour=0, minute=0, second=0)
    with duckdb.connect(str(warehouse)) as connection:
        for number in range(hours):
            hour(connection, midnight + timedelta(hours=number), **facts)
    source = SourceState("cluster", at, at, 10, False, None)
    today_file.write(Tick(fleet, at.date(), at, midnight + timedelta(hours=hours), [source]), warehouse, lambda: 4.0)
    made = today_file.read(fleet)
    assert made is not None
    return made


def publish(fleet: Fleet, on: date, hours: int, **facts: float | str) -> None:
    """A publication that has so many hours of a date."""
    folder = fleet.published / "20261111T011500Z"
    folder.mkdir(parents=True)
    shutil.copyfile(empty_warehouse(), folder / "wattledger.duckdb")
    with duckdb.connect(str(folder / "wattledger.duckdb")) as connection:
        for number in range(hours):
            hour(connection, datetime(on.year, on.month, on.day, number, tzinfo=UTC), **facts)
    (fleet.published / "latest").symlink_to(folder.name)


def test_what_a_tick_shows_of_a_model(tmp_path: Path) -> None:
    (model,) = tick(fleet_of(tmp_path), NOON, 12).models
    # 43.2 MJ in twelve hours are 1000 W; 3600 J per output token, a quarter of that per token of both kinds.
    assert (model.model, model.energy_joules, model.mean_watts, model.output_tokens) == (NAME, 43.2e6, 1000, 12_000)
    assert (model.joules_per_output_token, model.joules_per_total_token) == (3600, 900)
    assert model.estimated_idle_energy_ratio == 0.25
    assert model.estimated_compute_cost_usd_per_output_mtok == 500
    assert (model.estimated_compute_cost_usd, model.estimated_location_gco2e) == (6, 6240)
    assert model.newest_interval_watts is None  # the ledger has no row of the newest interval


def test_the_difference_to_the_booking_is_tabled_over_the_hours_of_the_last_tick(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path)
    assert tick(fleet, NOON, 12).differences == []
    last = datetime(2026, 11, 10, 23, 58, tzinfo=UTC)
    assert tick(fleet, last, 23).differences == []
    # Booked were all 24 hours, with 0.6 USD and a third of the idle energy; of the first 23, joules are the same.
    publish(fleet, DAY, 24, compute_cost_usd=0.625, idle_joules=0.3e6)
    made = tick(fleet, datetime(2026, 11, 11, 2, tzinfo=UTC), 2)
    found = {one.figure: (one.dates, one.greatest_ratio, one.on, one.model) for one in made.differences}
    assert found.pop("idle_joules") == (1, pytest.approx(2.0), DAY, NAME)
    assert found.pop("compute_cost_usd") == (1, pytest.approx(0.2), DAY, NAME)
    assert {figure: ratio for figure, (_, ratio, *_) in found.items()} == {
        "energy_joules": 0, "output_tokens": 0, "total_tokens": 0, "facility_energy_kwh": 0, "location_gco2e": 0,
    }  # fmt: skip
    with duckdb.connect(str(today_file.path_of(fleet)), read_only=True) as connection:
        query = "select ticked, booked, difference from today.today.differences where figure = 'compute_cost_usd'"
        assert connection.execute(query).fetchall() == [(11.5, 14.375, 2.875)]
        # The running date is compared with nothing, and its own last tick is the newest.
        assert connection.execute(
            "select date, any_value(energy_joules)::double from today.today.last_ticks group by date order by date"
        ).fetchall() == [(DAY, 23 * 3.6e6), (date(2026, 11, 11), 2 * 3.6e6)]
    # After 35 days a date is compared no more.
    assert tick(fleet, datetime(2026, 12, 15, 2, tzinfo=UTC), 2).differences != []
    assert tick(fleet, datetime(2026, 12, 16, 2, tzinfo=UTC), 2).differences == []


def test_a_file_of_other_tables_counts_as_none(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path)
    with duckdb.connect(str(today_file.path_of(fleet))) as connection:
        connection.execute("create schema today; create table today.today.tick (other integer)")
    assert today_file.read(fleet) is None


def test_a_damaged_file_hides_nothing_else_and_the_next_tick_writes_another(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path)
    publish(fleet, DAY, 24)
    (fleet.published / "report.html").write_text("the report")
    with duckdb.connect(str(fleet.published / "latest" / "wattledger.duckdb")) as connection:
        connection.execute("insert into marts.model_daily (date, model, meter_scope) values (?, 'm', 'board')", [DAY])
    first = tick(fleet, NOON, 12)
    seen, before = FleetState(fleet, tmp_path), FleetState(fleet, tmp_path)
    assert before.renew(fleet) == []
    today_file.path_of(fleet).write_bytes(b"x" * 5000)
    for state, last in ((seen, None), (before, first)):
        (problem,) = state.renew(fleet)
        assert problem.startswith("today: IOException: ")
        assert state.renew(fleet) == []  # it is reported once
        assert state.state.today == last
        assert state.report == "the report"
        assert state.state.last_day is not None
        assert state.state.last_day.on == DAY
    assert today_file.last(fleet) is None
    made = tick(fleet, NOON, 12)
    assert seen.renew(fleet) == []
    assert seen.state.today == made == first


def test_what_the_command_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WATTLEDGER_DATA", str(tmp_path / "data"))
    fleet = fleet_of(tmp_path)
    assert main(["today", "--fleet", str(fleet.path)]) == 2
    assert "no tick was made yet. `wattledger today --refresh` makes one" in capsys.readouterr().err
    tick(fleet, NOON, 12)
    textfile = tmp_path / "wattledger.prom"
    assert main(["today", "--fleet", str(fleet.path), "--textfile", str(textfile)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "fleet mine, 2026-11-10 until 12:00 UTC (tick of 12:03:00, 4.0 s): measured telemetry"
    assert lines[4].split() == [
        NAME, "900.0000", "3,600.0000", "1,000.0", "–", "12,000", "25.0%", "15.6", "6.2", "6.00", "500.00",
    ]  # fmt: skip
    # The tick is of a day that is over: its time is there, its figures are not.
    text = textfile.read_text(encoding="utf-8")
    assert 'wattledger_today_tick_timestamp_seconds{fleet="mine"}' in text
    assert "wattledger_today_energy_joules" not in text


def test_a_model_in_doubt_is_marked_in_the_terminal_and_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """400 of 4,000 tokens of each hour. Innocent twin: 20, which are less than a hundredth."""
    monkeypatch.setenv("WATTLEDGER_DATA", str(tmp_path / "data"))
    fleet = fleet_of(tmp_path)
    doubted = {"doubted_tokens": 400, "doubted_tokens_ratio": 0.1, "doubted_energy_ratio": 0}
    made = tick(fleet, NOON, 12, **doubted, doubt_reasons="'hidden_processes'")
    assert main(["today", "--fleet", str(fleet.path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[4].split() == [
        NAME, "900.0000?", "3,600.0000?", "1,000.0", "–", "12,000?", "25.0%", "15.6", "6.2", "6.00", "500.00?",
    ]  # fmt: skip
    assert lines[5] == (
        f"? in doubt by 1 % or more: {NAME}: hidden_processes; once the day is booked, marts.doubts has the evidence"
        " and what to do"
    )
    assert "hidden_processes" in with_today(None, made, "mine", NOON)
    tick(fleet, NOON, 12, doubted_tokens=20, doubted_tokens_ratio=0.005, doubted_energy_ratio=0, doubt_reasons="''")
    assert main(["today", "--fleet", str(fleet.path)]) == 0
    assert "?" not in capsys.readouterr().out


def test_the_page_has_today_at_its_head_and_names_are_text(tmp_path: Path) -> None:
    made = tick(fleet_of(tmp_path), NOON, 12)
    published = "<html><body><header>h</header><main><p>report</p></main></body></html>"
    page = with_today(published, made, "mine", NOON)
    assert page.startswith("<html><body><header>h</header><main><section")
    assert page.endswith("</section><p>report</p></main></body></html>")
    assert "&lt;b&gt;llama&lt;/b&gt;" in page
    assert "<b>llama" not in page
    alone = with_today(None, made, "mine", NOON)
    assert "Nothing is published yet" in alone
    assert "25.0 %" in alone
    # Of an old tick no figure is shown.
    old = with_today(published, made, "mine", NOON + timedelta(minutes=21))
    assert "25.0 %" not in old
    assert "The newest tick is of 2026-11-10 12:03 UTC, so nothing of it is shown." in old
    assert "No tick was made yet." in with_today(published, None, "mine", NOON)
