"""What a run prints while it goes on: its log lines, and on a terminal one passing line of how far it is.

Add here how a line is shown. Keep out what it shows.
"""

from __future__ import annotations

import io
import json
import logging
import shutil
import sys
import warnings
from datetime import UTC, datetime
from typing import TextIO

from pipelines.warehouse import progress

_BEGINNING_OF_AN_EMPTY_LINE = "\r\x1b[2K"


class Lines(logging.StreamHandler[TextIO]):
    """Our log lines. On a terminal a line of progress stays until the next line of any kind."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self.setFormatter(logging.Formatter("  %(message)s"))
        self._is_terminal = stream.isatty()

    def emit(self, record: logging.LogRecord) -> None:
        """Print the line."""
        if not self._is_terminal:
            super().emit(record)
            return
        try:
            is_passing = record.name == progress.LOGGER
            # One that is longer than the terminal is wide could not be taken back.
            text = self.format(record)[: shutil.get_terminal_size().columns - 1] if is_passing else self.format(record)
            self.stream.write(
                f"{_BEGINNING_OF_AN_EMPTY_LINE}{text if text.strip() else ''}{'' if is_passing else chr(10)}"
            )
            self.flush()
        except Exception:
            self.handleError(record)


class JsonLines(logging.StreamHandler[TextIO]):
    """Our log lines, each an object of JSON, for what collects logs."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print the line."""
        try:
            self.stream.write(_as_json(record.levelname.lower(), record.name, record.getMessage()))
            self.flush()
        except Exception:
            self.handleError(record)


class _PrintedAsJson(io.TextIOBase):
    """A stream on which each printed line becomes an object of JSON on another one."""

    def __init__(self, stream: TextIO, level: str) -> None:
        self._stream, self._level = stream, level
        self._rest = ""

    def write(self, text: str) -> int:
        """Print the lines that are whole."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            if line.strip():
                self._stream.write(_as_json(self._level, "pipelines.printed", line))
        return len(text)

    def flush(self) -> None:
        """Print what is there."""
        self._stream.flush()

    def fileno(self) -> int:
        """The stream's own."""
        return self._stream.fileno()


def _as_json(level: str, logger: str, message: str) -> str:
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    line = {"time": at, "level": level, "logger": logger, "message": message}
    return f"{json.dumps(line, ensure_ascii=False)}\n"


def show(log_format: str) -> None:
    """Show our own progress on standard output; with the format `json`, that and all that is printed as objects of
    JSON, one a line."""
    stream = sys.stdout
    show_progress(stream, log_format)
    if log_format == "json":
        sys.stdout, sys.stderr = _PrintedAsJson(stream, "info"), _PrintedAsJson(sys.stderr, "error")


def show_progress(stream: TextIO, log_format: str = "text") -> None:
    """Show our own progress on the console. Of Dagster show only errors: its other events are in its instance."""
    warnings.simplefilter("ignore")
    ours, passing = logging.getLogger("pipelines"), logging.getLogger(progress.LOGGER)
    for logger in (ours, passing):
        for earlier in [one for one in logger.handlers if isinstance(one, (Lines, JsonLines))]:
            logger.removeHandler(earlier)
        logger.propagate = False
    handler = JsonLines(stream) if log_format == "json" else Lines(stream)
    ours.setLevel(logging.INFO)
    ours.addHandler(handler)
    is_shown = log_format != "json" and stream.isatty()
    passing.setLevel(logging.INFO if is_shown else logging.CRITICAL)
    if is_shown:
        passing.addHandler(handler)
    for name in ("dagster", "dagster-dbt", "great_expectations"):
        logging.getLogger(name).setLevel(logging.ERROR)
