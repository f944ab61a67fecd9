"""Named windows: a benchmark run, a test, an incident, stated in the fleet file or in files that it names.

Add a fact of a window here. Keep out what is measured in it: SQL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import AwareDatetime, Field, ValidationError, model_validator

from collectors.cells import shown
from collectors.rows import Reject, Rejects, number_of, readable
from collectors.samples import END_US, FIRST_US, SourceError, microseconds
from collectors.text_files import csv_rows, is_parquet
from pipelines.fleet.fleet_errors import mistake_of_a_row
from pipelines.fleet.source_limits import RowLimits
from pipelines.fleet.values import FleetPath, Name, NonNegative, Part, TimeZone


class RunWindow(Part):
    """A named stretch of time of a node, an engine or a model; tokens where a benchmark states them."""

    window_id: Name
    start_at: AwareDatetime
    end_at: AwareDatetime
    node: Name | None = None
    engine: Name | None = None
    model: Name | None = None
    output_tokens: NonNegative | None = None
    total_tokens: NonNegative | None = None

    @model_validator(mode="after")
    def _somewhere(self) -> RunWindow:
        if self.node is None and self.engine is None and self.model is None:
            raise ValueError("expected at least one of node, engine and model")
        if self.end_at <= self.start_at:
            raise ValueError(f"end_at: got {self.end_at}, expected a time after start_at {self.start_at}")
        return self


# A fleet of the whole world makes less in a year; what is larger is no count.
MOST_TOKENS = 10**15
_TIMES = ("start_at", "end_at")
_TOKENS = ("output_tokens", "total_tokens")
_NEEDED = frozenset({"window_id", *_TIMES})


class RunWindowFile(Part):
    """A CSV or Parquet file of windows; `columns` maps the keys of a window to the file's columns; without it they have
    the same names. Of a `format` the file is a program's own. `node`, `engine` and `model` are of every window of the
    file; `time_zone` is that of times without an offset."""

    path: FleetPath
    format: Literal["codecarbon", "sacct"] | None = None
    columns: dict[str, str] = Field(default_factory=dict)
    time_zone: TimeZone = "UTC"
    node: Name | None = None
    engine: Name | None = None
    model: Name | None = None
    limits: RowLimits = RowLimits()

    @model_validator(mode="after")
    def _one_shape(self) -> RunWindowFile:
        if self.format is not None and self.columns:
            raise ValueError(f"columns: format {self.format} knows its columns; remove columns, or format")
        if self.format == "codecarbon" and not (self.node or self.engine or self.model):
            raise ValueError("expected node, engine or model: CodeCarbon does not write where it ran")
        return self

    def windows(self, path: str, named: set[str], rejects: Rejects) -> Iterator[RunWindow]:
        """The windows of one file of this entry, whose names are added to `named`. A row that is none, or whose name is
        there, is a reject. SourceError where the file cannot be read or a column is missing."""
        rows: Iterator[tuple[str, Mapping[str, Any]]]
        there, rows = _parquet_rows(path) if is_parquet(path) else csv_rows(path, rejects)
        if self.format is not None:
            from collectors.records.run_energy import RUN_FORMATS  # noqa: PLC0415

            rows = RUN_FORMATS[self.format](path, there, rows, rejects)
            there = [*_NEEDED, "node"]
        columns = self.columns or {key: key for key in RunWindow.model_fields if key in there}
        missing = sorted({*columns.values()} - {*there}) or sorted(_NEEDED - columns.keys())
        if missing:
            reason = f"no column {', '.join(missing)}; there are {', '.join(there) or 'none'}"
            raise SourceError(path, None, (reason if there or not rejects.first else rejects.first[-1])[:500])
        constants = self.model_dump(include={"node", "engine", "model"}, exclude_none=True)
        return readable(rows, partial(_window, columns, named, constants, self.time_zone), rejects)


def _parquet_rows(path: str) -> tuple[list[str], Iterator[tuple[str, dict[str, Any]]]]:
    try:
        table = pq.read_table(path)
        # As text: Python has no time beyond the year 9999, and would refuse the whole column.
        for n, field in enumerate(table.schema):
            if pa.types.is_temporal(field.type):
                table = table.set_column(n, field.name, table.column(n).cast(pa.string()))
        rows = table.to_pylist()
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, OverflowError) as error:
        raise SourceError(path, None, f"cannot be read: {error}"[:500]) from error
    return table.column_names, ((f"{path}, row {n}", row) for n, row in enumerate(rows, 1))


def _window(
    columns: Mapping[str, str], named: set[str], constants: Mapping[str, str], zone: str, row: Mapping[str, Any]
) -> RunWindow:
    stated = {key: row.get(column) for key, column in columns.items()}
    texts = {key: value.strip() if isinstance(value, str) else value for key, value in stated.items()}
    values = {key: value for key, value in texts.items() if value not in (None, "")}
    values |= {key: _instant(key, values[key], zone) for key in _TIMES if key in values}
    values |= {key: _count(key, values[key]) for key in _TOKENS if key in values}
    values |= constants
    try:
        window = RunWindow.model_validate(values)
    except ValidationError as wrong:
        raise Reject(mistake_of_a_row(wrong)) from None
    if window.window_id in named:
        raise Reject(f"window_id: {shown(window.window_id)} is there already, expected unique names")
    named.add(window.window_id)
    return window


def _instant(key: str, value: Any, zone: str) -> datetime:
    """A time of this century; without its offset it is of the zone. Reject for one that its clocks had twice."""
    try:
        at = datetime.fromisoformat(value)
        at = at if at.tzinfo else at.replace(tzinfo=ZoneInfo(zone))
        if at.utcoffset() != at.replace(fold=1).utcoffset():
            raise Reject(f"{key}: got {shown(value)}, which the clocks of {zone} had twice or never; add its offset")
        at = at.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        at = None
    if at is None or not FIRST_US <= microseconds(at) < END_US:
        raise Reject(f"{key}: got {shown(value)}, expected a time of this century, such as 2026-10-01T00:00:00Z")
    return at


def _count(key: str, value: Any) -> float:
    try:
        tokens = float(number_of(value if isinstance(value, str) else repr(value)))
    except ValueError:
        tokens = -1.0
    if not 0 <= tokens <= MOST_TOKENS:
        raise Reject(f"{key}: got {shown(value)}, expected 0 to {MOST_TOKENS:,} tokens")
    return tokens


class RunWindows(Part):
    """The windows that the fleet file states, and the files that hold others."""

    inline: tuple[RunWindow, ...] = ()
    files: tuple[RunWindowFile, ...] = ()
