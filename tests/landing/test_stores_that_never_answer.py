"""A lake or a spool that never answers, or with a byte now and then, ends its landing; a slow one lands.

S3's client has no limit of its own for these: the landing once waited for ever with the warehouse locked, and its
process did not end either.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import dagster as dg
import pytest

from collectors.devices.spool import Spool
from collectors.devices.spool_writer import SpoolWriter
from collectors.readings import Reading, labels_json
from pipelines.fleet.fleet_errors import FleetError
from pipelines.fleet.fleet_file import Fleet, load_fleet
from pipelines.fleet.places import PROJECT
from pipelines.landing import stores, telemetry_assets
from pipelines.warehouse import database
from tests.servers import s3_bucket
from tests.talking_servers import dripping, relaying, silence, talking_server

LAKE = "s3://wattledger/lake"
SPOOL = "s3://wattledger/spool"
WALL = """
  - name: wall
    kind: files
    interval_seconds: 900
    files: [{path: power.csv, time: at, labels: {node: node}, values: {wall_power_watts: watts}}]
"""
NOON_US = 1_790_856_000_000_000  # 2026-10-01T12:00:00Z
ANSWERS = "select source, window_start_at::date::varchar, outcome, rows from raw.landings order by all"


def fleet_of(folder: Path, *, sources: str = WALL, landing: str = "{target: duckdb}") -> Fleet:
    """Two dates with a sample of one node at noon each."""
    (folder / "power.csv").write_text("at,node,watts\n2026-10-01T12:00:00Z,n1,100\n2026-10-02T12:00:00Z,n1,110\n")
    path = folder / "mine.yaml"
    path.write_text(
        f"fleet: mine\nperiod: {{start: 2026-10-01, end: 2026-10-03}}\nlanding: {landing}\nsources:\n{sources}\n"
    )
    return load_fleet(path, {**os.environ, "WATTLEDGER_DATA": str(folder / "data")})


def materialize(fleet: Fleet) -> dg.ExecuteInProcessResult:
    return dg.materialize(
        [one for one in telemetry_assets.telemetry_assets(fleet) if one.op.name == "telemetry"],
        tags={"dagster/asset_partition_range_start": "2026-10-01", "dagster/asset_partition_range_end": "2026-10-02"},
        run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
        raise_on_error=False,
    )


def reason(result: dg.ExecuteInProcessResult) -> str:
    (failed,) = (event for event in result.get_step_failure_events())
    return str(failed.step_failure_data.user_failure_data.description)


def landings(fleet: Fleet) -> list[tuple]:
    """The audit, read under the lock that the landing held."""
    with database.writing(fleet.warehouse, "test"), database.connect(fleet.warehouse) as connection:
        return connection.execute(ANSWERS).fetchall()


def endpoint(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    names = {"AWS_ACCESS_KEY_ID": "AKIAWATTLEDGER", "AWS_SECRET_ACCESS_KEY": "s3cret", "AWS_REGION": "us-east-1"}
    for name, value in {**names, "AWS_EC2_METADATA_DISABLED": "true", "AWS_ENDPOINT_URL": f"http://{place}"}.items():
        monkeypatch.setenv(name, value)


# --- never an answer --------------------------------------------------------------------------------------------------


@pytest.mark.rest
@pytest.mark.parametrize(
    "talk", [silence, dripping(b"<", b"Content-Length: 99999\r\n\r\n")], ids=["silence", "a byte now and then"]
)
def test_a_lake_that_never_answers_is_refused(tmp_path, monkeypatch, talk):
    fleet = fleet_of(tmp_path, landing=f"{{target: lake, path: '{LAKE}', limits: {{answer_seconds: 5}}}}")
    with talking_server(talk) as place:
        endpoint(monkeypatch, place)
        with pytest.raises(FleetError) as refusal:
            stores.validate(fleet)
    assert str(refusal.value) == (
        f"{fleet.path}: landing.path: s3://wattledger/lake: no answer within 5 s (landing.limits.answer_seconds):"
        " is the address right, and the store up?"
    )


@pytest.mark.rest
def test_a_run_on_a_lake_that_never_answers_ends_with_one_line(tmp_path, monkeypatch):
    fleet = fleet_of(tmp_path, landing=f"{{target: lake, path: '{LAKE}', limits: {{answer_seconds: 3}}}}")
    monkeypatch.setenv("WATTLEDGER_DATA", str(tmp_path / "data"))
    with talking_server(silence) as place:
        endpoint(monkeypatch, place)
        command = [sys.executable, "-m", "pipelines", "run", "--fleet", str(fleet.path)]
        done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "landing.path: s3://wattledger/lake: no answer within 3 s" in done.stderr


@pytest.mark.rest
def test_a_spool_that_never_answers_fails_alone(tmp_path, monkeypatch):
    agents = f"  - {{name: agents, kind: spool, path: '{SPOOL}', limits: {{answer_seconds: 3}}}}"
    fleet = fleet_of(tmp_path, sources=f"{agents}{WALL}")
    with talking_server(silence) as place:
        endpoint(monkeypatch, place)
        result = materialize(fleet)
    failed = {one.check_name: one.description for one in result.get_asset_check_evaluations() if not one.passed}
    assert result.success
    assert list(failed) == ["source_agents_answers"]
    assert "s3://wattledger/spool: TimeoutError: no answer within 3 s (limits.answer_seconds)" in str(failed)
    rows = {(source, outcome): count for source, _, outcome, count in landings(fleet)}
    assert (rows["agents", "failed"], rows["wall", "landed"]) == (0, 1)


def test_an_agent_whose_spool_never_answers_ends(monkeypatch):
    """S3's client keeps a process from its end while it waits."""
    program = (
        "import sys; from collectors.devices.spool import Spool\n"
        "spool = Spool(sys.argv[1], 1.0)\n"
        "try: spool.put('host=a/date=2026-10-01/1.parquet', b'')\n"
        "except TimeoutError as late: print(late)\n"
        "spool.end_process(7)"
    )
    with talking_server(silence) as place:
        endpoint(monkeypatch, place)
        command = [sys.executable, "-c", program, SPOOL]
        done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False, timeout=45)
    assert (done.returncode, done.stdout) == (7, "no answer within 1 s (limits.answer_seconds)\n")


# --- an answer at first -----------------------------------------------------------------------------------------------


@pytest.mark.rest
def test_a_lake_that_dies_meanwhile_ends_the_landing_and_keeps_what_was_landed(tmp_path, monkeypatch):
    fleet = fleet_of(tmp_path, landing=f"{{target: lake, path: '{LAKE}', limits: {{window_seconds: 20}}}}")
    with s3_bucket(monkeypatch):
        store = urlsplit(os.environ["AWS_ENDPOINT_URL"])
        with talking_server(relaying(store.hostname, store.port, silent_from=b"date=2026-10-02")) as place:
            monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{place}")
            began = time.monotonic()
            result = materialize(fleet)
            assert time.monotonic() - began < 120
        assert reason(result) == (
            "s3://wattledger/lake: no window was landed for 20 s, so the landing was ended; what was landed before"
            " stays, and the next run lands the rest. Look whether the store answers; if a day of one source takes"
            " that long, raise landing.limits.window_seconds"
        )
        assert landings(fleet) == [("wall", "2026-10-01", "landed", 1)]
        monkeypatch.setenv("AWS_ENDPOINT_URL", store.geturl())
        assert materialize(fleet).success
        assert [row for row in landings(fleet) if row[3]] == [
            ("wall", "2026-10-01", "landed", 1),
            ("wall", "2026-10-01", "unchanged", 1),
            ("wall", "2026-10-02", "landed", 1),
        ]


@pytest.mark.rest
def test_a_slow_store_lands(tmp_path, monkeypatch):
    agents = f"  - {{name: agents, kind: spool, path: '{SPOOL}'}}"
    with s3_bucket(monkeypatch):
        fleet = fleet_of(tmp_path, sources=f"{agents}{WALL}", landing=f"{{target: lake, path: '{LAKE}'}}")
        writer = SpoolWriter(Spool(SPOOL), "gpu-a")
        board = labels_json({"uuid": "GPU-1", "node": "gpu-a"})
        writer.add([Reading(NOON_US, "nvml", "nvml_power_watts", board, 70.0)])
        assert writer.flush()
        assert [day.isoformat() for day in Spool(SPOOL).days()] == ["2026-10-01"]
        store = urlsplit(os.environ["AWS_ENDPOINT_URL"])
        with talking_server(relaying(store.hostname, store.port, seconds=0.2)) as place:
            monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{place}")
            assert materialize(fleet).success
        landed = [row for row in landings(fleet) if row[2] == "landed"]
        assert landed == [
            ("agents", "2026-10-01", "landed", 1),
            ("wall", "2026-10-01", "landed", 1),
            ("wall", "2026-10-02", "landed", 1),
        ]
        monkeypatch.setenv("AWS_ENDPOINT_URL", store.geturl())
        assert Spool(SPOOL).days() == []


@pytest.mark.parametrize("limits", ["{answer_seconds: 0}", "{window_seconds: -1}", "{window_seconds: '60'}"])
def test_a_limit_that_is_none_is_refused_by_name(tmp_path, limits):
    with pytest.raises(FleetError, match=r"landing\.limits\.(answer|window)_seconds: "):
        fleet_of(tmp_path, landing=f"{{target: duckdb, limits: {limits}}}")
