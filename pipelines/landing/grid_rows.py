"""The rows of a file of grid intensity: which of its columns is what, and how long each value holds.

Add here what a format of such files needs. Keep out what a possible value is and what is held already
(`grid_landing`).
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from collectors.cells import shown
from collectors.rows import Rejects
from collectors.samples import SourceError
from collectors.text_files import csv_rows, is_parquet
from pipelines.fleet.grid_sources import INTENSITIES as VALUES
from pipelines.fleet.grid_sources import GridFile
from pipelines.landing.fleet_landing import quoted
from pipelines.warehouse import database

# The columns that have each row's number and place in its file.
_NTH, _PLACE = "number of the row", "place of the row"
# The header of an export, in lower case: its spelling changed over the years, and so did "(LCA)".
_EXPORT_COLUMNS = {
    "time": ("datetime (utc)",),
    "zone": ("zone id",),
    "direct_gco2e_per_kwh": ("carbon intensity gco₂eq/kwh (direct)",),
    "lifecycle_gco2e_per_kwh": ("carbon intensity gco₂eq/kwh (lca)", "carbon intensity gco₂eq/kwh (life cycle)"),
    "estimated": ("data estimated",),
}


def cells_of(file: GridFile, path: str, rejects: Rejects) -> tuple[pa.Table, dict[str, str]]:
    """The cells of the columns that are read of a file, with each row's place, and target -> its column. SourceError
    where a column is missing; a line that is no row is a reject."""
    if is_parquet(path):
        try:
            held = pq.read_table(path)
        except (pa.ArrowException, OSError, ValueError, TypeError, KeyError) as error:
            raise SourceError(path, None, f"cannot be read: {error}"[:500]) from error
        columns = _columns(file, path, held.column_names)
        places = pa.array([f"{path}, row {n}" for n in range(1, held.num_rows + 1)], pa.string())
        held = held.select(sorted({*columns.values()})).append_column(_PLACE, places)
        return held.append_column(_NTH, pa.array(range(held.num_rows), pa.int64())), columns
    present, rows = csv_rows(path, rejects)
    if not present and rejects.first:
        raise SourceError(path, None, rejects.first[0].removeprefix(f"{path}: "))
    columns = _columns(file, path, present)
    found = [(place, *(row.get(column) for column in columns.values())) for place, row in rows]
    cells = list(zip(*found, strict=True)) or [()] * (len(columns) + 1)
    by_name = dict(zip([_PLACE, *columns.values()], cells, strict=True))
    table = pa.table({name: pa.array(held, pa.string()) for name, held in by_name.items()})
    return table.append_column(_NTH, pa.array(range(table.num_rows), pa.int64())), columns


def rows_of(file: GridFile, columns: dict[str, str]) -> str:
    """The query that reads the rows of grid_file as raw.grid_intensity has them, with place and cells.

    A cell that is no number becomes NaN, which is rejected, and not NULL, which would be a missing hour.
    """
    time = f"try_cast({quoted(columns['time'])} as timestamptz)"
    century = f"{time} >= timestamptz '2000-01-01 00:00Z' and {time} < timestamptz '2100-01-01 00:00Z'"
    start_at = f"case when {century} then {time} end"
    values = [
        f"case when nullif(cast({quoted(columns[v])} as varchar), '') is not null"
        f" then coalesce(try_cast({quoted(columns[v])} as double), 'nan'::double) end as {v}"
        if v in columns
        else f"cast(null as double) as {v}"
        for v in VALUES
    ]
    zone = quoted(columns["zone"]) if "zone" in columns else database.literal(file.zone)
    estimated = f"try_cast({quoted(columns['estimated'])} as boolean)" if "estimated" in columns else "null::boolean"
    cells = ", ".join(f"left(cast({quoted(column)} as varchar), 40)" for column in columns.values())
    rows = (
        f"select {zone} as zone, {start_at} as start_at, {start_at} + interval {file.period_minutes} minute as end_at,"
        f" {', '.join(values)}, {estimated} as is_estimated, {quoted(_PLACE)} as place,"
        f" concat_ws(', ', {cells}) as cells, {quoted(_NTH)} as nth from grid_file"
    )
    return _hourly(rows) if file.format else rows


def _hourly(rows: str) -> str:
    """The query of an export's rows by the hour. The portal also has days, months and years: where no two rows are less
    than a day apart, each is the mean of its time up to the next one, and the last one is as long as the one before it.
    Each of its hours gets the mean, as an estimate."""
    return (
        f"with held as ({rows}),"
        " spans as (select distinct start_at, coalesce("
        "lead(start_at) over (order by start_at), start_at + (start_at - lag(start_at) over (order by start_at))"
        ") as next_at from (select distinct start_at from held where start_at is not null)),"
        " least as (select min(next_at - start_at) >= interval 1 day as is_coarse from spans),"
        " hours as (select start_at, unnest(range(start_at, next_at, interval 1 hour)) as hour_at from spans, least"
        " where is_coarse)"
        " select held.* replace (coalesce(hour_at, held.start_at) as start_at,"
        " coalesce(hour_at + interval 1 hour, end_at) as end_at, is_estimated or hour_at is not null as is_estimated)"
        " from held left join hours using (start_at)"
    )


def first_row(table: pa.Table, columns: dict[str, str]) -> str:
    """The columns that are read of a file, as its first row has them."""
    held = ", ".join(f"{column!r} {shown(table.column(column)[0].as_py())}" for column in columns.values())
    return f"the first row has {held}; expected a time such as 2026-10-01 00:00 (UTC) and 0 to 2500 g/kWh"


def _columns(file: GridFile, path: str, present: list[str]) -> dict[str, str]:
    """Target -> its column of a file; SourceError where one is missing."""
    columns = _export_columns(path, present) if file.format else _mapped_columns(file)
    missing = sorted({repr(column) for column in columns.values() if column not in present})
    if missing:
        raise SourceError(path, None, f"no column {', '.join(missing)}; there are {', '.join(map(repr, present))}")
    return columns


def _mapped_columns(file: GridFile) -> dict[str, str]:
    named = {"time": file.time, **file.values, "estimated": file.estimated}
    return {target: column for target, column in named.items() if column}


def _export_columns(path: str, present: list[str]) -> dict[str, str]:
    by_lower = {column.lower(): column for column in present}
    found = {}
    for target, spellings in _EXPORT_COLUMNS.items():
        known = [by_lower[spelling] for spelling in spellings if spelling in by_lower]
        if not known:
            there = ", ".join(map(repr, present))
            raise SourceError(
                path, None, f"not an export of Electricity Maps: no column {spellings[0]!r}; there are {there}"
            )
        found[target] = known[0]
    return found
