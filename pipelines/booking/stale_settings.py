"""The check that lists the dates that were booked with other settings than today's, and how to re-book them.

A changed tariff, grid, zone, rate or assignment changes what a run books from then on. Older dates keep their figures
until the operator decides to re-book them. Add here how such dates are reported. Keep out what a setting is
(`settings`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

import dagster as dg

from pipelines.booking import upgrades
from pipelines.fleet.fleet_file import Fleet
from pipelines.warehouse import database, sealed_dates, settings
from pipelines.warehouse.asset_keys import asset_key
from pipelines.warehouse.partitions import POOL
from pipelines.warehouse.raw_tables import create_tables

CHECK = "dates_use_todays_settings"
REMEDY = "if the change is to hold for these dates too, re-book them with the printed command; else leave them"
UNRECORDED = "booked before settings were recorded"
# Ranges of dates that one line shows.
SHOWN = 5


def settings_check(fleet: Fleet) -> dg.AssetChecksDefinition:
    """A warning on marts/fleet_daily. It holds nothing back."""

    @dg.asset_check(
        asset=asset_key(fleet, "marts", "fleet_daily"),
        name=CHECK,
        blocking=False,
        metadata={"remedy": REMEDY},
        pool=POOL,
    )
    def check() -> dg.AssetCheckResult:
        """Every booked date that is not sealed was booked with today's method, formulas, seeds, fleet file and grid
        values."""
        from pipelines.booking import project  # noqa: PLC0415 (dbt: seconds that `wattledger help` need not wait)

        with (
            database.writing(fleet.warehouse, CHECK),
            database.connect(fleet.warehouse) as connection,
        ):
            create_tables(connection)
            changed, unrecorded = settings.stale(connection, project.constants_of(fleet))
            sealed = {*sealed_dates.of(connection)}
        if unrecorded:
            changed = {**changed, UNRECORDED: unrecorded}
        older = {on for of_setting in changed.values() for on in of_setting}
        open_ones = {name: [on for on in of if on not in sealed] for name, of in changed.items()}
        changed = {name: of for name, of in open_ones.items() if of}
        dates = sorted(older - sealed)
        return dg.AssetCheckResult(
            passed=not dates,
            severity=dg.AssetCheckSeverity.WARN,
            description=described(fleet, changed) if dates else None,
            metadata={
                "dates": len(dates),
                "sealed dates": len(older & sealed),  # they stay as they were booked
                **{f"dates: {name}": len(of) for name, of in changed.items()},
            },
        )

    return check


def described(fleet: Fleet, changed: Mapping[str, list[date]]) -> str:
    """Setting by setting the dates that still use another value, and the command that re-books all of them."""
    dates = sorted({on for of_setting in changed.values() for on in of_setting})
    listed = "; ".join(f"{setting}: {_ranges(of_setting)}" for setting, of_setting in changed.items())
    # New columns get their position in a table when it is created again, with all dates.
    span = () if "columns" in changed else (dates[0], dates[-1])
    return (
        f"{len(dates)} booked {'date uses' if len(dates) == 1 else 'dates use'} older settings: {listed}. Re-book with:"
        f" {upgrades.command(fleet, *span)}"
    )


def _ranges(dates: list[date]) -> str:
    found = settings.ranges(dates)
    shown = ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in found[:SHOWN])
    more = f" and {len(found) - SHOWN} more ranges" if len(found) > SHOWN else ""
    return f"{shown}{more} ({len(dates)} {'date' if len(dates) == 1 else 'dates'})"
