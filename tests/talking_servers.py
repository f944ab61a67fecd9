"""Servers that answer byte by byte: what no server of a library sends, such as a header without end, or nothing.

Add a talk here when several tests need it. Keep out servers that answer: those are in `servers`.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def talking_server(talk: Callable[[socket.socket], None]) -> Iterator[str]:
    """host:port on loopback of a server that hands each connection to `talk`, byte for byte, in a thread of its own.

    A client that hangs up ends the talk.
    """

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            talk(connection)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        host, port = listener.getsockname()
        try:
            yield f"{host}:{port}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)


def silence(connection: socket.socket) -> None:
    """Read whatever comes and send nothing."""
    while connection.recv(65536):
        pass


def dripping(part: bytes, rest_of_header: bytes = b"") -> Callable[[socket.socket], None]:
    """Begin an answer of HTTP, and send `part` three times a second without end."""

    def talk(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\n" + rest_of_header)
        while True:
            connection.sendall(part)
            time.sleep(0.3)

    return talk


def relaying(
    host: str, port: int, seconds: float = 0.0, silent_from: bytes | None = None
) -> Callable[[socket.socket], None]:
    """Pass everything on to the server there, what is asked after so many seconds; from a request on that holds
    `silent_from`, nothing any more."""
    is_silent = threading.Event()

    def talk(connection: socket.socket) -> None:
        with socket.create_connection((host, port)) as server:
            threading.Thread(target=back, args=(server, connection), daemon=True).start()
            while asked := connection.recv(65536):
                time.sleep(seconds)
                if silent_from is not None and silent_from in asked:
                    is_silent.set()
                if not is_silent.is_set():
                    server.sendall(asked)

    def back(server: socket.socket, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while came := server.recv(65536):
                connection.sendall(came)
            connection.shutdown(socket.SHUT_WR)

    return talk


def logged_in_and_silent(connection: socket.socket) -> None:
    """PostgreSQL's protocol up to `ready for query`: what is asked then is read, and never answered."""
    connection.recv(65536)  # a request for TLS, or the start
    connection.sendall(b"N")
    connection.recv(65536)
    connection.sendall(b"R\x00\x00\x00\x08\x00\x00\x00\x00" + b"Z\x00\x00\x00\x05I")
    silence(connection)
