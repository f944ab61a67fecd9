"""What real receivers get, word for word: an Alertmanager, HTTP servers, an SMTP server, a program."""

from __future__ import annotations

import http.server
import json
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml

from pipelines.alarming.alarm import of_json
from pipelines.alarming.delivery import after_run, send_test
from pipelines.alarming.messages import Message
from pipelines.alarming.run_outcome import Found, Outcome
from pipelines.fleet.fleet_file import Fleet, load_fleet
from tests.mail_server import mail_server
from tests.servers import alertmanager, free_port, http_server, own_certificate, reply
from tests.talking_servers import silence, talking_server

NIGHT = datetime(2026, 10, 28, 1, 20, tzinfo=UTC)
SILENT = Found(
    "raw/series_chunks",
    "sources_speak",
    passed=False,
    is_error=False,
    text="1 row\n  source cluster, date 2026-10-27, silent_from 12:00\n  Expected: samples up to the end of the day\n"
    "  What to do: see whether the source runs",
)
FAILED = Outcome(
    NIGHT, is_success=False, failures=("step telemetry failed: every source failed",), checks=(SILENT,), remedies={}
)
GOOD = Outcome(NIGHT, is_success=True, checks=(replace(SILENT, passed=True, text=""),), remedies={})
RUN_REMEDY = (
    "do what the line names (`wattledger help NAME` has each); the next run books what is due. What was published"
    " before stays"
)

TEXT = (
    "fleet mine: 2 new alarms (1 error, 1 warning)\n"
    "\n"
    "NEW error: the run failed\n"
    "  step telemetry failed: every source failed\n"
    "  since 2026-10-28 01:20 UTC\n"
    f"  What to do: {RUN_REMEDY}\n"
    "\n"
    "NEW warning: the check sources_speak of raw/series_chunks warned\n"
    "  1 row\n"
    "  source cluster, date 2026-10-27, silent_from 12:00\n"
    "  Expected: samples up to the end of the day\n"
    "  since 2026-10-28 01:20 UTC\n"
    "  What to do: see whether the source runs\n"
)


def fleet_with(folder: Path, *receivers: dict[str, Any], **alarms: Any) -> Fleet:
    """A fleet with these receivers."""
    contents = {
        "fleet": "mine",
        "period": {"start": "2026-10-01"},
        "sources": [{"name": "cluster", "kind": "prometheus", "url": "http://p:9090", "interval_seconds": 30}],
        "alarms": {"receivers": list(receivers), **alarms},
    }
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(json.loads(json.dumps(contents, default=str))), encoding="utf-8")
    return load_fleet(path, {"WATTLEDGER_DATA": str(folder / "data")})


class Taken:
    """What an HTTP server took: path, bearer and JSON of each request. It answers as `status` has it."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, str | None, Any]] = []
        self.status = 200

    def answer(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        bearer = handler.headers.get("Authorization")
        self.requests.append((handler.command, handler.path, bearer, json.loads(body) if body else None))
        reply(handler, self.status, b'{"error": "the token s3cret-token and more"}' if self.status >= 400 else b"ok")

    @property
    def bodies(self) -> list[Any]:
        return [body for _, _, _, body in self.requests]


def titles(taken: Taken) -> list[str]:
    return [body["title"] for body in taken.bodies]


def night(n: int) -> datetime:
    return NIGHT + timedelta(days=n)


# --- a webhook: what is new, what lasts, what is over ---------------------------------------------------------------


def test_a_webhook_gets_what_is_new_once_what_lasts_once_a_day_and_what_is_over(tmp_path: Path) -> None:
    taken = Taken()
    with http_server(taken.answer) as url:
        fleet = fleet_with(tmp_path, {"name": "hook", "kind": "webhook", "url": f"{url}/in?team=ops"})
        assert after_run(fleet, FAILED, night(0)) == []
        assert taken.requests == [("POST", "/in?team=ops", None, {
            "version": 1,
            "fleet": "mine",
            "is_synthetic": False,
            "sent_at": "2026-10-28T01:20:00+00:00",
            "title": "fleet mine: 2 new alarms (1 error, 1 warning)",
            "text": TEXT,
            "alarms": [
                {
                    "status": "new", "kind": "run", "name": "run", "severity": "error", "what": "the run failed",
                    "which": "step telemetry failed: every source failed", "remedy": RUN_REMEDY,
                    "since": "2026-10-28T01:20:00+00:00",
                },
                {
                    "status": "new", "kind": "source", "name": "raw/series_chunks sources_speak",
                    "severity": "warning", "what": "the check sources_speak of raw/series_chunks warned",
                    "which": "1 row\n  source cluster, date 2026-10-27, silent_from 12:00\n"
                    "  Expected: samples up to the end of the day",
                    "remedy": "see whether the source runs", "since": "2026-10-28T01:20:00+00:00",
                },
            ],
        })]  # fmt: skip
        # A second run of the same date brings nothing new; the next night lists what lasts, with its beginning.
        assert after_run(fleet, FAILED, NIGHT + timedelta(hours=1)) == []
        assert len(taken.requests) == 1
        assert after_run(fleet, FAILED, night(1)) == []
        assert titles(taken)[1:] == ["fleet mine: 2 alarms since earlier"]
        assert [(one["status"], one["since"]) for one in taken.bodies[1]["alarms"]] == [
            ("lasting", "2026-10-28T01:20:00+00:00")
        ] * 2
        # A run that was over before its checks ends none of them.
        assert after_run(fleet, replace(GOOD, is_success=False, checks=(), failures=("full",)), night(1)) == []
        assert len(taken.requests) == 2
        assert after_run(fleet, GOOD, night(2)) == []
        assert after_run(fleet, GOOD, night(3)) == []
        assert titles(taken)[2:] == ["fleet mine: 2 alarms over"]
        assert [(one["status"], one["name"]) for one in taken.bodies[2]["alarms"]] == [
            ("over", "run"),
            ("over", "raw/series_chunks sources_speak"),
        ]
    assert json.loads((fleet.root / "alarms.json").read_text())["alarms"] == []


def test_a_run_that_ended_before_another_changes_nothing_after_it(tmp_path: Path) -> None:
    taken = Taken()
    with http_server(taken.answer) as url:
        fleet = fleet_with(tmp_path, {"name": "hook", "kind": "webhook", "url": url})
        now = NIGHT + timedelta(minutes=5)
        assert after_run(fleet, replace(GOOD, ended_at=NIGHT + timedelta(minutes=1)), now) == []
        assert after_run(fleet, FAILED, now) == []
        assert taken.requests == []
        assert after_run(fleet, replace(FAILED, ended_at=NIGHT + timedelta(minutes=2)), now) == []
        assert len(taken.requests) == 1
        # A clock that was a year ahead once stops nothing.
        assert after_run(fleet, replace(GOOD, ended_at=night(365)), now) == []
        assert after_run(fleet, replace(FAILED, ended_at=NIGHT + timedelta(minutes=3)), now) == []
        assert len(taken.requests) == 3


def test_a_receiver_gets_what_it_asks_for(tmp_path: Path) -> None:
    taken = {name: Taken() for name in ("errors", "sources", "terse", "all")}
    with (
        http_server(taken["errors"].answer) as errors,
        http_server(taken["sources"].answer) as sources,
        http_server(taken["terse"].answer) as terse,
        http_server(taken["all"].answer) as everything,
    ):
        of = {"kind": "webhook"}
        fleet = fleet_with(
            tmp_path,
            {**of, "name": "errors", "url": errors, "least_severity": "error"},
            {**of, "name": "sources", "url": sources, "kinds": ["source"]},
            {**of, "name": "terse", "url": terse, "digest": False},
            {**of, "name": "all", "url": everything},
            muted=["families_stay"],
        )
        muted = Found("raw/series", "families_stay", passed=False, is_error=False, text="1 row")
        outcome = replace(FAILED, checks=(SILENT, muted))
        for n in (0, 1):
            assert after_run(fleet, outcome, night(n)) == []
    assert titles(taken["errors"]) == ["fleet mine: 1 new alarm (1 error)", "fleet mine: 1 alarm since earlier"]
    assert titles(taken["sources"]) == ["fleet mine: 1 new alarm (1 warning)", "fleet mine: 1 alarm since earlier"]
    assert titles(taken["terse"]) == ["fleet mine: 2 new alarms (1 error, 1 warning)"]
    assert titles(taken["all"])[0] == "fleet mine: 2 new alarms (1 error, 1 warning)"


# --- receivers that do not take it ----------------------------------------------------------------------------------


def test_a_run_waits_for_no_receiver_and_the_next_one_sends_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_TOKEN", "s3cret-token")
    monkeypatch.delenv("CHAT_URL", raising=False)
    taken, refusing = Taken(), Taken()
    refusing.status = 500
    closed = free_port()
    with (
        http_server(taken.answer) as good,
        http_server(refusing.answer) as bad,
        talking_server(silence) as hangs,
        talking_server(silence) as hanging_mail,
    ):
        of = {"kind": "webhook", "timeout_seconds": 1}
        host, port = hanging_mail.split(":")
        mail = {"host": host, "port": int(port), "sender": "a@example.com", "recipients": ["b@example.com"]}
        fleet = fleet_with(
            tmp_path,
            {**of, "name": "good", "url": good},
            {**of, "name": "bad", "url": bad, "bearer_env": "HOOK_TOKEN"},
            {**of, "name": "closed", "url": f"http://127.0.0.1:{closed}"},
            {**of, "name": "hangs", "url": f"http://{hangs}"},
            {"kind": "email", "name": "mail", "timeout_seconds": 1, **mail},
            {"kind": "command", "name": "late", "timeout_seconds": 1, "command": ["sh", "-c", "sleep 60 & sleep 60"]},
            {"kind": "command", "name": "ends", "command": ["sh", "-c", "echo no such pager; exit 3"]},
            {"kind": "command", "name": "none", "command": [str(tmp_path / "missing")]},
            {"kind": "slack", "name": "chat", "url_env": "CHAT_URL"},
            heartbeat_url=f"http://{hangs}/beat",
        )
        began = time.monotonic()
        lines = after_run(fleet, FAILED, night(0))
        seconds = time.monotonic() - began
        again = "; the next run sends it again"
        assert sorted(lines) == sorted(
            f"alarms: the receiver {name} did not take it ({reason}){again}"
            for name, reason in {
                "bad": f"{bad}: HTTP 500: the token *** and more",
                "closed": f"http://127.0.0.1:{closed}: cannot be reached: [Errno 111] Connection refused",
                "hangs": f"http://{hangs}: no answer within 1 s",
                "mail": f"{host}:{port}: no answer within 1 s",
                "late": "sh: not ended within 1 s",
                "ends": "sh: ended with 3: no such pager",
                "none": f"{tmp_path}/missing: No such file or directory",
                "chat": "environment variable CHAT_URL is not set",
            }.items()
        )
        assert 1 <= seconds < 2.5
        # One that hung or refused gets the same at the next run; one that took it, nothing on the same date.
        refusing.status = 204
        refusing.requests.clear()
        assert len(after_run(fleet, FAILED, NIGHT + timedelta(hours=1))) == 7
        assert titles(refusing) == ["fleet mine: 2 new alarms (1 error, 1 warning)"]
        assert [bearer for _, _, bearer, _ in refusing.requests] == ["Bearer s3cret-token"]
        assert len(taken.requests) == 1


def test_a_server_that_answers_byte_by_byte_is_left_when_its_seconds_are_over(tmp_path: Path) -> None:
    def drip(connection: Any) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        while True:
            connection.sendall(b"X-Drip: 1\r\n")
            time.sleep(0.2)

    with talking_server(drip) as server:
        receiver = {"name": "hook", "kind": "webhook", "url": f"http://{server}", "timeout_seconds": 1}
        fleet = fleet_with(tmp_path, receiver)
        began = time.monotonic()
        (line,) = after_run(fleet, FAILED, NIGHT)
        assert time.monotonic() - began < 2
        assert f"http://{server}: no answer within 1 s" in line


def test_a_memory_that_cannot_be_read_or_written_costs_a_line(tmp_path: Path) -> None:
    taken = Taken()
    with http_server(taken.answer) as url:
        fleet = fleet_with(tmp_path, {"name": "hook", "kind": "webhook", "url": url})
        after_run(fleet, FAILED, NIGHT)
        path = fleet.root / "alarms.json"
        path.write_text("{", encoding="utf-8")
        (line,) = after_run(fleet, FAILED, NIGHT)
        assert line.startswith(f"alarms: {path} cannot be read (JSONDecodeError: ")
        assert line.endswith("; it begins anew, and all that lasts is sent again")
        assert titles(taken) == ["fleet mine: 2 new alarms (1 error, 1 warning)"] * 2
        # A disk that takes nothing: it is sent all the same.
        unfinished = path.with_name(".alarms.json.tmp")
        unfinished.mkdir()
        (line,) = after_run(fleet, GOOD, NIGHT)
        assert line == (
            f"alarms: {path} cannot be written (Is a directory): what was sent now, the next run sends it again"
        )
        assert titles(taken)[2:] == ["fleet mine: 2 alarms over"]
        unfinished.rmdir()
        path.unlink()
        path.mkdir()
        (line,) = after_run(fleet, FAILED, NIGHT)
        assert line.startswith("alarms could not be sent (IsADirectoryError: ")


# --- the heartbeat --------------------------------------------------------------------------------------------------


def test_the_heartbeat_comes_after_a_good_run_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = Taken()
    with http_server(taken.answer) as url:
        monkeypatch.setenv("HEARTBEAT_URL", f"{url}/ping/4f7a-secret")
        fleet = fleet_with(tmp_path, heartbeat_url_env="HEARTBEAT_URL")
        publish_until(fleet, night(9))
        after_run(fleet, FAILED, night(0))
        after_run(fleet, replace(GOOD, checks=(replace(SILENT, is_error=True),)), night(1))
        assert taken.requests == []
        assert after_run(fleet, replace(GOOD, checks=(SILENT,)), night(2)) == []  # a warning is no failure
        assert taken.requests == [("GET", "/ping/4f7a-secret", None, None)]
        taken.status = 404
        (line,) = after_run(fleet, GOOD, night(3))
        shown = url.rpartition(":")[0]
        assert line == (
            f"alarms: the heartbeat's URL did not take it ({shown}: HTTP 404: the token s3cret-token and more);"
            " the next run sends it again"
        )


def publish_until(fleet: Fleet, at: datetime) -> None:
    """Publish the date before `at`, with the columns that alarms read."""
    fleet.published.mkdir(parents=True, exist_ok=True)
    with duckdb.connect(str(fleet.snapshot)) as connection:
        connection.execute("create schema if not exists marts")
        for table, columns in (
            ("fleet_daily", "date date"),
            ("cost_daily", "date date, basis varchar, cost_usd double"),
            ("site_footprint_daily", "date date, facility_energy_kwh double"),
        ):
            connection.execute(f"create or replace table marts.{table} ({columns})")
        connection.execute("insert into marts.fleet_daily values (?)", [at.date() - timedelta(days=1)])


def test_a_good_run_on_older_dates_hides_no_night_that_never_began(tmp_path: Path) -> None:
    taken = Taken()
    with http_server(taken.answer) as url:
        fleet = fleet_with(tmp_path, heartbeat_url=f"{url}/ping")
        after_run(fleet, GOOD, night(0))  # nothing is published
        publish_until(fleet, night(0))
        after_run(fleet, GOOD, night(1))
        assert taken.requests == []
        after_run(fleet, replace(GOOD, began_at=night(1) - timedelta(hours=2)), night(2))  # started before midnight
        publish_until(fleet, night(3))
        after_run(fleet, GOOD, night(3))
        assert [path for _, path, _, _ in taken.requests] == ["/ping", "/ping"]


# --- forms ----------------------------------------------------------------------------------------------------------

MARKUP = Outcome(
    NIGHT, is_success=False, failures=("model <!channel> & *bold* [x](http://evil) \x1b[31m",), remedies={}
)
MARKUP_TEXT = "model <!channel> & *bold* [x](http://evil) \\x1b[31m"


def test_slack_and_teams_get_their_forms_in_which_no_name_is_markup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slack, teams = Taken(), Taken()
    with http_server(slack.answer) as slack_url, http_server(teams.answer) as teams_url:
        monkeypatch.setenv("SLACK_URL", f"{slack_url}/services/T0/B0/x")
        monkeypatch.setenv("TEAMS_URL", f"{teams_url}/workflows/1?sig=y")
        fleet = fleet_with(
            tmp_path,
            {"name": "chat", "kind": "slack", "url_env": "SLACK_URL"},
            {"name": "office", "kind": "teams", "url_env": "TEAMS_URL"},
        )
        assert after_run(fleet, MARKUP, NIGHT) == []
    title = "fleet mine: 1 new alarm (1 error)"
    lines = [
        "NEW error: the run failed",
        f"  {MARKUP_TEXT}",
        "  since 2026-10-28 01:20 UTC",
        f"  What to do: {RUN_REMEDY}",
    ]
    assert slack.bodies == [
        {
            "text": title,
            "blocks": [
                {"type": "header", "text": {"type": "plain_text", "text": title, "emoji": False}},
                {"type": "section", "text": {"type": "plain_text", "text": "\n".join(lines), "emoji": False}},
            ],
        }
    ]
    assert teams.bodies == [
        {
            "type": "message",
            "attachments": [
                {
                    "contentType": "application/vnd.microsoft.card.adaptive",
                    "contentUrl": None,
                    "content": {
                        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
                        "type": "AdaptiveCard",
                        "version": "1.4",
                        "msteams": {"width": "Full"},
                        "body": [
                            {
                                "type": "RichTextBlock",
                                "inlines": [{"type": "TextRun", "text": title, "weight": "Bolder", "size": "Medium"}],
                            },
                            {
                                "type": "RichTextBlock",
                                "inlines": [
                                    {"type": "TextRun", "text": f"{lines[0]}\n", "weight": "Bolder"},
                                    {"type": "TextRun", "text": f"{lines[1]}\n"},
                                    {"type": "TextRun", "text": f"{lines[2]}\n"},
                                    {"type": "TextRun", "text": lines[3]},
                                ],
                            },
                        ],
                    },
                }
            ],
        }
    ]


def test_many_alarms_are_one_message_that_names_how_to_list_the_rest(tmp_path: Path) -> None:
    written = tmp_path / "message"
    command = {"name": "pager", "kind": "command", "command": ["sh", "-c", f"cat > {written}"]}
    fleet = fleet_with(tmp_path, command)
    checks = tuple(
        Found("marts/model_daily", f"rule_{n:03}", passed=False, is_error=True, text="x" * 5000) for n in range(40)
    )
    assert after_run(fleet, replace(FAILED, checks=checks), NIGHT) == []
    whole = json.loads(written.read_text())
    assert (whole["title"], len(whole["alarms"])) == ("fleet mine: 41 new alarms (41 errors)", 41)
    message = Message("mine", False, NIGHT, "wattledger alarms --fleet mine.yaml", new=[*map(of_json, whole["alarms"])])
    blocks = message.slack_json()["blocks"]
    assert len(blocks) == 17  # of at most 50: the title, 15 alarms and the line that counts the others
    assert max(len(block["text"]["text"]) for block in blocks) < 3000
    assert blocks[-1]["text"]["text"] == "… and 26 more new: wattledger alarms --fleet mine.yaml"
    assert len(json.dumps(message.teams_json())) < 28_000


# --- mail -----------------------------------------------------------------------------------------------------------


@pytest.mark.needs("openssl")
def test_a_mail_goes_over_tls_with_a_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, tls = own_certificate(tmp_path)
    monkeypatch.setenv("SMTP_USER", "ledger")
    monkeypatch.setenv("SMTP_PASSWORD", "s3cret-word")
    monkeypatch.setenv("CA_FILE", str(certificate))
    with mail_server(tls, ("ledger", "s3cret-word")) as box:
        receiver = {
            "name": "mail", "kind": "email", "host": "127.0.0.1", "port": box.port,
            "sender": "wattledger@example.com", "recipients": ["ops@example.com", "boss@example.com"],
            "username_env": "SMTP_USER", "password_env": "SMTP_PASSWORD", "ca_file_env": "CA_FILE",
        }  # fmt: skip
        fleet = fleet_with(tmp_path, receiver)
        assert after_run(fleet, FAILED, NIGHT) == []
        assert box.envelopes == [("wattledger@example.com", ["ops@example.com", "boss@example.com"], True, "ledger")]
        (mail,) = box.mails
        assert {name: mail[name] for name in ("Subject", "From", "To", "Date", "Auto-Submitted")} == {
            "Subject": "[wattledger] fleet mine: 2 new alarms (1 error, 1 warning)",
            "From": "wattledger@example.com",
            "To": "ops@example.com, boss@example.com",
            "Date": "Wed, 28 Oct 2026 01:20:00 +0000",
            "Auto-Submitted": "auto-generated",
        }
        assert mail.get_content().replace("\r\n", "\n") == TEXT
        # A wrong password, which the server repeats; and a certificate that is not trusted.
        monkeypatch.setenv("SMTP_PASSWORD", "wrong-word")
        assert after_run(fleet, FAILED, night(1)) == [
            f"alarms: the receiver mail did not take it (127.0.0.1:{box.port}: 535 5.7.8 wrong password ***);"
            " the next run sends it again"
        ]
        untrusted = fleet_with(tmp_path, {**receiver, "ca_file_env": None})
        (line,) = after_run(untrusted, FAILED, night(1))
        assert "certificate verify failed" in line
        assert len(box.mails) == 1


@pytest.mark.needs("openssl")
def test_a_server_without_tls_gets_nothing_and_one_that_begins_with_it_gets_its_mail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, tls = own_certificate(tmp_path)
    monkeypatch.setenv("CA_FILE", str(certificate))
    of = {"name": "mail", "kind": "email", "host": "127.0.0.1", "sender": "a@example.com", "ca_file_env": "CA_FILE"}
    with mail_server(None) as box:
        fleet = fleet_with(tmp_path, {**of, "port": box.port, "recipients": ["b@example.com"]})
        (line,) = after_run(fleet, FAILED, NIGHT)
        assert "STARTTLS extension not supported by server" in line
        assert box.mails == []
        # On this machine it may go without.
        plain = {**of, "port": box.port, "recipients": ["b@example.com"], "tls": "none"}
        assert after_run(fleet_with(tmp_path, plain), FAILED, NIGHT) == []
        assert [is_tls for _, _, is_tls, _ in box.envelopes] == [False]
    with mail_server(tls, refused="gone@example.com", is_implicit=True) as box:
        both = {**of, "port": box.port, "recipients": ["b@example.com", "gone@example.com"], "tls": "implicit"}
        (line,) = after_run(fleet_with(tmp_path, both), FAILED, night(1))
        assert f"127.0.0.1:{box.port}: refused the recipients gone@example.com" in line
        assert [to for _, to, _, _ in box.envelopes] == [["b@example.com"]]


# --- Alertmanager ---------------------------------------------------------------------------------------------------


def posted(url: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{url}/api/v2/alerts", timeout=10) as answer:
        return sorted(json.load(answer), key=lambda alert: alert["labels"]["alertname"])


@pytest.mark.needs("alertmanager")
def test_an_alertmanager_holds_what_lasts_and_ends_what_is_over(tmp_path: Path) -> None:
    folder = tmp_path / "alertmanager"
    folder.mkdir()
    with alertmanager(folder) as url:
        fleet = fleet_with(tmp_path, {"name": "on_call", "kind": "alertmanager", "url": url})
        now = datetime.now(UTC).replace(microsecond=0)
        assert after_run(fleet, FAILED, now) == []
        run, source = posted(url)
        assert run["labels"] == {
            "alertname": "WattledgerRunFailed", "fleet": "mine", "kind": "run", "name": "run", "severity": "critical",
        }  # fmt: skip
        assert run["annotations"] == {
            "summary": "fleet mine: the run failed",
            "description": "step telemetry failed: every source failed",
            "what_to_do": RUN_REMEDY,
        }
        assert source["labels"]["alertname"] == "WattledgerSourceIncomplete"
        assert datetime.fromisoformat(run["startsAt"]) == now
        assert datetime.fromisoformat(run["endsAt"]) == now + timedelta(hours=72)
        # A silence holds over nights, because the labels stay. The next run posts them again.
        matcher = {"name": "kind", "value": "source", "isRegex": False, "isEqual": True}
        ends_at = (now + timedelta(days=2)).isoformat()
        silence_of = {
            "matchers": [matcher], "startsAt": now.isoformat(), "endsAt": ends_at, "createdBy": "a test", "comment": "",
        }  # fmt: skip
        request = urllib.request.Request(
            f"{url}/api/v2/silences", json.dumps(silence_of).encode(), {"Content-Type": "application/json"}
        )
        urllib.request.urlopen(request, timeout=10).close()
        assert after_run(fleet, FAILED, now + timedelta(minutes=1)) == []
        found = posted(url)
        assert [alert["fingerprint"] for alert in found] == [run["fingerprint"], source["fingerprint"]]
        assert [alert["status"]["state"] for alert in found] == ["active", "suppressed"]
        assert after_run(fleet, GOOD, datetime.now(UTC)) == []
        assert posted(url) == []  # it lists what is not over
        # A test ends by itself.
        assert send_test(fleet) == [("on_call", None)]
        (test,) = posted(url)
        assert (test["labels"]["alertname"], test["labels"]["severity"]) == ("WattledgerTest", "info")


@pytest.mark.needs("alertmanager")
def test_an_alert_that_becomes_graver_ends_under_its_old_label(tmp_path: Path) -> None:
    folder = tmp_path / "alertmanager"
    folder.mkdir()
    with alertmanager(folder) as url:
        fleet = fleet_with(tmp_path, {"name": "on_call", "kind": "alertmanager", "url": url})
        now = datetime.now(UTC)
        after_run(fleet, replace(GOOD, checks=(SILENT,)), now - timedelta(minutes=1))
        assert [alert["labels"]["severity"] for alert in posted(url)] == ["warning"]
        after_run(fleet, replace(GOOD, checks=(replace(SILENT, is_error=True),)), now)
        assert [alert["labels"]["severity"] for alert in posted(url)] == ["critical"]


# --- a test by hand -------------------------------------------------------------------------------------------------


def test_a_test_is_sent_to_each_and_remembered_by_none(tmp_path: Path) -> None:
    taken = Taken()
    written = tmp_path / "message"
    with http_server(taken.answer) as url:
        fleet = fleet_with(
            tmp_path,
            {"name": "hook", "kind": "webhook", "url": url},
            {"name": "pager", "kind": "command", "command": ["sh", "-c", f"cat > {written}; exit 1"]},
            heartbeat_url=f"{url}/ping",
        )
        assert send_test(fleet, NIGHT) == [("hook", None), ("pager", "sh: ended with 1"), ("heartbeat URL", None)]
    assert {path for _, path, _, _ in taken.requests} == {"/", "/ping"}
    assert json.loads(written.read_text())["alarms"] == [
        {
            "status": "test", "kind": "run", "name": "test", "severity": "info",
            "what": "this is a test of the receiver pager", "remedy": "nothing: it has arrived",
            "since": "2026-10-28T01:20:00+00:00",
        }
    ]  # fmt: skip
    assert not (fleet.root / "alarms.json").exists()


def test_two_runs_at_once_do_not_send_twice(tmp_path: Path) -> None:
    taken = Taken()
    with http_server(taken.answer) as url:
        fleet = fleet_with(tmp_path, {"name": "hook", "kind": "webhook", "url": url})
        call: Callable[[], object] = lambda: after_run(fleet, FAILED, NIGHT)  # noqa: E731
        threads = [threading.Thread(target=call) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert titles(taken) == ["fleet mine: 2 new alarms (1 error, 1 warning)"]
