"""raw.bills: the invoices and credits that the fleet file states, replaced whole each run.

Add here what has to hold for the bills of every file. Keep out what a bill may state (`pipelines.fleet.money.bills`)
and what it is compared with (cost_reconciliation_daily and _monthly).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import duckdb

from collectors.rows import Rejects
from collectors.samples import SourceError
from collectors.text_files import paths_of
from pipelines.fleet.fleet_file import Fleet
from pipelines.fleet.plausibility import odd_imported_rates
from pipelines.warehouse.raw_tables import columns_of

logger = logging.getLogger(__name__)


def write_bills(connection: duckdb.DuckDBPyConnection, fleet: Fleet) -> tuple[int, str | None]:
    """Replace raw.bills by the fleet's inline bills, files and FOCUS exports; returns rows, and which rows of the files
    were refused and which rates of an export are odd. SourceError names a file that cannot be read, or an export of
    what is billed already; the table is then as it was."""
    sites = [site.name for site in fleet.sites]
    rows = [bill.row("fleet file") for bill in fleet.bills.inline]
    rejected = []
    for file in fleet.bills.files:
        rejects = Rejects(file.limits.bad_rows_ratio)
        for path in paths_of(file.path):
            rows += [bill.row(path.rpartition("/")[2]) for bill in file.bills(path, sites, rejects)]
        rejects.check(file.path)
        rejected += [str(rejects)] if rejects.rows else []
    for n, export in enumerate(fleet.focus_exports):
        figures = export.figures()
        exported = [bill.row(f"focus_exports[{n}]") for bill in figures.bills()]
        _check_once(export.path, rows, exported)
        rows += exported
        rejected += [figures.rejected] if figures.rejected else []
        rejected += [str(odd) for odd in odd_imported_rates(fleet, n, figures.rates())]
        if str(figures):
            logger.info("%s", figures)
    columns = columns_of("raw", "bills")
    connection.execute("begin")
    try:
        connection.execute("delete from raw.bills").fetchall()
        if rows:
            places = ", ".join("?" for _ in columns)
            connection.executemany(
                f"insert into raw.bills values ({places})", [[row[column] for column in columns] for row in rows]
            )
        connection.execute("commit")
    except BaseException:
        connection.execute("rollback")
        raise
    return len(rows), "; ".join(rejected) or None


def _check_once(path: str, held: Iterable[Mapping[str, Any]], exported: Iterable[Mapping[str, Any]]) -> None:
    """SourceError where a FOCUS export bills a time that is billed already, by the fleet file or another export."""
    billed = list(held)
    for bill in exported:
        for other in billed:
            if (
                (other["site"], other["kind"]) == (bill["site"], bill["kind"])
                and other["start_at"] < bill["end_at"]
                and bill["start_at"] < other["end_at"]
            ):
                raise SourceError(
                    path,
                    None,
                    f"{bill['kind']} of {bill['site']} for {bill['start_at']:%Y-%m} is billed by {other['source']}"
                    " already, expected each month once: leave one of them out, or bills out of `reads`",
                )
