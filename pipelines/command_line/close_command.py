"""The command `close`: close a month or open it again, and publish that.

Add here what the command prints. Keep out when a month may be closed (`pipelines.publishing.month_closing`).
"""

from __future__ import annotations

from datetime import date

from pipelines.command_line import run
from pipelines.fleet.fleet_file import Fleet
from pipelines.publishing import month_closing


def close(fleet: Fleet, month: date, *, is_undone: bool) -> int:
    """Close the month, or undo that; returns the exit status. Readers see it at once: it is published."""
    done = month_closing.undo(fleet, month) if is_undone else month_closing.close(fleet, month)
    print(done, flush=True)
    return run.publish(fleet, month)
