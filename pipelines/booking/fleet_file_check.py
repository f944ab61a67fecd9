"""The asset check of the fleet file: implausible values, and entries that no landed telemetry matches. It warns.

Keep out which entries these are: `pipelines.warehouse.unmatched_entries`, which `wattledger check` asks as well.
"""

import dagster as dg

from pipelines.fleet.fleet_file import Fleet
from pipelines.fleet.plausibility import doubts, silenced_by
from pipelines.warehouse import database, findings
from pipelines.warehouse.asset_keys import asset_key
from pipelines.warehouse.unmatched_entries import unmatched

NAME = "fleet_file_entries_match"
REMEDY = "correct the value or the name, or remove the entry"


def fleet_file_check(fleet: Fleet) -> dg.AssetChecksDefinition:
    """One check, after the marts are built."""

    @dg.asset_check(
        asset=asset_key(fleet, "marts", "model_daily"),
        name=NAME,
        description="The numbers of the fleet file are usual ones, and telemetry has each of its nodes, engines,"
        " models, devices and priced device types.",
        metadata={"remedy": REMEDY},
        pool="warehouse",
    )
    def check() -> dg.AssetCheckResult:
        with (
            database.writing(fleet.warehouse, NAME),
            database.connect(fleet.warehouse, read_only=True) as connection,
        ):
            found = [*doubts(fleet), *(unmatched(fleet, connection) or [])]
        remedy = f"{REMEDY}. {silenced_by(found[: findings.SHOWN])}"
        return dg.AssetCheckResult(
            passed=not found,
            severity=dg.AssetCheckSeverity.WARN,
            description=findings.report([*map(str, found)], len(found), "", remedy) if found else None,
            metadata={"rows_found": len(found)},
        )

    return check
