"""How far a run is: lines that pass, for a person who waits at a terminal.

Each replaces the one before. They have a logger of their own, which only the command line listens to, and only on a
terminal (`pipelines.command_line.console`). It is not below `pipelines`: of that Dagster keeps every line in its
history, a transaction each, and these are 250 of a run. Add a line here for another stage that one waits for. Keep out
what is worth keeping: that is a log line.
"""

from __future__ import annotations

import logging
from typing import Any

LOGGER = "wattledger.progress"
# What dbt reports of each model and test that it starts.
_STARTED = "LogStartLine"

_logger = logging.getLogger(LOGGER)


def of(what: str, done: int, whole: int) -> None:
    """So many of `whole` are done of what is under way."""
    _logger.info("%s: %d of %d", what, done, whole)


def over() -> None:
    """What was under way is done, or was stopped: nothing is shown of it."""
    _logger.info("")


def of_dbt(event: Any) -> None:
    """How many models and tests dbt has started, by one of its events."""
    if event.info.name == _STARTED:
        of("booking", event.data.index, event.data.total)
