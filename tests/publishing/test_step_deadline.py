"""A publication that never ends: a database or a store that sends nothing, or a byte now and then, ends with its step.

libpq and S3's client have no limit of their own for these: the run once waited for ever, and held the pool meanwhile.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipelines.fleet.fleet_errors import FleetError
from pipelines.fleet.fleet_file import Fleet, load_fleet
from pipelines.fleet.places import PROJECT
from pipelines.publishing.object_store import storing as object_store
from pipelines.publishing.object_store.place import ObjectStoreError
from pipelines.publishing.postgresql import loading as postgresql
from pipelines.publishing.postgresql.server import PostgresqlError
from pipelines.warehouse import step_deadline
from tests.servers import s3_bucket
from tests.talking_servers import dripping, logged_in_and_silent, silence, talking_server
from tests.tiny_marts import book, publish

FLEET = """
fleet: tiny
synthetic: true
period: {start: 2026-10-01}
sources: [{name: synthetic, kind: synthetic, scenario: demo, interval_seconds: 60}]
publication: {TARGET}
"""
SECONDS = 6
STORE = f"object_store: {{url: 's3://bucket/ledger', limits: {{step_seconds: {SECONDS}}}}}"
DATABASE = f"postgresql: {{dsn_env: WATTLEDGER_TEST_POSTGRESQL, limits: {{step_seconds: {SECONDS}}}}}"


def tiny(folder: Path, target: str) -> Fleet:
    """A fleet of three small tables, booked and published to its own folder."""
    path = folder / "tiny.yaml"
    path.write_text(FLEET.replace("TARGET", target))
    made = load_fleet(path, {**os.environ, "WATTLEDGER_DATA": str(folder / "data")})
    made.root.mkdir(parents=True, exist_ok=True)
    book(made, {"2026-10-01": 1})
    publish(made)
    return made


@pytest.mark.rest
@pytest.mark.parametrize(
    "talk",
    [silence, dripping(b"X-More: 1\r\n"), dripping(b"<", b"Content-Length: 99999\r\n\r\n")],
    ids=["silence", "headers", "body"],
)
def test_a_store_that_never_answers_ends_with_its_step(tmp_path, monkeypatch, talk):
    fleet = tiny(tmp_path, STORE)
    target = fleet.publication.object_store
    with talking_server(talk) as place:
        credentials = {"AWS_ACCESS_KEY_ID": "AKIAWATTLEDGER", "AWS_SECRET_ACCESS_KEY": "s3cret", "AWS_REGION": "eu"}
        for name, value in {**credentials, "AWS_ENDPOINT_URL": f"http://{place}"}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        with pytest.raises(ObjectStoreError) as refusal:
            object_store.publish_within_limits(fleet, target)
    assert str(refusal.value) == (
        "publication.object_store: s3://bucket/ledger: not done within 6 s, so the upload was ended and the object"
        " store keeps what it has. Look whether the store answers; if the upload is that large, raise"
        " publication.object_store.limits.step_seconds"
    )


@pytest.mark.rest
@pytest.mark.parametrize("talk", [silence, logged_in_and_silent], ids=["silence", "silence after the login"])
def test_a_database_that_never_answers_ends_with_its_step(tmp_path, monkeypatch, talk):
    with talking_server(talk) as place:
        monkeypatch.setenv("WATTLEDGER_TEST_POSTGRESQL", f"postgresql://wattledger:s3cret@{place}/ledger")
        fleet = tiny(tmp_path, DATABASE)
        with pytest.raises(PostgresqlError) as refusal:
            postgresql.publish_within_limits(fleet, fleet.publication.postgresql, {})
    assert str(refusal.value) == (
        f"publication.postgresql: postgresql://{place}/ledger: not done within 6 s, so the load was ended and"
        " PostgreSQL keeps what it has. Look whether the server answers; if the load is that large, raise"
        " publication.postgresql.limits.step_seconds"
    )


def test_a_publication_that_ends_in_time_is_what_it_was(tmp_path, monkeypatch):
    with s3_bucket(monkeypatch) as bucket:
        fleet = tiny(tmp_path, f"object_store: {{url: '{bucket}/ledger'}}")
        target = fleet.publication.object_store
        done = object_store.publish_within_limits(fleet, target)
        again = object_store.publish_within_limits(fleet, target)
        assert (done.rows["marts.model_daily"], done.previous_id) == (1, None)
        assert (again.rows, again.previous_id, again.publication_id) == ({}, done.publication_id, done.publication_id)
        assert object_store.publish(fleet, target).rows == {}


@pytest.mark.parametrize("value", ["0", "-1", "700000", "'60'"])
def test_a_limit_that_is_none_is_refused_by_name(tmp_path, value):
    target = f"postgresql: {{dsn_env: HOME, limits: {{step_seconds: {value}}}}}"
    with pytest.raises(FleetError, match=r"publication\.postgresql\.limits\.step_seconds: "):
        tiny(tmp_path, target)


# --- the process ------------------------------------------------------------------------------------------------------


def talkative(name: str) -> str:
    logging.getLogger("pipelines.publishing.test").info("waiting for %s", name)
    return f"done {name}"


def refused() -> None:
    raise ObjectStoreError("the bucket is gone")


def broken() -> None:
    raise ZeroDivisionError("a defect")


def killed() -> None:
    os.kill(os.getpid(), 9)


def asleep(path: str) -> None:
    time.sleep(4)
    Path(path).touch()


def in_parts(path: str) -> str:
    for _ in range(5):
        step_deadline.progressed()
    return path


@pytest.mark.rest
def test_a_process_that_gets_on_is_not_late(monkeypatch):
    """Five parts of 4 s each have 6 s; by a clock of its own, as a busy machine may not start a process within 6 s."""
    clock = [0.0]
    parts: list[tuple[str, object]] = []

    class Parts:
        def poll(self, seconds: float) -> bool:
            clock[0] += 4
            return seconds >= 4

        def recv(self) -> tuple[str, object]:
            return parts.pop(0)

    monkeypatch.setattr(step_deadline, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    parts[:] = [("progressed", None)] * 4 + [("done", "20 s in parts")]
    assert step_deadline.outcome(Parts(), 6) == "20 s in parts"
    log = logging.makeLogRecord({"msg": "waiting", "levelno": logging.INFO})
    parts[:] = [("log", log)] * 4 + [("done", "20 s in one part")]
    with pytest.raises(step_deadline.StepTookTooLong):
        step_deadline.outcome(Parts(), 6)


@pytest.mark.rest
def test_parts_of_the_process_arrive():
    assert step_deadline.within(60, in_parts, "in parts") == "in parts"


@pytest.mark.rest
def test_what_the_process_returns_logs_and_raises_arrives(caplog):
    with caplog.at_level(logging.INFO):
        assert step_deadline.within(60, talkative, "x") == "done x"
    assert [(one.name, one.getMessage()) for one in caplog.records] == [("pipelines.publishing.test", "waiting for x")]
    with pytest.raises(ObjectStoreError, match=r"^the bucket is gone$"):
        step_deadline.within(60, refused)
    with pytest.raises(step_deadline.StepDied, match=r"(?s)in broken.*ZeroDivisionError: a defect"):
        step_deadline.within(60, broken)
    with pytest.raises(step_deadline.StepDied, match="ended without a result"):
        step_deadline.within(60, killed)


@pytest.mark.rest
def test_a_process_that_is_late_is_gone(tmp_path):
    with pytest.raises(step_deadline.StepTookTooLong):
        step_deadline.within(3, asleep, str(tmp_path / "late"))
    time.sleep(5)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.rest
def test_a_process_ends_with_its_parent(tmp_path):
    """As a run that is killed did before: what is half published is not finished behind its back."""
    program = (
        "import sys; from pipelines.warehouse import step_deadline; from tests.publishing import test_step_deadline;"
        " step_deadline.within(60, test_step_deadline.asleep, sys.argv[1])"
    )
    parent = subprocess.Popen([sys.executable, "-c", program, tmp_path / "late"], cwd=PROJECT)
    time.sleep(3)
    parent.kill()
    parent.wait()
    time.sleep(6)
    assert list(tmp_path.iterdir()) == []
