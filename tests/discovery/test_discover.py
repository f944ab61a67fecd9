"""`discover` on real servers that hold the composed cluster: what it prints, the file it writes, and first numbers.

Expectations are counted by hand in tests/composed.py: 13 boards (10, the MIG board, the shifted one and the gauge),
eleven engines, of which the ghost and two on a node by address have no board.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import re
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from collectors.probes.unknown_server import Product, UnknownServer
from collectors.samples import Window
from pipelines.command_line.main import main
from pipelines.discovery.doubts import doubts
from pipelines.discovery.first_numbers import last_full_hours
from pipelines.discovery.fleet_text import Answers, fleet_text
from pipelines.discovery.survey import Survey, survey
from pipelines.fleet.catalog import known_metrics
from pipelines.fleet.fleet_file import load_fleet
from tests import composed
from tests.books import Book
from tests.planted import HOURS, OUTPUT, WATTS, Samples, Series, board, moment, steady, vllm, without
from tests.servers import (
    fields_of,
    http_server,
    openmetrics,
    prometheus_with_history,
    reply,
    victoria_metrics_with_history,
)

AT = (composed.START + timedelta(hours=1)).isoformat()
SERVERS = {"prometheus": prometheus_with_history, "victoria-metrics": victoria_metrics_with_history}


@pytest.fixture(scope="module", params=[pytest.param(name, marks=pytest.mark.needs(name)) for name in SERVERS])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    flags = () if request.param == "prometheus" else ("-retentionPeriod=100y",)
    folder = tmp_path_factory.mktemp("server")
    with SERVERS[request.param](folder, openmetrics(composed.series()), *flags) as address:
        yield address


def test_what_a_server_holds(url: str) -> None:
    server = UnknownServer(url, datetime.fromisoformat(AT))
    found = survey(server)
    server.close()
    assert len(found.boards()) == 13
    assert {board.device_type for board in found.boards().values()} == {"NVIDIA A100-SXM4-80GB", "prototype"}
    assert found.boards()["GPU-shift"].node == "n8"
    assert len(found.engines()) == 11
    assert found.engines()["llm/big-0"].model == "big"
    assert set(found.engines("gateway")) == {"proxy:4000"}
    assert found.nodes() == {*(f"n{n}" for n in range(1, 10)), "10.0.0.8"}
    assert set(found.intervals.values()) == {60.0}
    assert found.newest_at == composed.START + timedelta(hours=1)
    assert found.unread == []
    assert abs(found.clock_seconds or 0) < 2
    lines = "\n".join(doubt.line for doubt in doubts(found))
    assert "differ in the label replica alone" in lines
    assert "3 of 11 engines have no metered board: 10.0.0.8:8000, 10.0.0.8:8001, llm/ghost-0." in lines
    assert "'prototype' (1 board) is not among the known ones" in lines
    # llm/big-0-1 is named after the pod that leads its group.
    assert "1 pods hold boards and give no tokens: lab/train-0." in lines


def test_the_file_books_right_numbers_without_a_hand_on_it(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATTLEDGER_DATA", str(tmp_path / "data"))
    out = tmp_path / "found.yaml"
    assert main(["discover", url, "--name", "found", "--out", str(out), "--yes", "--at", AT]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    # 500 W for the 59 minutes of the two hours that have samples, per 200 tokens a minute, and per 350 of both kinds.
    sg = next(re.split(r" {2,}", line) for line in printed.out.splitlines() if line.startswith("sg "))
    assert sg[4:6] == ["85.7143", "150.0000"]
    assert "First numbers, 2026-10-15 09:00 to 11:00 UTC" in printed.out

    written = yaml.safe_load(out.read_text(encoding="utf-8"))
    assert written["sources"] == [
        {"name": "cluster", "kind": "prometheus", "url": url, "interval_seconds": 60.0, "replica_labels": ["replica"]}
    ]
    assert written["sites"] == [{"name": "main", "zone": "unknown", "pue": 1}]
    # Its first day is the day before: the server holds none of it.
    out.write_text(out.read_text(encoding="utf-8").replace("start: 2026-10-14", "start: 2026-10-15, end: 2026-10-16"))
    book = Book(load_fleet(out), marts=("model_daily",))
    book.run()
    found = {
        (model, scope): (joules, ratio)
        for model, scope, joules, ratio in book.query(
            "select model, meter_scope, sum(energy_joules)::double, max(joules_per_output_token)"
            " from marts.model_daily group by model, meter_scope"
        )
    }
    assert found["sg", "board"] == (500 * 3600, pytest.approx(150.0))
    assert found["solo", "board"] == (300 * 3600, pytest.approx(1200.0))
    assert found["org/pd", "board"][0] == (350 + 250) * 3600
    assert found["big", "board"][0] == (400 + 410 + 420 + 430) * 3600
    # Labels name no user of the shifted board: unknown, not another model's. The gauge is silent for forty minutes, of
    # which its samples show nothing.
    assert found["__unallocated__", "board"][0] == 60 * 3600
    assert found["__unknown__", "board"][0] == 220 * 3600 + composed.JOULES["__unknown__"]


def test_for_programs_nothing_is_written(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "none.yaml"
    assert main(["discover", url, "--json", "--out", str(out), "--at", AT]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (len(shown["boards"]), len(shown["engines"]), out.exists()) == (13, 11, False)


def test_a_file_that_is_there_stays(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "mine.yaml"
    out.write_text("fleet: mine\n")
    assert main(["discover", url, "--yes", "--out", str(out), "--at", AT]) == 2
    assert capsys.readouterr().err == f"{out} is there already: name another file with --out, or remove it\n"
    assert out.read_text() == "fleet: mine\n"


def test_a_moment_without_samples(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "mine.yaml"
    assert main(["discover", url, "--yes", "--out", str(out), "--at", "2026-10-15T09:00:00Z"]) == 1
    assert capsys.readouterr().err.endswith(": no fleet file was written.\n")
    assert not out.exists()


def test_a_server_whose_samples_ended_is_looked_at_as_it_was_then(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing was known of it, unless the moment was given."""
    assert main(["discover", url, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (len(shown["boards"]), len(shown["engines"]), shown["newest_at"]) == (13, 11, "2026-10-15T11:00:00+00:00")
    days = (datetime.now(UTC) - datetime.fromisoformat(AT)).days
    assert shown["doubts"][0]["line"] == (
        f"The newest sample is {days} days old: has the server stopped scraping? What is shown here is of then."
    )
    server = UnknownServer(url, datetime.now(UTC))
    server.look_back(known_metrics())
    found = survey(server)
    server.close()
    written = yaml.safe_load(fleet_text("then", {"kind": "prometheus", "url": url}, found, [], Answers()))
    # It has no whole date: the one of which it has three hours is booked.
    assert written["period"] == {"start": date(2026, 10, 15), "end": date(2026, 10, 16)}


TWO_DATES = {"start": date(2026, 11, 24), "end": date(2026, 11, 26)}


@pytest.mark.parametrize(
    ("looked_at", "first_sample", "last_sample", "period"),
    [
        # Two and a half hours of the 28th are no whole date.
        ("2026-11-30T23:25", "2026-11-28T21:40", "2026-11-30T23:25", {"start": date(2026, 11, 29)}),
        ("2026-11-30T01:00", "2026-11-28T00:10", "2026-11-30T01:00", {"start": date(2026, 11, 28)}),
        # Of yesterday there is an hour: it is booked, as nothing else can be.
        ("2026-11-30T12:00", "2026-11-29T23:00", "2026-11-30T12:00", {"start": date(2026, 11, 29)}),
        # They ended at two in the night, or at the end of a date.
        ("2026-11-30T12:00", "2026-11-24T00:10", "2026-11-26T02:00", TWO_DATES),
        ("2026-11-30T12:00", "2026-11-24T00:10", "2026-11-25T23:59", TWO_DATES),
    ],
)
def test_the_period_begins_and_ends_with_whole_dates(
    looked_at: str, first_sample: str, last_sample: str, period: dict[str, date]
) -> None:
    first, last, at = (datetime.fromisoformat(f"{one}+00:00") for one in (first_sample, last_sample, looked_at))

    class Server(UnknownServer):
        def number(self, promql: str, at: datetime | None = None) -> float | None:
            end = at or self.until
            return float(first <= end and end - timedelta(hours=1) <= last)

    server = Server("http://127.0.0.1:9", at)
    server.until = last
    found = Survey(
        url="", at=at, product=Product("server", None, None), clock_seconds=None, newest_at=last,
        oldest_days=server.oldest_days("watts"), intervals={}, metrics=[], series=[], unread=[], prefixes={},
        provider_ids=[],
    )  # fmt: skip
    server.close()
    written = yaml.safe_load(fleet_text("then", {"kind": "prometheus", "url": ""}, found, [], Answers()))
    assert written["period"] == period


HIDDEN = 3 * HOURS + 720


def turning(low: float, high: float) -> Samples:
    """Watts each 30 s that are low in every other ten minutes, and two minutes near the end without a sample."""
    times = [at for at, _ in without(steady(0, 0, HIDDEN, step=30), HIDDEN - 400, HIDDEN - 250)]
    return [(at, high if (at - moment(0)) // 600 % 2 else low) for at in times]


def hidden() -> list[Series]:
    """Two hosts whose wall meters go by the addresses of their BMCs, and an engine that is scraped at its pod's."""
    exporter = {"namespace": "gpu", "pod": "dcgm-exporter-aaaaa", "container": "ours", "job": "dcgm"}
    free = exporter | {"pod": "dcgm-exporter-bbbbb"}
    held = exporter | {"exported_namespace": "llm", "exported_pod": "chat-0", "exported_container": "engine"}
    every_30_seconds = turning(1, 1)
    engine = vllm("chat-0", "chat", instance="10.244.1.9:8000")
    return [
        (WATTS, board("GPU-h1", "h1", **held, instance="10.244.1.5:9400"), turning(100, 300)),
        (WATTS, board("GPU-h2", "h2", **free, instance="10.244.2.5:9400"), turning(90, 70)),
        (OUTPUT, engine, [(at, 10 * n) for n, (at, _) in enumerate(every_30_seconds)]),
        ("ipmi_dcmi_power_consumption_watts", {"instance": "10.9.0.101", "job": "ipmi"}, turning(400, 360)),
        ("ipmi_dcmi_power_consumption_watts", {"instance": "10.9.0.102", "job": "ipmi"}, turning(500, 750)),
    ]


@pytest.mark.needs("prometheus")
def test_hosts_behind_addresses_are_proposed_and_no_watt_is_there_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """BMCs' and pods' addresses were nodes, the wall meters were a row of their own, the exporter's pod was in doubt,
    and the mean of ten minutes with a gap was the interval."""
    monkeypatch.setenv("WATTLEDGER_DATA", str(tmp_path / "data"))
    out, at = tmp_path / "found.yaml", datetime.fromtimestamp(moment(HIDDEN), UTC).isoformat()
    with prometheus_with_history(tmp_path, openmetrics(hidden())) as url:
        assert main(["discover", url, "--out", str(out), "--yes", "--at", at]) == 0
    printed = capsys.readouterr().out
    assert "  nodes                2: h1, h2\n" in printed
    assert "  meters of a node     2 by ipmi_exporter\n" in printed
    assert "What is doubtful\n  - nothing that labels show\n" in printed
    assert "USD per GPU-hour of a100-sxm4-80gb: without it its hours have no cost, as no seed has a price\n" in printed
    # 100 and 300 W in turn, and 90 and 70 W. The meters' 380 W and 625 W hold these again.
    table = printed.partition("First numbers, 2026-10-15 01:00 to 03:00 UTC\n")[2].splitlines()
    assert [line.split()[:4:3] for line in table[2:4]] == [["chat", "200.0"], ["__unallocated__", "80.0"]]
    block = (
        "nodes:\n"
        '  - {name: h1, site: main, aliases: ["10.9.0.102"]}  # its watts move with those of the boards: 1.00\n'
        '  - {name: h2, site: main, aliases: ["10.9.0.101"]}  # its watts move with those of the boards: 1.00\n'
    )
    # With the ten minutes on both edges, 1,110 and 900 W.
    assert re.match(r"not in these figures: 1,00[4-8]\.\d W of 2 wall meters at main\.", table[4])
    assert block in printed
    text = out.read_text(encoding="utf-8")
    assert "".join(f"# {line}\n" for line in block.splitlines()) in text
    assert "interval_seconds: 30.0}" in text


def test_the_last_full_hours_are_of_one_date() -> None:
    def at(day: int, hour: int, minute: int = 0) -> datetime:
        return datetime(2026, 10, day, hour, minute, tzinfo=UTC)

    assert last_full_hours(at(15, 11, 42)) == Window(at(15, 9), at(15, 11))
    assert last_full_hours(at(15, 2)) == Window(at(15, 0), at(15, 2))
    assert last_full_hours(at(15, 1, 59)) == Window(at(14, 22), at(15, 0))
    assert last_full_hours(at(15, 0, 5)) == Window(at(14, 22), at(15, 0))


# --- servers that are none, or ask for more ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind", "body", "words"),
    [
        (
            401,
            "text/plain",
            b"who are you",
            "It asks for a login: --bearer-env NAME names the variable",
        ),
        (404, "text/plain", b"no such page", "Is this the root of the API? It is the part before /api/v1."),
        (200, "text/html", b"<html>Log in</html>", "a login page or another server?"),
        (200, "application/json", b'{"status": "success", "data": []}', "Nothing here is known as power or tokens"),
    ],
)
def test_a_server_that_does_not_answer_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, status: int, kind: str, body: bytes, words: str
) -> None:
    def answer(request: http.server.BaseHTTPRequestHandler) -> None:
        length = int(request.headers.get("content-length") or 0)
        request.rfile.read(length)
        request.send_response(status)
        request.send_header("content-type", kind)
        request.send_header("content-length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    names = {"do_GET": answer, "do_POST": answer, "log_message": lambda *_: None}
    handler = type("Handler", (http.server.BaseHTTPRequestHandler,), names)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        place = f"http://127.0.0.1:{server.server_port}"
        assert main(["discover", place, "--yes", "--out", str(tmp_path / "f.yaml")]) == 1
        server.shutdown()
    shown = capsys.readouterr().err.strip()
    assert words in shown
    assert len(shown.splitlines()) == 1
    assert not (tmp_path / "f.yaml").exists()


def test_nothing_listens_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["discover", "http://127.0.0.1:1", "--yes", "--out", str(tmp_path / "f.yaml")]) == 1
    shown = capsys.readouterr().err.strip()
    assert "127.0.0.1:1" in shown
    assert len(shown.splitlines()) == 1


def test_a_metric_of_five_million_series_is_named_and_the_rest_is_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its labels would be 200 MB: the answer is left, and the metric's number is asked for instead."""
    gauge, counter = "DCGM_FI_DEV_POWER_USAGE", "vllm:generation_tokens_total"
    row = b'{"UUID": "GPU-0123456789", "Hostname": "gpu-a"},'
    engine = {"__name__": counter, "pod": "chat-0", "namespace": "llm", "model_name": "chat"}
    sent = 0

    def flood(request: http.server.BaseHTTPRequestHandler) -> None:
        nonlocal sent
        request.send_response(200)
        request.send_header("content-type", "application/json")
        request.end_headers()
        request.close_connection = True
        request.wfile.write(b'{"status": "success", "data": [')
        with contextlib.suppress(OSError):
            while sent < 200_000_000:
                sent += request.wfile.write(row * 20_000)

    def answer(request: http.server.BaseHTTPRequestHandler) -> None:
        path, fields = fields_of(request)
        value = "5000000" if gauge in fields.get("query", "") else "60"
        data: object = {"resultType": "vector", "result": [{"metric": {}, "value": [0, value], "values": []}]}
        if path.endswith("/values"):
            data = [gauge, counter]
        elif path.endswith("/series") and gauge in fields["match[]"]:
            flood(request)
            return
        elif path.endswith("/series"):
            data = [engine]
        reply(request, 200, json.dumps({"status": "success", "data": data}).encode())

    with http_server(answer) as url:
        assert main(["discover", url, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in shown["engines"]] == ["llm/chat-0"]
    lines = [doubt["line"] for doubt in shown["doubts"]]
    assert f"{gauge} has 5,000,000 series, too many to look at one by one: narrow the source with matchers." in lines
    assert 0 < sent < 200_000_000
