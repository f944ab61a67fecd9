"""How the lines of a tool's own layout become rows: record batches of texts with the columns of a mapping.

Add a layout that is no CSV. Keep out which column is what (`monitors`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from collectors import cells
from collectors.formats.found_columns import MADE_TIME
from collectors.formats.monitors import amd_rows
from collectors.protocols.mapped_files import MappedFile
from collectors.samples import SourceError
from collectors.text_files import documents, lines

BATCH_ROWS = 1 << 16
DAY_SECONDS = 86_400.0
_OF_DAY = re.compile(r"\d{1,2}:\d{2}:\d{2}(\.\d{1,9})?", re.ASCII)
_NO_MEASUREMENT = r"^\s*(\[.*\]|(?i:n/?a|null|none|unknown|error|err!|not (supported|available))|[-–—]+|)\s*$"


def measured(rows: pa.RecordBatch, file: MappedFile) -> pa.RecordBatch:
    """The rows with no value where the tool wrote a word for none, such as `[N/A]`; without rows that have none,
    unless their place is what names their board."""
    is_any = None
    for column in file.mapping.value_columns:
        held = rows.column(column)
        if not cells.is_text(held):
            return rows
        kept = pc.if_else(pc.match_substring_regex(held, _NO_MEASUREMENT), pa.scalar(None, pa.string()), held)
        rows = rows.set_column(rows.schema.get_field_index(column), column, kept)
        is_any = kept.is_valid() if is_any is None else pc.or_(is_any, kept.is_valid())
    return rows if is_any is None or file.mapping.rows_are else rows.filter(is_any)


def _batches(file: MappedFile, rows: Iterable[Mapping[str, str]]) -> Iterator[pa.RecordBatch]:
    columns = file.mapping.columns
    schema = pa.schema([(column, pa.string()) for column in columns])
    waiting: list[Mapping[str, str]] = []

    def batch() -> pa.RecordBatch:
        texts = [pa.array([row.get(column) for row in waiting], pa.string()) for column in columns]
        return measured(pa.RecordBatch.from_arrays(texts, schema=schema), file)

    for row in rows:
        waiting.append(row)
        if len(waiting) >= BATCH_ROWS:
            yield batch()
            waiting = []
    if waiting:
        yield batch()


class _Order:
    """Seconds since the start of rows that have no time: a board that comes again begins the next moment."""

    def __init__(self, step_seconds: float) -> None:
        self._step, self._moment, self._seen = step_seconds, 0, set[str]()

    def seconds(self, board: str) -> str:
        if board in self._seen:
            self._moment += 1
            self._seen.clear()
        self._seen.add(board)
        return repr(self._moment * self._step)


class _Clock:
    """Seconds since `starts_at` of times of the day, which go back at midnight."""

    def __init__(self, file: MappedFile) -> None:
        at = file.mapping.starts_at
        start = at.astimezone(ZoneInfo(file.mapping.time_zone)) if at else None
        self._start = 0.0 if start is None else _of_day(start.strftime("%H:%M:%S")) + start.microsecond / 1e6
        self._last, self._days = self._start, 0

    def seconds(self, text: str) -> str:
        now = _of_day(text)
        # Boards of one moment may be written in either order around a second: only a step over hours is midnight.
        self._days += now < self._last - DAY_SECONDS / 2
        self._last = now
        return repr(now + self._days * DAY_SECONDS - self._start)


def _of_day(text: str) -> float:
    if _OF_DAY.fullmatch(text) is None:
        raise ValueError("no time of a day")
    hours, minutes, seconds = text.split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)


def _nvidia_smi_dmon(file: MappedFile) -> Iterator[pa.RecordBatch]:
    return _batches(file, _dmon_rows(file))


def _dmon_rows(file: MappedFile) -> Iterator[dict[str, str]]:
    header: list[str] = []
    order, clock = _Order(file.mapping.step_seconds or 1.0), _Clock(file)
    for number, line in lines(file.path, file.register.rejects):
        words = line.decode("utf-8", "replace").split()
        if words[0].startswith("#"):
            named = " ".join(words).lstrip("# ").split()
            header = named if "gpu" in named else header
            continue
        row = dict(zip([name.lower() if name in ("Date", "Time") else name for name in header], words, strict=False))
        if len(words) != len(header):
            file.register.rejects.add(f"{file.path}:{number}", f"has {len(words)} fields, expected {len(header)}")
            continue
        try:
            if "date" in row:
                day = row["date"].replace("/", "").replace("-", "")
                row[MADE_TIME] = f"{day[:4]}-{day[4:6]}-{day[6:]} {row['time']}"
            else:
                row[MADE_TIME] = clock.seconds(row["time"]) if "time" in row else order.seconds(row["gpu"])
        except ValueError:
            row[MADE_TIME] = row.get("time", "")
        yield row


def _dcgmi_dmon(file: MappedFile) -> Iterator[pa.RecordBatch]:
    return _batches(file, _dcgmi_rows(file))


def _dcgmi_rows(file: MappedFile) -> Iterator[dict[str, str]]:
    fields: list[str] = []
    before = 0
    order = _Order(file.mapping.step_seconds or 1.0)
    for number, line in lines(file.path, file.register.rejects):
        words = line.decode("utf-8", "replace").split()
        if "#Entity" in words:
            before = words.index("#Entity")
            fields = words[before + 1 :]
        elif words[before : before + 1] == ["GPU"]:
            if len(words) != before + 2 + len(fields):
                got, expected = len(words), before + 2 + len(fields)
                file.register.rejects.add(f"{file.path}:{number}", f"has {got} fields, expected {expected}")
                continue
            board = words[before + 1]
            time = " ".join(words[:before]) if before else order.seconds(board)
            yield {MADE_TIME: time, "gpu": board, **dict(zip(fields, words[before + 2 :], strict=True))}


def _amd_smi_json(file: MappedFile) -> Iterator[pa.RecordBatch]:
    return _batches(file, _amd_rows(file))


def _amd_rows(file: MappedFile) -> Iterator[dict[str, str]]:
    """A document of all ticks, or one of each tick after the other; the last one may be cut off."""
    has_rows = False
    try:
        for held in documents(file.path):
            for row in amd_rows(held):
                has_rows = True
                yield {name: str(value) for name, value in row.items()}
    except SourceError as cut:
        if not has_rows:
            raise
        file.register.rejects.add(cut.url, cut.reason)


LAYOUTS: Mapping[str | None, Callable[[MappedFile], Iterator[pa.RecordBatch]]] = {
    "nvidia_smi_dmon": _nvidia_smi_dmon,
    "dcgmi_dmon": _dcgmi_dmon,
    "amd_smi_json": _amd_smi_json,
}
