"""The HTTP server of `serve`: its paths, its token, and clients that are rude."""

from __future__ import annotations

import base64
import contextlib
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import pytest

from pipelines.serving import web_server
from pipelines.serving.web_server import HTML_TYPE, Answer, WebServer

TOKEN = "t0ken-\N{LATIN SMALL LETTER E WITH ACUTE}"


def broken() -> Answer:
    raise RuntimeError("the file is gone")


def started(token: str | None, **more: Callable[[], Answer]) -> Iterator[str]:
    answers = {
        "/": lambda: Answer(b"<p>page</p>", HTML_TYPE),
        "/metrics": lambda: Answer(b"wattledger_x 1\n"),
        "/-/healthy": lambda: Answer(b"healthy\n"),
        "/broken": broken,
    }
    server = WebServer(
        "127.0.0.1", 0, answers | {f"/{name}": make for name, make in more.items()}, token, ["ledger.ex"]
    )
    server.start()
    yield f"http://127.0.0.1:{server.port}"
    server.stop()


@pytest.fixture
def url() -> Iterator[str]:
    yield from started(None)


@pytest.fixture
def guarded() -> Iterator[str]:
    yield from started(TOKEN)


def get(url: str, method: str = "GET", **headers: str) -> tuple[int, bytes, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method, headers=headers), timeout=5) as answer:
            return answer.status, answer.read(), answer.headers["Content-Type"]
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read(), refusal.headers["Content-Type"]


def test_paths_and_methods(url: str) -> None:
    assert get(f"{url}/?from=bookmark") == (200, b"<p>page</p>", "text/html; charset=utf-8")
    assert get(f"{url}/", "HEAD") == (200, b"", "text/html; charset=utf-8")
    status, body, _ = get(f"{url}/elsewhere")
    assert (status, body) == (404, b"no such path; there are /, /metrics, /-/healthy, /broken\n")
    assert get(f"{url}/", "POST")[0] == 501
    assert get(f"{url}/broken")[:2] == (500, b"RuntimeError: the file is gone\n")


@pytest.mark.parametrize(
    ("authorization", "expected"),
    [
        (None, 401),
        (f"Bearer {TOKEN}", 200),
        (f"bearer {TOKEN}", 200),
        (f"Bearer {TOKEN}x", 401),
        (f"Basic {base64.b64encode(f'anyone:{TOKEN}'.encode()).decode()}", 200),
        (f"Basic {base64.b64encode(b'anyone:guess').decode()}", 401),
        ("Basic not-base64", 401),
        (f"Token {TOKEN}", 401),
    ],
)
def test_a_token_is_asked_for(guarded: str, authorization: str | None, expected: int) -> None:
    headers = {} if authorization is None else {"Authorization": authorization.encode().decode("latin-1")}
    assert get(f"{guarded}/metrics", **headers)[0] == expected
    # A supervisor has no token.
    assert get(f"{guarded}/-/healthy")[:2] == (200, b"healthy\n")


def test_a_client_that_sends_nothing_keeps_no_other_waiting(url: str) -> None:
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as silent, socket.create_connection((host, int(port))) as rude:
        rude.sendall(b"\x16\x03\x01 no HTTP at all\r\n\r\n")
        assert get(f"{url}/metrics")[0] == 200
        silent.shutdown(socket.SHUT_RDWR)


def connect(url: str, sent: bytes) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=5)
    client.sendall(sent)
    return client


def answered(client: socket.socket) -> bytes:
    """All that a server answers until it closes the connection."""
    answer = b""
    with client, contextlib.suppress(ConnectionError):
        while read := client.recv(65536):
            answer += read
    return answer


def test_only_its_own_names_are_answered(url: str) -> None:
    hosts = {
        "Host: evil.example\r\n": 421,
        "Host: localhost.evil.example\r\n": 421,
        "Host: localhost\r\nHost: evil.example\r\n": 421,
        "": 421,
        "Host: LocalHost:9469\r\n": 200,
        "Host: ledger.ex.\r\n": 200,
        f"Host: {socket.gethostname()}:9469\r\n": 200,
        # An address is no name that was turned to another; that of a pod, or behind a port's mapping, is unknown here.
        "Host: 10.0.0.7:9469\r\n": 200,
        "Host: [::1]:9469\r\n": 200,
    }
    for host, expected in hosts.items():
        for path, status in (("/metrics", expected), ("/-/healthy", 200)):
            answer = answered(connect(url, f"GET {path} HTTP/1.1\r\n{host}\r\n".encode()))
            assert answer.startswith(f"HTTP/1.1 {status} ".encode()), (host, answer)
            assert (b"--allowed-host NAME" in answer) == (status == 421)


def test_a_body_is_no_request(url: str) -> None:
    for length in ("Content-Length: 47", "Content-Length: 0", "Transfer-Encoding: chunked", "X: a"):
        head = f"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\n{length}\r\n\r\n".encode()
        answer = answered(connect(url, head + b"GET /metrics HTTP/1.1\r\nHost: localhost:9469\r\n\r\n"))
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.endswith(b"\r\n\r\nhealthy\n")
        assert answer.count(b"HTTP/1.1") == 1


def test_a_head_has_at_most_16_kib(url: str) -> None:
    begin, end = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: ", b"\r\n\r\n"
    for more, expected in ((0, 200), (1, 431), (100_000, 431)):
        head = begin + b"a" * (16_384 - len(begin) - len(end) + more) + end
        assert answered(connect(url, head)).startswith(f"HTTP/1.1 {expected} ".encode())


def test_lines_that_end_in_a_line_feed_and_a_client_that_sends_no_more(url: str) -> None:
    client = connect(url, b"GET /metrics HTTP/1.0\nHost: localhost\n\n")
    client.shutdown(socket.SHUT_WR)
    assert answered(client).endswith(b"\r\n\r\nwattledger_x 1\n")


def test_a_head_has_its_time_however_often_a_byte_comes(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_server, "HEAD_SECONDS", 0.5)
    began, client = time.monotonic(), connect(url, b"GET / HTTP/1.1\r\nX: ")
    with contextlib.suppress(OSError):
        while time.monotonic() < began + 5:
            client.sendall(b"a")
            time.sleep(0.05)
    client.close()
    assert 0.4 < time.monotonic() - began < 3


def test_of_a_crowd_the_oldest_head_is_dropped_and_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_server, "MOST_HEADS", 2)
    monkeypatch.setattr(web_server, "MOST_ANSWERS", 1)
    entered, go_on = threading.Event(), threading.Event()

    def slow() -> Answer:
        entered.set()
        go_on.wait(10)
        return Answer(b"made\n")

    for url in started(None, slow=slow):
        whole = connect(url, b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        entered.wait(5)
        oldest, second, third = (connect(url, b"GET /metrics HTTP/1.1\r\n") for _ in range(3))
        assert answered(oldest) == b""
        busy = answered(connect(url, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"))  # drops the second
        assert busy.startswith(b"HTTP/1.1 503 ")
        assert busy.endswith(b"\r\n\r\n1 others are being answered: ask again\n")
        assert answered(second) == b""
        go_on.set()
        assert answered(whole).endswith(b"\r\n\r\nmade\n")
        third.sendall(b"Host: localhost\r\n\r\n")
        assert answered(third).endswith(b"\r\n\r\nwattledger_x 1\n")
