"""The agent's end of the spool: readings wait in memory and become one Parquet file per rotation and UTC day.

Add here how samples are kept while the spool cannot be reached. Keep out the spool's layout, how it is read (`spool`),
and when samples are taken (`agent`).
"""

from __future__ import annotations

import io
import json
import logging
import threading
import time
import uuid
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, timedelta

from arro3.core import Array, DataType, Field, Schema, Table
from arro3.io import write_parquet

from collectors.devices.spool import UNKNOWN_KEY, UNKNOWN_LABELS_KEY, Spool, host_folder
from collectors.readings import Reading

DAY_US = 86_400_000_000
OBSERVED_AT = DataType.timestamp("us", tz="UTC")
COMPRESSION = "zstd(1)"
_TEXT = DataType.dictionary(DataType.int32(), DataType.string())
# What `spool_collector` reads; a test compares the two.
SPOOL_SCHEMA = Schema(
    [
        Field("observed_at", OBSERVED_AT),
        Field("source_kind", _TEXT),
        Field("metric", _TEXT),
        Field("labels", _TEXT),
        Field("value", DataType.float64()),
    ]
)

log = logging.getLogger(__name__)


class _Sealed:
    """A batch of one UTC day: its columns, and the distinct (kind, metric, labels) that `codes` numbers."""

    def __init__(self, day: int) -> None:
        self.day = day
        self.observed_us = array("q")
        self.codes = array("i")
        self.values = array("d")
        self.keys: dict[tuple[str, str, str], int] = {}

    def add(self, reading: Reading) -> None:
        key = (reading.source_kind, reading.metric, reading.labels)
        self.observed_us.append(reading.observed_us)
        self.codes.append(self.keys.setdefault(key, len(self.keys)))
        self.values.append(reading.value)

    def __len__(self) -> int:
        return len(self.values)

    def date(self) -> date:
        return date(1970, 1, 1) + timedelta(days=self.day)

    def parquet(self, metadata: Mapping[bytes, bytes]) -> bytes:
        codes = Array.from_buffer(self.codes)
        columns = [Array.from_buffer(self.observed_us).cast(OBSERVED_AT)]
        # The distinct texts are few: each row takes the number of its own.
        columns += [Array(texts, DataType.string()).cast(_TEXT).take(codes) for texts in zip(*self.keys, strict=True)]
        columns.append(Array.from_buffer(self.values))
        schema = SPOOL_SCHEMA.with_metadata(dict(metadata)) if metadata else SPOOL_SCHEMA
        sink = io.BytesIO()
        write_parquet(Table.from_arrays(columns, schema=schema), sink, compression=COMPRESSION)
        return sink.getvalue()


class SpoolWriter:
    """Collects readings in memory and writes them as files, one per rotation and UTC day. Threads may share it.

    `add` never touches the disk. The owner of the writer calls `flush` whenever `due_in_seconds` is 0, and at the end.
    A crash loses the rows since the last flush: at most `rotate_seconds` or `max_open_rows` of them. While the spool
    cannot be written, batches wait in memory, up to `max_waiting_rows` (24 bytes each); then the oldest are dropped and
    counted in `dropped_rows`.
    """

    def __init__(
        self,
        spool: Spool,
        host: str,
        *,
        rotate_seconds: float = 60.0,
        max_open_rows: int = 200_000,
        max_waiting_rows: int = 2_000_000,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spool = spool
        self._rotate_seconds = rotate_seconds
        self._max_open_rows = max_open_rows
        self._max_waiting_rows = max_waiting_rows
        self._monotonic = monotonic
        # The random part keeps apart two agents (in containers) with one host name that start in the same microsecond.
        started = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        self._host = host
        self._prefix = f"{started}-{uuid.uuid4().hex[:8]}"
        self._sequence = 0
        self._lock = threading.Lock()
        self._open: dict[int, _Sealed] = {}
        self._waiting: deque[_Sealed] = deque()
        self._unknown: dict[str, int] = {}
        self._unknown_labels: dict[str, list[str]] = {}
        self._due_at_seconds = monotonic() + rotate_seconds
        self._failure = ""
        self.written_rows = 0
        self.written_files = 0
        self.dropped_rows = 0

    def add(
        self,
        readings: Iterable[Reading],
        unknown: Mapping[str, int] | None = None,
        unknown_labels: Mapping[str, list[str]] | None = None,
    ) -> None:
        """Keep readings for the next file. `unknown` has the number of series of each metric seen and not kept,
        `unknown_labels` the labels of some of them."""
        with self._lock:
            self._unknown.update(unknown or {})
            self._unknown_labels.update(unknown_labels or {})
            for reading in readings:
                day = reading.observed_us // DAY_US
                batch = self._open.get(day)
                if batch is None:
                    batch = self._open[day] = _Sealed(day)
                batch.add(reading)
                if len(batch) >= self._max_open_rows:
                    self._waiting.append(self._open.pop(day))
                    self._due_at_seconds = self._monotonic()
                    self._drop_oldest()

    def due_in_seconds(self) -> float:
        """Seconds until the next `flush` is wanted, never negative."""
        return max(0.0, self._due_at_seconds - self._monotonic())

    @property
    def waiting_rows(self) -> int:
        """Rows in memory: those of the open batches and those that could not be written yet."""
        with self._lock:
            return sum(map(len, self._open.values())) + sum(map(len, self._waiting))

    def flush(self) -> bool:
        """Write everything; False when the spool could not be written and rows wait. Logs each change of that state."""
        with self._lock:
            self._due_at_seconds = self._monotonic() + self._rotate_seconds
            self._waiting.extend(self._open.values())
            self._open = {}
            metadata = {
                key: json.dumps(seen).encode()
                for key, seen in ((UNKNOWN_KEY, self._unknown), (UNKNOWN_LABELS_KEY, self._unknown_labels))
                if seen
            }
        while True:
            with self._lock:
                if not self._waiting:
                    break
                batch = self._waiting.popleft()
            failure = self._write(batch, metadata)
            if failure:
                with self._lock:
                    self._waiting.appendleft(batch)
                    self._drop_oldest()
                if not self._failure:
                    log.warning("the spool cannot be written, batches wait in memory: %s", failure)
                self._failure = failure
                return False
        if self._failure:
            log.warning("the spool is written again")
            self._failure = ""
        return True

    def _write(self, batch: _Sealed, metadata: Mapping[bytes, bytes]) -> str:
        self._sequence += 1
        name = f"{host_folder(self._host)}/date={batch.date()}/{self._prefix}-{self._sequence:06d}.parquet"
        payload = batch.parquet(metadata)
        try:
            if not self.written_files:
                self._spool.discard_unfinished(self._host)
            self._spool.put(name, payload)
        except Exception as error:  # each store raises its own kinds; losing the agent would lose the samples too
            return f"{type(error).__name__}: {error}"
        self.written_rows += len(batch)
        self.written_files += 1
        return ""

    def _drop_oldest(self) -> None:
        dropped = 0
        waiting = sum(map(len, self._waiting))
        while waiting - dropped > self._max_waiting_rows and self._waiting:
            dropped += len(self._waiting.popleft())
        if dropped:
            self.dropped_rows += dropped
            log.error("dropped the %d oldest rows (%d in all): the spool cannot be written", dropped, self.dropped_rows)
