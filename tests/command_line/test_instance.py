"""Each fleet's Dagster instance: its own history, its own schedule, and several fleets in one UI without collisions."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import dagster as dg
import pytest
from dagster._daemon.types import DaemonHeartbeat

from pipelines.code_location import SCHEDULE, definitions_of
from pipelines.command_line import instance
from pipelines.fleet.fleet_file import Fleet, load_fleet
from pipelines.fleet.places import PROJECT
from pipelines.warehouse import asset_keys
from tests.books import environment, later_command
from tests.servers import free_port, running, wait_until

POWER = ("raw", "power_samples")


@pytest.fixture(autouse=True)
def _no_foreign_instance(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.delenv(instance.SHARED_INSTANCE, raising=False)
    monkeypatch.setenv("WATTLEDGER_DATA", str(tmp_path / "data"))


def fleet_file(folder: Path, name: str, period: str = "{start: 2026-10-01, end: 2026-10-02}") -> Path:
    path = folder / f"file_of_{name}.yaml"  # not called as the fleet is
    path.write_text(
        f"fleet: {name}\nsynthetic: true\nperiod: {period}\n"
        "sources: [{name: synthetic, kind: synthetic, scenario: demo, interval_seconds: 60}]\n"
    )
    return path


def open_fleet(folder: Path, name: str = "open") -> Fleet:
    return load_fleet(fleet_file(folder, name, "{start: 2026-10-01}"))


def partitions(home: Path, *key: str) -> set[str]:
    with dg.DagsterInstance.from_config(str(home)) as history:
        return set(history.get_materialized_partitions(dg.AssetKey(key)))


def graphql(port: int, query: str) -> dict:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/graphql",
        json.dumps({"query": query}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)["data"]


@pytest.mark.rest
def test_a_fleet_that_was_never_booked_shows_no_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    booked, never = (load_fleet(fleet_file(tmp_path, name)) for name in ("booked", "never"))
    done = later_command(booked.path, tmp_path / "data")
    assert done.returncode == 0, done.stdout + done.stderr
    assert partitions(instance.home_of([booked]), *POWER) == {"2026-10-01"}
    every_event_has_facts(instance.home_of([booked]))
    home = instance.prepare([never])
    assert home == tmp_path / "data" / "never" / ".dagster"
    assert partitions(home, *POWER) == set()
    assert "nightly" not in done.stdout  # a closed period has nothing to schedule


def every_event_has_facts(home: Path) -> None:
    """Of the one run: rows, seconds and dates of each mart that dbt books; what each check found, though it passed."""
    with dg.DagsterInstance.from_config(str(home)) as history:
        (run,) = history.get_run_ids()
        made = {
            event.asset_materialization.asset_key.to_user_string(): event.asset_materialization.metadata
            for event in history.all_logs(run, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
        }
        checks = {
            event.dagster_event.event_specific_data.check_name: event.dagster_event.event_specific_data.metadata
            for event in history.all_logs(run, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
        }
    ledger = {key: value.value for key, value in made["marts/model_daily"].items()}
    assert (ledger["rows"], ledger["dates"]) == (6, "2026-10-01 to 2026-10-01")
    assert 0 < ledger["seconds"] < 60
    marts = {key: set(metadata) for key, metadata in made.items() if key.startswith("marts/")}
    assert len(marts) > 60
    assert [key for key, names in marts.items() if not names & {"rows", "dagster/row_count"}] == []
    assert {key for key, names in marts.items() if "seconds" not in names} == {
        "marts/budget_monthly",
        "marts/cost_forecast",
        "marts/efficiency_fit",
    }
    assert len(checks) > 50
    numbers = {
        name: [value for value in metadata.values() if isinstance(value.value, int | float)]
        for name, metadata in checks.items()
    }
    assert [name for name, found in numbers.items() if not found] == []
    assert checks["cross_checks_agree"]["expected"].value == "at most 5 % between the two meters"


@pytest.mark.rest
def test_in_a_shared_instance_keys_begin_with_the_fleet(tmp_path: Path) -> None:
    home = tmp_path / "team"
    home.mkdir()
    theirs = "# set up by the team\n" + instance.CONFIGURATION.read_text()
    (home / "dagster.yaml").write_text(theirs)
    path = fleet_file(tmp_path, "9-one")
    done = later_command(path, tmp_path / "data", DAGSTER_HOME=str(home))
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed, 0 failed" in done.stdout
    assert not (tmp_path / "data" / "9-one" / ".dagster").exists()
    assert partitions(home, "9-one", *POWER) == {"2026-10-01"}
    assert partitions(home, *POWER) == set()
    with dg.DagsterInstance.from_config(str(home)) as history:
        held = {tuple(key.path) for key in history.all_asset_keys()}
    assert {path[0] for path in held} == {"9-one"}
    assert {("9-one", "marts", "energy_ledger"), ("9-one", "published", "publication")} <= held
    assert (home / "dagster.yaml").read_text() == theirs


def test_no_key_of_two_fleets_in_one_instance_collides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (load_fleet(fleet_file(tmp_path, name)) for name in ("one", "two"))
    alone = definitions_of(one).resolve_asset_graph()
    monkeypatch.setenv(instance.SHARED_INSTANCE, "1")
    first, second = (definitions_of(fleet).resolve_asset_graph() for fleet in (one, two))
    assert not first.get_all_asset_keys() & second.get_all_asset_keys()
    assert not first.asset_check_keys & second.asset_check_keys
    for key in alone.get_all_asset_keys():
        shared = dg.AssetKey(["one", *key.path])
        assert {(*parent.path,) for parent in first.get(shared).parent_keys} == {
            ("one", *parent.path) for parent in alone.get(key).parent_keys
        }
        assert asset_keys.table_of(shared) == asset_keys.table_of(key) == key.to_user_string()
    assert len(first.asset_check_keys) == len(alone.asset_check_keys)


def test_the_schedule_of_an_open_fleet_runs_and_that_of_a_closed_one_does_not(tmp_path: Path) -> None:
    def status(fleet: Fleet) -> dg.DefaultScheduleStatus:
        (schedule,) = definitions_of(fleet).get_repository_def().schedule_defs
        return schedule.default_status

    assert status(open_fleet(tmp_path)) == dg.DefaultScheduleStatus.RUNNING
    assert status(load_fleet(fleet_file(tmp_path, "closed"))) == dg.DefaultScheduleStatus.STOPPED


def test_a_run_reports_whether_its_fleet_is_booked_nightly(tmp_path: Path) -> None:
    fleet, closed = open_fleet(tmp_path), load_fleet(fleet_file(tmp_path, "closed"))
    with dg.DagsterInstance.local_temp(str(tmp_path)) as history:
        assert instance.nightly(closed, history) is None
        assert instance.nightly(fleet, history) == (
            f"Not booked nightly now: `wattledger serve --fleet {fleet.path}` books it at 01:15 UTC, and"
            f" `wattledger dev --fleet {fleet.path}` does while it is open."
            " To switch that off: Dagster UI > Automation > daily_ledger_schedule."
        )
        for age, words in (
            (3600, "Not booked nightly now"),
            (10, "Booked nightly at 01:15 UTC by the running Dagster"),
        ):
            history.add_daemon_heartbeat(DaemonHeartbeat(time.time() - age, "SCHEDULER", "id", []))
            assert instance.nightly(fleet, history).startswith(words)


@pytest.mark.rest
def test_several_fleets_are_several_locations_of_one_ui(tmp_path: Path) -> None:
    fleet, closed = open_fleet(tmp_path), load_fleet(fleet_file(tmp_path, "closed"))
    port, log = free_port(), tmp_path / "dev.log"
    dev = [sys.executable, "-m", "pipelines", "dev", "--fleet"]
    options = {"cwd": PROJECT, "env": environment(tmp_path / "data")}
    with (
        log.open("w") as output,
        running(
            # As a shell starts it in the background.
            ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *dev, str(fleet.path), str(closed.path), "--port", str(port)],
            stdout=output,
            stderr=subprocess.STDOUT,
            **options,
        ) as server,
    ):
        wait_until(lambda: is_answering(port), server, log)
        entries = graphql(
            port,
            "{workspaceOrError {... on Workspace {locationEntries {name locationOrLoadError {__typename"
            " ... on PythonError {message} ... on RepositoryLocation {repositories {name"
            " assetNodes {assetKey {path}} schedules {name scheduleState {status}}}}}}}}}",
        )["workspaceOrError"]["locationEntries"]
        found = {entry["name"]: entry["locationOrLoadError"]["repositories"][0] for entry in entries}
        assert {
            name: [(one["name"], one["scheduleState"]["status"]) for one in repository["schedules"]]
            for name, repository in found.items()
        } == {"open": [(SCHEDULE, "RUNNING")], "closed": [(SCHEDULE, "STOPPED")]}
        for name, repository in found.items():
            assert {node["assetKey"]["path"][0] for node in repository["assetNodes"]} == {name}

        # The same fleet in a second UI would be booked by two daemons.
        second = subprocess.run(
            [*dev, str(fleet.path)], capture_output=True, text=True, timeout=60, check=False, **options
        )
        assert (second.returncode, second.stdout, second.stderr.count("\n")) == (2, "", 1)
        assert "open/.dagster is already open in a Dagster UI" in second.stderr
        assert str(server.pid) in second.stderr

        where = f'repositoryName: "{found["open"]["name"]}", repositoryLocationName: "open"'
        stop = graphql(
            port,
            f'query {{scheduleOrError(scheduleSelector: {{{where}, scheduleName: "{SCHEDULE}"}})'
            " {... on Schedule {scheduleState {id}}}}",
        )["scheduleOrError"]["scheduleState"]["id"]
        graphql(port, f'mutation {{stopRunningSchedule(id: "{stop}") {{__typename}}}}')
        with dg.DagsterInstance.from_config(str(tmp_path / "data" / instance.SHARED)) as history:
            assert instance.nightly(fleet, history).startswith("Not booked nightly: the schedule is switched off.")

        assert [line for line in log.read_text().splitlines() if "warning" in line.lower()] == []
        # It ends with all that it started, before a supervisor would kill it. Dagster may warn then that a code
        # server has ended before the process that watches over it.
        (guard,) = children(server.pid)
        (dagster,) = children(guard)
        assert len(children(dagster)) >= 3  # webserver, daemon, code servers
        server.terminate()
        server.wait(timeout=30)  # what Kubernetes waits; systemd waits 90 s
        assert living(group=guard) == []
    # Once it is closed, nothing keeps the fleet.
    instance._hold(instance.own_home(fleet), "http://127.0.0.1:1")


@pytest.mark.rest
def test_a_dev_that_is_killed_leaves_no_daemon_and_the_next_one_waits_for_none(tmp_path: Path) -> None:
    fleet = open_fleet(tmp_path)
    port, log = free_port(), tmp_path / "dev.log"
    dev = [sys.executable, "-m", "pipelines", "dev", "--fleet", str(fleet.path), "--port", str(port)]
    with (
        log.open("w") as output,
        running(
            dev, cwd=PROJECT, env=environment(tmp_path / "data"), stdout=output, stderr=subprocess.STDOUT
        ) as server,
    ):
        wait_until(lambda: is_answering(port), server, log)
        (guard,) = children(server.pid)
        assert len(living(group=guard)) >= 5  # beside its guard: dagster, webserver, daemon, code servers
        server.kill()
        server.wait(timeout=5)
        with pytest.raises(instance.InstanceError, match="is already open in a Dagster UI"):
            instance._hold(instance.own_home(fleet), "http://127.0.0.1:1")
        deadline = time.monotonic() + 20
        while living(group=guard) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert living(group=guard) == []
        time.sleep(1)
        instance._hold(instance.own_home(fleet), "http://127.0.0.1:1")


def children(process: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def living(group: int) -> list[str]:
    """The processes of a group, without those that have ended and wait to be asked for their status."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, _, rest = stat.read_text().rpartition(")")
            state, _, of_group = rest.split()[:3]
            found += [name] if int(of_group) == group and state != "Z" else []
    return found


def is_answering(port: int) -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/server_info", timeout=5).close()
    except OSError:
        return False
    return True


def test_a_port_in_use_is_passed_over() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        free = instance.free_port(port)
        assert free > port
        assert instance.free_port(free) > free  # chosen by a process that does not listen yet


def test_two_files_of_one_fleet_are_refused(tmp_path: Path) -> None:
    first = fleet_file(tmp_path, "same")
    second = Path(shutil.copy(first, tmp_path / "copy.yaml"))
    command_line = [sys.executable, "-m", "pipelines", "dev", "--fleet", str(first), str(second)]
    done = subprocess.run(
        command_line, cwd=PROJECT, env=environment(tmp_path / "data"), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "are both named 'same'" in done.stderr
    assert "Change `fleet:`" in done.stderr


def test_make_leaves_the_instance_to_python() -> None:
    """The fleet's name is in its file: make cannot know the folder."""
    assert "DAGSTER_HOME" not in (PROJECT / "Makefile").read_text()
