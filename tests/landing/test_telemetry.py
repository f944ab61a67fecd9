"""What a run lands: every source and day, the head that closes the last midnight, what a failing source costs."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path

import dagster as dg
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from collectors.devices.spool import Spool, host_folder
from collectors.devices.spool_collector import SPOOL_SCHEMA
from pipelines.fleet.fleet_file import Fleet, load_fleet
from pipelines.landing import landing_days, telemetry_assets
from pipelines.warehouse import database, due_dates

CSV = "at,node,watts\n" + "".join(
    f"2026-10-{day:02d}T{hour:02d}:30:00Z,n1,{100 * day + hour}\n" for day in range(1, 8) for hour in range(24)
)


def fleet_of(folder: Path, sources: str, period: str = "{start: 2026-10-01, end: 2026-10-08}") -> Fleet:
    (folder / "power.csv").write_text(CSV)
    path = folder / "fleet.yaml"
    path.write_text(f"fleet: mine\nperiod: {period}\nsources:\n{sources}")
    return load_fleet(path, {"WATTLEDGER_DATA": str(folder / "data")})


WALL = """
  - name: wall
    kind: files
    interval_seconds: 3600
    files: [{path: power.csv, time: at, labels: {node: node}, values: {wall_power_watts: watts}}]
"""


@pytest.fixture
def unreachable() -> Iterator[str]:
    """A URL without an answer: the port is taken, and not listened to."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def land(fleet: Fleet, held: duckdb.DuckDBPyConnection, start: int, end: int, now: datetime | None = None) -> list:
    results = landing_days.land_days(
        held,
        fleet,
        date(2026, 10, start),
        date(2026, 10, end),
        run_id="run",
        now=now or datetime(2026, 11, 1, tzinfo=UTC),
    )
    return [(r.source, r.window.start_at.day, r.window.end_at.hour, r.outcome, r.rows) for r in results]


def test_a_run_lands_its_days_and_the_head_of_the_next(tmp_path: Path, held: duckdb.DuckDBPyConnection) -> None:
    fleet = fleet_of(tmp_path, WALL)
    assert land(fleet, held, 2, 4) == [
        ("wall", 2, 0, "landed", 24),
        ("wall", 3, 0, "landed", 24),
        ("wall", 1, 0, "landed", 2),  # two of the source's intervals
        ("wall", 4, 2, "landed", 2),
    ]
    # Both are there already.
    assert land(fleet, held, 2, 4) == [("wall", 2, 0, "unchanged", 24), ("wall", 3, 0, "unchanged", 24)]


def test_a_period_lands_the_samples_around_it_and_books_only_its_own_dates(
    tmp_path: Path, held: duckdb.DuckDBPyConnection
) -> None:
    fleet = fleet_of(tmp_path, WALL, "{start: 2026-10-03, end: 2026-10-05}")
    assert land(fleet, held, 3, 5) == [
        ("wall", 3, 0, "landed", 24),
        ("wall", 4, 0, "landed", 24),
        ("wall", 2, 0, "landed", 2),
        ("wall", 5, 2, "landed", 2),
    ]
    due = "select date::varchar from raw.due_dates order by date"
    assert held.execute(due).fetchall() == [("2026-10-03",), ("2026-10-04",)]
    # Landed again, the neighbours are there already.
    assert land(fleet, held, 3, 5) == [("wall", 3, 0, "unchanged", 24), ("wall", 4, 0, "unchanged", 24)]


def test_a_file_that_could_not_be_read_is_read_by_the_next_run(tmp_path: Path, held: duckdb.DuckDBPyConnection) -> None:
    fleet = fleet_of(tmp_path, WALL, "{start: 2026-10-01}")
    there = tmp_path / "power.csv"
    land(fleet, held, 1, 2)
    there.rename(tmp_path / "away")
    assert land(fleet, held, 2, 3)[0] == ("wall", 2, 0, "failed", 0)
    (tmp_path / "away").rename(there)
    held.execute("delete from raw.due_dates")
    assert [row for row in land(fleet, held, 3, 4) if row[2] == 0] == [
        ("wall", 3, 0, "landed", 24),
        ("wall", 2, 0, "landed", 24),
    ]
    due = "select date::varchar from raw.due_dates order by date"
    assert held.execute(due).fetchall() == [("2026-10-02",), ("2026-10-03",)]
    # It is landed once.
    assert [row for row in land(fleet, held, 4, 5) if row[2] == 0] == [("wall", 4, 0, "landed", 24)]


def test_a_file_that_holds_the_period_alone_has_no_neighbours_and_that_is_no_failure(
    tmp_path: Path, held: duckdb.DuckDBPyConnection
) -> None:
    fleet = fleet_of(tmp_path, WALL)
    (tmp_path / "power.csv").write_text(CSV + "soon,n1,5\n2026-10-07T12:00:00Z\n")
    results = land(fleet, held, 1, 8)
    assert [outcome for *_, outcome, _ in results] == ["landed"] * 7 + ["empty"] * 2


def test_a_head_reaches_no_further_than_now(tmp_path: Path, held: duckdb.DuckDBPyConnection) -> None:
    fleet = fleet_of(tmp_path, WALL, "{start: 2026-10-01}")
    assert land(fleet, held, 1, 2, now=datetime(2026, 10, 2, tzinfo=UTC)) == [
        ("wall", 1, 0, "landed", 24),
        ("wall", 30, 0, "empty", 0),  # before the period
    ]
    land(fleet, held, 1, 2, now=datetime(2026, 10, 2, 0, 45, tzinfo=UTC))
    assert held.execute("select max(chunk_end_at) from raw.series_chunks").fetchall() == [
        (datetime(2026, 10, 2, 0, 45, tzinfo=UTC),)
    ]


def test_a_source_that_cannot_be_reached_is_asked_three_times_and_recorded_for_every_day(
    tmp_path: Path, held: duckdb.DuckDBPyConnection, unreachable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)  # between attempts
    down = f'  - {{name: cluster, kind: prometheus, url: "{unreachable}/", interval_seconds: 15}}\n'
    fleet = fleet_of(tmp_path, WALL + down)
    results = land(fleet, held, 2, 7)
    assert [r[3] for r in results if r[0] == "wall"] == ["landed"] * 7
    assert [r[3] for r in results if r[0] == "cluster"] == ["failed"] * 7
    audit = held.execute(
        "select url, detail like 'not asked%', window_start_at from raw.landings where source = 'cluster' order by 3"
    ).fetchall()
    assert all(row[0].startswith(unreachable) for row in audit)
    assert [row[1] for row in audit] == [True, False, False, False, True, True, True]


def test_late_files_of_earlier_days_are_landed_with_the_run(tmp_path: Path, held: duckdb.DuckDBPyConnection) -> None:
    fleet = fleet_of(tmp_path, "  - {name: agents, kind: spool, interval_seconds: 1}\n")
    spool = Spool(fleet.sources[0].path)
    for day in (2, 5, 6):
        rows = {
            "observed_at": [datetime(2026, 10, day, 1, second, tzinfo=UTC) for second in range(3)],
            "source_kind": ["nvml"] * 3,
            "metric": ["nvml_power_watts"] * 3,
            "labels": [json.dumps({"uuid": "GPU-1"})] * 3,
            "value": [100.0, 101.0, 102.0],
        }
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table(rows, schema=SPOOL_SCHEMA), sink)
        spool.put(f"{host_folder('a')}/date=2026-10-{day:02d}/1-x-1.parquet", sink.getvalue().to_pybytes())
    assert land(fleet, held, 5, 6) == [
        ("agents", 2, 0, "landed", 3),
        ("agents", 5, 0, "landed", 3),
        ("agents", 6, 1, "empty", 0),
    ]
    assert spool.days() == [date(2026, 10, 6)]
    due = held.execute("select date::varchar from raw.due_dates order by date").fetchall()
    assert due == [("2026-10-02",), ("2026-10-05",)]  # no run asked for the dates between


def materialize(fleet: Fleet, first: str, last: str) -> dg.ExecuteInProcessResult:
    assets = [asset for asset in telemetry_assets.telemetry_assets(fleet) if asset.op.name == "telemetry"]
    return dg.materialize(
        assets,
        tags={"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last},
        run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
        raise_on_error=False,
    )


def test_a_failing_source_fails_its_own_check_and_not_the_asset(tmp_path: Path) -> None:
    gone = WALL.replace("name: wall", "name: gone").replace("power.csv", "none.csv")
    result = materialize(fleet_of(tmp_path, WALL + gone), "2026-10-01", "2026-10-02")
    assert result.success
    checks = {e.check_name: (e.passed, e.severity.value) for e in result.get_asset_check_evaluations()}
    assert checks == {"source_wall_answers": (True, "ERROR"), "source_gone_answers": (False, "ERROR")}
    (failed,) = (e for e in result.get_asset_check_evaluations() if not e.passed)
    assert "2026-10-01 failed" in failed.description
    assert "none.csv" in failed.metadata["unanswered"].value
    landed = result.asset_materializations_for_node("telemetry")
    assert {m.asset_key.to_user_string() for m in landed} == {
        f"raw/{table}" for table in telemetry_assets.TELEMETRY_TABLES
    }
    samples = [m for m in landed if m.asset_key.path[-1] == "power_samples"]
    assert {m.metadata["dagster/partition_row_count"].value for m in samples} == {48}


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (
            CSV.replace("2026-10-", "1/10/"),
            "power.csv: column 'at' holds no time; the first value is '1/10/01T00:30",
        ),
        (CSV.replace(",n1,", ",n1,W"), "power.csv: column 'watts' holds no number; the first value is 'W100'"),
        ("<!doctype html>\n<p>Sign in</p>\n", "power.csv: no column 'at'; there are '<!doctype html>'"),
    ],
)
def test_a_file_that_holds_something_else_fails_by_name_and_is_never_empty(
    tmp_path: Path, wrong: str, reason: str
) -> None:
    fleet = fleet_of(tmp_path, WALL)
    (tmp_path / "power.csv").write_text(wrong)
    result = materialize(fleet, "2026-10-01", "2026-10-01")
    assert not result.success
    (check,) = result.get_asset_check_evaluations()
    assert not check.passed
    assert reason in check.description


def test_a_file_whose_rows_lie_on_other_days_is_empty_and_no_failure(
    tmp_path: Path, held: duckdb.DuckDBPyConnection
) -> None:
    fleet = fleet_of(tmp_path, WALL, "{start: 2026-09-01, end: 2026-10-08}")
    results = landing_days.land_days(
        held, fleet, date(2026, 9, 10), date(2026, 9, 11), run_id="run", now=datetime(2026, 11, 1, tzinfo=UTC)
    )
    assert [(r.outcome, r.detail) for r in results] == [("empty", None)] * 3


def test_a_few_unreadable_rows_land_with_the_others_and_are_named(
    tmp_path: Path, held: duckdb.DuckDBPyConnection
) -> None:
    fleet = fleet_of(tmp_path, WALL)
    (tmp_path / "power.csv").write_text(CSV + "soon,n1,5\n2026-10-01T12:00:00Z\n")
    results = landing_days.land_days(
        held, fleet, date(2026, 10, 7), date(2026, 10, 8), run_id="run", now=datetime(2026, 11, 1, tzinfo=UTC)
    )
    file = f"{tmp_path}/power.csv"
    detail = (
        f"2 of 170 rows rejected: {file}: '2026-10-01T12:00:00Z' has 1 fields, expected 3;"
        f" {file}, row 169: column 'at' holds 'soon', expected a time of this century"
    )
    assert [(r.outcome, r.rows, r.detail) for r in results] == [
        ("landed", 25, detail),
        ("landed", 2, detail),
        ("empty", 0, detail),
    ]


def test_the_asset_raises_when_every_source_failed(tmp_path: Path) -> None:
    result = materialize(fleet_of(tmp_path, WALL.replace("power.csv", "none.csv")), "2026-10-01", "2026-10-01")
    assert not result.success
    assert [e.passed for e in result.get_asset_check_evaluations()] == [False]


def test_who_holds_the_warehouse_is_waited_for_and_then_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "warehouse.duckdb"
    program = (
        "import sys, time; from pathlib import Path; from pipelines.warehouse import database\n"
        "with database.writing(Path(sys.argv[1]), 'a long landing'):\n"
        "    print('held', flush=True); sys.stdin.readline()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with closing(holder.stdin), closing(holder.stdout):
        assert holder.stdout.readline() == "held\n"
        monkeypatch.setenv("WATTLEDGER_LOCK_SECONDS", "0.3")
        with (
            pytest.raises(database.WarehouseBusy, match=rf"process {holder.pid} on .* \(a long landing, since"),
            database.writing(path, "another"),
        ):
            pass
        monkeypatch.setenv("WATTLEDGER_LOCK_SECONDS", "20")
        holder.stdin.write("\n")
        holder.stdin.flush()
        with database.writing(path, "another"):
            assert os.getpid() == json.loads(Path(f"{path}.holder.json").read_text())["pid"]
        holder.wait(timeout=20)


def test_a_file_that_another_process_has_open_is_waited_for_and_then_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "warehouse.duckdb"
    program = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.readline()"
    shell = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with closing(shell.stdin), closing(shell.stdout):
        assert shell.stdout.readline() == "open\n"
        monkeypatch.setenv("WATTLEDGER_LOCK_SECONDS", "0.3")
        with pytest.raises(database.WarehouseBusy, match=f"open in another process.*{shell.pid}"):
            database.connect(path)
        shell.stdin.write("\n")
        shell.stdin.flush()
        shell.wait(timeout=20)
    database.connect(path).close()


def test_a_run_reads_on_where_a_series_is_silent_at_its_edge(tmp_path: Path, held: duckdb.DuckDBPyConnection) -> None:
    """Samples of n1 every hour; of n2 at noon on the 1st, 2nd, 4th and 7th alone."""
    fleet = fleet_of(tmp_path, WALL)
    of_n2 = "".join(f"2026-10-0{n}T12:00:00Z,n2,7\n" for n in (1, 2, 4, 7))
    (tmp_path / "power.csv").write_text(CSV + of_n2)
    assert land(fleet, held, 2, 3) == [
        ("wall", 2, 0, "landed", 25),
        ("wall", 1, 0, "landed", 2),
        ("wall", 1, 22, "landed", 23),  # until n2 is found
        ("wall", 3, 2, "landed", 2),
        ("wall", 3, 0, "landed", 22),
        ("wall", 4, 2, "landed", 2),
        ("wall", 4, 0, "landed", 23),
    ]
    # None of these is a date that a run asked for.
    assert [str(on) for on in due_dates.unasked(held, date(2026, 10, 1), date(2026, 10, 6))] == [
        *("2026-10-01", "2026-10-03", "2026-10-04", "2026-10-05")
    ]
    # A day that was asked for is not read again.
    assert land(fleet, held, 3, 4) == [("wall", 3, 0, "unchanged", 24)]
