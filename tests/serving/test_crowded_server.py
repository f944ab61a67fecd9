"""The HTTP server of `serve` in a process with 1,024 descriptors, as a shell gives it, and clients that mean harm: it
answers within a second whether it is alive, its process can open files, and it ends when it is asked to."""

from __future__ import annotations

import contextlib
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from pipelines.fleet.places import PROJECT
from tests.servers import running

# With the three of standard input and output they are all that a process may have.
SLOW = 1021
HEALTHY_WITHIN_SECONDS = 1.0
GRACE_SECONDS = 8.0
PROGRAM = """
import resource, time
from pathlib import Path
from pipelines.serving.ending import Ending
from pipelines.serving.web_server import Answer, WebServer

resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
page = b"x" * 8_000_000
with Ending():
    paths = {"/": lambda: Answer(page), "/-/healthy": lambda: Answer(b"healthy\\n")}
    server = WebServer("127.0.0.1", 0, paths, None)
    server.start()
    print(server.port, flush=True)
    failed = 0
    try:
        while True:
            try:
                Path("/proc/self/stat").read_bytes()  # a tick opens files
            except OSError:
                failed += 1
            time.sleep(0.02)
    except KeyboardInterrupt:
        server.stop()
        print(failed, "ticks failed", flush=True)
"""


@contextlib.contextmanager
def serving(program: str = PROGRAM) -> Iterator[tuple[subprocess.Popen, int]]:
    """The process, and the port that it printed."""
    with running([sys.executable, "-c", program], cwd=PROJECT, stdout=subprocess.PIPE, text=True) as process:
        yield process, int(process.stdout.readline())


@contextlib.contextmanager
def crowd(port: int, begin: bytes, drop: bytes) -> Iterator[None]:
    """1,021 connections that begin with the same bytes, send `drop` about once a second, read nothing, and come back
    when they are closed."""
    over, clients = threading.Event(), [_client(port, begin)]

    def keep_on() -> None:
        while not over.wait(1):
            for place, client in enumerate(clients):
                try:
                    client.send(drop)
                except BlockingIOError:
                    pass  # its server reads nothing
                except OSError:
                    client.close()
                    clients[place] = _client(port, begin)

    thread = threading.Thread(target=keep_on, daemon=True)
    thread.start()
    try:
        while len(clients) < SLOW:
            time.sleep(0.004)  # a server's queue of connections is short
            clients.append(_client(port, begin))
        yield
    finally:
        over.set()
        thread.join()
        for client in clients:
            client.close()


def _client(port: int, begin: bytes) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(0.1)
    with contextlib.suppress(OSError):  # a server that is full
        client.connect(("127.0.0.1", port))
        client.sendall(begin)
    client.setblocking(False)
    return client


def healthy_seconds(port: int) -> float:
    """How long `/-/healthy` takes to answer 200; five seconds where it does not."""
    began = time.monotonic()
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
            client.sendall(b"GET /-/healthy HTTP/1.1\r\nHost: 10.0.0.7\r\n\r\n")
            if not client.recv(65536).startswith(b"HTTP/1.1 200 "):
                return 5.0
    except OSError:
        return 5.0
    return time.monotonic() - began


CROWDS = {
    "a byte now and then": (b"GET / HTTP/1.1\r\nX: ", b"a"),
    "nothing": (b"", b""),
    "a page that is not read": (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"a"),
}


@pytest.mark.sampled
@pytest.mark.parametrize(("begin", "drop"), CROWDS.values(), ids=CROWDS.keys())
def test_a_crowd_of_clients_keeps_no_other_waiting(begin: bytes, drop: bytes) -> None:
    with serving() as (process, port), crowd(port, begin, drop):
        waits = []
        for _ in range(20):
            waits.append(healthy_seconds(port))
            time.sleep(0.1)
        print(f"/-/healthy answered after {statistics.median(waits):.3f} s, at most {max(waits):.3f} s")
        assert statistics.median(waits) < HEALTHY_WITHIN_SECONDS
        assert max(waits) < 5
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
        print(f"ended {time.monotonic() - began:.1f} s after SIGTERM")
        assert time.monotonic() - began < GRACE_SECONDS
        assert process.stdout.read() == "0 ticks failed\n"
