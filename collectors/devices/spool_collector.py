"""The landing's end of the spool: its files become batches of samples, and are removed once they are safe.

Add here how a file is read and what may be wrong with it. Keep out the layout of the folder (`spool`) and how files are
written (`spool_writer`): the agent does that without pyarrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from collectors import file_systems
from collectors.devices.spool import UNKNOWN_KEY, UNKNOWN_LABELS_KEY, Spool
from collectors.limits import DEFAULTS
from collectors.samples import OBSERVED_AT, Batch, Family, SourceError, Window, sample_batch
from collectors.series import SeriesRegister
from collectors.unknown_families import is_drawn_power

_T = TypeVar("_T")
_TEXT = pa.dictionary(pa.int32(), pa.string())
SPOOL_SCHEMA = pa.schema(
    [
        ("observed_at", OBSERVED_AT),
        ("source_kind", _TEXT),
        ("metric", _TEXT),
        ("labels", _TEXT),
        ("value", pa.float64()),
    ]
)
_READ_SCHEMA = pa.schema([column for column in SPOOL_SCHEMA if column.name != "source_kind"])
# A few bytes of Parquet may decode to any number of equal rows; an agent writes some thousands per file.
MOST_ROWS_PER_FILE = 10_000_000
# Rows per batch: files of one minute are small, and every batch costs time.
BATCH_ROWS = 2**18


class SpoolCollector:
    """A spool as a source.

    A landing calls `collect`, commits, and then calls `landed` with the same window: that removes the files of which
    every row was yielded, and nothing else. Later files of the same day come with the next landing of that day, which
    must add to what the day holds: hence `is_additive`. `problems` names the files that could not be read, one line
    each, since the collector was made; they stay where they are.
    """

    is_additive = True

    def __init__(self, source: str, path: str | Path, answer_seconds: float = DEFAULTS.answer_seconds) -> None:
        self.source = source
        self.answer_seconds = answer_seconds
        self.problems: list[str] = []
        self._path = str(path)
        self._spool: Spool | None = None
        self._read: dict[Window, list[str]] = {}

    def check(self, _window: Window) -> None:
        """SourceError where the store that holds the spool does not answer."""
        if file_systems.is_remote(self._path):
            self._reached(Spool.hosts)

    def days(self) -> list[date]:
        """The UTC days of which files wait here, sorted. Raises SourceError."""
        return self._reached(Spool.days)

    def collect(self, window: Window, families: Mapping[str, Family], register: SeriesRegister) -> Iterator[Batch]:
        """Batches of about BATCH_ROWS rows; each host's rows in the order they were written. Raises SourceError."""
        read = self._read[window] = []
        known: dict[tuple[str, str], tuple[str, int]] = {}
        unknown: dict[str, set[str]] = {}
        parts: list[_Rows] = []
        whole: list[str] = []
        for path in self._paths(window):
            table = self._table(path)
            if table is None:
                continue
            try:
                rows = _rows(table, families, register, known, unknown)
                _note_left_out(table.schema.metadata or {}, families, register)
            except ValueError as error:
                self.problems.append(f"{path}: {error}")
                continue
            is_inside = (rows.observed_us >= window.start_us) & (rows.observed_us < window.end_us)
            if is_inside.all():
                whole.append(path)
            parts.append(rows.where(is_inside))
            if sum(len(part.values) for part in parts) >= BATCH_ROWS:
                yield from _batches(parts, register)
                read += whole
                parts, whole = [], []
        yield from _batches(parts, register)
        read += whole
        for metric, labels in unknown.items():
            register.unknown(metric, len(labels))
            if is_drawn_power(metric):
                for one in sorted(labels):
                    with suppress(ValueError):
                        register.unknown_device(metric, _labels_of(one))

    def landed(self, window: Window) -> int:
        """Remove the files that the last `collect(window)` yielded completely; returns their number."""
        removed = 0
        for path in self._read.pop(window, []):
            try:
                self._reached(partial(Spool.remove, path=path))
            except FileNotFoundError:
                continue
            except SourceError as error:
                # The rows are safe in the warehouse, and landing them once more adds nothing.
                self.problems.append(f"{path}: landed, but not removed: {error.reason}")
                continue
            removed += 1
        return removed

    def _paths(self, window: Window) -> list[str]:
        day = window.start_at.astimezone(UTC).date()
        last_day = (window.end_at - timedelta(microseconds=1)).astimezone(UTC).date()
        paths: list[str] = []
        while day <= last_day:
            paths += self._reached(partial(Spool.files, day=day))
            day += timedelta(days=1)
        return paths

    def _table(self, path: str) -> pa.Table | None:
        """One file, None if it cannot be read: gone (another landing took it), or a problem."""
        try:
            payload = self._reached(partial(Spool.payload, path=path))
        except FileNotFoundError:
            return None
        except SourceError as error:
            if not isinstance(error.__cause__, PermissionError):
                raise
            self.problems.append(f"{path}: {error.reason}")
            return None
        try:
            rows = pq.read_metadata(pa.BufferReader(payload)).num_rows
            if rows > MOST_ROWS_PER_FILE:
                raise ValueError(f"{rows} rows, of at most {MOST_ROWS_PER_FILE} that a file may hold")
            table = pq.read_table(pa.BufferReader(payload), columns=_READ_SCHEMA.names)
            table = table.cast(_READ_SCHEMA.with_metadata(table.schema.metadata))
            if any(column.null_count for column in table.columns):
                raise ValueError("a column holds nulls")
        except (pa.ArrowException, OSError, KeyError, ValueError, TypeError) as error:
            self.problems.append(f"{path}: {error}")
            return None
        return table

    def _reached(self, ask: Callable[[Spool], _T]) -> _T:
        try:
            if self._spool is None:
                self._spool = Spool(self._path, self.answer_seconds)
                if self._spool.is_local and not Path(self._spool.root).is_dir():
                    self._spool = None
                    raise SourceError(self._path, None, "there is no such folder; the first agent makes it")
            return ask(self._spool)
        except (FileNotFoundError, SourceError):
            raise
        except Exception as error:  # each store raises its own kinds
            self._spool = None
            raise SourceError(self._path, None, f"{type(error).__name__}: {error}") from error


@dataclass
class _Rows:
    """Rows of one file as columns; `streams` indexes _STREAMS."""

    streams: np.ndarray
    series_ids: np.ndarray
    observed_us: np.ndarray
    values: np.ndarray

    def where(self, mask: np.ndarray) -> _Rows:
        if mask.all():
            return self
        return _Rows(self.streams[mask], self.series_ids[mask], self.observed_us[mask], self.values[mask])


_STREAMS = ("", "power", "tokens")  # "": a family that the catalogue does not know


def _rows(
    table: pa.Table,
    families: Mapping[str, Family],
    register: SeriesRegister,
    known: dict[tuple[str, str], tuple[str, int]],
    unknown: dict[str, set[str]],
) -> _Rows:
    metrics, labels = (table[name].unify_dictionaries().combine_chunks() for name in ("metric", "labels"))
    metric_texts, label_texts = metrics.dictionary.to_pylist(), labels.dictionary.to_pylist()
    pairs = metrics.indices.to_numpy().astype(np.int64) * max(len(label_texts), 1) + labels.indices.to_numpy()
    encoded = pa.array(pairs).dictionary_encode()
    nth = encoded.indices.to_numpy()
    streams, series_ids = np.zeros(len(encoded.dictionary), np.int8), np.zeros(len(encoded.dictionary), np.int64)
    for i, pair in enumerate(encoded.dictionary.to_pylist()):
        key = (metric_texts[pair // len(label_texts)], label_texts[pair % len(label_texts)])
        family = families.get(key[0])
        if family is None:
            unknown.setdefault(key[0], set()).add(key[1])
            continue
        if key not in known:
            known[key] = (family.stream, register.series_id(family, _labels_of(key[1])))
        streams[i], series_ids[i] = _STREAMS.index(known[key][0]), known[key][1]
    observed_us = table["observed_at"].combine_chunks().view(pa.int64()).to_numpy()
    return _Rows(streams[nth], series_ids[nth], observed_us, table["value"].combine_chunks().to_numpy())


def _note_left_out(metadata: Mapping[bytes, bytes], families: Mapping[str, Family], register: SeriesRegister) -> None:
    """Report what the agent saw and did not keep. ValueError where a file states it in another shape."""
    series = orjson.loads(metadata.get(UNKNOWN_KEY, b"{}"))
    labels = orjson.loads(metadata.get(UNKNOWN_LABELS_KEY, b"{}"))
    if not isinstance(series, dict) or not all(isinstance(count, int) for count in series.values()):
        raise ValueError(f"{UNKNOWN_KEY.decode()} is no JSON object of numbers")
    is_lists = isinstance(labels, dict) and all(isinstance(texts, list) for texts in labels.values())
    if not is_lists or not all(isinstance(text, str) for texts in labels.values() for text in texts):
        raise ValueError(f"{UNKNOWN_LABELS_KEY.decode()} is no JSON object of lists of texts")
    for metric in series.keys() - families.keys():
        register.unknown(metric, series[metric])
        for text in labels.get(metric, []):
            register.unknown_device(metric, _labels_of(text))


def _labels_of(text: str) -> dict[str, str]:
    labels = orjson.loads(text)
    if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
        raise ValueError(f"labels are no JSON object of texts: {text[:60]!r}")
    return labels


def _batches(parts: list[_Rows], register: SeriesRegister) -> Iterator[Batch]:
    if not parts:
        return
    for code, stream in enumerate(_STREAMS):
        here = [part.where(part.streams == code) for part in parts] if stream else []
        if any(len(part.values) for part in here):
            columns = ("series_ids", "observed_us", "values")
            samples = sample_batch(*(np.concatenate([getattr(part, name) for part in here]) for name in columns))
            register.observe(samples)
            yield Batch(stream, samples)
