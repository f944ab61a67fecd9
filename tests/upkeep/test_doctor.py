"""What `doctor` finds: the disk, what is due and why, and what to do; and what is well and is no finding."""

from __future__ import annotations

import json
import os
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import dagster as dg
import duckdb
import pytest

from pipelines.command_line.main import main
from pipelines.fleet.fleet_file import Fleet, load_fleet
from pipelines.upkeep import dagster_history, diagnosis, run_lock
from pipelines.upkeep.dagster_history import Run
from pipelines.warehouse import database, sealed_dates
from pipelines.warehouse.raw_tables import SCHEMA_VERSION, create_tables

# The dates 15 to 19 November are over.
NOW = datetime(2026, 11, 20, 6, tzinfo=UTC)
FILE = "fleet: mine\nperiod: {start: 2026-11-15}\nsources: [{name: agents, kind: spool}]\n"
NIGHT = Run(datetime(2026, 11, 20, 1, 15, tzinfo=UTC), 40.0, "SUCCESS", "2026-11-19")


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    monkeypatch.setenv("WATTLEDGER_DATA", str(tmp_path / "data"))
    path = tmp_path / "mine.yaml"
    path.write_text(FILE, encoding="utf-8")
    made = load_fleet(path)
    made.root.mkdir(parents=True)
    with database.connect(made.warehouse) as connection:
        create_tables(connection)
        landed(connection, "agents", "15 16 17 18 19")
    return made


def landed(connection: duckdb.DuckDBPyConnection, source: str, days: str, outcome: str = "landed") -> None:
    for day in days.split():
        start_at = datetime(2026, 11, int(day), tzinfo=UTC)
        connection.execute(
            "insert into raw.landings (landed_at, asset, source, window_start_at, window_end_at, outcome, detail)"
            " values (?, 'raw/telemetry', ?, ?, ?, ?, ?)",
            [NOW, source, start_at, start_at + timedelta(days=1), outcome, None if outcome == "landed" else "HTTP 503"],
        )


def found(fleet: Fleet, *runs: Run) -> diagnosis.Diagnosis:
    return diagnosis.diagnosed(fleet, fleet.root / ".dagster", runs or (NIGHT,), None, NOW)


def test_a_fleet_that_is_well_has_no_findings(fleet: Fleet) -> None:
    seen = found(fleet)
    assert (seen.troubles, seen.due, seen.busy, seen.sealed) == ((), (), None, None)
    assert {one.layer for one in seen.disk} >= {"raw", "publications", "history"}
    assert [one.bytes_per_day for one in seen.disk] == [None] * len(seen.disk)
    assert seen.versions["warehouse schema"].startswith(f"{SCHEMA_VERSION} ")


def test_each_date_that_is_due_has_its_reason(fleet: Fleet) -> None:
    with database.connect(fleet.warehouse) as connection:
        connection.execute("delete from raw.landings where window_start_at >= '2026-11-18'")
        landed(connection, "agents", "18", "failed")
        connection.execute("insert into raw.due_dates values ('2026-11-16', 'booking'), ('2026-11-17', 'held_back')")
    assert [(one.date.day, one.waits_for, one.why) for one in found(fleet).due] == [
        (19, "landing", "no run has asked for it yet"),
        (18, "landing", "agents: the source did not answer (HTTP 503)"),
        (16, "booking", "what landed changed it, or a run was stopped before it was booked"),
        (17, "held_back", "an invariant does not hold of it (marts.held_back_dates)"),
    ]
    assert [(one.severity, one.what) for one in found(fleet).troubles] == [
        ("warning", "2 dates from 2026-11-18 to 2026-11-19: due for landing"),
        ("warning", "2026-11-16: due for booking"),
        ("warning", "2026-11-17: held back"),
    ]


def test_a_source_that_answered_later_and_a_sealed_date_are_not_due(fleet: Fleet) -> None:
    with database.connect(fleet.warehouse) as connection:
        connection.execute("delete from raw.landings where window_start_at < '2026-11-17'")
        connection.execute("update raw.landings set landed_at = landed_at + interval 1 hour")
        landed(connection, "agents", "18", "failed")
        sealed_dates.seal(connection, [date(2026, 11, 16)], date(2026, 11, 17))
    assert found(fleet).due == ()
    assert found(fleet).sealed == (
        "2026-11-16 is sealed: its samples were removed (`retention`), so its rows stay as they were booked"
    )


def test_growth_is_a_mean_of_days_and_shows_when_the_disk_is_full(fleet: Fleet) -> None:
    with database.connect(fleet.warehouse) as connection:
        for days, size in ((10, 1_000), (5, 9_000), (0, 21_000)):
            connection.execute(
                "insert into raw.disk_use values (?, 'run', 'raw', ?)", [NOW - timedelta(days=days), size]
            )
    (raw,) = [one for one in found(fleet).disk if one.layer == "raw"]
    assert raw.bytes_per_day == pytest.approx(2_000)
    assert found(fleet).full_in_days == pytest.approx(found(fleet).disk_free_bytes / 2_000, rel=0.01)


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (Run(NOW - timedelta(hours=5), 3.0, "FAILURE", ""), [("error", "the last run failed (2026-11-20 01:00 UTC)")]),
        (
            Run(NOW - timedelta(hours=27), 3.0, "SUCCESS", ""),
            [("warning", "the last run began 27 h ago (2026-11-19 03:00 UTC)")],
        ),
        (Run(NOW - timedelta(hours=25), 3.0, "SUCCESS", ""), []),
    ],
)
def test_a_run_that_failed_or_did_not_begin(fleet: Fleet, run: Run, expected: list[tuple[str, str]]) -> None:
    assert [(one.severity, one.what) for one in found(fleet, run).troubles] == expected


def test_a_clock_that_went_back_is_an_error(fleet: Fleet) -> None:
    with database.connect(fleet.warehouse) as connection:
        connection.execute("update raw.landings set landed_at = '2026-11-20 07:30:00Z'")
    (trouble,) = found(fleet).troubles
    assert (trouble.severity, trouble.what) == (
        "error",
        "this machine's clock is 2026-11-20 06:00 UTC, before the newest landing (2026-11-20 07:30)",
    )


def test_the_command_answers_a_person_and_a_program(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["doctor", "--fleet", str(fleet.path)]
    assert main(words) == 0
    page = capsys.readouterr().out
    assert page.startswith(f"{fleet.path}: fleet mine, data in {fleet.root}\n")
    assert main([*words, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["fleet"] == "mine"
    assert {one["layer"] for one in answer["disk"]} >= {"raw", "marts", "publications"}
    # What is no DuckDB file is found, too.
    fleet.warehouse.write_bytes(b"x" * 5000)
    assert main(words) == 1
    assert "restore it from a backup (docs/operations.md, Damaged warehouse)" in capsys.readouterr().out


def test_what_the_ledger_itself_takes_has_a_line_once_a_run_was_measured(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["doctor", "--fleet", str(fleet.path)]
    assert main(words) == 0
    assert "This ledger itself" not in capsys.readouterr().out
    with database.connect(fleet.warehouse) as connection:
        connection.execute("create schema finance")
        connection.execute(
            "create view finance.ledger_cost as select 90 as core_seconds, 60 as gpu_days, null as joules,"
            " null as joules_basis, 900e3 as held_bytes_per_gpu_day, timestamptz '2026-11-20' as measured_at,"
            " 'end' as measured_until"
        )
    assert main(words) == 0
    line = "This ledger itself: 1.5 core-seconds and 900.0 kB on disk per GPU-day."
    assert line in capsys.readouterr().out.splitlines()
    main([*words, "--json"])
    assert json.loads(capsys.readouterr().out)["per_gpu_day"] == {
        "core_seconds_per_gpu_day": 1.5,
        "joules_per_gpu_day": None,
        "joules_basis": None,
        "held_bytes_per_gpu_day": 900_000,
    }


def test_a_warehouse_that_is_being_written_leaves_the_rest(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*_: object, **__: object) -> duckdb.DuckDBPyConnection:
        raise database.WarehouseBusy("open elsewhere")

    with database.writing(fleet.warehouse, "ledger"):
        monkeypatch.setattr(database, "connect", refused)
        assert main(["doctor", "--fleet", str(fleet.path)]) == 0
    page = capsys.readouterr().out
    assert f"{fleet.warehouse} is open in process {os.getpid()} on " in page
    assert page.splitlines()[-1] == "Nothing is wrong, and nothing is to be done, as far as can be seen now."


def test_a_run_that_was_killed_is_broken_off_and_one_that_is_under_way_is_not(fleet: Fleet) -> None:
    """After kill -9 nothing was wrong, and the run was listed as started for good."""
    with dg.DagsterInstance.ephemeral() as instance:

        def statuses(tag: str | None) -> list[str]:
            tags = {"fleet": "mine"} | ({run_lock.TAG: tag} if tag else {})
            run = dg.DagsterRun(job_name="all", tags=tags, status=dg.DagsterRunStatus.STARTED)
            instance.add_run(run)
            (newest,) = dagster_history.last_runs(instance, fleet, 1)
            dagster_history.end_broken_off(instance, fleet)
            return [newest.status, instance.get_run_by_id(run.run_id).status.value]

        assert statuses(run_lock.own()) == ["BROKEN_OFF", "FAILURE"]  # nothing holds the lock
        assert statuses(None) == ["STARTED", "STARTED"]  # a run of the Dagster UI
        run_lock.hold(fleet.root)
        assert statuses(run_lock.own()) == ["STARTED", "STARTED"]
        assert statuses("99999999@" + run_lock.own().partition("@")[2]) == ["BROKEN_OFF", "FAILURE"]
        assert statuses("1@another-host") == ["STARTED", "STARTED"]
    trouble = found(fleet, Run(NOW, None, "BROKEN_OFF", "2026-11-19")).troubles[0]
    assert trouble == diagnosis.Trouble(
        "error",
        "the last run broke off (2026-11-20 06:00 UTC): its process ended before it did",
        "run again: what is whole stays. See whether it was killed for its memory",
    )
