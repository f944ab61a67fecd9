"""SQL that Python runs itself, as files: `sql/<name>.sql` beside the module that runs it.

Add here how such a file is read. Keep out statements that a line or two of Python can hold, and whatever dbt can build.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path


@cache
def read(module: str, name: str) -> str:
    """The text of a statement; `module` is the `__file__` of the module that runs it."""
    return (Path(module).parent / "sql" / f"{name}.sql").read_text(encoding="utf-8")
