"""What `serve` answers over HTTP: the figures, the report with today at its head, and whether it is alive.

    /metrics      for Prometheus
    /             the report (also /report)
    /-/healthy    200 while ticks and nights are looked after
    /-/ready      200 from the first tick on

Only GET and HEAD, nothing is changed by a request. Add a path here. Keep out what is answered: `service` makes it.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import http.server
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
HTML_TYPE = "text/html; charset=utf-8"
TEXT_TYPE = "text/plain; charset=utf-8"
# A client that sends or reads nothing for so long is left.
CLIENT_SECONDS = 10
# Without the token: a supervisor has none, and they hold no figure.
OPEN = ("/-/healthy", "/-/ready")


class Answer(NamedTuple):
    """What a path answers."""

    body: bytes
    kind: str = TEXT_TYPE
    status: HTTPStatus = HTTPStatus.OK


class WebServer:
    """A server in threads of its own, from `start` to `stop`. With a token each path but those of OPEN asks for it: as
    a bearer token, or as the password of any user, which a browser asks a person for."""

    def __init__(self, host: str, port: int, answers: Mapping[str, Callable[[], Answer]], token: str | None) -> None:
        handler = type("Handler", (_Handler,), {"answers": dict(answers), "token": token})
        self._server = _Server((host, port), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="web-server", daemon=True)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that hangs up is no event."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "wattledger"
    sys_version = ""
    timeout = CLIENT_SECONDS
    answers: Mapping[str, Callable[[], Answer]]
    token: str | None

    def do_GET(self) -> None:
        """Answer with a body."""
        self._answer(has_body=True)

    def do_HEAD(self) -> None:
        """Answer without one."""
        self._answer(has_body=False)

    def _answer(self, *, has_body: bool) -> None:
        path = self.path.partition("?")[0]
        make = self.answers.get(path)
        if make is None:
            answer = Answer(
                f"no such path; there are {', '.join(self.answers)}\n".encode(), status=HTTPStatus.NOT_FOUND
            )
        elif path not in OPEN and not self._is_allowed():
            answer = Answer(b"expected the bearer token, or it as a password\n", status=HTTPStatus.UNAUTHORIZED)
        else:
            try:
                answer = make()
            except Exception as error:
                shown = f"{type(error).__name__}: {error}\n"
                answer = Answer(shown.encode(), status=HTTPStatus.INTERNAL_SERVER_ERROR)
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        if answer.status == HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", 'Basic realm="wattledger", charset="UTF-8"')
        self.end_headers()
        if has_body:
            self.wfile.write(answer.body)

    def _is_allowed(self) -> bool:
        if self.token is None:
            return True
        kind, _, given = self.headers.get("Authorization", "").partition(" ")
        if kind.casefold() == "basic":
            try:
                brought = base64.b64decode(given, validate=True).partition(b":")[2]
            except (binascii.Error, ValueError):
                return False
        elif kind.casefold() == "bearer":
            brought = given.strip().encode("latin-1")  # as http.server reads a header
        else:
            return False
        return hmac.compare_digest(brought, self.token.encode())

    def log_message(self, *_: object) -> None:
        """A scrape every few seconds is no event."""
