"""What a process has read of a fleet's files: the newest tick, the newest publication and its report, the last run.

Each file is read again when it changed. Add here another file. Keep out what is shown of it (`metrics`,
`today_section`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipelines.fleet.fleet_file import Fleet
from pipelines.publishing.publication_manifest import REPORT
from pipelines.serving import published_day
from pipelines.serving.metrics import State
from pipelines.today import today_file
from pipelines.upkeep import dagster_history, layers


class FleetState:
    """A fleet's state, and the page of its report; None where none was published. `home` is the folder of Dagster's
    history."""

    def __init__(self, fleet: Fleet, home: Path) -> None:
        self.state = State(fleet.fleet)
        self.report: str | None = None
        self._home = home
        self._seen: dict[str, object] = {}
        self._problems: dict[str, str] = {}

    def renew(self, fleet: Fleet) -> list[str]:
        """Read what has changed. What cannot be read stays as it was; returns a line for each such part, once."""
        report = fleet.published / REPORT
        parts: dict[str, tuple[object, Callable[[], Any]]] = {
            "today": (_stamp(today_file.path_of(fleet)), lambda: today_file.read(fleet)),
            "last_day": (fleet.latest_publication, lambda: published_day.read(fleet)),
            "report": (_stamp(report), lambda: report.read_text(encoding="utf-8") if report.exists() else None),
            "last_run": (_stamps(self._home), lambda: dagster_history.last_ended(fleet, self._home)),
            "bytes_by_layer": (time.monotonic(), lambda: layers.on_disk(fleet, self._home)),
        }
        problems = []
        for name, (stamp, read) in parts.items():
            if name in self._seen and self._seen[name] == stamp:
                continue
            try:
                setattr(self if name == "report" else self.state, name, read())
                self._seen[name] = stamp
                self._problems.pop(name, None)
            except Exception as error:
                problem = f"{name}: {type(error).__name__}: {error}"
                if self._problems.get(name) != problem:
                    problems.append(problem)
                self._problems[name] = problem
        return problems


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """What differs where a file was replaced or written."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _stamps(home: Path) -> object:
    """What differs where Dagster wrote its history; a history that is kept elsewhere may always differ."""
    files = sorted((home / "history").glob("runs.db*"))
    return [_stamp(path) for path in files] if files else (os.getpid(), time.monotonic())
