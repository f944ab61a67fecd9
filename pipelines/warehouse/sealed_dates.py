"""Sealed dates: booked dates that no run can book again, because samples that their booking reads were removed.

They are the oldest ones, without a hole: every booked date before the first open one. Their rows stay as they are,
through every upgrade: a column that is new since is NULL in them, and a mart that is new begins with the open dates.
Add here what follows from a date being sealed for whoever writes the warehouse. Keep out when a date may be sealed and
what is removed then (`pipelines.upkeep`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import date, timedelta

import duckdb

from pipelines.warehouse import database
from pipelines.warehouse.contracts import Mart
from pipelines.warehouse.refusals import QuestionError

# Of a mart, by what a run replaces of it: the rows that no run of open dates makes again, `{open}` being the first of
# them. As `in_run` and its like have it (dbt_project/macros/booked_dates.sql); a mart that every run makes whole has
# none.
_KEPT = {
    "dates": "date < {open}",
    "windows": "end_at <= cast({open} as timestamptz)",
    "months": "month < date_trunc('month', {open} - interval 1 day)",
    "billing_months": "billing_month < date_trunc('month', {open} - interval 1 day)",
    "billing_months_of_lookback": "billing_month < date_trunc('month', {open} - interval 1 day)",
}
# The same for a mart or a column that is new: months with a sealed date would be sums of a part of their dates.
_WITHOUT = {
    "months": "month < {open}",
    "billing_months": "billing_month < {open}",
    "billing_months_of_lookback": "billing_month < {open}",
}


def of(connection: duckdb.DuckDBPyConnection) -> list[date]:
    """The sealed dates, in order."""
    if "sealed_dates" not in database.tables(connection, "raw"):
        return []  # a warehouse of an older version, which is only read
    return [on for (on,) in connection.execute("select date from raw.sealed_dates order by date").fetchall()]


def open_from(connection: duckdb.DuckDBPyConnection) -> date:
    """The first date that may be booked; the first of all dates where none is sealed."""
    sealed = of(connection)
    return sealed[-1] + timedelta(days=1) if sealed else date.min


def described(sealed: Sequence[date]) -> str:
    """What a person reads about them."""
    if len(sealed) == 1:
        return f"{sealed[0]} is sealed: its samples were removed (`retention`), so its rows stay as they were booked"
    return (
        f"{sealed[0]} to {sealed[-1]} are sealed: their samples were removed (`retention`), so their rows stay as they"
        " were booked"
    )


def clipped(connection: duckdb.DuckDBPyConnection, start: date, end: date) -> tuple[date, date]:
    """The open dates of [start, end). QuestionError where all are sealed."""
    sealed = of(connection)
    if sealed and end <= sealed[-1] + timedelta(days=1):
        raise QuestionError(f"nothing to book: {described(sealed)}")
    return max(start, sealed[-1] + timedelta(days=1)) if sealed else start, end


def seal(connection: duckdb.DuckDBPyConnection, booked: Collection[date], open_date: date) -> list[date]:
    """Seal the booked dates before `open_date`; returns those that were open. In the caller's transaction."""
    fresh = sorted({on for on in booked if on < open_date} - {*of(connection)})
    if fresh:
        connection.execute(
            "insert into raw.sealed_dates select unnest(cast(? as date[])), current_timestamp", [fresh]
        ).fetchall()
    return fresh


def kept_rows(mart: Mart, open_date: date) -> str:
    """As SQL, which rows of a mart stay when its table is made anew: those that no run of open dates makes."""
    condition = _KEPT.get(mart.replaces, "false")
    return condition.format(open=f"date '{open_date.isoformat()}'")


def note_new(connection: duckdb.DuckDBPyConnection, mart: str, columns: Collection[str]) -> None:
    """Remember that a mart has these columns, or without columns the whole mart, only since the first open date. In the
    caller's transaction."""
    since = open_from(connection)
    for column in columns or ("",):
        connection.execute(
            "insert into raw.columns_since select ?, ?, ? where not exists"
            " (from raw.columns_since where mart = ? and column_name = ?)",
            [mart, column, since, mart, column],
        ).fetchall()


def clear_partial(connection: duckdb.DuckDBPyConnection, marts: Mapping[str, Mart]) -> None:
    """Leave no month that a new column, or a new mart, knows in part: a month with a sealed date has only the hours
    that an open UTC date has of it."""
    rows = connection.execute("select mart, column_name, since from raw.columns_since order by all").fetchall()
    for name, column, since in rows:
        if name not in marts or marts[name].replaces not in _WITHOUT:
            continue
        where = _WITHOUT[marts[name].replaces].format(open=f"date '{since.isoformat()}'")
        if column:
            connection.execute(f'update marts."{name}" set "{column}" = null where {where}').fetchall()
        else:
            connection.execute(f'delete from marts."{name}" where {where}').fetchall()
