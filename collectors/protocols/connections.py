"""Connections of urllib3 whose every step is watched: name, address, proxy, TLS, request and answer.

Given to urllib3 as a pool's `ConnectionCls`. Add here how a connection is made. Keep out how long it may take
(`answer_watch`) and what is asked over it (`http_client`).
"""

from __future__ import annotations

import http.client
import queue
import socket
import ssl
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult

from urllib3 import HTTPConnectionPool, HTTPHeaderDict, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NameResolutionError, NewConnectionError, ProxyError
from urllib3.util import Timeout, ssl_wrap_socket

from collectors.protocols import answer_watch
from collectors.protocols.proxies import Proxy


class WatchedConnection(HTTPConnection):
    """A connection that is watched from the name to the last byte. With `via`, a proxy is asked to pass requests on."""

    is_tunnelled = False

    def __init__(self, host: str, port: int | None = None, *, via: Proxy | None = None, **options: Any) -> None:
        super().__init__(host, port, **options)
        self._name = host
        self._via = via

    @property
    def _authority(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def connect(self) -> None:
        """Connect to the first address that answers: of the name, or of the proxy."""
        self.sock = self._connected()

    def request(self, method: str, url: str, *arguments: Any, **options: Any) -> None:
        """Send a request; where the connection was kept from an earlier one, it is watched from here."""
        if self.sock is not None:
            answer_watch.current().hold(self.sock)
        if self._via is not None and not self.is_tunnelled:
            url = f"http://{self._authority.removesuffix(':80')}{url}"
            options["headers"] = HTTPHeaderDict(options.get("headers") or {}) | self._via.headers
        super().request(method, url, *arguments, **options)

    def _connected(self) -> socket.socket:
        if self._via is None:
            return _connected(self, self._name, self.port)
        try:
            return _connected(self, self._via.host, self._via.port)
        except HTTPError as failure:
            raise ProxyError(f"the proxy {self._via.url}", failure) from failure


class WatchedTlsConnection(WatchedConnection, HTTPSConnection):
    """The same with TLS; its handshake is watched too. A proxy passes on bytes that it cannot read."""

    is_tunnelled = True

    def connect(self) -> None:
        """Connect, and check the server's certificate by the context that the pool was given."""
        connected = self._connected()
        try:
            if self._via is not None:
                _open_tunnel(connected, self._authority, self._via)
            self.sock = ssl_wrap_socket(connected, ssl_context=self.ssl_context, server_hostname=self.host)
        except BaseException:
            connected.close()
            raise
        self.is_verified = True


class WatchedPool(HTTPConnectionPool):
    """The connections to one server."""

    ConnectionCls = WatchedConnection


class WatchedTlsPool(HTTPSConnectionPool):
    """The connections to one server, with TLS."""

    ConnectionCls = WatchedTlsConnection


def pool_of(
    parts: SplitResult, timeout: Timeout, headers: Mapping[str, str], tls: ssl.SSLContext | None, via: Proxy | None
) -> HTTPConnectionPool:
    """The connections to the server of a URL, with TLS where there is a context for it, through a proxy where there is
    one. ValueError for no possible port."""
    host, port = str(parts.hostname), parts.port
    if tls is None:
        return WatchedPool(host, port, timeout, headers=headers, retries=False, via=via)
    return WatchedTlsPool(host, port, timeout, headers=headers, retries=False, ssl_context=tls, via=via)


def tls_context(ca_file: str | None, cert_file: str | None, key_file: str | None) -> ssl.SSLContext:
    """What checks a server's certificate, and shows ours where there is one. OSError for files that cannot be read."""
    tls = ssl.create_default_context(cafile=ca_file)
    if cert_file is not None:
        tls.load_cert_chain(cert_file, key_file)
    return tls


def _open_tunnel(connected: socket.socket, authority: str, via: Proxy) -> None:
    """Have a proxy connect to a server; what is sent from then on is for that. ProxyError where it does not."""
    lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
    lines += [f"{name}: {value}" for name, value in via.headers.items()]
    connected.sendall("\r\n".join([*lines, "", ""]).encode("latin-1"))
    answer = http.client.HTTPResponse(connected, method="CONNECT")
    try:
        answer.begin()
    except http.client.HTTPException as failure:
        raise ProxyError(f"the proxy {via.url}", HTTPError("it answers no HTTP")) from failure
    finally:
        answer.close()
    if answer.status // 100 != 2:
        refused = HTTPError(f"it refuses the connection: {answer.status} {answer.reason}".rstrip())
        raise ProxyError(f"the proxy {via.url}", refused)


def _connected(connection: HTTPConnection, name: str, port: int | None) -> socket.socket:
    """A socket to the first address of `name` that takes a connection, each tried for the connection's time-out."""
    watch = answer_watch.current()
    last: OSError | None = None
    for family, kind, protocol, _, address in _addresses(connection, name, port):
        seconds = watch.left_seconds()
        if not seconds:
            break
        tried = socket.socket(family, kind, protocol)
        try:
            for option in connection.socket_options or ():
                tried.setsockopt(*option)
            tried.settimeout(min(connection.timeout or seconds, seconds))
            tried.connect(address)
            tried.settimeout(connection.timeout)
        except OSError as failure:
            tried.close()
            last = failure
        else:
            watch.hold(tried)
            return tried
    if last is None or isinstance(last, TimeoutError):
        raise ConnectTimeoutError(connection, "no connection within the time limit") from last
    raise NewConnectionError(connection, f"Failed to establish a new connection: {last}") from last


def _addresses(connection: HTTPConnection, name: str, port: int | None) -> list[Any]:
    """The addresses of a name, as the resolver gives them.

    It is asked in a thread of its own, because nothing can end its question: once the time is over, that thread is left
    alone with it until the resolver's own limits end it (resolv.conf: some seconds per server and attempt).
    """
    answers = queue.SimpleQueue[Any]()

    def ask() -> None:
        try:
            answers.put(socket.getaddrinfo(name, port, type=socket.SOCK_STREAM))
        except (OSError, ValueError) as failure:
            answers.put(failure)

    threading.Thread(target=ask, name=f"resolving {name}", daemon=True).start()
    try:
        found = answers.get(timeout=answer_watch.current().left_seconds())
    except queue.Empty:
        raise ConnectTimeoutError(connection, "the host name was not resolved within the time limit") from None
    if isinstance(found, socket.gaierror):
        raise NameResolutionError(connection.host, connection, found) from found
    if isinstance(found, Exception):
        raise found
    return list(found)
