"""The HTTP server of `serve`: its paths, its token, and clients that are rude."""

from __future__ import annotations

import base64
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from pipelines.serving.web_server import HTML_TYPE, Answer, WebServer

TOKEN = "t0ken-\N{LATIN SMALL LETTER E WITH ACUTE}"


def broken() -> Answer:
    raise RuntimeError("the file is gone")


def started(token: str | None) -> Iterator[str]:
    answers = {
        "/": lambda: Answer(b"<p>page</p>", HTML_TYPE),
        "/metrics": lambda: Answer(b"wattledger_x 1\n"),
        "/-/healthy": lambda: Answer(b"healthy\n"),
        "/broken": broken,
    }
    server = WebServer("127.0.0.1", 0, answers, token)
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
