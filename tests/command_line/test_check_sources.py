"""What `check` asks of the sources: real servers, files and spools, and servers that refuse or are off."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from pipelines.command_line.main import main
from tests.servers import (
    free_port,
    http_server,
    openmetrics,
    prometheus_with_history,
    reply,
    victoria_metrics_with_history,
)

SOURCE = "{{name: cluster, kind: prometheus, url: '{url}', interval_seconds: {seconds}}}"


YESTERDAY = datetime.now(UTC).date() - timedelta(days=1)


def fleet_of(folder: Path, *sources: str, more: str = "", start: object = "2026-10-01") -> Path:
    path = folder / "fleet.yaml"
    listed = "".join(f"  - {source}\n" for source in sources)
    path.write_text(f"fleet: mine\nperiod: {{start: {start}}}\nsources:\n{listed}{more}", encoding="utf-8")
    return path


def findings(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[tuple[str, str]]]:
    """Exit status, and key with text of each finding."""
    status = main(["check", "--json", "--fleet", str(path)])
    listed = json.loads(capsys.readouterr().out)
    texts = [f"got {one['got']}, expected {one['expected']}" if one["expected"] else one["got"] for one in listed]
    return status, [(one["key"], text) for one, text in zip(listed, texts, strict=True)]


# The labels of pods are asked for where they name a group of workers, which none of these does.
KUBERNETES = ("kube_pod_info", "kube_pod_labels")


def history(ago_seconds: float, silent: tuple[float, float] = (0, 0), pods: int = 0) -> Iterator[str]:
    """Three boards and one engine, a sample each 15 s in the two hours before `ago_seconds` ago, but for those seconds
    before the last one that are silent. Each pod has two series of kube-state-metrics, a sample each 60 s."""
    last = time.time() - ago_seconds
    times = [last - 15 * n for n in reversed(range(480)) if not silent[1] < 15 * n < silent[0]]
    boards = [{"Hostname": "n1", "UUID": f"GPU-{n}", "gpu": str(n), "modelName": "NVIDIA H200"} for n in range(3)]
    engine = {"instance": "n1:8000", "model_name": "m"}
    yield from openmetrics(
        [
            *(("DCGM_FI_DEV_POWER_USAGE", board, [(at, 300.0) for at in times]) for board in boards),
            ("vllm:generation_tokens_total", engine, [(at, 10.0 * n) for n, at in enumerate(times)]),
            ("unrelated_total", engine, [(at, 1.0) for at in times]),
            *((name, {"pod": f"p{n}"}, [(at, 1.0) for at in times[3::4]]) for name in KUBERNETES for n in range(pods)),
        ]
    )


@pytest.mark.needs("prometheus", "victoria-metrics")
@pytest.mark.parametrize("server", [prometheus_with_history, victoria_metrics_with_history])
def test_a_server_is_named_with_its_families_age_and_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], server: Callable
) -> None:
    (tmp_path / "server").mkdir()
    with server(tmp_path / "server", history(20, pods=10)) as url:
        path = fleet_of(tmp_path, SOURCE.format(url=url, seconds=15), start=YESTERDAY)
        assert main(["check", "--fleet", str(path)]) == 0
        line = capsys.readouterr().out.splitlines()[3]
        # 4 series each 15 s and 10 each 60 s for 24 hours are 37,440 samples; the hour has one of each less, or none.
        # Most series are of pods: they were the interval, and 10 that no landing asks for were among the samples.
        found = re.fullmatch(
            rf"cluster  prometheus  {url}  Prometheus' API( [\d.+a-z]+)?: 3 known families, 14 series, newest sample"
            r" (\d+) s old; a day is (\d+),(\d+) samples, read in at most \d+ s",
            line,
        )
        assert found is not None, line
        assert 15 <= int(found[2]) <= 60
        assert 36_600 <= int(found[3] + found[4]) <= 37_776

        assert findings(fleet_of(tmp_path, SOURCE.format(url=url, seconds=60), start=YESTERDAY), capsys) == (
            0,
            [
                (
                    "sources[cluster].interval_seconds",
                    "got 60, expected about 15, by the samples of the last hour of the family of power or tokens with"
                    " most series",
                )
            ],
        )
        accepted = 'accepted: ["sources[cluster].interval_seconds"]\n'
        assert findings(
            fleet_of(tmp_path, SOURCE.format(url=url, seconds=60), more=accepted, start=YESTERDAY), capsys
        ) == (0, [])
        narrow = SOURCE.format(url=url, seconds=15).replace("}", ", matchers: ['UUID=\"GPU-7\"']}")
        assert findings(fleet_of(tmp_path, narrow), capsys) == (
            0,
            [
                (
                    "sources[cluster].url",
                    "got no family of the catalogue within a day, expected families of power or of tokens"
                    " (docs/sources.md): is it the right server, are matchers too narrow?",
                )
            ],
        )


NAMED = """
nodes: [{name: N1}]
models: [{name: chat, aliases: [mm]}]
engines: [{engine: n1:8000, team: chat}, {engine: n1:8001, team: chat}]
assignments:
  - {device_uuid: GPU-7, model: m, start_at: "2026-10-01T00:00:00Z"}
  - {device_uuid: GPU-8, model: m, start_at: "2026-10-01T00:00:00Z", end_at: "2026-10-02T00:00:00Z"}
cost_rates: [{device_type: h200-sxm5-141gb, usd_per_gpu_hour: 3, source: x}]
sites: [{name: dc1, zone: ES, pue: 1.2}]
"""


@pytest.mark.needs("prometheus")
def test_before_the_first_booking_names_are_those_that_the_server_has_now(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A year without samples was booked, and an alias of nothing was taken, without a word."""
    monkeypatch.setenv("WATTLEDGER_DATA", str(tmp_path / "data"))
    year_ago = YESTERDAY - timedelta(days=365)
    # 25 minutes without a sample do not make an interval of 15 s one of 26.
    with prometheus_with_history(tmp_path, history(20, silent=(2000, 500))) as url:
        source = SOURCE.format(url=url, seconds=15)
        status, found = findings(fleet_of(tmp_path, source, more=NAMED, start=year_ago), capsys)
        logs = "requests: [{name: gateway, kind: litellm, path: none.jsonl}]\n"
        with_logs = findings(fleet_of(tmp_path, source, more=NAMED + logs, start=YESTERDAY), capsys)[1]
    expected = {key: text.rpartition("; nearest: ")[2] for key, text in found if key}
    assert (status, expected) == (
        0,
        {
            "nodes[N1].name": "n1",
            "models[chat].name": "m",
            "models[chat].aliases[mm]": "m",
            "engines[1].engine": "n1:8000",
            # GPU-8 was assigned until October.
            "assignments[0].device_uuid": "GPU-2",
        },
    )
    assert found[-1][1] == (
        f"period.start: got {year_ago}, expected {YESTERDAY} or later: no source has samples of the 365 days before,"
        " which would be booked empty"
    )
    # A log may have names of models and engines that the server lacks.
    assert [key for key, _ in with_logs if key] == [
        "nodes[N1].name",
        "assignments[0].device_uuid",
        "requests[gateway].path",
    ]


@pytest.mark.needs("prometheus")
def test_a_server_without_a_sample_of_the_last_hour_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "server").mkdir()
    with prometheus_with_history(tmp_path / "server", history(3 * 3600 + 600)) as url:
        path = fleet_of(tmp_path, SOURCE.format(url=url, seconds=15), start=YESTERDAY - timedelta(days=1))
        status, found = findings(path, capsys)
    assert (status, found) == (
        0,
        [
            (
                "sources[cluster].url",
                "got a newest sample 3 h old, expected one of the last hour: do its exporters and its scraper run?",
            )
        ],
    )


def test_a_server_that_is_not_there_refuses_or_needs_a_login_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refusing(handler: BaseHTTPRequestHandler) -> None:
        reply(handler, 401, b"who are you?", "text/plain")

    def login_page(handler: BaseHTTPRequestHandler) -> None:
        reply(handler, 200, b"<html>", "text/html")

    away = f"http://127.0.0.1:{free_port()}"
    status, found = findings(fleet_of(tmp_path, SOURCE.format(url=away, seconds=15)), capsys)
    assert (status, found[0][0]) == (1, "sources[cluster].url")
    assert found[0][1].startswith(f"no answer from {away}/api/v1/query: cannot be reached: ")
    with http_server(refusing) as url:
        plain = fleet_of(tmp_path, SOURCE.format(url=url.replace("http://", "https://"), seconds=15))
        assert findings(plain, capsys)[1][0][1].endswith(
            "cannot be reached: it does not answer in TLS at this port, expected http:// instead of https://, or"
            " another port"
        )
        status, found = findings(fleet_of(tmp_path, SOURCE.format(url=url, seconds=15)), capsys)
    assert (status, found) == (
        1,
        [
            (
                "sources[cluster].auth",
                f"no answer from {url}/api/v1/query: HTTP 401: refused: who are you?. It needs a login: auth:"
                " {bearer_env: VARIABLE}, or a user and a password",
            )
        ],
    )
    with http_server(login_page) as url:
        status, found = findings(fleet_of(tmp_path, SOURCE.format(url=url, seconds=15)), capsys)
    assert (status, found[0][0]) == (1, "sources[cluster].url")
    assert "text/html, not JSON; a login page or another server?" in found[0][1]


def test_a_clock_that_is_an_hour_off_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    off = [3600.0]

    def answer(handler: BaseHTTPRequestHandler) -> None:
        now = time.time() + off[0]
        length = int(handler.headers.get("Content-Length") or 0)
        is_time = handler.rfile.read(length) == b"query=time%28%29"
        result = [now, str(now)] if is_time else []
        kind = "scalar" if is_time else "vector"
        body = {"status": "success", "data": {"resultType": kind, "result": result}}
        reply(handler, 200, json.dumps(body).encode(), "application/json")

    with http_server(answer) as url:
        path = fleet_of(tmp_path, SOURCE.format(url=url, seconds=15))
        for seconds, side in ((3600.0, "ahead of"), (-3600.0, "behind")):
            off[0] = seconds
            status, found = findings(path, capsys)
            clock, nothing = found
            assert (status, clock[0], nothing[0]) == (0, "sources[cluster].clock", "sources[cluster].url")
            expected = rf"got a clock (3,600|3,599) s {side} this machine's, expected at most 60 s: set the clock .*"
            assert re.fullmatch(expected, clock[1]), clock
        off[0] = 30.0  # within what a busy server takes
        assert [key for key, _ in findings(path, capsys)[1]] == ["sources[cluster].url"]


def test_a_server_that_refuses_to_count_is_there_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        if handler.rfile.read(int(handler.headers.get("Content-Length") or 0)) == b"query=time%28%29":
            body = {"status": "success", "data": {"resultType": "scalar", "result": [0, str(time.time())]}}
            return reply(handler, 200, json.dumps(body).encode())
        refused = {"status": "error", "errorType": "execution", "error": "would load too many samples into memory"}
        return reply(handler, 422, json.dumps(refused).encode())

    with http_server(answer) as url:
        assert findings(fleet_of(tmp_path, SOURCE.format(url=url, seconds=15)), capsys) == (
            0,
            [
                (
                    "sources[cluster].url",
                    "got HTTP 422 where its samples are counted: would load too many samples into memory, expected an"
                    " answer: narrow what is read with matchers, or raise the server's limits",
                )
            ],
        )


def test_files_and_spools_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "power.csv").write_text("t,w\n2026-10-02T00:00:00Z,5\n2026-10-02T00:30:00Z,6\n", encoding="utf-8")
    files = (
        "{name: wall, kind: files, interval_seconds: 1, files: [{path: FILE, time: t, values: {wall_power_watts: w}}]}"
    )
    path = fleet_of(tmp_path, files.replace("FILE", "power.csv"))
    assert main(["check", "--fleet", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[3] == (
        f"wall    files  {tmp_path}/power.csv  2 samples in the period, newest 2026-10-02 00:30 UTC"
    )
    silenced = 'accepted: ["sources[wall].files"]\n'
    status, found = findings(fleet_of(tmp_path, files.replace("FILE", "power.csv"), more=silenced), capsys)
    assert (status, [key for key, _ in found]) == (0, ["accepted[0]"])
    missing = "requests: [{name: log, kind: access_log, path: no.jsonl}]\n"
    status, found = findings(fleet_of(tmp_path, files.replace("FILE", "n*.csv"), more=missing), capsys)
    assert (status, found) == (
        1,
        [
            ("sources[wall].files[0].path", f"{tmp_path}/n*.csv: there is no such file"),
            ("requests[log].path", f"{tmp_path}/no.jsonl: there is no such file"),
        ],
    )
    (tmp_path / "power.csv").write_text("t,w\n2025-10-02T00:00:00Z,5\n", encoding="utf-8")
    status, found = findings(fleet_of(tmp_path, files.replace("FILE", "power.csv")), capsys)
    assert (status, [key for key, _ in found]) == (0, ["sources[wall].files"])
    spool = "{name: agents, kind: spool}"
    status, found = findings(fleet_of(tmp_path, spool), capsys)
    assert (status, found) == (
        1,
        [
            (
                "sources[agents].path",
                f"no answer from {tmp_path}/data/mine/spool: there is no such folder; the first agent makes it",
            )
        ],
    )


def test_offline_asks_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = fleet_of(tmp_path, SOURCE.format(url=f"http://127.0.0.1:{free_port()}", seconds=15))
    assert main(["check", "--offline", "--fleet", str(path)]) == 0
    assert "source   kind" not in capsys.readouterr().out
    assert os.listdir(tmp_path) == ["fleet.yaml"]  # noqa: PTH208
