"""Restatements: published figures that a publication changes, with what they were, what they are, and why.

Found when a publication is made, by comparing it with the one before, and carried from one to the next in
published.restated_figures; finance.restatements is what readers see. Add here which figures are compared. Keep out
figures that change by design: those of a month to date and of a lookback.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import date, datetime

import duckdb

from pipelines.publishing import published_tables
from pipelines.warehouse import database, statements

TABLE = "restated_figures"
# What the figures are of; an older publication may lack a column.
_READ = {
    "cost_daily": {"billing_month", "deployment", "basis", "part", "cost_usd", "billed_cost_usd"},
    "model_hourly": {"billing_month", "facility_energy_kwh", "location_gco2e"},
    "site_power_hourly": {"billing_month", "local_date", "hour_seconds"},
}


def remember(connection: duckdb.DuckDBPyConnection, start: date, end: date) -> bool:
    """Keep the figures of the attached `target` before the dates [start, end) change; whether it has those that are
    compared. Where a table is made anew with other columns, every month may change."""
    held, made = (published_tables.tables(connection, of) for of in ("target", "warehouse"))
    for name, columns in _READ.items():
        table = held.get(("marts", name))
        if table is None or not columns <= {column for column, _ in table.columns}:
            return False
    # Every night the same few months: with them alone a publication costs the same after years.
    first, last = published_tables.restated_months(start, end)
    if any(made.get(("marts", name)) != held["marts", name] for name in _READ):
        first, last = date.min, date.max
    connection.execute(
        "create or replace temp table months_compared as select distinct billing_month as month"
        " from target.marts.cost_daily where billing_month between ? and ?",
        [first, last],
    ).fetchall()
    connection.execute(f"create or replace temp table months_over as {statements.read(__file__, 'months_over')}")
    _figures(connection, "before")
    return True


def find(
    connection: duckdb.DuckDBPyConnection, publication_id: str, now: datetime, uncompared: Collection[date]
) -> None:
    """Append to published.restated_figures of the attached `target` what differs from what `remember` kept; the dates
    that are `uncompared` are not: held back, or published ahead of their history."""
    if TABLE not in database.tables(connection, "published", "target"):  # both are older than this table
        return
    _figures(connection, "after")
    connection.execute(
        f"insert into target.published.{TABLE} {statements.read(__file__, 'restatements')}",
        [publication_id, now, sorted(uncompared)],
    ).fetchall()


def _figures(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    connection.execute(
        f"create or replace temp table figures_{name} as {statements.read(__file__, 'published_figures')}"
    ).fetchall()
