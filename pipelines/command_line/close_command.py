"""The command `close`: close a month or open it again, and publish that.

Add here what the command prints. Keep out when a month may be closed (`pipelines.publishing.month_closing`).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from collectors.samples import printable
from pipelines.alarming import alarm_memory
from pipelines.command_line import run
from pipelines.fleet.fleet_file import Fleet
from pipelines.publishing import month_closing


def close(fleet: Fleet, month: date, *, is_undone: bool) -> int:
    """Close the month, or undo that; returns the exit status. Readers see it at once: it is published."""
    done = month_closing.undo(fleet, month) if is_undone else month_closing.close(fleet, month)
    print(done, *(lasting(fleet) if not is_undone else ()), sep="\n", flush=True)
    return run.publish(fleet, month)


def lasting(fleet: Fleet) -> Iterator[str]:
    """What the runs that booked the figures warned of and what still lasts: publishing checks none of it again."""
    try:
        alarms = alarm_memory.read(fleet.root / alarm_memory.FILE).lasting
    except ValueError:
        return  # The command `alarms` explains a damaged file.
    if alarms:
        yield f"{len(alarms)} alarm{'' if len(alarms) == 1 else 's'} of the newest run (`wattledger alarms`):"
    for alarm in alarms:
        yield f"  {alarm.severity}: {printable(alarm.what)}"
