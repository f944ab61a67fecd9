"""raw.bills: the invoices and credits that the fleet file states, replaced whole each run.

Add here what has to hold for the bills of every file. Keep out what a bill may state (`pipelines.fleet.bills`) and what
it is compared with (cost_reconciliation_daily and _monthly).
"""

from __future__ import annotations

import duckdb

from collectors.samples import SourceError
from collectors.text_files import paths_of
from pipelines.fleet.fleet_file import Fleet
from pipelines.landing.fleet_landing import UnreadableFile
from pipelines.warehouse.raw_tables import columns_of


def write_bills(connection: duckdb.DuckDBPyConnection, fleet: Fleet) -> int:
    """Replace raw.bills by the fleet's inline bills and files; returns rows. UnreadableFile and UnreadableList name the
    file and what is wrong in it; the table is then as it was."""
    sites = [site.name for site in fleet.sites]
    rows = [bill.row("fleet file") for bill in fleet.bills.inline]
    for file in fleet.bills.files:
        try:
            paths = paths_of(file.path)
        except SourceError as refusal:
            raise UnreadableFile(str(refusal)) from refusal
        for path in paths:
            rows += [bill.row(path.rpartition("/")[2]) for bill in file.bills(path, sites)]
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
    return len(rows)
