"""The watchdog of answers: an answer that takes too long ends, whatever the server does meanwhile.

A time-out of a socket begins anew with each byte, so a server that drips its headers or a gzip stream of nothing never
runs into it. Add here how time is counted and how an answer is ended. Keep out what an answer is (`http_client`) and
how a connection is made (`connections`).
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass

from collectors.limits import Limits


@dataclass
class Spent:
    """What the answers of one window took so far; the time in which their consumer works does not count."""

    bytes: int = 0
    seconds: float = 0.0


class AnswerWatch:
    """The time limits of one answer and of its window. Once one is over, the watched socket is shut down.

    Shutting down ends a read or a write that waits, in whichever thread, and the TLS handshake too; closing would not.
    The reader then finds an end or an error, so whoever reads asks `is_over` before it takes an end for one.
    """

    def __init__(self, limits: Limits, spent: Spent) -> None:
        self.limits = limits
        self.spent = spent
        self._has_ended = False
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._socket: socket.socket | None = None
        self._began_seconds = self._ends_seconds = 0.0
        self._is_last = False

    def start(self) -> None:
        """Count from now on."""
        self._began_seconds = time.monotonic()
        window_seconds = self.limits.window_seconds - self.spent.seconds
        self._is_last = window_seconds < self.limits.answer_seconds
        seconds = min(window_seconds, self.limits.answer_seconds, threading.TIMEOUT_MAX)
        self._ends_seconds = self._began_seconds + seconds
        if seconds <= 0:
            self._end()
            return
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True
        self._timer.start()

    def stop(self) -> None:
        """Count no more, because the consumer works or the answer is whole; `start` begins the next stretch."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self.spent.seconds += time.monotonic() - self._began_seconds

    def close(self) -> None:
        """Stop, and let the socket go."""
        self.stop()
        self.hold(None)

    def hold(self, connected: socket.socket | None) -> None:
        """Watch this socket, and no other any more.

        It is held by a descriptor of its own: wrapping a socket in TLS takes it apart, and what a closed one was called
        may be another connection by then.
        """
        with self._lock:
            if self._socket is not None:
                self._socket.close()
            self._socket = None
            if connected is not None:
                self._socket = socket.fromfd(connected.fileno(), connected.family, connected.type)
            if self.is_over:
                self._shut_down()

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return self._has_ended or (self._timer is not None and time.monotonic() >= self._ends_seconds)

    def left_seconds(self) -> float:
        """How long the answer may take yet."""
        return 0.0 if self._has_ended else max(0.0, self._ends_seconds - time.monotonic())

    def reason(self, *, has_headers: bool) -> str:
        """Which limit is over, for a message; `has_headers` once the headers of the answer are there."""
        if self._is_last:
            return f"the window took longer than {self.limits.window_seconds:g} s (limits.window_seconds)"
        limit = f"{self.limits.answer_seconds:g} s (limits.answer_seconds)"
        return f"the answer took longer than {limit}" if has_headers else f"timed out: no answer within {limit}"

    def _end(self) -> None:
        with self._lock:
            self._has_ended = True
            self._shut_down()

    def _shut_down(self) -> None:
        if self._socket is not None:
            # In both directions: a half that stays open would go on to take what a server pours into it.
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


_CURRENT: ContextVar[AnswerWatch] = ContextVar("the watch of the request that is being made")


@contextmanager
def watched_by(watch: AnswerWatch) -> Iterator[None]:
    """Connections that this thread makes or takes up inside are watched by `watch`."""
    token = _CURRENT.set(watch)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current() -> AnswerWatch:
    """The watch of the request that this thread makes."""
    return _CURRENT.get()
