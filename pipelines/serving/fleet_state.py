"""What a process has read of a fleet's files: the newest tick, the newest publication and its report, the last run.

Each file is read again when it changed. Add here another file. Keep out what is shown of it (`metrics`,
`today_section`).
"""

from __future__ import annotations

import os
import time
from pathlib import Path

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

    def renew(self, fleet: Fleet) -> None:
        """Read what has changed."""
        if self._is_changed("today", _stamp(today_file.path_of(fleet))):
            self.state.today = today_file.read(fleet)
        report = fleet.published / REPORT
        if self._is_changed("published", (fleet.latest_publication, _stamp(report))):
            self.state.last_day = published_day.read(fleet)
            self.report = report.read_text(encoding="utf-8") if report.exists() else None
        if self._is_changed("runs", _stamps(self._home)):
            self.state.last_run = dagster_history.last_ended(fleet, self._home)
        self.state.bytes_by_layer = layers.on_disk(fleet, self._home)

    def _is_changed(self, name: str, stamp: object) -> bool:
        if name in self._seen and self._seen[name] == stamp:
            return False
        self._seen[name] = stamp
        return True


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
