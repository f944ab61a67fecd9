"""What `serve` answers over HTTP: the figures, the report with today at its head, and whether it is alive.

    /metrics      for Prometheus
    /             the report (also /report)
    /-/healthy    200 while ticks and nights are looked after
    /-/ready      200 from the first tick on

Only GET and HEAD, nothing is changed by a request. A connection has one: what comes behind its head is thrown away, so
that no body is taken for the next request. Add a path here. Keep out what is answered: `service` makes it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hmac
import http.client
import io
import ipaddress
import re
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from email.utils import formatdate
from http import HTTPStatus
from typing import NamedTuple, cast

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
HTML_TYPE = "text/html; charset=utf-8"
TEXT_TYPE = "text/plain; charset=utf-8"
# Without the token, and by any name: a supervisor has neither, and they hold no figure.
OPEN = ("/-/healthy", "/-/ready")
# A head is the request line and the headers. All limits together leave ticks most of a process's 1,024 descriptors.
HEAD_BYTES = 16 * 1024
HEAD_SECONDS = 10.0
MOST_HEADS = 256
# What the kernel keeps until it is accepted: a hundred at once, fewer than MOST_HEADS, so that each is read before it
# may be dropped.
QUEUED = 4096
# Some megabytes over a slow line.
ANSWER_SECONDS = 60.0
MOST_ANSWERS = 16
STOP_SECONDS = 2.0
HOST_EXPECTED = (
    "Host: expected an IP address, localhost, the name of the machine, or one that `serve` was started with:"
    " --allowed-host NAME"
)
HEAD_END = re.compile(rb"\n\r?\n")


class Answer(NamedTuple):
    """What a path answers."""

    body: bytes
    kind: str = TEXT_TYPE
    status: HTTPStatus = HTTPStatus.OK


class WebServer:
    """A server in a thread of its own, from `start` to `stop`. With a token each path but those of OPEN asks for it: as
    a bearer token, or as the password of any user, which a browser asks a person for. `names` are those that Host may
    have beside the machine's own: a page whose name was turned to this address after it was loaded has its own."""

    def __init__(
        self,
        host: str,
        port: int,
        answers: Mapping[str, Callable[[], Answer]],
        token: str | None,
        names: Iterable[str] = (),
    ) -> None:
        self.answers, self.token = dict(answers), token
        self.names = {name.casefold() for name in ("localhost", host, socket.gethostname(), *names)}
        # Connections whose head is not whole, the oldest first; and those that a figure or a page is made or sent for.
        self.heads: dict[_Connection, None] = {}
        self.answering: set[_Connection] = set()
        self._socket = socket.create_server((host, port))
        self._loop = asyncio.new_event_loop()
        self._is_over = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="web-server", daemon=True)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._socket.getsockname()[1])

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Answer no more."""
        with contextlib.suppress(RuntimeError):  # it was stopped before, or never started
            self._loop.call_soon_threadsafe(self._is_over.set)
            self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._listen())

    async def _listen(self) -> None:
        listener = await self._loop.create_server(lambda: _Connection(self), sock=self._socket)
        self._socket.listen(QUEUED)
        await self._is_over.wait()
        listener.close()
        for connection in (*self.heads, *self.answering):
            connection.drop()

    async def answer(self, head: bytes) -> Answer:
        """What a head is answered with; a path of OPEN at once, whoever waits for others."""
        line, _, fields = head.partition(b"\n")
        try:
            method, target, _ = line.decode("latin-1").split()
            headers = http.client.parse_headers(io.BytesIO(fields))
        except (ValueError, http.client.HTTPException):
            return Answer(b"expected a request of HTTP/1.1\n", status=HTTPStatus.BAD_REQUEST)
        path = target.partition("?")[0]
        is_open = path in OPEN
        if method not in ("GET", "HEAD"):
            status, shown = HTTPStatus.NOT_IMPLEMENTED, "expected GET or HEAD"
        elif not is_open and not self._is_own_name(headers.get_all("Host", [])):
            status, shown = HTTPStatus.MISDIRECTED_REQUEST, HOST_EXPECTED
        elif path not in self.answers:
            status, shown = HTTPStatus.NOT_FOUND, f"no such path; there are {', '.join(self.answers)}"
        elif not is_open and not self._is_allowed(headers.get("Authorization", "")):
            status, shown = HTTPStatus.UNAUTHORIZED, "expected the bearer token, or it as a password"
        elif not is_open and len(self.answering) > MOST_ANSWERS:
            status, shown = HTTPStatus.SERVICE_UNAVAILABLE, f"{MOST_ANSWERS} others are being answered: ask again"
        else:
            try:
                return self.answers[path]() if is_open else await asyncio.to_thread(self.answers[path])
            except Exception as error:
                status, shown = HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}"
        return Answer(f"{shown}\n".encode(), status=status)

    def _is_own_name(self, hosts: list[str]) -> bool:
        """Whether there is one Host, and it is a name of this server. An address is: no name was turned to it."""
        if len(hosts) != 1:
            return False
        name = re.sub(r":\d*$", "", hosts[0].strip()).rstrip(".").casefold()
        try:
            ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
        except ValueError:
            return name in self.names
        return True

    def _is_allowed(self, authorization: str) -> bool:
        if self.token is None:
            return True
        kind, _, given = authorization.partition(" ")
        if kind.casefold() == "basic":
            try:
                brought = base64.b64decode(given, validate=True).partition(b":")[2]
            except (binascii.Error, ValueError):
                return False
        elif kind.casefold() == "bearer":
            brought = given.strip().encode("latin-1")  # as http.client reads a header
        else:
            return False
        return hmac.compare_digest(brought, self.token.encode())


class _Connection(asyncio.Protocol):
    """A client's connection, in the server's thread."""

    def __init__(self, server: WebServer) -> None:
        self._server = server
        self._head = bytearray()
        self._answering: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._deadline = asyncio.get_running_loop().call_later(HEAD_SECONDS, self.drop)
        heads = self._server.heads
        heads[self] = None
        if len(heads) > MOST_HEADS:
            next(iter(heads)).drop()

    def data_received(self, data: bytes) -> None:
        if self._answering is not None:
            return
        self._head += data
        end = HEAD_END.search(self._head, 0, HEAD_BYTES)
        if end is None and len(self._head) < HEAD_BYTES:
            return
        del self._server.heads[self]
        self._server.answering.add(self)
        self._deadline.cancel()
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(ANSWER_SECONDS, self.drop)
        self._answering = loop.create_task(self._answer(bytes(self._head[: end.end()]) if end else None))
        self._head.clear()

    def eof_received(self) -> bool:
        return self._answering is not None  # it may read after it has sent all

    def connection_lost(self, _: Exception | None) -> None:
        self._deadline.cancel()
        self._server.heads.pop(self, None)
        self._server.answering.discard(self)
        if self._answering is not None:
            self._answering.cancel()

    def drop(self) -> None:
        """Close the connection at once."""
        self._server.heads.pop(self, None)
        self._transport.abort()

    async def _answer(self, head: bytes | None) -> None:
        """Answer a head; None is one that is too long."""
        if head is None:
            shown = f"expected a request line and headers of at most {HEAD_BYTES} bytes\n".encode()
            answer = Answer(shown, status=HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        else:
            answer = await self._server.answer(head)
        lines = [
            f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
            f"Date: {formatdate(usegmt=True)}",
            f"Content-Type: {answer.kind}",
            f"Content-Length: {len(answer.body)}",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            "Connection: close",
        ]
        if answer.status == HTTPStatus.UNAUTHORIZED:
            lines.append('WWW-Authenticate: Basic realm="wattledger", charset="UTF-8"')
        self._transport.write("\r\n".join([*lines, "", ""]).encode())
        if head is None or not head.startswith(b"HEAD "):
            self._transport.write(answer.body)
        self._transport.close()
