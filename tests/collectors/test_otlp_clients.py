"""Clients of a receiver of OTLP that are slow or many, and the sampling beside it, which goes on."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collectors.__main__ import main
from collectors.devices import otlp_receiver
from collectors.devices.otlp_receiver import Receiver
from collectors.devices.spool import Spool
from pipelines.fleet.places import PROJECT
from tests.collectors.test_otlp import (
    attributes,
    send,
    sent,
    span,
    traces,
)
from tests.servers import http_server

JSON = "application/json"


# --- slow clients ---


def dripping(port: int, head: bytes, every_seconds: float, halt: threading.Event) -> socket.socket:
    """A connection that has sent `head`, and then a byte now and again."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=20)
    connection.sendall(head)

    def drip() -> None:
        with contextlib.suppress(OSError):
            while not halt.wait(every_seconds):
                connection.sendall(b"x")

    threading.Thread(target=drip, daemon=True).start()
    return connection


def until(happens: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize("part", ["body", "header", "first line"])
def test_slow_clients_lose_their_place(receiver: Receiver, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    """Eight of them, a byte every nine seconds, held all places for good."""
    monkeypatch.setattr(otlp_receiver, "ANSWER_SECONDS", 4.0)
    monkeypatch.setattr(otlp_receiver._Handler, "timeout", 4.0)
    head = b"POST /v1/traces HTTP/1.1\r\nAuthorization: Bearer t0ken\r\nContent-Type: application/json\r\n"
    head = {"body": head + b"Content-Length: 100000\r\n\r\n", "header": head + b"X-A: ", "first line": b"P"}[part]
    halt = threading.Event()
    clients = [dripping(receiver.port, head, 0.3, halt) for _ in range(otlp_receiver.MOST_AT_ONCE)]
    try:
        expected = (429, "5") if part == "body" else (200, None)
        until(lambda: sent(receiver, "/v1/traces", traces(span(0)))[::2] == expected)
        until(lambda: sent(receiver, "/v1/traces", traces(span(0)))[0] == 200)
        for client in clients:
            client.settimeout(5)
            with contextlib.suppress(ConnectionResetError):
                assert client.recv(1 << 16) is not None
    finally:
        halt.set()
        for client in clients:
            client.close()


def test_connections_without_end_leave_room_for_the_next(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp_receiver, "MOST_CONNECTIONS", 5)
    idle = [socket.create_connection(("127.0.0.1", receiver.port), timeout=5) for _ in range(20)]
    assert sent(receiver, "/v1/traces", traces(span(0)))[0] == 200
    assert idle[0].recv(1) == b""
    assert len(receiver._server.arriving) <= 5
    for one in idle:
        one.close()


def test_an_exporter_that_keeps_its_connection_is_no_slow_client(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp_receiver, "ANSWER_SECONDS", 3.0)
    connection = http.client.HTTPConnection("127.0.0.1", receiver.port, timeout=20)
    for number in range(6):
        time.sleep(0.8 if number else 0)
        # http.client would connect anew, were the connection ended.
        kept = connection.sock
        headers = {"Authorization": "Bearer t0ken", "Content-Type": JSON}
        connection.request("POST", "/v1/traces", json.dumps(traces(span(number))), headers)
        assert (connection.sock is kept or number == 0, connection.getresponse().read()) == (True, b"{}")
    connection.close()


# --- sampling apart ---


def test_sampling_and_receiving_are_two_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["agent", "--otlp", "127.0.0.1:0", "--page", "http://127.0.0.1:1/metrics", "--spool", str(tmp_path)])
    assert "what others send must not end the sampling. Run two agents" in capsys.readouterr().err
    commands = {}
    for name in ("agent", "otlp"):
        unit = (PROJECT / "deploy/systemd" / f"wattledger-{name}.service").read_text("utf-8").replace("\\\n", "")
        assert "Restart=always" in unit
        assert "MemoryMax=1G" in unit
        [commands[name]] = re.findall(r"^ExecStart=\S+ (.*)$", unit, re.MULTILINE)
    assert ("--otlp" in commands["agent"], "--nvml" in commands["agent"]) == (False, True)
    assert ("--otlp" in commands["otlp"], "--nvml" in commands["otlp"] or "--page" in commands["otlp"]) == (True, False)


def test_sampling_goes_on_when_the_receiver_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "collectors", "agent", "--spool", str(tmp_path), "--host", "gpu-a"]

    def agent(*options: str) -> subprocess.Popen[str]:
        return subprocess.Popen([*command, *options], cwd=PROJECT, stderr=subprocess.PIPE, text=True)

    def receiving_at(process: subprocess.Popen[str]) -> int:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "OTLP is received on port" in line)
        return int(line.split("port ")[1].split(",")[0])

    def files() -> int:
        return len(list((tmp_path / "host=gpu-a").rglob("*.parquet")))

    def page(handler: Any) -> None:
        body = b"# TYPE vllm:generation_tokens_total counter\nvllm:generation_tokens_total 1\n"
        handler.send_response(200)
        handler.send_header("Content-Type", "text/plain; version=0.0.4")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    with http_server(page) as url:
        sampler = agent("--page", f"{url}/metrics", "--page-interval", "0.2", "--rotate", "0.5")
        taker = agent("--otlp", "127.0.0.1:0")
        try:
            port = receiving_at(taker)
            os.kill(taker.pid, signal.SIGKILL)
            taker.wait()
            before, until = files(), time.monotonic() + 20
            while files() < before + 3:
                assert time.monotonic() < until
                time.sleep(0.1)
            assert sampler.poll() is None
            # As Restart=always does.
            taker = agent("--otlp", f"127.0.0.1:{port}")
            receiving_at(taker)
            held = {"startTimeUnixNano": time.time_ns(), "attributes": attributes(gen_ai__usage__input_tokens=1)}
            assert send(port, "/v1/traces", json.dumps(traces(held)).encode())[0] == 200
        finally:
            for process in (sampler, taker):
                process.kill()
                process.wait()
    assert len(list((tmp_path / "requests").rglob("*.jsonl"))) == 1
    assert Spool(tmp_path).hosts()
