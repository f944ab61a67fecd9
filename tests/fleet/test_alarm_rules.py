"""The key `alarms` of a fleet file: what it refuses, and that a variable which is not set costs no run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.fleet.fleet_file import Fleet, FleetError, load_fleet
from tests import commands
from tests.books import environment

MAIL = {
    "name": "mail",
    "kind": "email",
    "host": "smtp.example.com",
    "sender": "a@b.example",
    "recipients": ["c@d.example"],
}
HOOK = {"name": "hook", "kind": "webhook", "url": "https://hooks.example.com/x"}
CHAT = {"name": "chat", "kind": "slack", "url_env": "SLACK_URL"}


def load(folder: Path, *receivers: dict[str, Any], **alarms: Any) -> Fleet:
    contents = {
        "fleet": "mine",
        "synthetic": True,
        "period": {"start": "2026-10-01", "end": "2026-10-02"},
        "sources": [{"name": "s", "kind": "synthetic", "scenario": "demo", "interval_seconds": 60}],
        "alarms": {"receivers": list(receivers), **alarms},
    }
    path = folder / "fleet.yaml"
    path.write_text(yaml.safe_dump(contents), encoding="utf-8")
    return load_fleet(path, {})


def test_a_file_loads_without_its_variables(tmp_path: Path) -> None:
    secrets = {"username_env": "SMTP_USER", "password_env": "SMTP_PASSWORD"}
    alarms = load(tmp_path, CHAT, {**MAIL, **secrets}, {**HOOK, "bearer_env": "TOKEN"}, heartbeat_url_env="BEAT").alarms
    assert [one.name for one in alarms.receivers] == ["chat", "mail", "hook"]
    assert (alarms.receivers[0].least_severity, alarms.receivers[0].timeout_seconds) == ("info", 10.0)
    assert alarms.are_sent
    assert not load(tmp_path).alarms.are_sent


def test_check_names_the_variables_that_are_not_set(tmp_path: Path) -> None:
    load(tmp_path, CHAT, {**HOOK, "bearer_env": "TOKEN"}, heartbeat_url_env="BEAT")
    words = ["check", "--offline", "--fleet", str(tmp_path / "fleet.yaml"), "--json"]
    done = commands.run(words, environment(tmp_path / "data", TOKEN="t"), timeout=60)
    assert done.returncode == 0
    assert [one["got"] for one in json.loads(done.stdout) if "is not set here" in one["got"]] == [
        "alarms.receivers[chat].url_env: environment variable SLACK_URL is not set here; without it nothing is sent",
        "alarms.heartbeat_url_env: environment variable BEAT is not set here; without it nothing is sent",
    ]


@pytest.mark.parametrize(
    ("receiver", "words"),
    [
        (
            {**HOOK, "kind": "slack"},
            "alarms.receivers[hook]: expected url_env: who has the URL of Slack may write there",
        ),
        ({**HOOK, "url_env": "URL"}, "alarms.receivers[hook]: expected exactly one of url and url_env"),
        ({**CHAT, "url_env": None}, "alarms.receivers[chat]: expected exactly one of url and url_env"),
        (
            {**CHAT, "url_env": "https://hooks.slack.com/services/T0/B0/s3cret"},
            "alarms.receivers[chat].url_env: must be the name of an environment variable, never the secret itself",
        ),
        (
            {**HOOK, "url": "https://me:s3cret@hooks.example.com"},
            "must carry no user or password; name the environment variables that hold them",
        ),
        (
            {**HOOK, "username_env": "USER"},
            "alarms.receivers[hook]: expected bearer_env alone, username_env with password_env, or none of them",
        ),
        (
            {**MAIL, "tls": "none"},
            "alarms.receivers[mail]: tls: got none with host 'smtp.example.com', expected starttls or implicit",
        ),
        (
            {**MAIL, "host": "localhost", "tls": "none", "username_env": "U", "password_env": "P"},
            "alarms.receivers[mail]: tls: got none with host 'localhost'",
        ),
        ({**MAIL, "recipients": []}, "alarms.receivers[mail].recipients: expected"),
        ({**MAIL, "sender": "a@b.example\nBcc: x@y.example"}, "alarms.receivers[mail].sender: got"),
        ({**HOOK, "kinds": ["budgets"]}, "alarms.receivers[hook].kinds[0]: got 'budgets'"),
        ({"name": "x", "kind": "pager"}, "alarms.receivers[x].kind: got 'pager'"),
    ],
)
def test_a_receiver_that_cannot_work_is_refused(tmp_path: Path, receiver: dict[str, Any], words: str) -> None:
    with pytest.raises(FleetError) as refusal:
        load(tmp_path, receiver)
    assert words in str(refusal.value)
    assert "s3cret" not in str(refusal.value)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
def test_this_machine_takes_mail_without_tls(tmp_path: Path, host: str) -> None:
    assert load(tmp_path, {**MAIL, "host": host, "tls": "none", "port": 25}).alarms.receivers[0].tls == "none"


def test_names_and_heartbeats_are_one_each(tmp_path: Path) -> None:
    with pytest.raises(FleetError, match="receivers: 'hook' is there more than once"):
        load(tmp_path, HOOK, HOOK)
    with pytest.raises(FleetError, match="at most one of heartbeat_url and heartbeat_url_env"):
        load(tmp_path, heartbeat_url="https://a.example", heartbeat_url_env="BEAT")
