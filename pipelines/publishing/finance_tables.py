"""Schema finance of a publication: the views of dbt_project/models/finance, computed from what it publishes.

A warehouse may hold dates that a publication holds back, so the tables are made from the publication's own marts. Add
here how a view becomes a table. Keep out what a column means: that is the view's SQL.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import date, datetime

import duckdb

from pipelines.publishing import published_tables, restatements
from pipelines.publishing.published_tables import FINANCE
from pipelines.warehouse import advice_history, closings

# Where the views' tables are found: the marts, the advice and the closings in the publication, what the fleet file
# states and the names of tenants in the warehouse.
_READ = ("target.marts", "target.published", "warehouse.fleet", "warehouse.raw")
# Why a month's cost changed: by the month of its site as it is known now, and as it was when it was closed or adjusted
# last.
_STATES = """
with known as (
    select month, site, sum(facility_energy_kwh) as facility_energy_kwh,
        sum(claimed_gpu_seconds)::double / 3600 as gpu_hours, max(method_version) as method_version
    from target.marts.model_monthly group by all
),
at_times as (
    select closed.month, closed.site, closings.closed_at as known_at, closed.facility_energy_kwh, closed.gpu_hours,
        closed.method_version
    from target.published.closed_months as closed join target.published.closings using (event)
    union all
    select month, site, adjusted_at, facility_energy_kwh, gpu_hours, method_version from target.published.adjustments
),
before as (
    select month, site, max_by(facility_energy_kwh, known_at) as facility_energy_kwh,
        max_by(gpu_hours, known_at) as gpu_hours, max_by(method_version, known_at) as method_version
    from at_times group by all
)
select known.*, case
    when known.method_version is distinct from before.method_version then 'method'
    when known.facility_energy_kwh is distinct from before.facility_energy_kwh
        or known.gpu_hours is distinct from before.gpu_hours then 'late data'
    else 'price'
end as reason
from known left join before using (month, site)
"""
_STATE = "facility_energy_kwh, gpu_hours, method_version"
# Of a part alone it may be known better.
_PART_REASON = "case when reason = 'price' and part = 'demand_charge' then 'peak of the month' else reason end"
# Why the publication restates the cost of a month, by site and, where that is asked, part: by what was recorded of its
# dates, which is better than what the month shows. Where nothing was recorded, the month's own state has to do.
_RESTATED = """
select month, case site when '__unknown__' then 'Unknown site' else site end as site, {part}
    array_to_string(list_sort(list_distinct(flatten(list(string_split(reason, ', '))))), ', ') as restated_reason
from target.published.restated_figures
where publication_id = ? and figure = 'cost' and reason <> 'not known'
group by all
"""
# View -> table, its keys beside month and site of which it is known why, reason and state of a row. Those of cost are
# last: they are what is known from then on.
_ADJUSTMENTS = (
    ("int_due_chargeback_adjustments", "chargeback_adjustments", "", "coalesce(restated_reason, reason)"),
    ("int_due_adjustments", "adjustments", "part", f"coalesce(restated_reason, {_PART_REASON}), {_STATE}"),
)


def write(
    connection: duckdb.DuckDBPyConnection,
    publication_id: str,
    published_at: datetime,
    uncompared: Collection[date] | None = None,
) -> None:
    """Bring what is appended to, adjust closed months that changed, and make the tables of schema finance anew in the
    attached `target`, by the views of the attached `warehouse`. Unless `uncompared` is None (nothing to compare with),
    find what the publication restates, and so why closed months are adjusted; these dates are not compared."""
    for appended in (closings, advice_history):
        appended.bring(connection, "warehouse.published", "target.published")
    if uncompared is not None:
        restatements.find(connection, publication_id, published_at, uncompared)
    _adjust(connection, publication_id, published_at)
    _make(connection)


def _adjust(connection: duckdb.DuckDBPyConnection, publication_id: str, published_at: datetime) -> None:
    due = _views(connection, "intermediate")
    if not {view for view, *_ in _ADJUSTMENTS} <= due.keys():  # no run has booked since there are closings
        return
    if connection.execute("select count(*) from target.published.closings").fetchall() == [(0,)]:
        return
    with _reading(connection):
        for view, table, key, more in _ADJUSTMENTS:
            restated = _RESTATED.format(part=f"{key}," if key else "")
            keys = ", ".join(filter(None, ("month", "site", key)))
            connection.execute(
                f"insert into target.published.{table} ({', '.join(closings.TABLES[table][1])})"
                f" select ?, ?::timestamptz, due.*, {more}"
                f" from ({due[view]}) as due left join ({_STATES}) as states using (month, site)"
                f" left join ({restated}) as restated using ({keys}) order by all",
                [publication_id, published_at, publication_id],
            ).fetchall()


def _make(connection: duckdb.DuckDBPyConnection) -> None:
    views = _views(connection, FINANCE)
    held = connection.execute(
        "select table_name from duckdb_tables() where database_name = 'target' and schema_name = ?", [FINANCE]
    ).fetchall()
    for name in {name for (name,) in held} - views.keys():
        connection.execute(f'drop table target.{FINANCE}."{name}"')
    if not views:
        return
    connection.execute(f"create schema if not exists target.{FINANCE}")
    with _reading(connection):
        for name, query in views.items():
            # In an order, so that what did not change has the same bytes.
            connection.execute(
                f'create or replace table target.{FINANCE}."{name}" as select * from ({query}) order by all'
            ).fetchall()
    made = published_tables.tables(connection, "target").values()
    published_tables.copy_comments(connection, [table for table in made if table.schema == FINANCE])


def _views(connection: duckdb.DuckDBPyConnection, schema: str) -> dict[str, str]:
    """Name -> query of the warehouse's views of a schema."""
    rows = connection.execute(
        "select view_name, sql from duckdb_views() where database_name = 'warehouse' and schema_name = ? order by all",
        [schema],
    ).fetchall()
    return {name: sql.partition(" AS ")[2].rstrip("; \n") for name, sql in rows}


@contextmanager
def _reading(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Names without a database are those of the publication."""
    before = connection.execute("select current_setting('search_path')").fetchall()[0][0]
    connection.execute(f"set search_path = '{','.join(_READ)}'")
    try:
        yield
    finally:
        connection.execute(f"set search_path = '{before}'")
