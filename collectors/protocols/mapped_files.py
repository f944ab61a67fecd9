"""A file and which of its columns is what: its record batches become samples.

Add here what a row of a file may mean. Keep out how a file is opened (`file_batches`), and which files a source has
(`sample_files`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

import numpy as np
import orjson
import pyarrow as pa

from collectors import cells
from collectors.cells import NO_TIME
from collectors.formats.found_columns import FACTORS, UNITS_OF_ENERGY, UNITS_OF_POWER, bare, unit_of_cells
from collectors.protocols.rows_of_a_moment import MOST_BOARDS, Moments, missing_identity
from collectors.rows import SHOWN_ROWS
from collectors.samples import Batch, Family, SourceError, Window, microseconds, sample_batch
from collectors.series import SeriesRegister

Part = tuple[int, int | None]  # [first, end) byte of a file as it was before it was packed
Key = tuple[str | None, ...]  # the cells of one row in the text columns, and its place among `rows_are`
INDEX = "index"
# Ending of the name of a metric -> the units of columns that are read as it.
_UNITS = {"_watts": UNITS_OF_POWER, "_joules": UNITS_OF_ENERGY}
LOOKED_AT = 1_000  # rows of a file in which the unit of its cells is looked for


@dataclass(frozen=True)
class FileMapping:
    """Which column of a file is what. ValueError unless it is either wide (`values`) or long (`metric` and `value`).

    `path` is a CSV (also packed) or Parquet file, or a glob of such. `time` is a timestamp, ISO text (without an
    offset it is of `time_zone`), or a number of `time_unit` since the epoch or `starts_at`. `labels` maps label name to
    column; `labels_json` names a column of JSON objects or of Arrow maps; `constant_labels` are added. `values` maps
    metric to column. `rows_are` boards: the rows of one time and equal labels are the boards of a host in order, and
    get the label `index`.

    A mapping that a format made (`collectors.formats`) also has the `layout` of the file, `factors` that bring a
    metric's column to the unit of the catalogue, the `units` that cells repeat though no column name states them, and
    the `part` of a file that is below a header of its own.
    """

    path: str
    time: str
    time_unit: cells.TimeUnit | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    constant_labels: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    metric: str | None = None
    labels_json: str | None = None
    value: str | None = None
    rows_are: Literal["boards"] | None = None
    time_zone: str = "UTC"
    starts_at: datetime | None = None
    layout: str | None = None
    factors: Mapping[str, float] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    step_seconds: float | None = None
    part: Part | None = None

    def __post_init__(self) -> None:
        if bool(self.values) == bool(self.metric) or bool(self.metric) != bool(self.value):
            raise ValueError(f"{self.path}: a file maps either values, or metric and value")
        if self.time_unit not in (None, *cells.US_PER):
            raise ValueError(f"{self.path}: time_unit is one of {', '.join(cells.US_PER)}, got {self.time_unit!r}")
        if self.rows_are and INDEX in {*self.labels, *self.constant_labels}:
            raise ValueError(f"{self.path}: rows_are numbers the rows under the label {INDEX!r}, which labels map too")
        if self.starts_at and not self.time_unit:
            raise ValueError(f"{self.path}: starts_at needs a time_unit, the unit in which the file counts from there")

    def of_file(self, path: str) -> Iterator[FileMapping | SourceError]:
        """The mapping of one of its files: the same for all."""
        yield self

    @property
    def time_form(self) -> cells.TimeForm:
        """How its times are written."""
        starts_us = None if self.starts_at is None else microseconds(self.starts_at)
        return cells.TimeForm(self.time_unit, self.time_zone, starts_us)

    @property
    def text_columns(self) -> list[str]:
        """Columns whose distinct values are few: they are read as dictionaries."""
        return [c for c in dict.fromkeys([self.metric, self.labels_json, *self.labels.values()]) if c]

    @property
    def columns(self) -> list[str]:
        """Every column that is read, each once."""
        return list(dict.fromkeys([self.time, *self.text_columns, *self.value_columns]))

    @property
    def value_columns(self) -> list[str]:
        """Columns of numbers, each once."""
        return [self.value] if self.value else list(dict.fromkeys(self.values.values()))


class MappedFile:
    """One file: its record batches become samples. Remembers series ids, the last readable time, what was never found.

    `skipped_rows` is set where rows were not read because their times are outside the window.
    """

    def __init__(
        self,
        path: str,
        mapping: FileMapping,
        window: Window,
        *,
        families: Mapping[str, Family],
        register: SeriesRegister,
        unknown: dict[str, set[Key]],
    ) -> None:
        self.path = path
        self.mapping = mapping
        self.window = window
        self.register = register
        self.skipped_rows = False
        self.has_known_metric = False
        self.has_unknown_metric = False
        # Column of the mapping -> the file's own name of it.
        self.columns: dict[str, str] = {}
        # Every column that the file has, mapped or not.
        self.present: Sequence[str] = ()
        # Labels -> how many boards have them, by the first rows that do.
        self._boards: dict[Key, int] = {}
        self._families = families
        self._unknown = unknown
        self._ids: dict[tuple[str, Key], int | None] = {}
        self._unreadable: set[Key] = set()
        self._cell_units: dict[str, str] = {}
        self._last_us = NO_TIME
        self.has_rows = False
        self._rows = 0  # given so far
        self._first_time: object = None
        # Column -> its first cell that is no number, of the columns in which no number was found so far.
        self._numberless: dict[str, str | None] = dict.fromkeys(mapping.value_columns)

    def batches(self, rows: pa.RecordBatch, times_us: np.ndarray) -> Iterator[Batch]:
        """The samples of some rows, of which `times_us` has the times."""
        mapping = self.mapping
        is_whole = self._whole_moments(rows, times_us) if mapping.rows_are else None
        self._look_for_numbers(rows)
        is_timed = times_us != NO_TIME
        self._reject_untimed(rows.column(mapping.time), is_timed)
        placed_us = times_us if is_timed.all() else self._placed(times_us, is_timed)
        self._last_us = int(placed_us[-1])
        is_inside = (placed_us >= self.window.start_us) & (placed_us < self.window.end_us)
        if is_whole is not None:
            is_inside &= is_whole
        if not is_inside.any():
            return
        if not is_inside.all():
            rows, times_us, is_timed = rows.filter(pa.array(is_inside)), times_us[is_inside], is_timed[is_inside]
        codes, keys = cells.distinct(rows, mapping.text_columns)
        if mapping.rows_are:
            codes, keys = _numbered(codes, keys, times_us)
        if mapping.metric and mapping.value:
            at = mapping.text_columns.index(mapping.metric)
            yield from self._samples(rows, mapping.value, codes, [(key[at] or "", key) for key in keys], times_us)
        else:
            for metric, column in mapping.values.items():
                yield from self._samples(rows, column, codes, [(metric, key) for key in keys], times_us)
        unreadable = [code for code, key in enumerate(keys) if key in self._unreadable]
        if unreadable and mapping.labels_json:
            key = dict(zip(mapping.text_columns, keys[unreadable[0]], strict=False))
            first = (
                f"column {mapping.labels_json!r} holds {cells.shown(key[mapping.labels_json])}, expected a JSON object"
            )
            rejected = int(np.isin(codes, unreadable).sum())
            self.register.rejects.add(self.path, first, rejected)
            self.register.rejects.read -= rejected

    def look_for_identity(self, rows: pa.RecordBatch, times_us: np.ndarray) -> None:
        """SourceError where the rows of one time have equal labels and other values, in most of these first rows of the
        file: they are of several boards, or engines, and no sample could be booked for the right one. Likewise where
        more rows have one time than a host has boards."""
        mapping = self.mapping
        if self._rows:
            return
        codes, _ = cells.distinct(rows, mapping.text_columns)
        moments = Moments.of(codes, times_us)
        most = int(moments.lengths.max())
        if mapping.rows_are and most > MOST_BOARDS:
            reason = f"{most:,} rows have one time, expected at most {MOST_BOARDS:,} boards (rows_are: boards)"
            raise SourceError(self.path, None, f"{reason}. Is column {mapping.time!r} exact to the second?")
        if mapping.rows_are or most == 1:
            return
        values = (cells.numbers(rows.column(column), self._unit(column))[0] for column in mapping.value_columns)
        first = moments.first_indistinct(values)
        if first is None:
            return
        held, length = cells.shown(cells.cell(rows.column(mapping.time), first)), moments.lengths_of_rows()[first]
        what = f"{length} rows have the time {held} and the same labels"
        raise SourceError(self.path, None, f"{what}, expected one. {missing_identity(self.present, mapping.columns)}")

    def _whole_moments(self, rows: pa.RecordBatch, times_us: np.ndarray) -> np.ndarray:
        """Which rows (n,) are of moments with as many rows as there are boards. Of others it is not known which board
        is missing: they are rejects."""
        codes, keys = cells.distinct(rows, self.mapping.text_columns)
        moments = Moments.of(codes, times_us)
        for code, length in moments.usual_lengths().items():
            self._boards.setdefault(keys[code], length)
        boards = np.array([self._boards.get(key, 0) for key in keys])[codes]
        is_whole: np.ndarray = (moments.lengths_of_rows() == boards) | (times_us == NO_TIME)
        if not is_whole.all():
            odd_rows = int((~is_whole).sum())
            row = int(is_whole.argmin())
            held = cells.shown(cells.cell(rows.column(self.mapping.time), row))
            why = f"{moments.lengths_of_rows()[row]} rows have the time {held}, expected {boards[row]} boards"
            self.register.rejects.add(f"{self.path}, row {self._rows + row + 1}", why, odd_rows)
            self.register.rejects.read -= odd_rows
        return is_whole

    @property
    def is_untimed(self) -> bool:
        """Whether there were rows, and none with a readable time."""
        return self._rows > 0 and self._last_us == NO_TIME

    def check(self) -> None:
        """SourceError where the whole file holds no time, or a column of values text and no number."""
        mapping = self.mapping
        if self.skipped_rows or not self.has_rows:
            return
        if self._last_us == NO_TIME:
            first, expected = self._first_time, cells.expected_time(self._first_time, mapping.time_unit)
            reason = f"column {mapping.time!r} holds no time; the first value is {cells.shown(first)}, {expected}"
            raise SourceError(self.path, None, reason)
        for column, first in self._numberless.items():
            if first is not None:
                reason = f"column {column!r} holds no number; the first value is {cells.shown(first)}"
                fix = "Correct `value` in the fleet file" if mapping.value else "Correct `values` in the fleet file"
                raise SourceError(self.path, None, f"{reason}, expected a number such as 312.5. {fix}")

    def times_us(self, rows: pa.RecordBatch) -> np.ndarray:
        """Microseconds since the epoch (n,), NO_TIME where a row has no readable time."""
        column = rows.column(self.mapping.time)
        if not self.has_rows:
            self.has_rows, self._first_time = True, cells.cell(column, 0)
            self._look_for_units(rows)
        try:
            return cells.times_us(column, self.mapping.time_form)
        except TypeError as unreadable:
            reason = f"column {self.mapping.time!r} is {column.type}: set its time_unit (s, ms, us or ns)"
            raise SourceError(self.path, None, reason) from unreadable

    def _reject_untimed(self, column: pa.Array, is_timed: np.ndarray) -> None:
        rejects, untimed = self.register.rejects, np.flatnonzero(~is_timed)
        for row in untimed[:SHOWN_ROWS].tolist():
            held = cells.shown(cells.cell(column, row))
            place = f"{self.path}, row {self._rows + row + 1}"
            rejects.add(place, f"column {self.mapping.time!r} holds {held}, expected a time of this century")
        rejects.rows += max(0, len(untimed) - SHOWN_ROWS)
        rejects.read += len(is_timed) - len(untimed)
        self._rows += len(is_timed)

    def _look_for_numbers(self, rows: pa.RecordBatch) -> None:
        """In every row, also outside the window: a meter may be silent for a day, a column of names stays one."""
        for column, first in list(self._numberless.items()):
            held = rows.column(column)
            is_text = cells.is_text(held)
            has_number, text = cells.numbers_and_texts(held, self._unit(column)) if is_text else (True, None)
            if has_number:
                del self._numberless[column]
            elif first is None:
                self._numberless[column] = text

    def _look_for_units(self, rows: pa.RecordBatch) -> None:
        """SourceError where a metric of power or energy is mapped to cells of something else, such as degrees."""
        for metric, column in self.mapping.values.items():
            known = next((units for ending, units in _UNITS.items() if metric.endswith(ending)), None)
            held = rows.column(column)[:LOOKED_AT]
            texts = [text.strip() for text in held.to_pylist() if text] if cells.is_text(held) else []
            found = unit_of_cells(texts)
            # One odd cell shows no unit of the others.
            if found is not None and sum(text.endswith(found) for text in texts) * 2 > len(texts):
                self._cell_units[column] = found
            else:
                found = None
            if known is not None and found is not None and found not in known and metric not in self.mapping.factors:
                unit = metric.rpartition("_")[2]
                reason = f"column {column!r} is in {found}, expected {unit}. Correct `values` in the fleet file"
                raise SourceError(self.path, None, reason)

    def _unit(self, column: str) -> str | None:
        stated = self.mapping.units.get(column) or bare(self.columns.get(column, column))[1]
        return stated or self._cell_units.get(column)

    def _factor(self, metric: str, column: str) -> float:
        """What a metric's column is multiplied by: a format knows it, else the units show it."""
        if metric in self.mapping.factors:
            return self.mapping.factors[metric]
        known = next((units for ending, units in _UNITS.items() if metric.endswith(ending)), frozenset())
        unit = self._unit(column)
        return FACTORS[unit] if unit in known else 1.0

    def _placed(self, times_us: np.ndarray, is_timed: np.ndarray) -> np.ndarray:
        """Times with those that are missing taken from the row before, or, at the file's start, after."""
        before = np.maximum.accumulate(np.where(is_timed, np.arange(len(times_us)), -1))
        placed = np.where(before >= 0, times_us[before], self._last_us)
        if is_timed.any():
            placed[placed == NO_TIME] = times_us[is_timed.argmax()]
        return placed

    def _samples(
        self,
        rows: pa.RecordBatch,
        column: str,
        codes: np.ndarray,
        keys: list[tuple[str, Key]],
        times_us: np.ndarray,
    ) -> Iterator[Batch]:
        values, is_present = cells.numbers(rows.column(column), self._unit(column))
        factor = self._factor(keys[0][0], column) if keys and not self.mapping.metric else 1.0
        values = values if factor == 1.0 else values * factor
        families = [self._families.get(metric) for metric, _ in keys]
        ids_of_codes = np.array([self._series_id(metric, key) or 0 for metric, key in keys], dtype=np.int64)
        ids = ids_of_codes[codes]
        for stream in sorted({family.stream for family in families if family}):
            is_stream = np.array([family is not None and family.stream == stream for family in families])
            is_stream &= ids_of_codes != 0
            keep = is_present & (times_us != NO_TIME)
            if not is_stream.all():
                keep &= is_stream[codes]
            chosen = (ids, times_us, values) if keep.all() else (ids[keep], times_us[keep], values[keep])
            if len(chosen[0]):
                samples = sample_batch(*chosen)
                self.register.observe(samples)
                yield Batch(stream, samples)
        for series_id, rejected in zip(*np.unique(ids[times_us == NO_TIME], return_counts=True), strict=True):
            if series_id:
                self.register.reject(int(series_id), int(rejected))

    def _series_id(self, metric: str, key: Key) -> int | None:
        """The series of a metric and its text columns; None where the catalogue or the labels do not give one."""
        if (metric, key) in self._ids:
            return self._ids[metric, key]
        family, labels = self._families.get(metric), self._labels(key)
        self.has_known_metric |= family is not None
        if family is None:
            self.has_unknown_metric = True
            self._unknown.setdefault(metric, set()).add(key)
            self.register.unknown_device(metric, labels or {})
        elif labels is None:
            self._unreadable.add(key)
        found = None if family is None or labels is None else self.register.series_id(family, labels)
        self._ids[metric, key] = found
        return found

    def _labels(self, key: Key) -> dict[str, str] | None:
        mapping = self.mapping
        by_column = dict(zip(mapping.text_columns, key, strict=mapping.rows_are is None))
        labels = {label: by_column[column] or "" for label, column in mapping.labels.items()}
        if mapping.rows_are:
            labels[INDEX] = key[-1] or ""
        if mapping.labels_json:
            try:
                found = orjson.loads(by_column[mapping.labels_json] or "{}")
                labels |= {str(name): str(value) for name, value in found.items() if value is not None}
            except (orjson.JSONDecodeError, AttributeError, RecursionError):
                return None
        return {**labels, **mapping.constant_labels}


def _numbered(codes: np.ndarray, keys: list[Key], times_us: np.ndarray) -> tuple[np.ndarray, list[Key]]:
    """Codes (n,) and keys of the rows by their labels and their place within their moment."""
    numbers = Moments.of(codes, times_us).numbers
    width = int(numbers.max()) + 1
    both, numbered = np.unique(codes * width + numbers, return_inverse=True)
    return numbered, [(*keys[pair // width], str(pair % width)) for pair in both.tolist()]
