"""A step that ends: what waits for another server runs in a process of its own, which is killed at its deadline.

The drivers of PostgreSQL and of object stores wait without limit for a server that is there and sends nothing, or bytes
now and then, and nothing else ends their call: neither a signal nor another thread, and S3's even keeps a process from
its end. A connection that ends with its process is rolled back by the server. Add here how such a process is run. Keep
out what it does.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

Result = TypeVar("Result")

# What the modules below it log goes on to the parent's handlers.
_LOGGER = "pipelines"


class StepTookTooLong(Exception):
    """The deadline came first; the process is gone."""


class StepDied(Exception):
    """The process ended without a result, or with an error that is a defect; the message has the reason."""


def within(seconds: float, work: Callable[..., Result], *arguments: Any) -> Result:
    """What `work(*arguments)` returns or raises, run in another process, for at most so many seconds.

    `work` is a module's function; arguments, result and errors travel between the processes. Where it calls
    `progressed`, the seconds count anew from there.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_run, args=(theirs, work, arguments), name=work.__name__, daemon=True)
    process.start()
    theirs.close()
    try:
        result: Result = outcome(ours, seconds)
        return result
    finally:
        # Not terminate(): a process that waits in a driver does not come to its signals.
        process.kill()
        process.join()
        ours.close()


def progressed() -> None:
    """A part of the work is done: the deadline of the process, if this is one with a deadline, begins anew."""
    if _parent is not None:
        _parent.send("progressed", None)


def outcome(pipe: Connection, seconds: float) -> Any:
    """What the other process returns or raises; `StepTookTooLong` where so many seconds pass without progress."""
    deadline = time.monotonic() + seconds
    while pipe.poll(max(0.0, deadline - time.monotonic())):
        try:
            kind, value = pipe.recv()
        except EOFError:
            raise StepDied("the process of this step ended without a result; was it killed for memory?") from None
        if kind == "progressed":
            deadline = time.monotonic() + seconds
        elif kind == "log":
            logging.getLogger(value.name).handle(value)
        elif kind == "failed":
            raise value
        else:
            return value
    raise StepTookTooLong


class _Parent:
    """The process that waits. Several threads may send to it."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()

    def send(self, kind: str, value: Any) -> None:
        """What happened, and what goes with it."""
        with self._lock:
            self._pipe.send((kind, value))


_parent: _Parent | None = None


def _run(pipe: Connection, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    global _parent  # noqa: PLW0603 (of this process alone, which does nothing else)
    _parent = _Parent(pipe)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    logger = logging.getLogger(_LOGGER)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(_Sender(_parent))
    try:
        outcome = ("done", work(*arguments))
    except Exception as failure:
        # Errors of ours are a message in one line; any other is a defect, whose trace is wanted.
        is_ours = type(failure).__module__.startswith("pipelines.")
        outcome = ("failed", failure if is_ours else StepDied(traceback.format_exc()))
    _parent.send(*outcome)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class _Sender(logging.Handler):
    """Sends each record, its text made, to the parent."""

    def __init__(self, parent: _Parent) -> None:
        super().__init__()
        self._parent = parent

    def emit(self, record: logging.LogRecord) -> None:
        record.msg, record.args, record.exc_info = self.format(record), None, None
        self._parent.send("log", record)
