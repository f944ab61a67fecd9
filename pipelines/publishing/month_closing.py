"""Close a month and undo it: the command `close`.

A month is closed with the figures that readers see, those of the latest publication. Add here when a month may be
closed or opened again. Keep out the tables of closings (`pipelines.warehouse.closings`) and what is adjusted
afterwards: SQL (dbt_project/models/finance).
"""

from __future__ import annotations

import hashlib
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import duckdb
import pyarrow as pa

from pipelines.fleet.fleet_file import Fleet
from pipelines.publishing import restoring
from pipelines.publishing.focus import cost_and_usage
from pipelines.publishing.publication_manifest import DATABASE
from pipelines.warehouse import advice_history, closings, database, due_dates, sealed_dates
from pipelines.warehouse.raw_tables import create_tables
from pipelines.warehouse.refusals import QuestionError, nothing_published
from pipelines.warehouse.tenants import tenant_names

# Table of closings -> its columns beside `event`, in the publication.
_CLOSED_WITH = {
    "closed_costs": "select month, site, team, deployment, model, part, marts_key, closed_cost_usd, adjustment_usd"
    " from finance.cost",
    "closed_chargebacks": "select month, site, payer, tenant_key, model, marts_key, closed_cost_usd, adjustment_usd"
    " from finance.chargeback",
    "closed_months": "select month, site, sum(facility_energy_kwh), sum(claimed_gpu_seconds)::double / 3600,"
    " max(method_version) from marts.model_monthly group by month, site",
}


def close(fleet: Fleet, month: date) -> str:
    """Close the month with the figures of the latest publication; returns what to print. QuestionError where it cannot
    be closed: nothing is published, it is not booked to its end, a date is held back, or it is closed."""
    with (
        database.writing(fleet.warehouse, "close"),
        database.connect(fleet.warehouse) as connection,
        closing(_published(fleet)) as published,
    ):
        if "cost" not in database.tables(published, "finance"):
            raise QuestionError(f"{month:%Y-%m} cannot be closed: the publication is of an older version. Run first")
        take_back(fleet, connection)
        last = closings.last_event(connection, "published", month)
        if last is not None and last[1] == "closed":
            if _is_unseen(published, last, month):
                ((cost_usd,),) = connection.execute(
                    "select closed_cost_usd from published.closings where event = ?", [last[0]]
                ).fetchall()
                return _closed(month, cost_usd)
            raise QuestionError(f"{month:%Y-%m} is closed already: `close --undo {month:%Y-%m}` opens it")
        _check_whole(fleet, published, month)
        ((publication_id,),) = published.execute("select publication_id from published.publication").fetchall()
        ((cost_usd,),) = published.execute(
            "select sum(closed_cost_usd) from finance.cost where month = ?", [month]
        ).fetchall()
        if cost_usd is None:
            raise QuestionError(f"{month:%Y-%m} cannot be closed: it has no cost, because no price is known")
        focus = _focus_file(fleet, published, month)
        with database.transaction(connection):
            event = _next_event(connection)
            for table, query in _CLOSED_WITH.items():
                found = published.sql(f"from ({query}) where month = ?", params=[month]).to_arrow_table()
                with database.registered(connection, rows_closed=found):
                    connection.execute(f"insert into published.{table} select {event}, * from rows_closed").fetchall()
            _freeze(connection, event, month, focus)
            digest = closings.figures_hash(connection, "published", event)
            row = [event, month, "closed", datetime.now(UTC), publication_id, cost_usd, digest]
            connection.execute("insert into published.closings values (?, ?, ?, ?, ?, ?, ?)", row)
            _publish_again(connection, month)
    return _closed(month, cost_usd)


def undo(fleet: Fleet, month: date) -> str:
    """Open a closed month again; returns what to print. QuestionError where it is not closed, something refers to the
    closing (an adjustment of the month, or the closing of a later month), or no run can book the month anew."""
    with database.writing(fleet.warehouse, "close"), database.connect(fleet.warehouse) as connection:
        take_back(fleet, connection)
        last = closings.last_event(connection, "published", month)
        if last is not None and last[1] == "undone":
            with closing(_published(fleet)) as published:
                if _is_unseen(published, last, month):
                    return _opened(month)
        if last is None or last[1] != "closed":
            raise QuestionError(f"{month:%Y-%m} is not closed, so there is nothing to undo")
        ((adjusted,),) = connection.execute(
            "select count(*) from published.adjustments where month = ? and adjusted_at >"
            " (select closed_at from published.closings where event = ?)",
            [month, last[0]],
        ).fetchall()
        if adjusted:
            raise QuestionError(
                f"{month:%Y-%m} cannot be opened: {adjusted} rows of it were adjusted in a later month"
                " (published.adjustments), which people may have paid by"
            )
        later = connection.execute(
            "select month from (select month, max_by(action, event) as action from published.closings group by month)"
            " where action = 'closed' and month > ? order by month",
            [month],
        ).fetchall()
        if later:
            raise QuestionError(
                f"{month:%Y-%m} cannot be opened: {later[0][0]:%Y-%m} was closed after it. Undo that first"
            )
        sealed = [on for on in sealed_dates.of(connection) if on.replace(day=1) == month]
        if sealed:
            raise QuestionError(
                f"{month:%Y-%m} cannot be opened: {sealed_dates.described(sealed)}, and the raw of open months has to"
                " stay (retention.raw_days). What is booked later of its other dates is an adjustment of the next open"
                " month"
            )
        with database.transaction(connection):
            row = [_next_event(connection), month, "undone", datetime.now(UTC), None, None, None]
            connection.execute("insert into published.closings values (?, ?, ?, ?, ?, ?, ?)", row)
            _publish_again(connection, month)
    return _opened(month)


def _closed(month: date, cost_usd: Decimal) -> str:
    return f"{month:%Y-%m} is closed: {cost_usd:,.2f} USD, fully loaded"


def _opened(month: date) -> str:
    return f"{month:%Y-%m} is open again"


def _is_unseen(published: duckdb.DuckDBPyConnection, last: tuple[int, str], month: date) -> bool:
    """Whether readers do not see a month's newest event yet: its command was killed before it published."""
    has_any = "closings" in database.tables(published, "published")
    return not has_any or closings.last_event(published, "published", month) != last


def take_back(fleet: Fleet, connection: duckdb.DuckDBPyConnection) -> None:
    """Create the tables of closings and of past advice in the fleet's warehouse, with the rows that only the
    publication has: adjustments are found when it is made, and a warehouse may have been lost."""
    create_tables(connection)
    closings.create(connection)
    advice_history.create(connection)
    key = tenant_names.is_erasing(connection)
    if key is not None:
        raise QuestionError(
            f"the erasure of tenant {key} is not over: wattledger erase --fleet {fleet.path} --tenant {key}"
        )
    folder = fleet.latest_publication
    if folder is None:
        return
    connection.execute(f"attach {database.literal(folder / DATABASE)} as publication (read_only)")
    try:
        own = connection.execute("select current_database()").fetchall()[0][0]
        for appended in (closings, advice_history):
            appended.bring(connection, "publication.published", f"{own}.published")
    finally:
        connection.execute("detach publication")


def _focus_file(fleet: Fleet, published: duckdb.DuckDBPyConnection, month: date) -> bytes | None:
    """The FOCUS file of the month in the latest publication; None where nothing of the month has a price there.
    QuestionError where it was not written."""
    folder = fleet.latest_publication
    if folder is None or "focus_cost_and_usage" not in database.tables(published, "marts"):
        return None
    ((rows,),) = published.execute(
        "select count(*) from marts.focus_cost_and_usage where billing_month = ?", [month]
    ).fetchall()
    path = cost_and_usage.path_of(month).as_posix()
    manifest = restoring.checked(fleet.published, folder, suspects={path})
    if path in {file.path for file in manifest.focus}:
        return (folder / path).read_bytes()
    if rows:
        raise QuestionError(
            f"{month:%Y-%m} cannot be closed: {path} of the publication could not be written, and it is frozen with the"
            " month. Run again, then close; the check `every_part_is_made` has the reason"
        )
    return None


def _freeze(connection: duckdb.DuckDBPyConnection, event: int, month: date, focus: bytes | None) -> None:
    """Keep the FOCUS file of a month with its closing, line by line."""
    if focus is None:
        return
    lines = focus.decode().split("\n")
    frozen = pa.table({"line_number": pa.array(range(1, len(lines) + 1), pa.int32()), "line": lines})
    digest = hashlib.sha256(focus).hexdigest()
    with database.registered(connection, lines_frozen=frozen):
        connection.execute(
            "insert into published.closed_focus select ?, ?, line_number, line, ? from lines_frozen",
            [event, month, digest],
        ).fetchall()


def _published(fleet: Fleet) -> duckdb.DuckDBPyConnection:
    if not fleet.snapshot.exists():
        raise nothing_published(fleet.fleet, fleet.path)
    return database.connect(fleet.snapshot, read_only=True)


def _check_whole(fleet: Fleet, published: duckdb.DuckDBPyConnection, month: date) -> None:
    """QuestionError where a site's month is not booked to its end. Of the fleet's first month nothing can be booked
    before its first hour."""
    ((held_back,),) = published.execute(
        "select max(held_back_dates) from marts.model_monthly where month = ?", [month]
    ).fetchall()
    if held_back is not None:
        raise QuestionError(f"{month:%Y-%m} cannot be closed: {held_back} is held back (marts.held_back_dates)")
    found = published.execute(
        """
        with firsts as (select site, min(hour_start_at) as first_at from marts.site_power_hourly group by site)
        select site, any_value(first_at), sum(hour_seconds) / 3600
        from marts.site_power_hourly join firsts using (site) where billing_month = ? group by site order by site
        """,
        [month],
    ).fetchall()
    if not found:
        raise QuestionError(f"{month:%Y-%m} cannot be closed: no hour of it is booked")
    zones = {site.name: site.time_zone for site in fleet.sites}
    after = (month + timedelta(days=32)).replace(day=1)
    for site, first_at, booked_hours in found:
        zone = ZoneInfo(zones.get(site, "UTC"))
        begins_at, ends_at = (datetime(on.year, on.month, 1, tzinfo=zone).astimezone(UTC) for on in (month, after))
        hours = (ends_at - max(begins_at, first_at)).total_seconds() / 3600
        if booked_hours < hours - 1e-6:
            raise QuestionError(
                f"{month:%Y-%m} cannot be closed: {booked_hours:,.0f} of {hours:,.0f} hours of site {site} are booked."
                " Run the pipeline for the rest first"
            )


def _next_event(connection: duckdb.DuckDBPyConnection) -> int:
    ((event,),) = connection.execute("select coalesce(max(event), 0) + 1 from published.closings").fetchall()
    return int(event)


def _publish_again(connection: duckdb.DuckDBPyConnection, month: date) -> None:
    """Let the next publication be made although no date changed."""
    due_dates.mark(connection, due_dates.PUBLICATION, month, month + timedelta(days=1))
