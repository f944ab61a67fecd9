"""HTTP_PROXY, HTTPS_PROXY and NO_PROXY of the environment, on a real proxy: only it knows the name of the server."""

from __future__ import annotations

import contextlib
import select
import socket
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from collectors.limits import Limits
from collectors.protocols.http_client import HttpClient
from collectors.protocols.proxies import proxy_of
from collectors.samples import SourceError
from collectors.secret_texts import Secrets
from tests.servers import free_port, http_server, own_certificate, reply

# No resolver knows it.
NAME = "prometheus.example"


@contextlib.contextmanager
def proxy(answer: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n") -> Iterator[tuple[str, list[bytes]]]:
    """A proxy's URL, and the heads of the requests that it was sent. Each name is this host; of a CONNECT that it
    answers by a 200 it passes on what follows, of any other request the whole."""
    heads: list[bytes] = []

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                self.serve()

        def serve(self) -> None:
            head = b""
            while b"\r\n\r\n" not in head:
                head += self.request.recv(65_536)
            heads.append(head)
            method, target, _ = head.split(b" ", 2)
            is_tunnel = method == b"CONNECT"
            if is_tunnel:
                self.request.sendall(answer)
                if b" 200 " not in answer:
                    return
            port = int(target.rpartition(b":")[2].split(b"/")[0])
            with socket.create_connection(("127.0.0.1", port)) as server:
                if not is_tunnel:
                    server.sendall(head.replace(b"HTTP/1.1\r\n", b"HTTP/1.1\r\nConnection: close\r\n", 1))
                ends = {self.request: server, server: self.request}
                while True:
                    for end in select.select(list(ends), [], [])[0]:
                        passed = end.recv(65_536)
                        if not passed:
                            return
                        ends[end].sendall(passed)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}", heads
        finally:
            server.shutdown()


def answer(handler) -> None:
    reply(handler, 200, b'{"path": "%s"}' % handler.path.encode())


def test_a_server_elsewhere_is_asked_through_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with http_server(answer) as url, proxy() as (address, heads):
        port = url.rpartition(":")[2]
        monkeypatch.setenv("HTTP_PROXY", f"http://bob:p%40ss@{address}")
        client = HttpClient(f"http://{NAME}:{port}/select")
        assert client.ask("/api/v1/query", [("query", "up")], method="GET")
        client.ask("/api/v1/query", [("query", "up")])
    assert heads[0].startswith(f"GET http://{NAME}:{port}/select/api/v1/query?query=up HTTP/1.1\r\n".encode())
    assert f"\r\nHost: {NAME}:{port}\r\n".encode() in heads[0]
    assert b"\r\nproxy-authorization: Basic Ym9iOnBAc3M=\r\n" in heads[0]  # bob:p@ss
    assert heads[1].startswith(f"POST http://{NAME}:{port}/select/api/v1/query HTTP/1.1\r\n".encode())


@pytest.mark.needs("openssl")
def test_https_goes_through_a_tunnel_that_a_proxy_cannot_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, context = own_certificate(tmp_path)
    monkeypatch.setenv("CA", str(certificate))
    monkeypatch.setenv("TOKEN", "hunter2")
    seen = []

    def note(handler) -> None:
        seen.append((handler.headers["Authorization"], handler.headers["Proxy-Authorization"]))
        answer(handler)

    with http_server(note, context) as url, proxy() as (address, heads):
        port = url.rpartition(":")[2]
        monkeypatch.setenv("https_proxy", f"bob:hunter3@{address}")
        client = HttpClient(f"https://{NAME}:{port}", ca_file_env="CA", bearer_env="TOKEN")
        client.ask("/one", [])
        client.ask("/two", [])
    # One connection for both; the server sees nothing of what the proxy asks for, and the proxy no token.
    (head,) = heads
    assert head.startswith(f"CONNECT {NAME}:{port} HTTP/1.1\r\nHost: {NAME}:{port}\r\n".encode())
    assert b"Basic Ym9iOmh1bnRlcjM=" in head
    assert b"hunter2" not in head
    assert seen == [("Bearer hunter2", None)] * 2


@pytest.mark.needs("openssl")
def test_the_certificate_behind_a_proxy_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, context = own_certificate(tmp_path)
    with http_server(answer, context) as url, proxy() as (address, _):
        monkeypatch.setenv("HTTPS_PROXY", f"http://{address}")
        with pytest.raises(SourceError, match=r"TLS failed: .*certificate verify failed"):
            HttpClient(f"https://{NAME}:{url.rpartition(':')[2]}").ask("/", [])


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.8.8.8", "[::1]"])
def test_this_host_is_asked_directly(monkeypatch: pytest.MonkeyPatch, variable: str, host: str) -> None:
    monkeypatch.setenv(variable, "http://proxy.example:3128")
    assert proxy_of(urlsplit(f"http://{host}:9090"), Secrets()) is None


@pytest.mark.parametrize(
    ("excepted", "url", "is_direct"),
    [
        ("prometheus.example", "http://prometheus.example:9090", True),
        ("PROMETHEUS.example", "http://prometheus.example", True),
        ("prometheus.example:9090", "http://prometheus.example:9090", True),
        ("prometheus.example:9090", "http://prometheus.example:9091", False),
        (".svc, .example", "http://prometheus.example", True),
        ("example", "http://prometheus.example", True),
        ("example", "http://prometheus.counterexample", False),
        ("example", "http://prometheus.example.org", False),
        ("*", "http://prometheus.example", True),
        ("*.example", "http://prometheus.example", False),
        ("10.0.0.0/8,fd00::/8", "http://10.1.2.3:9090", True),
        ("10.0.0.0/8,fd00::/8", "http://[fd00::7]:9090", True),
        ("10.0.0.0/8", "http://11.1.2.3:9090", False),
        ("10.1.2.3", "http://10.1.2.3:9090", True),
        ("10.0.0.0/8", "http://ten.example", False),
        ("10.0.0.0/99,/", "http://10.1.2.3", False),
        ("", "http://prometheus.example", False),
    ],
)
def test_no_proxy_names_what_is_asked_directly(
    monkeypatch: pytest.MonkeyPatch, excepted: str, url: str, is_direct: bool
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", excepted)
    found = proxy_of(urlsplit(url), Secrets())
    assert (found is None) == is_direct
    assert is_direct or found[:3] == ("http://proxy.example:3128", "proxy.example", 3128)


def test_a_variable_is_for_its_own_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "proxy.example")
    monkeypatch.setenv("ALL_PROXY", "http://other.example:3128")
    assert proxy_of(urlsplit(f"http://{NAME}"), Secrets())[:3] == ("http://proxy.example:80", "proxy.example", 80)
    assert proxy_of(urlsplit(f"https://{NAME}"), Secrets()) is None


@pytest.mark.parametrize(
    ("stated", "shown"),
    [
        ("socks5://bob:hunter2@proxy.example:1080", "socks5://proxy.example:1080"),
        ("https://proxy.example", "https://proxy.example"),
        ("http://", "http://"),
        ("http://proxy.example:port", "http://proxy.example:port"),
        ("http://bob:hunter2@[proxy", "<unreadable url>"),
        ("bob:hunter2@proxy.example:port", "http://proxy.example:port"),
    ],
)
def test_a_proxy_of_another_kind_is_refused(monkeypatch: pytest.MonkeyPatch, stated: str, shown: str) -> None:
    monkeypatch.setenv("HTTPS_PROXY", stated)
    with pytest.raises(SourceError) as refused:
        HttpClient(f"https://{NAME}").ask("/", [])
    assert refused.value.reason == (
        f"HTTPS_PROXY is {shown}: expected http://host:port, a proxy that is spoken to without TLS"
    )


def test_a_proxy_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv("HTTP_PROXY", f"http://bob:hunter2@{address}")
    with pytest.raises(SourceError) as refused:
        HttpClient(f"http://{NAME}", attempts=1).ask("/", [])
    assert refused.value.reason == f"cannot be reached: the proxy http://{address}: [Errno 111] Connection refused"


@pytest.mark.parametrize(
    ("answered", "reason"),
    [
        (b"HTTP/1.1 407 Who is bob:hunter2?\r\n\r\n", "it refuses the connection: 407 Who is ***?"),
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", "it refuses the connection: 403 Forbidden"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "it answers no HTTP"),
    ],
)
def test_a_proxy_that_opens_no_tunnel_is_named(monkeypatch: pytest.MonkeyPatch, answered: bytes, reason: str) -> None:
    with proxy(answered) as (address, _):
        monkeypatch.setenv("HTTPS_PROXY", f"http://bob:hunter2@{address}")
        with pytest.raises(SourceError) as refused:
            HttpClient(f"https://{NAME}", attempts=1).ask("/", [])
    assert refused.value.reason == f"cannot be reached: the proxy http://{address}: {reason}"


def test_a_proxy_that_answers_nothing_runs_into_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("HTTPS_PROXY", f"127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(SourceError, match=r"timed out: no answer within 0\.3 s"):
            HttpClient(f"https://{NAME}", attempts=1, limits=Limits(answer_seconds=0.3)).ask("/", [])
