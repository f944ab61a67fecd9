"""The file system behind a folder or a URL: fsspec's, or pyarrow's where fsspec has no package for it.

Add here how a store is found and what holds for every store. Keep out what is written there.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

import fsspec
from fsspec import AbstractFileSystem

from collectors.secret_texts import FEWEST_CHARACTERS, Secrets

# What the clients of stores take from the environment and send, or sign with.
SECRET_VARIABLES = (
    *("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY"),
    *("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_CONNECTION_STRING", "AZURE_CLIENT_SECRET"),
)


# Requests without an answer that one process keeps waiting, a thread each, before it asks for nothing more.
MOST_UNANSWERED = 8

_T = TypeVar("_T")


def file_system(path: str) -> tuple[AbstractFileSystem, str]:
    """The file system behind a path or URL, and the path on it. ImportError or ValueError where no package serves it.

    Where fsspec's own package for a protocol is not installed, pyarrow carries one for S3, Google Cloud, Azure, HDFS.
    An agent has pyarrow only where it was installed for that.
    """
    try:
        system, root = fsspec.core.url_to_fs(path)
        return system, root
    except ImportError as missing:
        return _of_pyarrow(path, missing)


def _of_pyarrow(path: str, missing: ImportError) -> tuple[AbstractFileSystem, str]:
    """pyarrow's file system behind a URL; `missing`, fsspec's own words, where pyarrow is not here or has none."""
    try:
        from pyarrow import ArrowInvalid, fs  # noqa: PLC0415 (165 MB, that the agent does without)
    except ImportError:
        raise missing from None
    from fsspec.implementations.arrow import ArrowFSWrapper  # noqa: PLC0415

    try:
        found, root = fs.FileSystem.from_uri(path)
    except ArrowInvalid as refusal:
        raise missing if "Unrecognized filesystem" in str(refusal) else refusal from None
    return ArrowFSWrapper(found), root


def is_remote(path: str) -> bool:
    """Whether a server holds what is there, by the URL alone: folders and fsspec's memory are here."""
    scheme = urlsplit(path).scheme
    return len(scheme) > 1 and scheme not in ("file", "local", "memory")


class Requests:
    """Requests to a store, each with a deadline: their clients wait without limit for one that sends nothing.

    Nothing ends the call itself. Its thread is left behind, and with S3 it keeps the process from its end: whoever has
    to end runs in a process that is killed.
    """

    def __init__(self, answer_seconds: float) -> None:
        self.answer_seconds = answer_seconds
        self._unanswered: list[threading.Thread] = []

    def answer(self, ask: Callable[[], _T]) -> _T:
        """What `ask` returns or raises; TimeoutError where that takes more than `answer_seconds`."""
        self._unanswered = [thread for thread in self._unanswered if thread.is_alive()]
        if len(self._unanswered) >= MOST_UNANSWERED:
            raise TimeoutError(f"not asked: {len(self._unanswered)} earlier requests have no answer yet")
        answers: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue()

        def wait() -> None:
            try:
                answers.put((ask(), None))
            except BaseException as failure:  # raised below
                answers.put((None, failure))

        thread = threading.Thread(target=wait, name="store request", daemon=True)
        thread.start()
        try:
            answer, failure = answers.get(timeout=self.answer_seconds)
        except queue.Empty:
            self._unanswered.append(thread)
            raise TimeoutError(f"no answer within {self.answer_seconds:g} s (limits.answer_seconds)") from None
        if failure is not None:
            raise failure
        result: _T = answer
        return result

    def end_process(self, status: int) -> None:
        """End this process at once where a request still has no answer: it would wait for it. Else do nothing."""
        if any(thread.is_alive() for thread in self._unanswered):
            logging.shutdown()
            sys.stdout.flush()
            os._exit(status)


def secrets_of(url: str) -> Secrets:
    """What a store, or its client, may repeat in an error and no message may have: of the URL and the environment."""
    secrets = Secrets()
    parts = urlsplit(url)
    secrets.add(parts.password, user=parts.username)
    for text in (*dict(parse_qsl(parts.query)).values(), *(os.environ.get(name, "") for name in SECRET_VARIABLES)):
        secrets.add(text if len(text) >= FEWEST_CHARACTERS else None)
    return secrets
