"""Record batches of CSV and Parquet files: the columns that a mapping names, in bounded memory.

Add here what a file's format demands. Keep out what the columns mean (`mapped_files`) and their cells (`cells`).
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from collectors import cells
from collectors.cells import NO_TIME
from collectors.formats.layouts import LAYOUTS, measured
from collectors.protocols.mapped_files import FileMapping, MappedFile
from collectors.samples import SourceError, Window
from collectors.text_files import WholeLines, is_parquet

CSV_BLOCK_BYTES = 8 << 20
HEADER_CHARACTERS = 1 << 16
HEADER_BYTES = 4 * HEADER_CHARACTERS
PARQUET_BATCH_ROWS = 1 << 18

_LABEL = pa.dictionary(pa.int32(), pa.string())


def record_batches(file: MappedFile) -> Iterator[pa.RecordBatch]:
    """The mapped columns of a file by their names in the mapping, some rows at a time. SourceError where a column is
    missing, or the file is damaged behind what was given; what else goes wrong is raised as Arrow has it."""
    layout = file.mapping.layout
    if layout in LAYOUTS:
        return (rows for rows in LAYOUTS[layout](file) if rows.num_rows)
    if is_parquet(file.path):
        return _parquet_batches(file)
    if layout != "csv":
        return _csv_batches(file)
    rows_of_log = (measured(_without_headers(held, file.mapping.time), file) for held in _csv_batches(file))
    return (rows for rows in rows_of_log if rows.num_rows)


def _found_columns(file: MappedFile, present: Sequence[str]) -> dict[str, str]:
    """Column of the mapping -> the file's own, which may have spaces around it; SourceError where one is missing."""
    for column in file.mapping.columns:
        if present.count(column) > 1:
            raise SourceError(
                file.path, None, f"column {column!r} is there {present.count(column)} times, expected once"
            )
    by_bare_name = {name.strip(): name for name in reversed(present)}
    found: dict[str, str] = {}
    for column in file.mapping.columns:
        name = column if column in present else by_bare_name.get(column)
        if name is None:
            raise SourceError(file.path, None, f"no column {column!r}; there are {', '.join(map(repr, present))}"[:500])
        found[column] = name
    return found


def _csv_batches(file: MappedFile) -> Iterator[pa.RecordBatch]:
    path, mapping = file.path, file.mapping
    with _lines_of(file) as text:
        opening = text.read(HEADER_BYTES).decode("utf-8-sig", "replace")
    if not opening and text.damage is not None:
        raise SourceError(path, None, f"cannot be read: {text.damage}")
    separator = _separator(opening)
    file.present = _header(path, opening, separator)
    file.columns = _found_columns(file, file.present)

    def skip(row: pa_csv.InvalidRow) -> str:
        got = f"{cells.shown(row.text)} has {row.actual_columns} fields, expected {row.expected_columns}"
        file.register.rejects.add(path if row.number is None else f"{path}:{row.number}", got)
        return "skip"

    # Everything is read as text: one bad cell must lose its row, not the file.
    names = file.columns
    types = {names[c]: _LABEL if c in mapping.text_columns else pa.string() for c in mapping.columns}
    spaced = [c for c in mapping.text_columns if names[c] != c and names[c].startswith(" ")]
    with (
        _lines_of(file) as whole,
        pa_csv.open_csv(
            pa.PythonFile(whole, "r"),
            read_options=pa_csv.ReadOptions(block_size=CSV_BLOCK_BYTES),
            parse_options=pa_csv.ParseOptions(delimiter=separator, invalid_row_handler=skip),
            convert_options=pa_csv.ConvertOptions(
                column_types=types,
                include_columns=[names[c] for c in mapping.columns],
                null_values=[""],
                strings_can_be_null=True,
            ),
        ) as reader,
    ):
        for batch in reader:
            if batch.num_rows:
                yield _unspaced(batch.rename_columns(mapping.columns), spaced)
    if whole.damage is not None:
        raise SourceError(path, None, f"cannot be read any further: {whole.damage}")


def _lines_of(file: MappedFile) -> WholeLines:
    return WholeLines(file.path, *(file.mapping.part or ()))


def _without_headers(rows: pa.RecordBatch, time: str) -> pa.RecordBatch:
    """A header may come again where another session goes on with a log."""
    is_header = pc.equal(pc.utf8_trim_whitespace(rows.column(time)), time.strip())
    return rows.filter(pc.invert(pc.fill_null(is_header, False))) if pc.any(is_header).as_py() else rows


def _separator(opening: str) -> str:
    """What divides the cells: commas, or semicolons or tabs where the header has no comma."""
    header = opening.partition("\n")[0]
    return next((one for one in ",;\t" if one in header), ",")


def _header(path: str, opening: str, separator: str) -> list[str]:
    """The columns of a CSV that begins so. SourceError where they do not end within HEADER_CHARACTERS."""
    # With their ends: a line end may be part of a quoted name.
    lines = opening[:HEADER_CHARACTERS].splitlines(keepends=True)
    reader = csv.reader(lines, delimiter=separator)
    try:
        columns = next(reader, [])
    except csv.Error as error:
        raise SourceError(path, None, f"cannot be read: its header: {error}") from error
    if len(opening) > HEADER_CHARACTERS and reader.line_num == len(lines):
        reason = (
            f"its header does not end within {HEADER_CHARACTERS:,} characters; it begins with {cells.shown(opening)}"
        )
        raise SourceError(path, None, f"{reason}. Is it a CSV with a line of column names, and its quotes closed?")
    return columns


def _unspaced(rows: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """`a, b` is how some programs separate: the space is not part of a label."""
    for column in columns:
        held = rows.column(column)
        texts = pa.DictionaryArray.from_arrays(held.indices, pc.utf8_ltrim_whitespace(held.dictionary))
        rows = rows.set_column(rows.schema.get_field_index(column), column, texts)
    return rows


def _parquet_batches(file: MappedFile) -> Iterator[pa.RecordBatch]:
    path, mapping = file.path, file.mapping
    with pq.ParquetFile(path) as opened:
        metadata, schema = opened.metadata, opened.schema_arrow
    file.present = schema.names
    missing = [column for column in mapping.columns if schema.names.count(column) != 1]
    if missing:
        raise SourceError(path, None, f"no column {missing[0]!r}; there are {', '.join(map(repr, schema.names))}"[:500])
    texts = [column for column in mapping.text_columns if not pa.types.is_nested(schema.field(column).type)]
    # Buffering ahead, Arrow's default, would hold every chosen row group in memory by the end.
    with pq.ParquetFile(path, metadata=metadata, read_dictionary=texts, pre_buffer=False) as opened:
        groups = [group for group in range(opened.num_row_groups) if _may_hold(opened, group, mapping, file.window)]
        file.skipped_rows = len(groups) < opened.num_row_groups
        yield from opened.iter_batches(PARQUET_BATCH_ROWS, row_groups=groups, columns=mapping.columns, use_threads=True)


def _may_hold(file: pq.ParquetFile, group: int, mapping: FileMapping, window: Window) -> bool:
    """Whether a row group may hold samples of the window, by the statistics of its time column."""
    columns = (file.metadata.row_group(group).column(i) for i in range(file.metadata.num_columns))
    times = next((column for column in columns if column.path_in_schema == mapping.time), None)
    if times is None or times.statistics is None or not times.statistics.has_min_max:
        return True
    kind = file.schema_arrow.field(mapping.time).type
    if not pa.types.is_timestamp(kind) and (mapping.time_unit is None or pa.types.is_string(kind)):
        return True
    try:
        bounds = pa.array([times.statistics.min, times.statistics.max], kind)
    except (ValueError, OverflowError):  # a time that Python does not have
        return True
    first_us, last_us = cells.times_us(bounds, mapping.time_form)
    if NO_TIME in (first_us, last_us):
        return True
    # Rows without a time do not show in the bounds, so a group that has some is read.
    is_whole = times.statistics.has_null_count and times.statistics.null_count == 0
    return not is_whole or (first_us < window.end_us and last_us >= window.start_us)
