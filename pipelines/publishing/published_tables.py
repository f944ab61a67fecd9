"""The tables of a publication: brought from the warehouse into the DuckDB file that readers open.

Add here what a table needs on its way. Keep out folders, Parquet files and the switch from one publication to the next:
that is `publication`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date, timedelta

import duckdb

from pipelines.warehouse import advice_history, closings, database
from pipelines.warehouse.database import literal, transaction

# Schemas that are brought from the warehouse as they are, and all that a publication has.
BROUGHT = ("marts", "published")
FINANCE = "finance"
SCHEMAS = (*BROUGHT, FINANCE)
# DuckDB 2's own format cannot be read by drivers of 1.x, which most BI tools still carry.
STORAGE_VERSION = "v1.0.0"
# Tables of intervals or hours grow by thousands of rows a day: one Parquet file per date, linked while untouched.
FINE_GRAINED = frozenset({"interval_start_at", "hour_start_at"})
# Of rows that are called `t`: differs where they do, in whatever order they are.
ROWS_HASHED = "format('{} {} {}', count(*), bit_xor(hash(t)), sum(cast(hash(t) as hugeint)))"
# They are appended to (finance_tables), never replaced.
APPENDED = frozenset({*closings.TABLES, *advice_history.TABLES})
# They have a `date`, but describe the whole publication.
WHOLE = frozenset({"held_back_dates"})


@dataclass(frozen=True)
class Table:
    """A table of a database, with the name and type of each column."""

    schema: str
    name: str
    columns: tuple[tuple[str, str], ...]

    @property
    def is_dated(self) -> bool:
        """Whether a run changes the rows of its own dates only. Windows may begin on the date before, and tables with
        `as_of_date` change whole."""
        names = {name for name, _ in self.columns}
        return self.name not in WHOLE and "date" in names and not names & {"end_at", "as_of_date"}

    @property
    def is_fine_grained(self) -> bool:
        """Whether it has a row per interval or hour."""
        return self.is_dated and any(name in FINE_GRAINED for name, _ in self.columns)

    @property
    def is_restated_by_month(self) -> bool:
        """Whether a run changes all dates of its billing months: a demand charge follows the month's highest load."""
        return self.is_dated and not self.is_fine_grained and any(name == "billing_month" for name, _ in self.columns)

    def __str__(self) -> str:
        return f'"{self.schema}"."{self.name}"'


def tables(connection: duckdb.DuckDBPyConnection, database: str) -> dict[tuple[str, str], Table]:
    """The tables of an attached database, by schema and name. It reads all columns of all attached databases, 20 ms of
    a thousand columns; `database.tables` has the names alone for less."""
    rows = connection.execute(
        """
        select schema_name, table_name, list({name: column_name, type: data_type} order by column_index)
        from duckdb_columns()
        where database_name = ? and list_contains(?, schema_name) group by all order by all
        """,
        [database, list(SCHEMAS)],
    ).fetchall()
    found = (Table(schema, name, tuple((c["name"], c["type"]) for c in columns)) for schema, name, columns in rows)
    return {(table.schema, table.name): table for table in found if table.name != "publication"}


def publication_table(connection: duckdb.DuckDBPyConnection, database: str) -> Table:
    """The table `publication` of an attached database: one row about the publication itself."""
    columns = connection.execute(
        "select column_name, data_type from duckdb_columns() where database_name = ?"
        " and schema_name = 'published' and table_name = 'publication' order by column_index",
        [database],
    ).fetchall()
    return Table("published", "publication", tuple(columns))


def comments(connection: duckdb.DuckDBPyConnection, database: str) -> dict[tuple[str, str], dict[str, str]]:
    """The descriptions of each table's columns, in an attached database; that of the table itself has the name ''."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for schema, table, column, comment in connection.execute(
        """
        select schema_name, table_name, '', comment from duckdb_tables()
        where database_name = $1 and comment is not null
        union all
        select schema_name, view_name, '', comment from duckdb_views()
        where database_name = $1 and comment is not null
        union all
        select schema_name, table_name, column_name, comment from duckdb_columns()
        where database_name = $1 and comment is not null
        """,
        [database],
    ).fetchall():
        found.setdefault((schema, table), {})[column] = comment
    return found


def replace_tables(
    connection: duckdb.DuckDBPyConnection, start: date, end: date, held_back: Collection[date]
) -> set[str]:
    """Bring the target's tables up to date; returns the tables in which only the dates [start, end), or their billing
    months, changed.

    Dates that are held back keep the target's rows; new columns are NULL in them.
    """
    source, target = (
        {
            key: table
            for key, table in tables(connection, of).items()
            if table.schema in BROUGHT and table.name not in APPENDED
        }
        for of in ("warehouse", "target")
    )
    for schema in BROUGHT:
        connection.execute(f"create schema if not exists target.{schema}")
    for key in target.keys() - source.keys():
        connection.execute(f"drop table target.{target[key]}")
    same = set()
    for key, table in source.items():
        if target.get(key) == table and table.is_dated:
            same.add(str(table))
            span = [start, end, sorted(held_back)]
            chosen = "where date >= ? and date < ? and not list_contains(?, date)"
            if table.is_restated_by_month:
                span = [*restated_months(start, end), sorted(held_back)]
                chosen = "where billing_month between ? and ? and not list_contains(?, date)"
            connection.execute(f"delete from target.{table} {chosen}", span).fetchall()
            connection.execute(f"insert into target.{table} select * from warehouse.{table} {chosen}", span).fetchall()
            continue
        kept = bool(held_back) and key in target and table.is_dated and target[key].is_dated
        if kept:
            _keep_rows(connection, target[key], table, held_back)
        chosen = f"where not list_contains({_listed(held_back)}, date)" if kept else ""
        connection.execute(
            f"create or replace table target.{table} as select * from warehouse.{table} {chosen}"
        ).fetchall()
        if kept:
            connection.execute(f"insert into target.{table} by name select * from rows_kept").fetchall()
            connection.execute("drop table rows_kept").fetchall()
    copy_comments(connection, source.values())
    return same


def restated_months(start: date, end: date) -> tuple[date, date]:
    """The first and last billing month of which a run of the dates [start, end) makes rows (in_run_months of the dbt
    project): a site's month may begin before the UTC date does, or end after it."""
    return (start - timedelta(days=1)).replace(day=1), end.replace(day=1)


def _keep_rows(connection: duckdb.DuckDBPyConnection, old: Table, new: Table, held_back: Collection[date]) -> None:
    """Copy the target's rows of these dates into rows_kept, with the columns that the new table also has."""
    names = {name for name, _ in new.columns}
    common = ", ".join(f'"{name}"' for name, _ in old.columns if name in names)
    connection.execute(
        f"create or replace temp table rows_kept as select {common} from target.{old}"
        f" where list_contains({_listed(held_back)}, date)"
    ).fetchall()


def _listed(dates: Collection[date]) -> str:
    return "[" + ", ".join(f"date '{on.isoformat()}'" for on in sorted(dates)) + "]"


def copy_comments(connection: duckdb.DuckDBPyConnection, published: Collection[Table]) -> None:
    """Give the target's tables the descriptions of the dbt project that they lack or that changed, in one commit."""
    wanted, held = comments(connection, "warehouse"), comments(connection, "target")
    with transaction(connection):
        for table in published:
            known = held.get((table.schema, table.name), {})
            for column, comment in wanted.get((table.schema, table.name), {}).items():
                if known.get(column) != comment:
                    what = f'column target.{table}."{column}"' if column else f"table target.{table}"
                    connection.execute(f"comment on {what} is {literal(comment)}")


def has_dates(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether the warehouse has a row of any date."""
    return any(
        connection.execute(f"select count(*) from warehouse.{table}").fetchall() != [(0,)]
        for table in tables(connection, "warehouse").values()
        if table.is_dated
    )


def published_dates(connection: duckdb.DuckDBPyConnection) -> list[date]:
    """The dates of the publication under way."""
    if "model_daily" not in database.tables(connection, "marts", "target"):
        return []
    return [on for (on,) in connection.execute("select distinct date from target.marts.model_daily").fetchall()]


def row_counts(connection: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """Rows per table of the publication under way."""
    return {
        f"{table.schema}.{table.name}": connection.execute(f"select count(*) from target.{table}").fetchall()[0][0]
        for table in tables(connection, "target").values()
    }
