"""Messages for a warehouse that cannot be opened as requested.

Add here what the code that opens a database raises or prints. Keep out all other messages: those of a fleet
file are in `pipelines.fleet.fleet_errors`, those of the command line in `pipelines.warehouse.mistakes`. Nothing here
imports duckdb: the command line starts without it.
"""

from __future__ import annotations

import re
from pathlib import Path

from pipelines.fleet.places import fleet_option


class QuestionError(Exception):
    """A wrong option or environment variable. The message is one line."""


def nothing_published(fleet: str, path: Path) -> QuestionError:
    """What a command answers that reads a publication, before the first one."""
    return QuestionError(f"nothing is published for fleet {fleet} yet: run `wattledger run{fleet_option(path)}` first")


def busy(path: Path | str, refusal: str) -> str:
    """One line that names the process that has the DuckDB file open, and what to do."""
    found = re.search(r"held in (.+?) \(PID (\d+)\)", refusal)
    who = f" ({found[2]}, {found[1]})" if found else ""
    return (
        f"{path} is open in another process{who}. Close it there (a shell, a notebook, a BI tool) and run again;"
        " readers should open published/wattledger.duckdb beside it instead."
    )
