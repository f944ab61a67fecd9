"""Protection of published figures: would a new publication lose, change or misstate a published date?

Compares sums of energy, tokens, CO2 and money per date, model and month before readers see the new publication. Add a
rule here for a new way in which published history could change. Keep out how a publication is written (`publication`)
and what must hold for a single date (dbt_project/models/balance/invariants).
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import date
from pathlib import Path

import duckdb

from pipelines.fleet.fleet_file import Fleet
from pipelines.publishing import restoring
from pipelines.publishing.publication_manifest import DATABASE
from pipelines.warehouse import database, due_dates
from pipelines.warehouse.raw_tables import create_tables

SHOWN = 5
# The columns that are compared, as far as both sides have them.
FACTS = ("energy_joules", "output_tokens", "location_gco2e", "compute_cost_usd")
# The same seconds rounded twice may differ, and a lost scrape is not lost history.
KEPT_COVERAGE_RATIO = 0.999


class HistoryWouldShrink(Exception):
    """A publication would lose or change published figures; the message lists them and what to do."""


class WarehouseLost(Exception):
    """The warehouse lacks what is published; the message has the choices."""


def losses(
    connection: duckdb.DuckDBPyConnection, due: Collection[date], held_back: Collection[date], own: Collection[date]
) -> list[str]:
    """The dates that the attached `warehouse` would remove from, or change in, the attached `target`: one line each.

    A published date must be in the warehouse, unless it is held back. A date that is not `due` must be as published.
    A date that this warehouse never published itself (not in `own`) must cover at least as much time as published.
    """

    shared = _columns(connection, "target", "model_daily") & _columns(connection, "warehouse", "model_daily")
    if "date" not in shared:
        return []
    facts = [fact for fact in FACTS if fact in shared]
    covered, by_model = "covered_seconds" in shared, "model" in shared
    sums = ", ".join(
        [
            *(f"sum({fact}) as {fact}" for fact in facts),
            f"cast(sum({'covered_seconds' if covered else 'null'}) as double) as covered_seconds",
        ]
    )
    key = f"date, {'model' if by_model else 'cast(null as varchar)'} as model"
    differ = " or ".join(f"old.{fact} is distinct from new.{fact}" for fact in facts) or "false"
    rows = connection.execute(
        f"""
        with old as (select {key}, {sums} from target.marts.model_daily group by all),
        new as (select {key}, {sums} from warehouse.marts.model_daily group by all),
        old_dates as (select date, sum(covered_seconds) as covered_seconds from old group by date),
        new_dates as (select date, sum(covered_seconds) as covered_seconds from new group by date)
        select 'missing' as kind, old_dates.date, null as model, null as published, null as found
        from old_dates anti join new_dates using (date)
        union all
        select 'shorter', old_dates.date, null, old_dates.covered_seconds / 3600, new_dates.covered_seconds / 3600
        from old_dates join new_dates using (date)
        where not list_contains(?, old_dates.date)
            and coalesce(new_dates.covered_seconds, 0) < {KEPT_COVERAGE_RATIO} * old_dates.covered_seconds
        union all
        select 'differs', coalesce(old.date, new.date), coalesce(old.model, new.model),
            cast(old.energy_joules as double) / 3.6e6, cast(new.energy_joules as double) / 3.6e6
        from old full join new on old.date = new.date and old.model is not distinct from new.model
        where not list_contains(?, coalesce(old.date, new.date))
            and coalesce(old.date, new.date) in (select date from old_dates)
            and coalesce(old.date, new.date) in (select date from new_dates)
            and ({differ})
        order by all
        """,
        [sorted(own), sorted(due)],
    ).fetchall()
    return [_line(kind, *row) for kind, *row in rows if row[0] not in held_back]


def misstated_months(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Months of the attached `target` that differ from the sum of its hours: one line each. Hours that were booked by
    another method are in no month."""
    if "billing_month" not in _columns(connection, "target", "model_hourly"):
        return []
    rows = connection.execute(
        """
        with hours as (
            select billing_month as month, sum(energy_joules) as joules from target.marts.model_hourly
            where is_opening_balance or method_version in (select method_version from target.marts.model_monthly)
            group by billing_month
        ),
        months as (select month, sum(energy_joules) as joules from target.marts.model_monthly group by month)
        select month, cast(months.joules as double) / 3.6e6, cast(hours.joules as double) / 3.6e6
        from months full join hours using (month)
        where months.joules is distinct from hours.joules and month is not null order by month
        """
    ).fetchall()
    return [f"month {month}: {_kwh(total)} in model_monthly, {_kwh(hours)} in hours" for month, total, hours in rows]


def refusal(found: list[str]) -> HistoryWouldShrink:
    """One error with all lines found and the possible next steps."""
    listed = [f"  {line}" for line in found[:SHOWN]]
    if len(found) > SHOWN:
        listed.append(f"  … and {len(found) - SHOWN:,} more")
    return HistoryWouldShrink(
        "\n".join(
            [
                f"the new publication would lose or change published figures ({len(found)}), so the old one is kept:",
                *listed,
                "  What to do: land and book these dates again (run --start … --end …), or restore the warehouse"
                " (docs/operations.md), or keep the published rows (run --adopt). If you want the change:"
                " run again with --force-publish.",
            ]
        )
    )


def lost_warehouse(fleet: Fleet) -> str:
    """The message for a fleet with published dates that its warehouse neither has booked nor can book from what has
    landed; empty text for any other fleet.

    A rebuild that was killed leaves a warehouse without a booked date: its dates are due, and their rows have landed.
    """
    folder = fleet.latest_publication
    if folder is None or _dates(fleet.warehouse):
        return ""
    restoring.checked(fleet.published, folder)
    dates = _dates(folder / DATABASE)
    if dates <= _unfinished_dates(fleet.warehouse):
        return ""
    first, last, count = min(dates), max(dates), len(dates)
    return (
        f"{fleet.warehouse} has booked nothing, but {count} dates are published ({first} to {last}). Was the warehouse"
        " lost, or was WATTLEDGER_DATA another folder? Restore it from a backup (docs/operations.md), or choose:"
        " `run --rebuild` lands and books every date again; the sources, the spool or the lake must still have their"
        " samples. `run --adopt` does the same, and keeps the published rows of dates for which they have less, as an"
        " opening balance."
    )


def before_booking(fleet: Fleet, *, lands_again: bool, adopts: bool) -> None:
    """WarehouseLost where a booking would end in a publication without the published dates, unless it `lands_again`
    what they came from. `adopts` takes them over. PublicationDamaged as of `restoring.checked`.

    A date that is held back gets its published rows, so the publication is compared with its manifest first.
    """
    folder = fleet.latest_publication
    if folder is not None:
        restoring.checked(fleet.published, folder)
    lost = lost_warehouse(fleet)
    if lost and not lands_again:
        raise WarehouseLost(lost)
    if adopts:
        with database.connect(fleet.warehouse) as connection:
            create_tables(connection)
            adopt(connection, fleet)


def adopt(connection: duckdb.DuckDBPyConnection, fleet: Fleet) -> int:
    """Register every published date as opening balance; returns how many dates there are.

    A date keeps its published rows where its new booking covers less; that is decided when the date is booked
    (dbt_project/macros/held_back.sql).
    """
    if not fleet.snapshot.exists():
        return 0
    with database.connect(fleet.snapshot, read_only=True) as published:
        dates = published.execute("select distinct date from marts.model_daily order by date").fetchall()
    with database.transaction(connection):
        connection.execute("delete from raw.opening_balance").fetchall()
        connection.executemany("insert into raw.opening_balance values (?)", dates)
    return len(dates)


def _dates(path: Path) -> set[date]:
    """The dates of the marts in a DuckDB file."""
    if not path.exists():  # DuckDB would create it
        return set()
    with database.connect(path, read_only=True) as connection:
        if "date" not in _columns(connection, None, "model_daily"):
            return set()
        return {on for (on,) in connection.execute("select distinct date from marts.model_daily").fetchall()}


def _unfinished_dates(path: Path) -> set[date]:
    """The dates that a warehouse can book without asking a source: those that are due, and those that have landed."""
    if not path.exists():
        return set()
    with database.connect(path, read_only=True) as connection:
        if not {"due_dates", "series_chunks"} <= database.tables(connection, "raw"):
            return set()
        return {*due_dates.due(connection, due_dates.BOOKING), *due_dates.landed(connection)}


def _columns(connection: duckdb.DuckDBPyConnection, database: str | None, table: str) -> set[str]:
    """The columns of a mart in an attached database, by default the connection's own; none where it is not there."""
    found = connection.execute(
        "select column_name from duckdb_columns() where database_name = coalesce(?, current_database())"
        " and schema_name = 'marts' and table_name = ?",
        [database, table],
    ).fetchall()
    return {column for (column,) in found}


def _line(kind: str, on: date, model: str | None, published: float | None, found: float | None) -> str:
    if kind == "missing":
        return f"{on}: published, but not in the warehouse"
    if kind == "shorter":
        return f"{on}: {found or 0:,.1f} meter-hours covered, {published:,.1f} published"
    what = f"{on} {model}" if model else f"{on}"
    return f"{what}: {_kwh(found)} in the warehouse, {_kwh(published)} published, although no run booked this date"


def _kwh(value: float | None) -> str:
    return "nothing" if value is None else f"{value:,.6g} kWh"
