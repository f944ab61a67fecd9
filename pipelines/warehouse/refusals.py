"""What a person reads when the warehouse cannot be opened as it was asked for.

Add here what the code that opens a database raises or says. Keep out what any other part says: messages of a fleet
file are in `pipelines.fleet.fleet_errors`, those of the command line in `pipelines.command_line.mistakes`. Nothing here
imports duckdb: the command line starts without it.
"""

from __future__ import annotations

import re
from pathlib import Path


class QuestionError(Exception):
    """What was asked cannot be answered: a wrong option or environment variable. The message is one line."""


def busy(path: Path | str, refusal: str) -> str:
    """That another process has a DuckDB file open, in one line."""
    found = re.search(r"held in (.+?) \(PID (\d+)\)", refusal)
    who = f" ({found[2]}, {found[1]})" if found else ""
    return (
        f"{path} is open in another process{who}. Close it there (a shell, a notebook, a BI tool) and run again;"
        " readers should open published/wattledger.duckdb beside it instead."
    )
