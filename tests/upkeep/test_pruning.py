"""What `retention` lets go: which dates of raw, which runs of Dagster, which files; and what it leaves."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import dagster as dg
import duckdb
import pytest
import yaml

from collectors.devices.spool import Spool
from pipelines.command_line.main import main
from pipelines.fleet.fleet_file import Fleet, load_fleet
from pipelines.landing import landing_days, telemetry_landing
from pipelines.landing.lake import Lake
from pipelines.landing.stores import LakeStore
from pipelines.upkeep import dagster_history, layers, pruning, raw_removal
from pipelines.warehouse import closings, compaction, database, disk_room, due_dates, sealed_dates
from pipelines.warehouse.contracts import Mart
from pipelines.warehouse.raw_tables import create_tables
from pipelines.warehouse.refusals import QuestionError
from tests.given import CATALOGUE, WATTS, Samples, at, day

NOW = datetime(2026, 11, 20, tzinfo=UTC)
NEWEST = date(2026, 11, 19)
# July to November of a fleet that closed its months to September.
FIRST = date(2026, 7, 1)


def fleet_of(folder: Path, **keys: object) -> Fleet:
    contents = {
        "fleet": "mine",
        "period": {"start": "2026-07-01"},
        "sources": [{"name": "agents", "kind": "spool", "path": "spool/"}],
        **keys,
    }
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(contents), encoding="utf-8")
    return load_fleet(path, {"WATTLEDGER_DATA": str(folder / "data")})


@pytest.fixture
def held(held: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """A warehouse that has booked every date from July on, with one sample a date."""
    days = (NEWEST - FIRST).days + 1
    held.execute(
        "insert into raw.booked_with"
        " select date '2026-07-01' + n::integer, 'method_version', '5' from range(?) as days(n)",
        [days],
    )
    held.execute(
        "insert into raw.power_samples select 1, timestamptz '2026-07-01 12:00:00Z' + to_days(n::integer), 300.0"
        " from range(?) as d(n)",
        [days],
    )
    closings.create(held)
    for event, month in enumerate(("2026-07-01", "2026-08-01", "2026-09-01"), start=1):
        held.execute("insert into published.closings (event, month, action) values (?, ?, 'closed')", [event, month])
    return held


def planned(connection: duckdb.DuckDBPyConnection, fleet: Fleet) -> raw_removal.Removal:
    found = raw_removal.planned(connection, fleet, 28)
    assert found is not None
    return found


def test_raw_goes_as_far_as_stated_and_the_spread_before_it_stays(
    held: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    fleet = fleet_of(tmp_path, retention={"raw_days": 60})
    plan = planned(held, fleet)
    # The newest 60 dates begin on 21 September; three days of spread and one for its edge stay before them.
    assert (plan.open_date, plan.raw_from, plan.refused) == (date(2026, 9, 21), date(2026, 9, 17), None)
    assert (plan.dates[0], plan.dates[-1]) == (FIRST, date(2026, 9, 16))
    assert raw_removal.remove(held, fleet, plan)[-1] == date(2026, 9, 20)
    assert held.execute("select min(observed_at::date) from raw.power_samples").fetchall() == [(date(2026, 9, 17),)]
    assert sealed_dates.open_from(held) == date(2026, 9, 21)
    # Nothing more goes a second time.
    assert planned(held, fleet).dates == ()


@pytest.mark.parametrize(
    ("days", "change", "expected"),
    [
        # The lookback and as many dates before it: 56 up to 19 November.
        (10, None, "raw of 2026-09-25 and later stays: the newest 56 dates are those of the lookback and of what it is"
            " compared with"),
        (60, "delete from published.closings where month = '2026-08-01'",
            "raw of 2026-07-31 and later stays: 2026-08 is not closed (`wattledger close 2026-08`)"),
        (60, "insert into raw.due_dates values ('2026-09-03', 'held_back')",
            "raw of 2026-09-03 and later stays: 2026-09-03 is held back"),
        (60, "insert into raw.run_windows (window_id, start_at, end_at) values"
            " ('long', '2026-09-10 08:00:00Z', '2026-10-10 08:00:00Z')",
            "raw of 2026-09-10 and later stays: the run window long goes on after 2026-09-21"),
    ],
)  # fmt: skip
def test_raw_that_is_needed_is_refused_with_one_line(
    held: duckdb.DuckDBPyConnection, tmp_path: Path, days: int, change: str | None, expected: str
) -> None:
    if change:
        held.execute(change)
    plan = planned(held, fleet_of(tmp_path, retention={"raw_days": days}))
    assert plan.refused == expected
    assert plan.open_date == date.fromisoformat(expected[7:17])


def test_a_window_that_is_over_or_begins_later_keeps_nothing(held: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    held.execute(
        "insert into raw.run_windows (window_id, start_at, end_at) values"
        " ('over', '2026-09-10 08:00:00Z', '2026-09-20 08:00:00Z'),"
        " ('later', '2026-09-22 08:00:00Z', '2026-10-10 08:00:00Z')"
    )
    assert planned(held, fleet_of(tmp_path, retention={"raw_days": 60})).refused is None


def test_a_sealed_date_is_due_for_no_booking(held: duckdb.DuckDBPyConnection) -> None:
    sealed_dates.seal(held, [date(2026, 7, 1), date(2026, 7, 2)], date(2026, 7, 2))
    due_dates.mark(held, due_dates.BOOKING, date(2026, 7, 1), date(2026, 7, 4))
    assert due_dates.due(held, due_dates.BOOKING) == [date(2026, 7, 2), date(2026, 7, 3)]
    # What waits to be published has its rows, sealed or not.
    due_dates.mark(held, due_dates.PUBLICATION, date(2026, 7, 1), date(2026, 7, 2))
    assert due_dates.due(held, due_dates.PUBLICATION) == [date(2026, 7, 1)]


def test_no_month_has_a_part_of_a_new_figure(held: duckdb.DuckDBPyConnection) -> None:
    held.execute("create schema marts")
    held.execute("create table marts.model_monthly (month date, energy_joules double, water_litres double)")
    held.execute("insert into marts.model_monthly values ('2026-07-01', 7, 1), ('2026-08-01', 8, 2)")
    held.execute("create table marts.fleet_daily (date date, water_litres double)")
    held.execute("insert into marts.fleet_daily values ('2026-07-31', 1)")
    marts = {"model_monthly": Mart((), "months"), "fleet_daily": Mart(())}
    sealed_dates.seal(held, [date(2026, 7, 30)], date(2026, 7, 31))
    for mart in marts:
        sealed_dates.note_new(held, mart, ["water_litres"])
        sealed_dates.note_new(held, mart, ["water_litres"])  # a second run finds it noted
    sealed_dates.clear_partial(held, marts)
    assert held.execute("from marts.model_monthly order by month").fetchall() == [
        (date(2026, 7, 1), 7, None),
        (date(2026, 8, 1), 8, 2),
    ]
    assert held.execute("from marts.fleet_daily").fetchall() == [(date(2026, 7, 31), 1)]


# --- Dagster's history ------------------------------------------------------------------------------------------------


@dg.asset(partitions_def=dg.DailyPartitionsDefinition("2026-10-01"))
def daily_asset() -> None:
    """One of a fleet's assets."""


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    home = tmp_path / "home"
    home.mkdir()
    with dg.DagsterInstance.local_temp(str(home)) as made:
        yield made


def ran(instance: dg.DagsterInstance, on: str, fleet: str = "mine", *, fails: bool = False) -> str:
    """The id of a run of the whole job on a date."""

    @dg.asset(name="daily_asset", partitions_def=dg.DailyPartitionsDefinition("2026-10-01"))
    def failing() -> None:
        raise dg.Failure("as planned")

    job = dg.define_asset_job("daily_ledger", tags={"fleet": fleet})
    definitions = dg.Definitions([failing if fails else daily_asset], jobs=[job])
    resolved = definitions.resolve_job_def("daily_ledger")
    return resolved.execute_in_process(instance=instance, partition_key=on, raise_on_error=False).run_id


def test_the_newest_events_of_every_date_stay(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path)
    first, failed = ran(instance, "2026-10-01"), ran(instance, "2026-10-02", fails=True)
    alone = ran(instance, "2026-10-03")
    of_another_fleet = [ran(instance, "2026-10-01", "other"), ran(instance, "2026-10-01", "other")]
    newest = [ran(instance, "2026-10-01"), ran(instance, "2026-10-02")]
    later = datetime.now(UTC) + timedelta(days=2)
    home, key = tmp_path / "home", dg.AssetKey("daily_asset")
    assert dagster_history.removable(instance, fleet, 3, later) == ([], [])
    # Of the newest run all stays.
    old = dagster_history.removable(instance, fleet, 1, later)
    assert old == ([failed, first], [newest[0], alone])
    assert dagster_history.with_logs(home, old.logs) == [newest[0], alone]
    dagster_history.remove(instance, old, home)
    assert dagster_history.with_logs(home, old.logs) == []
    assert [len(instance.all_logs(run_id)) > 0 for run_id in (alone, *newest)] == [False, False, True]
    assert instance.get_materialized_partitions(key) == {"2026-10-01", "2026-10-02", "2026-10-03"}
    left = {record.dagster_run.run_id for record in instance.get_run_records()}
    assert left == {alone, *of_another_fleet, *newest}
    found = instance.fetch_materializations(key, limit=100)
    assert {one.partition_key for one in found.records} == {"2026-10-01", "2026-10-02", "2026-10-03"}
    assert list(home.rglob(f"{first}*")) == []


# --- files, and the command -------------------------------------------------------------------------------------------


def test_old_logs_and_spooled_files_of_dates_that_no_run_lands_go(
    held: duckdb.DuckDBPyConnection, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    fleet = fleet_of(tmp_path, retention={"log_days": 30, "spool_days": 14})
    logs = fleet.root / "logs"
    logs.mkdir(parents=True)
    for name, days in (("old.log", 31), ("new.log", 29)):
        (logs / name).write_text("x" * 100)
        at = (NOW - timedelta(days=days)).timestamp()
        os.utime(logs / name, (at, at))
    spool = Spool(fleet.sources[0].path)
    # Before the period, sealed, open, and sealed but not for long.
    sealed_dates.seal(held, [date(2026, 11, 8)], date(2026, 11, 9))
    for on in ("2026-06-30", "2026-10-01", "2026-11-10", "2026-11-08"):
        spool.put(f"host=a/date={on}/1-a-1.parquet", b"12345")
    history = pruning.History(instance, tmp_path / "home", is_ours=True)
    found = pruning.looked(held, fleet, history, NOW, ("logs", "spools", "history"))
    assert [(one.name, one.frees_bytes) for one in found] == [("history", 0), ("logs", 100), ("spools", 10)]
    assert sorted(path.name for path in logs.iterdir()) == ["new.log", "old.log"]  # a look removes nothing
    for one in found:
        one.remove()
    assert [path.name for path in logs.iterdir()] == ["new.log"]
    assert spool.days() == [date(2026, 11, 8), date(2026, 11, 10)]


def test_prune_shows_and_with_yes_removes_and_writes_the_file_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = fleet_of(tmp_path, retention={"intermediate": False})
    monkeypatch.setenv("WATTLEDGER_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("DAGSTER_HOME", str(fleet.root / ".dagster"))
    fleet.root.mkdir(parents=True)
    with database.connect(fleet.warehouse) as connection:
        create_tables(connection)
        connection.execute("create schema intermediate")
        connection.execute("create table intermediate.int_steps as select random() as x from range(5_000_000)")
        connection.execute("create table raw.kept as select 7 as seven")
        connection.execute("comment on column raw.kept.seven is 'stays'")
        connection.execute("create view intermediate.of_steps as select count(*) as rows from intermediate.int_steps")
    before = fleet.warehouse.stat().st_size
    assert main(["prune", "--fleet", str(fleet.path)]) == 0
    shown = capsys.readouterr().out
    assert "the rows of 1 tables between raw and the marts: of the last run's dates (intermediate: false)" in shown
    assert shown.splitlines()[-1] == f"Nothing was removed. To remove it: wattledger prune --fleet {fleet.path} --yes"
    assert fleet.warehouse.stat().st_size == before
    killed = fleet.root / ".compact-warehouse.duckdb"
    killed.write_bytes(b"what a copy that was killed has left")
    assert main(["prune", "--fleet", str(fleet.path), "--yes", "intermediate"]) == 0
    assert not killed.exists()
    # 5 million random doubles went: 34 to 40 MB, by how many threads wrote them.
    assert before - fleet.warehouse.stat().st_size > 30_000_000
    with database.connect(fleet.warehouse) as connection:
        assert connection.execute("from intermediate.of_steps").fetchall() == [(0,)]
        assert connection.execute("from raw.kept").fetchall() == [(7,)]
        comment = connection.execute("select comment from duckdb_columns() where table_name = 'kept'").fetchall()
    assert comment == [("stays",)]
    assert main(["prune", "--fleet", str(fleet.path), "marts"]) == 2
    assert capsys.readouterr().err == f"layer: got 'marts', expected one of {', '.join(layers.LAYERS)}\n"


def test_a_copy_without_room_or_with_other_rows_leaves_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = fleet_of(tmp_path)
    fleet.root.mkdir(parents=True)
    with database.connect(fleet.warehouse) as connection:
        create_tables(connection)
        connection.execute("create table raw.kept as select n from range(1000) as numbers(n)")
    monkeypatch.setattr(compaction, "LEAST_BYTES", 0)
    before = fleet.warehouse.read_bytes()
    monkeypatch.setattr(disk_room, "MARGIN_RATIO", 1e12)
    with pytest.raises(disk_room.TooLittleRoom, match=r"writing .* anew without its free blocks needs .* of free disk"):
        pruning.compacted(fleet, is_asked=True)
    assert fleet.warehouse.read_bytes() == before
    contents = iter([["raw.kept, 1000 rows"], ["raw.kept, 999 rows"]])
    monkeypatch.setattr(compaction, "_contents", lambda *_: next(contents))
    with pytest.raises(compaction.CopyDiffers):
        compaction.compact(fleet.warehouse)
    assert fleet.warehouse.read_bytes() == before
    assert [path.name for path in fleet.root.iterdir()] == ["warehouse.duckdb"]


def test_nothing_lands_of_a_sealed_date_and_what_waits_for_it_is_named(
    held: duckdb.DuckDBPyConnection, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fleet = fleet_of(tmp_path)
    spool = Spool(fleet.sources[0].path)
    for on in ("2026-07-01", "2026-07-03"):
        spool.put(f"host=a/date={on}/1-a-1.parquet", b"no Parquet")
    sealed_dates.seal(held, [date(2026, 7, 1)], date(2026, 7, 2))
    days = (date(2026, 7, 1), date(2026, 7, 6))
    with caplog.at_level("WARNING", "pipelines"):
        found = landing_days.land_days(held, fleet, *days, run_id="run", now=NOW)
    assert sorted({one.window.start_at.day for one in found}) == [2, 3, 4, 5, 6]
    assert "agents: what came late for sealed dates stays in the spool: 2026-07-01" in caplog.messages
    assert spool.days() == [date(2026, 7, 1), date(2026, 7, 3)]
    assert landing_days.land_days(held, fleet, date(2026, 7, 1), date(2026, 7, 2), run_id="run", now=NOW) == []
    with pytest.raises(QuestionError, match=r"^nothing to book: 2026-07-01 is sealed: its samples were removed"):
        sealed_dates.clipped(held, date(2026, 7, 1), date(2026, 7, 2))
    assert sealed_dates.clipped(held, *days) == (date(2026, 7, 2), date(2026, 7, 6))


def test_a_lake_loses_the_files_of_the_dates_that_are_sealed(held: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path, landing={"target": "lake", "path": "lake/"}, retention={"raw_days": 60})
    lake = Lake(fleet.landing.lake_path)
    held.execute("delete from raw.power_samples")
    for number in (-60, 0):  # 2 August and 1 October
        source = Samples().put(WATTS, {"UUID": "GPU-1"}, [(at(number), 300.0)])
        landed = telemetry_landing.land(held, source, day(number), CATALOGUE, run_id="run", store=LakeStore(lake))
        assert landed.outcome == "landed"
    held.execute("delete from raw.due_dates")
    plan = planned(held, fleet)
    assert (plan.dates, plan.open_date) == ((date(2026, 8, 2),), date(2026, 9, 21))
    assert plan.bytes == lake.bytes_of(lake.dated_files(date(2026, 9, 1))[date(2026, 8, 2)]) > 0
    raw_removal.remove(held, fleet, plan)
    assert lake.dated_files(date(2026, 9, 1)) == {}
    assert held.execute("select observed_at::date from raw.power_samples").fetchall() == [(date(2026, 10, 1),)]
    assert held.execute("select date from raw.lake_days").fetchall() == [(date(2026, 10, 1),)]
