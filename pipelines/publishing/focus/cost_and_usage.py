"""focus/cost_and_usage_<billing month>.csv: the columns of FOCUS 1.2, and `x_` ones of our own.

Add here how a column is written for FOCUS. Keep out what it means (marts.focus_cost_and_usage) and other files
(`published_files`).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from functools import partial
from pathlib import Path

import duckdb
from duckdb.func import PythonUDFType
from duckdb.sqltypes import VARCHAR

from pipelines.publishing import publication_manifest, published_files, published_tables, spreadsheet_cells
from pipelines.publishing.parts import Parts
from pipelines.publishing.publication_manifest import File, Manifest
from pipelines.publishing.published_files import Dates
from pipelines.publishing.published_tables import Table

TABLE = ("marts", "focus_cost_and_usage")
# How the table is kept here; FOCUS has neither of them.
NOT_OF_FOCUS = frozenset({"date", "billing_month"})


def path_of(month: date) -> Path:
    """Where a publication has the FOCUS file of a billing month."""
    return Path("focus", f"cost_and_usage_{month:%Y-%m}.csv")


def months(connection: duckdb.DuckDBPyConnection, of: str) -> list[date]:
    """The billing months that have a file, of an attached database, in order; none where it lacks the table."""
    table = published_tables.tables(connection, of).get(TABLE)
    if table is None:
        return []
    rows = connection.execute(f"select distinct billing_month from {of}.{table} order by 1").fetchall()
    return [month for (month,) in rows]


def write(
    connection: duckdb.DuckDBPyConnection,
    building: Path,
    previous: tuple[Path, Manifest] | None,
    dates: Dates,
    same: set[str],
    *,
    parts: Parts,
) -> tuple[File, ...]:
    """Write focus/cost_and_usage_<month>.csv for each billing month, with the columns of FOCUS 1.2 and `x_` ones;
    returns the files.

    A month that cannot be written has no file, and a line of `parts`; the next publication writes it. Months
    that the run did not restate are the files of the previous publication.
    """
    first, last = published_tables.restated_months(*dates)
    kept = {}
    if previous is not None and str(Table(*TABLE, ())) in same:
        kept = {file.on: file for file in previous[1].focus if file.on is not None and not first <= file.on <= last}
    files: list[File | None] = []
    for month in months(connection, "target"):
        if previous is not None and month in kept:
            files.append(published_files.share_listed(previous[0], kept[month], building))
        else:
            files.append(
                parts.attempt(
                    f"file {path_of(month)}",
                    partial(export, connection, "target", building, month),
                    partial(_removed, building / path_of(month)),
                )
            )
    return tuple(file for file in files if file is not None)


def export(connection: duckdb.DuckDBPyConnection, of: str, folder: Path, month: date, *, name: str = "") -> File:
    """Write the FOCUS file of a billing month from an attached database; with another `name`, there.

    A text that a spreadsheet would run has an apostrophe in front (`spreadsheet_cells`).
    """
    table = published_tables.tables(connection, of)[TABLE]
    path = path_of(month)
    path = path.with_name(name) if name else path
    listed = ", ".join(_written(column, kind) for column, kind in table.columns if column not in NOT_OF_FOCUS)
    query = (
        f"select {listed} from {of}.{table} where billing_month = date '{month.isoformat()}'"
        f" order by {', '.join(['date', *_ordered(table)])}"
    )
    connection.create_function(
        "harmless", spreadsheet_cells.harmless_column, [VARCHAR], VARCHAR, type=PythonUDFType.ARROW
    )
    try:
        rows = published_files.copy(connection, query, folder / path, "format csv, header")
    finally:
        connection.remove_function("harmless")
    return publication_manifest.file_of(folder, path.as_posix(), rows, month)


def _written(name: str, kind: str) -> str:
    """A column as FOCUS writes it: times are UTC with a Z, texts do nothing in a spreadsheet."""
    if kind == "VARCHAR":
        return f'harmless("{name}") as "{name}"'
    if kind != "TIMESTAMP WITH TIME ZONE":
        return f'"{name}"'
    return f"strftime(\"{name}\" at time zone 'UTC', '%Y-%m-%dT%H:%M:%SZ') as \"{name}\""


def _ordered(table: Table) -> Iterator[str]:
    """The columns that name a row, as far as the table has them: the same rows make the same file."""
    names = {name for name, _ in table.columns}
    for name in ("BillingAccountId", "x_Deployment", "x_Model", "x_DeviceType", "x_MeterScope", "x_Role", "SkuPriceId"):
        if name in names:
            yield f'"{name}"'


def _removed(path: Path, _: str) -> None:
    """No file, in place of one that is half written."""
    path.unlink(missing_ok=True)
