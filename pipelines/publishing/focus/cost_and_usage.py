"""focus/cost_and_usage_<billing month>.csv: the columns of FOCUS 1.2, and `x_` ones of our own.

The file of a closed month is the one that it was closed with, for ever; what changed since is in the file of the month
that got it, as corrections. Add here how a column is written for FOCUS. Keep out what it means
(marts.focus_cost_and_usage) and other files (`published_files`).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from datetime import date
from functools import partial
from pathlib import Path

import duckdb
from duckdb.func import PythonUDFType
from duckdb.sqltypes import VARCHAR

from pipelines.publishing import publication_manifest, published_files, published_tables, spreadsheet_cells
from pipelines.publishing.parts import STOPS, Parts
from pipelines.publishing.publication_manifest import File, Manifest
from pipelines.publishing.published_files import Dates
from pipelines.publishing.published_tables import Table
from pipelines.warehouse import closings, database

TABLE = ("marts", "focus_cost_and_usage")
CORRECTIONS = ("finance", "focus_corrections")
# How the table is kept here; FOCUS has neither of them.
NOT_OF_FOCUS = frozenset({"date", "billing_month"})


def path_of(month: date) -> Path:
    """Where a publication has the FOCUS file of a billing month."""
    return Path("focus", f"cost_and_usage_{month:%Y-%m}.csv")


def months(connection: duckdb.DuckDBPyConnection, of: str) -> list[date]:
    """The billing months that have a file, of an attached database, in order; none where it lacks the table."""
    found = set(closings.frozen_files(connection, of))
    tables = published_tables.tables(connection, of)
    if TABLE not in tables:
        return sorted(found)
    rows = connection.execute(f"select distinct billing_month from {of}.{tables[TABLE]}").fetchall()
    return sorted(found | {month for (month,) in rows} | _corrected(connection, of))


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
    that the run did not restate and that got no correction are the files of the previous publication; so are closed
    months, restated or not. ClosingsLost where the file that a month was closed with is lost or changed.
    """
    frozen = closings.frozen_files(connection, "target")
    corrected = _corrected(connection, "target")
    first, last = published_tables.restated_months(*dates)
    kept = {}
    for file in () if previous is None else previous[1].focus:
        if file.on is None:
            continue
        if file.on in frozen:
            is_same = file.sha256 == frozen[file.on]
        else:
            is_restated = first <= file.on <= last or file.on in corrected
            is_same = str(Table(*TABLE, ())) in same and not is_restated
        if is_same:
            kept[file.on] = file
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
                    stops=(*STOPS, closings.ClosingsLost),
                )
            )
    return tuple(file for file in files if file is not None)


def export(connection: duckdb.DuckDBPyConnection, of: str, folder: Path, month: date, *, name: str = "") -> File:
    """Write the FOCUS file of a billing month from an attached database; with another `name`, there.

    A text that a spreadsheet would run has an apostrophe in front (`spreadsheet_cells`).
    """
    path = path_of(month)
    path = path.with_name(name) if name else path
    if month in closings.frozen_files(connection, of):
        return _thawed(folder, path, closings.frozen_file(connection, of, month), month)
    tables = published_tables.tables(connection, of)
    table = tables[TABLE]
    rows_of_month = f"select * from {of}.{table} where billing_month = date '{month.isoformat()}'"
    if CORRECTIONS in tables:
        rows_of_month += (
            f" union all by name select *, month as date from {of}.{tables[CORRECTIONS]}"
            f" where booked_month = date '{month.isoformat()}'"
        )
    listed = ", ".join(_written(column, kind) for column, kind in table.columns if column not in NOT_OF_FOCUS)
    query = f"select {listed} from ({rows_of_month}) order by {', '.join(['date', *_ordered(table)])}"
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
    for name in (
        *("BillingAccountId", "x_Deployment", "x_Model", "x_DeviceType", "x_MeterScope", "x_Role", "SkuPriceId"),
        *("x_Part", "ChargeDescription", "EffectiveCost"),
    ):
        if name in names:
            yield f'"{name}"'


def _corrected(connection: duckdb.DuckDBPyConnection, of: str) -> set[date]:
    """The billing months that got corrections, of an attached database."""
    if CORRECTIONS[1] not in database.tables(connection, CORRECTIONS[0], of):
        return set()
    rows = connection.execute(f"select distinct booked_month from {of}.{Table(*CORRECTIONS, ())}").fetchall()
    return {month for (month,) in rows}


def _thawed(folder: Path, path: Path, content: bytes, month: date) -> File:
    """Write the file that a month was closed with."""
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_bytes(content)
    rows = sum(1 for _ in csv.reader(io.StringIO(content.decode(), newline=""))) - 1
    return publication_manifest.file_of(folder, path.as_posix(), rows, month)


def _removed(path: Path, _: str) -> None:
    """No file, in place of one that is half written."""
    path.unlink(missing_ok=True)
