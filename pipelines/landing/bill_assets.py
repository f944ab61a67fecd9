"""The asset of what was invoiced.

Keep out how bills are written: that is `bill_landing`.
"""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from collectors.samples import SourceError
from pipelines.fleet.fleet_file import Fleet
from pipelines.landing import bill_landing
from pipelines.landing.telemetry_assets import FAILED_FILE, opened
from pipelines.warehouse.asset_keys import asset_key
from pipelines.warehouse.partitions import POOL

BILL_CHECK = "bills_are_sound"


def bills_asset(fleet: Fleet) -> dg.AssetsDefinition:
    """raw.bills."""

    key = asset_key(fleet, "raw", "bills")

    @dg.asset(
        key=key,
        group_name="raw",
        kinds={"duckdb"},
        check_specs=[
            dg.AssetCheckSpec(
                BILL_CHECK,
                asset=key,
                description="Every file of bills was read, every row of it is a bill, and no rate of an export is odd.",
                metadata={"remedy": FAILED_FILE},
            )
        ],
        pool=POOL,
    )
    def bills() -> Iterator[Any]:
        """One row per invoice or credit of the fleet file and its files, replaced whole.

        If a file cannot be read, the check fails and the bills stay as they were: the energy book needs none of them.
        """
        rows, failure, rejected = 0, None, None
        with opened(fleet, "bills") as connection:
            try:
                rows, rejected = bill_landing.write_bills(connection, fleet)
            except SourceError as refusal:
                failure = str(refusal)
        yield dg.MaterializeResult(metadata={"dagster/row_count": rows})
        yield dg.AssetCheckResult(
            passed=failure is None and rejected is None,
            asset_key=key,
            check_name=BILL_CHECK,
            severity=dg.AssetCheckSeverity.ERROR if failure else dg.AssetCheckSeverity.WARN,
            description=failure or rejected,
            metadata={"rows": rows},
        )

    return bills
