"""Alarms after real runs: of the command, whatever ends it, and of Dagster's daemon."""

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from pipelines.alarming.run_alarms import run_alarms
from pipelines.alarming.run_outcome import Found, Outcome, outcome_of
from pipelines.code_location import JOB, definitions_of
from pipelines.command_line import instance
from pipelines.fleet.fleet_file import load_fleet
from pipelines.fleet.places import PROJECT
from pipelines.warehouse import database
from tests import commands
from tests.alarming.test_receivers import Taken, fleet_with, titles
from tests.books import Book, environment
from tests.servers import free_port, http_server, running, wait_until
from tests.talking_servers import silence, talking_server

SYNTHETIC = {"name": "synthetic", "kind": "synthetic", "scenario": "demo", "interval_seconds": 60}
AWAY = {"name": "cluster", "kind": "prometheus", "interval_seconds": 30}


def tiny(folder: Path, source: dict[str, Any], *receivers: dict[str, Any], **more: Any) -> Path:
    """A fleet of one date with these receivers."""
    contents = {
        "fleet": "tiny",
        "synthetic": True,
        "period": {"start": "2026-10-01", "end": "2026-10-02"},
        "sources": [source],
        "alarms": {"receivers": list(receivers), **more},
    }
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump(contents), encoding="utf-8")
    return path


def run(path: Path, *options: str, **more: str) -> subprocess.CompletedProcess[str]:
    surroundings = environment(path.parent / "data", **more)
    return commands.run(["run", "--fleet", str(path), *options], surroundings, timeout=600)


def test_a_run_that_cannot_begin_is_an_alarm_and_ends_as_without_one(tmp_path: Path) -> None:
    taken = Taken()
    with http_server(taken.answer) as url, talking_server(silence) as hangs:
        hook = {"name": "hook", "kind": "webhook", "url": url}
        slow = {"name": "slow", "kind": "webhook", "url": f"http://{hangs}", "timeout_seconds": 1}
        path = tiny(tmp_path, SYNTHETIC, hook, slow, heartbeat_url=f"{url}/ping")
        warehouse = tmp_path / "data" / "tiny" / "warehouse.duckdb"
        warehouse.parent.mkdir(parents=True)
        warehouse.touch()
        with database.writing(warehouse, "a test"):
            done = run(path, WATTLEDGER_LOCK_SECONDS="0")
    assert done.returncode == 1, done.stdout + done.stderr
    alarm, busy = done.stderr.splitlines()
    assert alarm == (
        f"alarms: the receiver slow did not take it (http://{hangs}: no answer within 1 s); the next run sends it again"
    )
    assert titles(taken) == ["fleet tiny (synthetic): 1 new alarm (1 error)"]  # and no heartbeat
    assert taken.bodies[0]["alarms"][0]["which"] == busy
    assert "is being written by" in busy


def test_a_question_with_dates_is_no_alarm_and_a_lost_warehouse_is(tmp_path: Path) -> None:
    taken = Taken()
    with http_server(taken.answer) as url:
        path = tiny(tmp_path, SYNTHETIC, {"name": "hook", "kind": "webhook", "url": url})
        assert run(path, "--start", "2026-09-01").returncode == 2
        assert taken.requests == []
        fleet = load_fleet(path, {"WATTLEDGER_DATA": str(tmp_path / "data")})
        folder = fleet.published / "20261002T011500000000Z-0a0b0c0d"
        folder.mkdir(parents=True)
        (fleet.published / "latest").symlink_to(folder.name)
        with database.connect(folder / "wattledger.duckdb") as connection:
            connection.execute("create schema marts; create table marts.model_daily (date date)")
            connection.execute("insert into marts.model_daily values ('2026-10-01')")
        done = run(path)
        assert done.returncode == 2
        assert taken.bodies[0]["alarms"][0]["which"] == done.stderr.strip()


def test_the_command_lists_what_lasts_and_tests_the_receivers(tmp_path: Path) -> None:
    taken = Taken()
    with http_server(taken.answer) as url:
        path = tiny(tmp_path, SYNTHETIC, {"name": "hook", "kind": "webhook", "url": url})

        def alarms(*options: str) -> subprocess.CompletedProcess[str]:
            words = ["alarms", "--fleet", str(path), *options]
            return commands.run(words, environment(tmp_path / "data"), timeout=60)

        assert alarms().stdout == "fleet tiny: no alarm\n"
        assert (alarms("--test").returncode, alarms("--test").stdout) == (0, "hook: taken\n")
        taken.status = 503
        done = alarms("--test")
        assert (done.returncode, done.stdout) == (
            1,
            f"hook: NOT taken: {url}: HTTP 503: the token s3cret-token and more\n",
        )
        data = tmp_path / "data" / "tiny"
        data.mkdir(parents=True)
        (data / "warehouse.duckdb").touch()
        with database.writing(data / "warehouse.duckdb", "a test"):
            run(path, WATTLEDGER_LOCK_SECONDS="0")
        lines = alarms().stdout.splitlines()
        assert lines[:3] == ["fleet tiny: 1 alarm", "", "error: the run failed"]
        assert lines[-1] == "  Name: run"
    path = tiny(tmp_path, SYNTHETIC)
    done = alarms("--test")
    assert (done.returncode, done.stderr) == (
        2,
        f"{path}: alarms has no receivers and no heartbeat_url: nothing leaves this machine (docs/alarms.md)\n",
    )


def test_an_outage_is_one_alarm_and_what_else_fails_is_another() -> None:
    down = "cannot be reached: [Errno 111] Connection refused"
    check = Found("raw/landings", "source_cluster_answers", False, True, f"2026-10-15 failed: {down}")
    failed = f"telemetry: every source failed; the first reason: {down}"

    def names(*failures: str, found: Found = check) -> list[str]:
        outcome = Outcome(datetime.now(UTC), False, failures, (found,))
        return [alarm.name for alarm in run_alarms(outcome, ())]

    source = "raw/landings source_cluster_answers"
    assert names(failed) == [source]
    assert names(failed, "ledger: out of memory") == ["run", source]
    assert names("ledger: out of memory") == ["run", source]
    assert names() == ["run", source]
    # No check of a source has the reason.
    assert names(failed, found=replace(check, text="2026-10-15 failed: HTTP 503")) == ["run", source]


@pytest.mark.rest
def test_two_nights_of_the_command(tmp_path: Path) -> None:
    taken, beats = Taken(), Taken()
    with http_server(taken.answer) as url, http_server(beats.answer) as heart:
        hook = {"name": "hook", "kind": "webhook", "url": url}
        closed = f"http://127.0.0.1:{free_port()}"
        path = tiny(tmp_path, {**AWAY, "url": closed}, hook, heartbeat_url=heart)
        Book.of(path, tmp_path / "data").start_empty()
        done = run(path)
        assert done.returncode == 1
        assert "alarms:" not in done.stderr
        (first,) = taken.bodies
        assert first["title"] == "fleet tiny (synthetic): 1 new alarm (1 error)"
        reason = "cannot be reached: [Errno 111] Connection refused (5 attempts)"
        # That no source answered, and that the run failed by it, is one outage.
        assert [(one["kind"], one["name"]) for one in first["alarms"]] == [
            ("source", "raw/landings source_cluster_answers"),
        ]
        assert reason in first["alarms"][0]["which"]
        assert reason in done.stderr
        assert beats.requests == []
        tiny(tmp_path, SYNTHETIC, hook, heartbeat_url=heart)
        done = run(path)
        assert done.returncode == 0, done.stdout + done.stderr
        # The source is not in the file any more, and a whole run succeeded without its check.
        assert [(one["status"], one["name"]) for one in taken.bodies[1]["alarms"] if one["status"] == "over"] == [
            ("over", "raw/landings source_cluster_answers"),
        ]
        assert len(beats.requests) == 1


# --- Dagster --------------------------------------------------------------------------------------------------------


class Broken(dg.Config):
    """Whether the asset fails."""

    is_broken: bool


def test_the_outcome_of_a_run_is_read_from_dagsters_history(tmp_path: Path) -> None:
    fleet = fleet_with(tmp_path, heartbeat_url="http://127.0.0.1:9")
    remedy = {"remedy": "mend it"}

    @dg.asset(
        key=["marts", "a"],
        check_specs=[
            dg.AssetCheckSpec("warns", asset=["marts", "a"], description="All is\n  well.", metadata=remedy),
            dg.AssetCheckSpec("holds", asset=["marts", "a"]),
        ],
    )
    def a() -> Iterator[Any]:
        yield dg.MaterializeResult()
        rows = dg.MarkdownMetadataValue("| kwh |\n| --- |\n| 1.5 |")
        yield dg.AssetCheckResult(
            passed=False,
            check_name="warns",
            severity=dg.AssetCheckSeverity.WARN,
            description="1 row",
            metadata={"rows": rows, "rows_found": 1},
        )
        yield dg.AssetCheckResult(passed=True, check_name="holds", metadata={"rows": 7})

    @dg.asset(key=["published", "b"], deps=[a])
    def b(config: Broken) -> None:
        if config.is_broken:
            raise OSError(28, "No space left on device", "/data/x")

    job = dg.Definitions(assets=[a, b], jobs=[dg.define_asset_job("all")]).resolve_job_def("all")
    with dg.DagsterInstance.ephemeral() as history:

        def outcome(is_broken: bool, **options: Any) -> Any:
            config = {"ops": {"published__b": {"config": {"is_broken": is_broken}}}} if not options else {}
            done = job.execute_in_process(instance=history, raise_on_error=False, run_config=config, **options)
            return outcome_of(fleet, history, done.run_id, job)

        broken, good = outcome(True), outcome(False)
        part = outcome(False, asset_selection=[a.key])
    warned = Found("marts/a", "warns", False, False, "1 row", "All is well.", "mend it", "| kwh |\n| --- |\n| 1.5 |", 1)
    assert broken.checks == good.checks == (warned, Found("marts/a", "holds", True, True))
    assert (broken.is_success, good.is_success, broken.is_good, good.is_good) == (False, True, False, True)
    # The words are those that a run prints of a full disk.
    (reason,) = broken.failures
    assert reason.startswith(f"no space left for {fleet.root} (")
    assert (good.is_whole, part.is_whole) == (True, False)
    assert good.remedies == {"warns": "mend it", "holds": ""}
    assert broken.ended_at < good.ended_at < part.ended_at
    lost = outcome_of(fleet, dg.DagsterInstance.ephemeral(), "no-such-run", job)
    assert (lost.is_success, lost.is_whole) == (False, False)


def test_a_fleet_that_sends_alarms_has_sensors_of_its_runs(tmp_path: Path) -> None:
    path = tiny(tmp_path, SYNTHETIC, heartbeat_url="http://127.0.0.1:9")
    sensors = definitions_of(load_fleet(path)).sensors or []
    assert [(one.name, one.default_status.value) for one in sensors] == [
        ("alarms_after_success", "RUNNING"),
        ("alarms_after_failure", "RUNNING"),
    ]
    path = tiny(tmp_path, SYNTHETIC)
    assert definitions_of(load_fleet(path)).sensors == []


@pytest.mark.rest
def test_a_run_of_dagsters_daemon_sends_its_alarms(tmp_path: Path) -> None:
    taken = Taken()
    with http_server(taken.answer) as url:
        path = tiny(
            tmp_path,
            {**AWAY, "url": f"http://127.0.0.1:{free_port()}"},
            {"name": "hook", "kind": "webhook", "url": url},
        )
        Book.of(path, tmp_path / "data").start_empty()
        with opened(path) as ask:
            ask(
                'mutation {launchRun(executionParams: {selector: {repositoryName: "__repository__",'
                f' repositoryLocationName: "tiny", jobName: "{JOB}"}}, mode: "default", runConfigData: {{}},'
                ' executionMetadata: {tags: [{key: "dagster/partition", value: "2026-10-01"}]}}) {__typename'
                " ... on PythonError {message}}}"
            )
            deadline = time.monotonic() + 480
            while not taken.requests and time.monotonic() < deadline:
                time.sleep(1)
    (message,) = taken.bodies
    assert message["title"] == "fleet tiny (synthetic): 1 new alarm (1 error)"
    assert [one["name"] for one in message["alarms"]] == ["raw/landings source_cluster_answers"]
    assert "Connection refused (5 attempts)" in message["alarms"][0]["which"]


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """`dev` on a fleet; what asks its GraphQL."""
    port, log = free_port(), path.parent / "dev.log"
    words = [sys.executable, "-m", "pipelines", "dev", "--fleet", str(path), "--port", str(port)]
    surroundings = environment(path.parent / "data")
    for name in ("DAGSTER_HOME", instance.SHARED_INSTANCE):
        surroundings.pop(name, None)

    def ask(query: str) -> Any:
        body = json.dumps({"query": query}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def is_loaded() -> bool:
        try:
            found = ask("{workspaceOrError {... on Workspace {locationEntries {loadStatus}}}}")
        except OSError:
            return False
        return [one["loadStatus"] for one in found["data"]["workspaceOrError"]["locationEntries"]] == ["LOADED"]

    with (
        log.open("w") as output,
        running(words, cwd=PROJECT, env=surroundings, stdout=output, stderr=subprocess.STDOUT) as server,
    ):
        wait_until(is_loaded, server, log)
        yield ask
