"""The step of a run that keeps receipts, where the fleet file asks for it.

Keep out how the files are written (`receipt_files`).
"""

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from pipelines.fleet.fleet_file import Fleet
from pipelines.receipts import receipt_files
from pipelines.warehouse import database, findings
from pipelines.warehouse.asset_keys import asset_key

CHECK = "receipts_are_the_book"
REMEDY = "the receipts of this date that were kept before stay: keep the warehouse and report it with these rows"
_WHAT = "One row per logged request: what it used, at the price of its date. Files beside the publication, never in it."

logger = logging.getLogger(__name__)


def receipts_asset(fleet: Fleet, after: list[dg.AssetKey], pool: str) -> dg.AssetsDefinition:
    """receipts/request_receipts, once the marts are made."""
    key = asset_key(fleet, receipt_files.SCHEMA, "request_receipts")

    @dg.asset(
        key=key,
        deps=after,
        description=_WHAT,
        check_specs=[
            dg.AssetCheckSpec(
                CHECK,
                asset=key,
                description="Receipts and balancing rows of a date add up to model_daily, to the last digit, and each"
                " logged request has one receipt.",
                metadata={"remedy": REMEDY},
            )
        ],
        group_name="receipts",
        kinds={"parquet"},
        pool=pool,
    )
    def request_receipts() -> Iterator[Any]:
        """The dates that were booked last are written; dates older than `receipts.days` are removed."""
        with database.writing(fleet.warehouse, "receipts"), database.connect(fleet.warehouse) as connection:
            written = receipt_files.write(connection, fleet, datetime.now(UTC).date())
        broken = [(one.date, *row) for one in written for row in one.broken]
        rows = sum(one.requests for one in written if not one.broken)
        logger.info("kept the receipts of %s requests on %s dates", f"{rows:,}", len(written))
        shown = findings.markdown(["date", "model", "fact", "found", "expected"], broken)
        yield dg.MaterializeResult(metadata={"dagster/row_count": rows, "dates": len(written)})
        yield dg.AssetCheckResult(
            passed=not broken,
            asset_key=key,
            check_name=CHECK,
            severity=dg.AssetCheckSeverity.ERROR,
            description=f"{len(broken)} sums differ; {REMEDY}" if broken else None,
            metadata={"sums_that_differ": len(broken), "rows": dg.MarkdownMetadataValue(shown)},
        )

    return request_receipts
