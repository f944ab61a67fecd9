"""Samples from CSV and Parquet files, wide (a column per metric) or long (a column that names the metric).

Add here what a file's own shape demands. Keep out formats of single vendors: the column mapping of the fleet file says
which column is what.
"""

from __future__ import annotations

import csv
import glob
import gzip
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from collectors.samples import OBSERVED_AT, Batch, Family, SourceError, Window, sample_batch
from collectors.series import SeriesRegister

CSV_BLOCK_BYTES = 8 << 20
HEADER_CHARACTERS = 1 << 16
PARQUET_BATCH_ROWS = 1 << 18

_US_PER = {"s": 1_000_000, "ms": 1_000, "us": 1}
# Beyond it a number is in another unit than the mapping says, and no time.
_YEAR_9999_US = 253_402_300_800_000_000
_NO_TIME = np.iinfo(np.int64).min
_NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$|^\s*[+-]?(?i:nan|inf|infinity)\s*$"
_ISO = pa.timestamp("ns", "UTC")
_OFFSET = r":.*(Z|[+-]\d\d(:?\d\d)?)$"
_ISO_TEXT = r"^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?)?(Z|[+-]\d\d(:?\d\d)?)$"
_LABEL = pa.dictionary(pa.int32(), pa.string())


@dataclass(frozen=True)
class FileMapping:
    """Which column of a file is what. ValueError unless it is either wide (`values`) or long (`metric` and `value`).

    `path` is a .csv, .csv.gz or .parquet file, or a glob of such. `time` is a timestamp, ISO text (without an offset
    it is UTC), or a number of `time_unit` since the epoch. `labels` maps label name to column; `labels_json` names a
    column of JSON objects or of Arrow maps; `constant_labels` are added. `values` maps column to metric.
    """

    path: str
    time: str
    time_unit: Literal["s", "ms", "us"] | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    constant_labels: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    metric: str | None = None
    labels_json: str | None = None
    value: str | None = None

    def __post_init__(self) -> None:
        if bool(self.values) == bool(self.metric) or bool(self.metric) != bool(self.value):
            raise ValueError(f"{self.path}: a file maps either values, or metric and value")
        if self.time_unit not in (None, *_US_PER):
            raise ValueError(f"{self.path}: time_unit is one of {', '.join(_US_PER)}, got {self.time_unit!r}")

    @property
    def text_columns(self) -> list[str]:
        """Columns whose distinct values are few: they are read as dictionaries."""
        return [c for c in dict.fromkeys([self.metric, self.labels_json, *self.labels.values()]) if c]

    @property
    def columns(self) -> list[str]:
        """Every column that is read, each once."""
        return list(dict.fromkeys([self.time, *self.text_columns, *self.values, *([self.value] if self.value else [])]))


class FilesCollector:
    """Reads the mapped files in the order given, in record batches: memory does not grow with the files.

    Rows without a readable time are counted as rejects of their series in the window of the row before them; text
    where a number belongs is landed as NaN, which is a reject too; an empty value is no sample. Rows that cannot be
    given to a series (a wrong number of fields, labels that are no JSON) are counted in `register.unreadable_rows`.
    A missing file or column is a SourceError, as is a file that breaks off.
    """

    def __init__(self, source: str, files: Sequence[FileMapping], *, interval_seconds: float | None = None) -> None:
        self.source = source
        self.files = tuple(files)
        self.interval_seconds = interval_seconds

    def collect(self, window: Window, families: Mapping[str, Family], register: SeriesRegister) -> Iterator[Batch]:
        """Batches of the samples in the window, in file order; SourceError names file, column and what there is."""
        unknown: dict[str, set] = {}
        for mapping in self.files:
            for path in _paths(mapping.path):
                reader = _Rows(mapping, window, families, register, unknown)
                try:
                    for batch in _record_batches(path, mapping, window, register):
                        yield from reader.batches(path, batch)
                except (OSError, EOFError, pa.ArrowException, UnicodeDecodeError) as error:
                    raise SourceError(path, None, f"cannot be read: {error}") from error
        for metric, series in unknown.items():
            register.unknown(metric, len(series))


class _Rows:
    """Turns record batches of one file into samples; remembers series ids and the last readable time."""

    def __init__(
        self,
        mapping: FileMapping,
        window: Window,
        families: Mapping[str, Family],
        register: SeriesRegister,
        unknown: dict[str, set],
    ) -> None:
        self._mapping = mapping
        self._window = window
        self._families = families
        self._register = register
        self._unknown = unknown
        self._ids: dict[tuple, int | None] = {}
        self._unreadable: set[tuple] = set()
        self._last_us = _NO_TIME

    def batches(self, path: str, rows: pa.RecordBatch) -> Iterator[Batch]:
        mapping = self._mapping
        times_us = _times_us(path, mapping, rows.column(mapping.time))
        is_timed = times_us != _NO_TIME
        placed_us = times_us if is_timed.all() else self._placed(times_us, is_timed)
        self._last_us = int(placed_us[-1])
        is_inside = (placed_us >= self._window.start_us) & (placed_us < self._window.end_us)
        if not is_inside.any():
            return
        if not is_inside.all():
            rows, times_us, is_timed = rows.filter(pa.array(is_inside)), times_us[is_inside], is_timed[is_inside]
        codes, keys = _distinct(rows, mapping.text_columns)
        if mapping.metric:
            at = mapping.text_columns.index(mapping.metric)
            yield from self._samples(
                rows.column(mapping.value), codes, [(key[at] or "", key) for key in keys], times_us
            )
        else:
            for column, metric in mapping.values.items():
                yield from self._samples(rows.column(column), codes, [(metric, key) for key in keys], times_us)
        unreadable = [code for code, key in enumerate(keys) if key in self._unreadable]
        if unreadable:
            self._register.unreadable_rows += int(np.isin(codes, unreadable).sum())

    def _placed(self, times_us: np.ndarray, is_timed: np.ndarray) -> np.ndarray:
        """Times with those that are missing taken from the row before, or, at the file's start, after."""
        before = np.maximum.accumulate(np.where(is_timed, np.arange(len(times_us)), -1))
        placed = np.where(before >= 0, times_us[before], self._last_us)
        if is_timed.any():
            placed[placed == _NO_TIME] = times_us[is_timed.argmax()]
        return placed

    def _samples(
        self, column: pa.Array, codes: np.ndarray, keys: list[tuple[str, tuple]], times_us: np.ndarray
    ) -> Iterator[Batch]:
        values, is_present = _numbers(column)
        families = [self._families.get(metric) for metric, _ in keys]
        ids_of_codes = np.array([self._series_id(metric, key) or 0 for metric, key in keys], dtype=np.int64)
        ids = ids_of_codes[codes]
        for stream in sorted({family.stream for family in families if family}):
            is_stream = np.array([family is not None and family.stream == stream for family in families])
            is_stream &= ids_of_codes != 0
            keep = is_present & (times_us != _NO_TIME)
            if not is_stream.all():
                keep &= is_stream[codes]
            chosen = (ids, times_us, values) if keep.all() else (ids[keep], times_us[keep], values[keep])
            if len(chosen[0]):
                samples = sample_batch(*chosen)
                self._register.observe(samples)
                yield Batch(stream, samples)
        for series_id, rows in zip(*np.unique(ids[times_us == _NO_TIME], return_counts=True), strict=True):
            if series_id:
                self._register.reject(int(series_id), int(rows))

    def _series_id(self, metric: str, key: tuple) -> int | None:
        """The series of a metric and its text columns; None where the catalogue or the labels do not give one."""
        if (metric, key) in self._ids:
            return self._ids[metric, key]
        family, labels = self._families.get(metric), self._labels(key)
        if family is None:
            self._unknown.setdefault(metric, set()).add(key)
        elif labels is None:
            self._unreadable.add(key)
        found = None if family is None or labels is None else self._register.series_id(family, labels)
        self._ids[metric, key] = found
        return found

    def _labels(self, key: tuple) -> dict[str, str] | None:
        mapping = self._mapping
        by_column = dict(zip(mapping.text_columns, key, strict=True))
        labels = {label: by_column[column] or "" for label, column in mapping.labels.items()}
        if mapping.labels_json:
            try:
                told = orjson.loads(by_column[mapping.labels_json] or "{}")
                labels |= {str(name): str(value) for name, value in told.items() if value is not None}
            except (orjson.JSONDecodeError, AttributeError):
                return None
        return {**labels, **mapping.constant_labels}


def _paths(pattern: str) -> list[str]:
    if Path(pattern).is_file():
        return [pattern]
    # Path.glob() takes no absolute pattern.
    found = sorted(path for path in glob.glob(pattern, recursive=True) if Path(path).is_file())  # noqa: PTH207
    if not found:
        raise SourceError(pattern, None, "no such file")
    return found


def _record_batches(
    path: str, mapping: FileMapping, window: Window, register: SeriesRegister
) -> Iterator[pa.RecordBatch]:
    if path.endswith(".parquet"):
        return _parquet_batches(path, mapping, window)
    if path.endswith((".csv", ".csv.gz")):
        return _csv_batches(path, mapping, register)
    raise SourceError(path, None, "not a .csv, .csv.gz or .parquet file")


def _check_columns(path: str, mapping: FileMapping, present: Sequence[str]) -> None:
    for column in mapping.columns:
        if column not in present:
            raise SourceError(path, None, f"no column {column!r}; there are {', '.join(map(repr, present))}")


def _csv_batches(path: str, mapping: FileMapping, register: SeriesRegister) -> Iterator[pa.RecordBatch]:
    opened = gzip.open if path.endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8-sig", newline="") as text:
        # In bites: a file without line ends must not be read whole for its header.
        lines = iter(lambda: text.readline(HEADER_CHARACTERS), "")
        try:
            _check_columns(path, mapping, next(csv.reader(lines), []))
        except csv.Error as error:
            raise SourceError(path, None, f"cannot be read: its header: {error}") from error

    def skip(_: pa_csv.InvalidRow) -> str:
        register.unreadable_rows += 1
        return "skip"

    # Everything is read as text: one bad cell must cost a row, not the file.
    types = dict.fromkeys(mapping.columns, pa.string()) | dict.fromkeys(mapping.text_columns, _LABEL)
    with (
        pa.input_stream(path, compression="gzip" if path.endswith(".gz") else None) as stream,
        pa_csv.open_csv(
            stream,
            read_options=pa_csv.ReadOptions(block_size=CSV_BLOCK_BYTES),
            parse_options=pa_csv.ParseOptions(invalid_row_handler=skip),
            convert_options=pa_csv.ConvertOptions(
                column_types=types, include_columns=mapping.columns, null_values=[""], strings_can_be_null=True
            ),
        ) as reader,
    ):
        yield from (batch for batch in reader if batch.num_rows)


def _parquet_batches(path: str, mapping: FileMapping, window: Window) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(path) as file:
        metadata, schema = file.metadata, file.schema_arrow
    _check_columns(path, mapping, schema.names)
    texts = [column for column in mapping.text_columns if not pa.types.is_nested(schema.field(column).type)]
    # Buffering ahead, Arrow's default, would hold every chosen row group in memory by the end.
    with pq.ParquetFile(path, metadata=metadata, read_dictionary=texts, pre_buffer=False) as file:
        groups = [group for group in range(file.num_row_groups) if _may_hold(file, group, mapping, window)]
        yield from file.iter_batches(PARQUET_BATCH_ROWS, row_groups=groups, columns=mapping.columns, use_threads=True)


def _may_hold(file: pq.ParquetFile, group: int, mapping: FileMapping, window: Window) -> bool:
    """Whether a row group may hold samples of the window, by the statistics of its time column."""
    columns = (file.metadata.row_group(group).column(i) for i in range(file.metadata.num_columns))
    times = next((column for column in columns if column.path_in_schema == mapping.time), None)
    if times is None or times.statistics is None or not times.statistics.has_min_max:
        return True
    kind = file.schema_arrow.field(mapping.time).type
    if not pa.types.is_timestamp(kind) and (mapping.time_unit is None or pa.types.is_string(kind)):
        return True
    first_us, last_us = _times_us("", mapping, pa.array([times.statistics.min, times.statistics.max], kind))
    # Rows without a time do not show in the bounds, so a group that has some is read.
    is_whole = times.statistics.has_null_count and times.statistics.null_count == 0
    return not is_whole or (first_us < window.end_us and last_us >= window.start_us)


def _distinct(rows: pa.RecordBatch, columns: Sequence[str]) -> tuple[np.ndarray, list[tuple]]:
    """A code per row (n,) and, per code, the texts of `columns` as a tuple (None for null)."""
    codes, keys = np.zeros(len(rows), np.int64), [()]
    for column in columns:
        encoded = _text_dictionary(rows.column(column))
        texts = [*encoded.dictionary.to_pylist(), None]
        mine = pc.fill_null(encoded.indices, len(texts) - 1).to_numpy(zero_copy_only=False).astype(np.int64)
        if len(columns) == 1:
            return mine, [(text,) for text in texts]
        both = pa.array(codes * len(texts) + mine).dictionary_encode()
        codes = both.indices.to_numpy()
        keys = [(*keys[pair // len(texts)], texts[pair % len(texts)]) for pair in both.dictionary.to_pylist()]
        codes = codes.astype(np.int64)
    return codes, keys


def _text_dictionary(column: pa.Array) -> pa.DictionaryArray:
    if pa.types.is_map(column.type):
        column = _map_text(column)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    if not pa.types.is_string(column.dictionary.type):
        column = pa.DictionaryArray.from_arrays(column.indices, column.dictionary.cast(pa.string()))
    return column


def _map_text(column: pa.MapArray) -> pa.DictionaryArray:
    """The distinct maps as JSON text. Rows are compared by joined text; only one row of each text is decoded."""
    entries = pc.binary_join_element_wise(
        column.keys.cast(pa.string()), column.items.cast(pa.string()), "\x1f", null_handling="replace"
    )
    rows = pa.ListArray.from_arrays(column.offsets, entries)
    encoded = pc.fill_null(pc.binary_join(rows, "\x1e"), "").dictionary_encode()
    codes = encoded.indices.to_numpy()
    _, first = np.unique(codes, return_index=True)
    texts = [orjson.dumps(dict(column[int(row)].as_py() or ())).decode() for row in first]
    return pa.DictionaryArray.from_arrays(encoded.indices, pa.array(texts, pa.string()))


def _numbers(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Values (n,) float64 and which are present (n,); text that is no number is present as NaN."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        try:
            numbers = column.cast(pa.float64())
        except pa.ArrowInvalid:
            cleaned = pc.ascii_ltrim(pc.ascii_trim_whitespace(column), "+")
            is_number = pc.match_substring_regex(cleaned, _NUMBER)
            numbers = pc.if_else(is_number, cleaned, "NaN").cast(pa.float64())
    else:
        numbers = column.cast(pa.float64(), safe=False)
    is_present = numbers.is_valid().to_numpy(zero_copy_only=False)
    return pc.fill_null(numbers, np.nan).to_numpy(), is_present


def _times_us(path: str, mapping: FileMapping, column: pa.Array) -> np.ndarray:
    """Microseconds since the epoch (n,) int64, _NO_TIME where there is none to be read."""
    if pa.types.is_timestamp(column.type):
        times = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())
        return pc.fill_null(times, _NO_TIME).to_numpy()
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    if mapping.time_unit is not None:
        numbers, _ = _numbers(column)
        times_us = np.rint(numbers * _US_PER[mapping.time_unit])
        is_time = np.abs(times_us) < _YEAR_9999_US
        return np.where(is_time, np.where(is_time, times_us, 0).astype(np.int64), _NO_TIME)
    if not is_text:
        raise SourceError(path, None, f"column {mapping.time!r} is {column.type}: say its time_unit (s, ms or us)")
    try:
        times = column.cast(_ISO)
    except pa.ArrowInvalid:
        trimmed = pc.ascii_trim_whitespace(column)
        with_offset = pc.if_else(
            pc.match_substring_regex(trimmed, _OFFSET), trimmed, pc.binary_join_element_wise(trimmed, "Z", "")
        )
        looks_right = pc.match_substring_regex(with_offset, _ISO_TEXT)
        times = _cast_where_possible(pc.if_else(looks_right, with_offset, pa.scalar(None, pa.string())))
    return pc.fill_null(
        pc.floor_temporal(times, unit="microsecond").cast(OBSERVED_AT).cast(pa.int64()), _NO_TIME
    ).to_numpy()


def _cast_where_possible(column: pa.Array) -> pa.Array:
    """Times, with null for what only the calendar refuses, such as 30 February; found by halving."""
    try:
        return column.cast(_ISO)
    except pa.ArrowInvalid:
        if len(column) == 1:
            return pa.nulls(1, _ISO)
        half = len(column) // 2
        return pa.concat_arrays([_cast_where_possible(column[:half]), _cast_where_possible(column[half:])])
