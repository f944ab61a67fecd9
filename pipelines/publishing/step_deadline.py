"""A step that ends: what publishes to another server runs in a process of its own, which is killed at its deadline.

The drivers of PostgreSQL and of object stores wait without limit for a server that is there and sends nothing, or bytes
now and then, and nothing else ends their call: neither a signal nor another thread, and S3's even keeps a process from
its end. A connection that ends with its process is rolled back by the server. Add here how such a process is run. Keep
out what it publishes.
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

# What the publishing modules log goes on to the parent's handlers.
_LOGGER = "pipelines"


class StepTookTooLong(Exception):
    """The deadline came first; the process is gone."""


class PublisherDied(Exception):
    """The process ended without a result, or with an error that is a defect; the message has the reason."""


def within(seconds: float, publish: Callable[..., Result], *arguments: Any) -> Result:
    """What `publish(*arguments)` returns or raises, run in another process for at most so many seconds.

    `publish` is a module's function; arguments, result and errors travel between the processes.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_run, args=(theirs, publish, arguments), name=publish.__name__, daemon=True)
    process.start()
    theirs.close()
    try:
        result: Result = _outcome(ours, time.monotonic() + seconds)
        return result
    finally:
        # Not terminate(): a process that waits in a driver does not come to its signals.
        process.kill()
        process.join()
        ours.close()


def _outcome(pipe: Connection, deadline: float) -> Any:
    while pipe.poll(max(0.0, deadline - time.monotonic())):
        try:
            kind, value = pipe.recv()
        except EOFError:
            raise PublisherDied("the publishing process ended without a result; was it killed for memory?") from None
        if kind == "log":
            logging.getLogger(value.name).handle(value)
        elif kind == "failed":
            raise value
        else:
            return value
    raise StepTookTooLong


def _run(pipe: Connection, publish: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    logger = logging.getLogger(_LOGGER)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(_Sender(pipe))
    try:
        outcome = ("done", publish(*arguments))
    except Exception as failure:
        # Errors of ours are a message in one line; any other is a defect, whose trace is wanted.
        is_ours = type(failure).__module__.startswith("pipelines.")
        outcome = ("failed", failure if is_ours else PublisherDied(traceback.format_exc()))
    pipe.send(outcome)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class _Sender(logging.Handler):
    """Sends each record, its text made, to the parent."""

    def __init__(self, pipe: Connection) -> None:
        super().__init__()
        self._pipe = pipe

    def emit(self, record: logging.LogRecord) -> None:
        record.msg, record.args, record.exc_info = self.format(record), None, None
        self._pipe.send(("log", record))
