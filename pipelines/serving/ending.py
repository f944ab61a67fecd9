"""Whether this process is to end: SIGINT or SIGTERM came.

Python's handlers raise KeyboardInterrupt wherever the main thread is. DuckDB makes an error of its own of it, dbt has
handlers of its own meanwhile, and a long query comes to neither. So Python writes the number of each signal to a
socket, too, which a thread reads: it misses none, and ends the process where the main thread does not. Keep out what is
done at the end.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable
from types import TracebackType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# A supervisor waits ten seconds before it kills: docker stop, for example.
GRACE_SECONDS = 8.0


class Ending:
    """Signals of the main thread, for the `with` block. Where that has not ended `grace_seconds` after a signal,
    `at_last` is called and the process is over, with status 0: whatever it was doing may be stopped anywhere."""

    def __init__(self, grace_seconds: float = GRACE_SECONDS) -> None:
        self.at_last: Callable[[], None] = lambda: None
        self._grace_seconds = grace_seconds
        self._is_asked = threading.Event()
        self._is_over = threading.Event()

    def __enter__(self) -> Ending:
        self._read, self._written = socket.socketpair()
        self._written.setblocking(False)
        self._before = signal.set_wakeup_fd(self._written.fileno(), warn_on_full_buffer=False)
        # A shell that starts this process in the background has it ignore SIGINT.
        self._handlers = [signal.signal(one, signal.default_int_handler) for one in SIGNALS]
        threading.Thread(target=self._wait, name="ending", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._is_over.set()
        for one, handler in zip(SIGNALS, self._handlers, strict=True):
            signal.signal(one, handler)
        signal.set_wakeup_fd(self._before)
        self._written.close()

    def check(self) -> None:
        """KeyboardInterrupt where one of the signals came."""
        if self._is_asked.is_set():
            raise KeyboardInterrupt

    def _wait(self) -> None:
        with self._read:
            while numbers := self._read.recv(4096):
                if any(number in SIGNALS for number in numbers):
                    self._is_asked.set()
                    break
            else:
                return
            if not self._is_over.wait(self._grace_seconds):
                self.at_last()
                os._exit(0)
