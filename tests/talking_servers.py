"""Servers that answer byte by byte: what no server of a library sends, such as a header without end, or nothing.

Add a talk here when several tests need it. Keep out servers that answer: those are in `servers`.
"""

from __future__ import annotations

import contextlib
import socket
import threading
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


def logged_in_and_silent(connection: socket.socket) -> None:
    """PostgreSQL's protocol up to `ready for query`: what is asked then is read, and never answered."""
    connection.recv(65536)  # a request for TLS, or the start
    connection.sendall(b"N")
    connection.recv(65536)
    connection.sendall(b"R\x00\x00\x00\x08\x00\x00\x00\x00" + b"Z\x00\x00\x00\x05I")
    silence(connection)
