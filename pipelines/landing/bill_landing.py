"""raw.bills: the invoices and credits that the fleet file states, replaced whole each run.

Add here what has to hold for the bills of every file. Keep out what a bill may state (`pipelines.fleet.bills`) and what
it is compared with (cost_reconciliation_daily and _monthly).
"""

from __future__ import annotations

import duckdb

from collectors.rows import Rejects
from collectors.text_files import paths_of
from pipelines.fleet.fleet_file import Fleet
from pipelines.warehouse.raw_tables import columns_of


def write_bills(connection: duckdb.DuckDBPyConnection, fleet: Fleet) -> tuple[int, str | None]:
    """Replace raw.bills by the fleet's inline bills and files; returns rows, and which rows of the files were refused.
    SourceError names a file that cannot be read; the table is then as it was."""
    sites = [site.name for site in fleet.sites]
    rows = [bill.row("fleet file") for bill in fleet.bills.inline]
    rejected = []
    for file in fleet.bills.files:
        rejects = Rejects(file.limits.bad_rows_ratio)
        for path in paths_of(file.path):
            rows += [bill.row(path.rpartition("/")[2]) for bill in file.bills(path, sites, rejects)]
        rejects.check(file.path)
        rejected += [str(rejects)] if rejects.rows else []
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
