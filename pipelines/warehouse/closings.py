"""Closed months: what they were closed with, what was adjusted since, and which published figures were restated.

These are primary data (`appended_tables`): nothing computes them again. Add here what holds for the eight tables. Keep
out what is adjusted or restated (dbt_project/models/finance, `pipelines.publishing`) and the command `close`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import date

import duckdb

from pipelines.warehouse import appended_tables
from pipelines.warehouse.refusals import QuestionError

_COST = {
    "site": ("varchar", "As in finance.cost."),
    "team": ("varchar", "As in finance.cost."),
    "deployment": ("varchar", "As in finance.cost."),
    "model": ("varchar", "As in finance.cost."),
    "part": ("varchar", "As in finance.cost."),
    "marts_key": ("varchar", "As in finance.cost."),
}
_CHARGEBACK = {
    "site": ("varchar", "As in finance.chargeback."),
    "payer": ("varchar", "As in finance.chargeback."),
    "tenant": ("varchar", "As tenant_key in finance.chargeback."),
    "model": ("varchar", "As in finance.chargeback."),
    "marts_key": ("varchar", "As in finance.chargeback."),
}
_MONEY = "decimal(28,12)"
_CLOSED = {
    "event": ("integer", "Number of the closing, as in closings."),
    "month": ("date", "First day of the month."),
}
_AMOUNT = {
    "closed_cost_usd": (_MONEY, "USD, fully loaded, as it was known when the month was closed."),
    "adjustment_usd": (_MONEY, "USD of it for earlier months, which the month got as adjustments."),
}
_ADJUSTED = {
    "publication_id": ("varchar", "Publication in which the change was found."),
    "adjusted_at": ("timestamptz", "When that was."),
    "month": ("date", "First day of the closed month that changed."),
    "booked_month": ("date", "First day of the open month that got the difference."),
}
_DIFFERENCE = {
    "adjustment_usd": (_MONEY, "USD, fully loaded: what is known now less what was known before."),
    "reason": (
        "varchar",
        "Why it changed, as in finance.restatements: `late data`, `price`, `fleet file`, `factor`, `peak of the month`"
        " or `method`, or several of them.",
    ),
}
# What the reason is found by: the month of the site as it was known.
_STATE = {
    "facility_energy_kwh": ("decimal(28,6)", "kWh of the site in the month, as known then. NULL: not metered."),
    "gpu_hours": ("double", "Claimed GPU-hours of the site in the month, as known then. NULL: none."),
    "method_version": ("varchar", "The method that they were booked by."),
}
_RESTATED = {
    "publication_id": ("varchar", "As in adjustments."),
    "restated_at": ("timestamptz", "As in finance.restatements, as all that follow."),
    "month": ("date", "First day of the month."),
    "date": ("date", "UTC date."),
    "site": ("varchar", "Site, as in the tables of schema marts."),
    "model": ("varchar", "Model, as in the tables of schema marts."),
    "figure": ("varchar", "What changed."),
    "part": ("varchar", "Part of the cost. NULL: the figure has none."),
    "unit": ("varchar", "`USD`, `kWh` or `kg`."),
    "before": (_MONEY, "In that unit. NULL: not known."),
    "after": (_MONEY, "In that unit. NULL: not known."),
    "change": (_MONEY, "In that unit."),
    "reason": ("varchar", "Why it changed."),
}
Columns = dict[str, tuple[str, str]]
TABLES: dict[str, tuple[str, Columns]] = {
    "closings": (
        "One row per closing of a month or undoing of one, in order. [evidence: finance]",
        {
            **_CLOSED,
            "action": ("varchar", "`closed` or `undone`."),
            "closed_at": ("timestamptz", "When the command was given."),
            "publication_id": ("varchar", "Publication whose figures the month was closed with. NULL: undone."),
            "closed_cost_usd": (_MONEY, "USD of the month, fully loaded. NULL: undone."),
            "figures_hash": ("varchar", "Digest of the keys and figures of closed_costs. NULL: undone."),
        },
    ),
    "closed_months": ("One row per closing and site. What was known of it. [evidence: finance]",
        {**_CLOSED, "site": ("varchar", "As in finance.months."), **_STATE}),
    "closed_costs": ("One row per closing and row of finance.cost. What it was closed with. [evidence: finance]",
        {**_CLOSED, **_COST, **_AMOUNT}),
    "closed_chargebacks": (
        "One row per closing and row of finance.chargeback. What it was closed with. [evidence: finance]",
        {**_CLOSED, **_CHARGEBACK, **_AMOUNT}),
    "closed_focus": (
        "One row per closing and line of the month's FOCUS file. What it was closed with. [evidence: finance]",
        {
            **_CLOSED,
            "line_number": ("integer", "From 1 on; the first line has the names of the columns."),
            "line": ("varchar", "The line, as the file has it."),
            "file_sha256": ("varchar", "SHA-256 of the whole file in hexadecimal digits, the same in each line."),
        }),
    "adjustments": (
        "One row per publication, closed month and row of finance.cost that changed since. [evidence: finance]",
        {**_ADJUSTED, **_COST, **_DIFFERENCE, **_STATE}),
    "chargeback_adjustments": (
        "One row per publication, closed month and row of finance.chargeback that changed since. [evidence: finance]",
        {**_ADJUSTED, **_CHARGEBACK, **_DIFFERENCE}),
    "restated_figures": (
        "One row per publication and published figure of a date that it changed. [evidence: finance]", _RESTATED),
}  # fmt: skip


class ClosingsLost(QuestionError):
    """A closing is missing, or its figures are not those that the month was closed with."""


def create(connection: duckdb.DuckDBPyConnection, at: str = "published") -> None:
    """Create the tables where they are missing, in the schema `at`."""
    appended_tables.create(connection, TABLES, at)


def bring(connection: duckdb.DuckDBPyConnection, source: str, target: str) -> None:
    """Append to the tables of the schema `target` the rows of `source` that they lack. ClosingsLost where the result
    has a gap, or other figures than the month was closed with."""
    if appended_tables.bring(connection, TABLES, source, target):
        for line in _wrong(connection, target):
            raise ClosingsLost(line)


def figures_hash(connection: duckdb.DuckDBPyConnection, at: str, event: int) -> str | None:
    """The digest of the keys and figures of a closing; of no names. None where it has no row."""
    rows = connection.execute(
        "select md5(string_agg(marts_key || chr(10) || part || chr(10) || closed_cost_usd::varchar, chr(10)"
        f" order by marts_key, part)) from {at}.closed_costs where event = ?",
        [event],
    ).fetchall()
    digest: str | None = rows[0][0]
    return digest


def frozen_files(connection: duckdb.DuckDBPyConnection, of: str) -> dict[date, str]:
    """The closed months of an attached database that have a frozen FOCUS file, each with the file's SHA-256."""
    if not {"closings", "closed_focus"} <= appended_tables.held(connection, TABLES, f"{of}.published"):
        return {}
    rows = connection.execute(
        "select closed.month, max(file_sha256) from (select month, max_by(action, event) as action, max(event) as event"
        f" from {of}.published.closings group by month) as closed join {of}.published.closed_focus using (event)"
        " where action = 'closed' group by closed.month order by closed.month"
    ).fetchall()
    return dict(rows)


def frozen_file(connection: duckdb.DuckDBPyConnection, of: str, month: date) -> bytes:
    """The FOCUS file that a month was closed with, of an attached database. ClosingsLost where it is another one."""
    ((event, text, digest),) = connection.execute(
        "select max(event), string_agg(line, chr(10) order by line_number), max(file_sha256)"
        f" from {of}.published.closed_focus where event = (select max(event) from {of}.published.closings"
        " where month = ?)",
        [month],
    ).fetchall()
    content = str(text).encode()
    if hashlib.sha256(content).hexdigest() != digest:
        raise ClosingsLost(_other_file(month, event))
    return content


def _other_file(month: date, event: int) -> str:
    return (
        f"{month:%Y-%m} was closed with another FOCUS file than closing {event} has now: lines of it are missing or"
        " changed. Restore the warehouse or the publication from a backup (docs/operations.md)"
    )


def last_event(connection: duckdb.DuckDBPyConnection, at: str, month: date) -> tuple[int, str] | None:
    """The newest event of a month and its action; None where it was never closed."""
    rows = connection.execute(
        f"select event, action from {at}.closings where month = ? order by event desc limit 1", [month]
    ).fetchall()
    return rows[0] if rows else None


def _wrong(connection: duckdb.DuckDBPyConnection, at: str) -> Iterator[str]:
    lacking = connection.execute(
        f"select event, any_value(month) from {at}.closed_focus group by event having count(*) <> max(line_number)"
    )
    for event, month in lacking.fetchall():
        yield _other_file(month, event)
    events = connection.execute(f"select event, month, action, figures_hash from {at}.closings order by event")
    for number, (event, month, action, digest) in enumerate(events.fetchall(), start=1):
        if event != number:
            yield (
                f"closing {number} is missing: neither the warehouse nor the publication has it. Restore one of them"
                " from a backup (docs/operations.md)"
            )
        elif action == "closed" and figures_hash(connection, at, event) != digest:
            yield (
                f"{month:%Y-%m} was closed with other figures than closing {event} has now: rows of it are missing or"
                " changed. Restore the warehouse or the publication from a backup (docs/operations.md)"
            )
