"""The asset of the named windows.

Keep out how windows are written: that is `fleet_landing`, and what a window may state (`pipelines.fleet.run_windows`).
"""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from collectors.samples import SourceError
from pipelines.fleet.fleet_file import Fleet
from pipelines.landing import fleet_landing
from pipelines.landing.telemetry_assets import FAILED_FILE, opened
from pipelines.warehouse.asset_keys import asset_key
from pipelines.warehouse.partitions import POOL

WINDOW_CHECK = "run_windows_are_sound"


def run_windows_asset(fleet: Fleet) -> dg.AssetsDefinition:
    """raw.run_windows."""

    key = asset_key(fleet, "raw", "run_windows")

    @dg.asset(
        key=key,
        deps=[asset_key(fleet, "raw", "requests")],
        group_name="raw",
        kinds={"duckdb"},
        check_specs=[
            dg.AssetCheckSpec(
                WINDOW_CHECK,
                asset=key,
                description="Every file of run windows was read, and every row of it is a window.",
                metadata={"remedy": FAILED_FILE},
            )
        ],
        pool=POOL,
    )
    def run_windows() -> Iterator[Any]:
        """Named windows from the fleet file, its files and the landed load tests, replaced whole.

        If a file cannot be read, the check fails and the windows stay as they were: the energy book needs none of them.
        """
        rows, failure, rejected = 0, None, None
        with opened(fleet, "run windows") as connection:
            try:
                rows, rejected = fleet_landing.write_run_windows(connection, fleet)
            except SourceError as refusal:
                failure = str(refusal)
        yield dg.MaterializeResult(metadata={"dagster/row_count": rows})
        yield dg.AssetCheckResult(
            passed=failure is None and rejected is None,
            asset_key=key,
            check_name=WINDOW_CHECK,
            severity=dg.AssetCheckSeverity.ERROR if failure else dg.AssetCheckSeverity.WARN,
            description=failure or rejected,
            metadata={"rows": rows},
        )

    return run_windows
