"""What assets of one warehouse share in Dagster: the UTC dates of a fleet's period, and the pool of its one writer.

Keep out the names of assets (`asset_keys`) and the dates that a run has to book (`due_dates`).
"""

from __future__ import annotations

import dagster as dg

from pipelines.fleet.fleet_file import Fleet

POOL = "warehouse"


def daily(fleet: Fleet) -> dg.DailyPartitionsDefinition:
    """The UTC dates of the fleet's period."""
    end = fleet.period.end.isoformat() if fleet.period.end else None
    return dg.DailyPartitionsDefinition(start_date=fleet.period.start.isoformat(), end_date=end, timezone="UTC")
