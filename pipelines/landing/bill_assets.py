"""The asset of what was invoiced.

Keep out how bills are written: that is `bill_landing`.
"""

import dagster as dg

from pipelines.fleet.fleet_file import Fleet
from pipelines.landing import bill_landing
from pipelines.landing.telemetry_assets import POOL, opened
from pipelines.warehouse.asset_keys import asset_key


def bills_asset(fleet: Fleet) -> dg.AssetsDefinition:
    """raw.bills."""

    @dg.asset(key=asset_key(fleet, "raw", "bills"), group_name="raw", kinds={"duckdb"}, pool=POOL)
    def bills() -> dg.MaterializeResult[None]:
        """One row per invoice or credit of the fleet file and its files, replaced whole."""
        with opened(fleet, "bills") as connection:
            return dg.MaterializeResult(metadata={"dagster/row_count": bill_landing.write_bills(connection, fleet)})

    return bills
