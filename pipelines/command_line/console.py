"""What a run prints while it goes on: its log lines, and on a terminal one passing line of how far it is.

Add here how a line is shown. Keep out what it shows.
"""

from __future__ import annotations

import logging
import shutil
import warnings
from typing import TextIO

from pipelines.warehouse import progress

_BEGINNING_OF_AN_EMPTY_LINE = "\r\x1b[2K"


class Lines(logging.StreamHandler[TextIO]):
    """Our log lines. A line of progress stays until the next line of any kind; there is none except on a terminal."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self.setFormatter(logging.Formatter("  %(message)s"))
        self._is_terminal = stream.isatty()

    def emit(self, record: logging.LogRecord) -> None:
        """Print the line."""
        if not self._is_terminal:
            if record.name != progress.LOGGER:
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


def show_progress(stream: TextIO) -> None:
    """Show our own progress on the console. Of Dagster show only errors: its other events are in its instance."""
    warnings.simplefilter("ignore")
    ours = logging.getLogger("pipelines")
    ours.setLevel(logging.INFO)
    ours.addHandler(Lines(stream))
    ours.propagate = False
    for name in ("dagster", "dagster-dbt", "great_expectations"):
        logging.getLogger(name).setLevel(logging.ERROR)
