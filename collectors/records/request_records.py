"""The columns of request logs: one schema for every gateway, log and load test, and tokens counted in one way.

Add here what every kind of request log shares: a column, a rule that a value must meet. Keep out the shape of one log
(`litellm`, `access_logs`, `load_tests`, `azure_trace`) and how tokens are counted (`usage`, `token_readings`).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from typing import Any, Protocol
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from collectors.records.askers import NO_USERS, Askers
from collectors.records.log_words import quoted
from collectors.records.token_readings import CHAT, PARTS, Reading, Readings
from collectors.rows import Reject, Rejects, number_of, readable
from collectors.samples import END_US, FIRST_US, OBSERVED_AT, SourceError, Window, microseconds
from collectors.text_files import blocks, paths_of

# One row per request, in the order of raw.requests without its `source`. NULL is unknown, never 0.
REQUEST_SCHEMA = pa.schema(
    [
        ("source_kind", pa.string()),
        ("request_id", pa.string()),
        ("window_id", pa.string()),
        ("started_at", OBSERVED_AT),
        ("ended_at", OBSERVED_AT),
        ("ttft_seconds", pa.float64()),
        ("end_to_end_seconds", pa.float64()),
        ("status", pa.string()),
        ("is_ok", pa.bool_()),
        ("is_gateway_cached", pa.bool_()),
        ("model", pa.string()),
        ("engine", pa.string()),
        ("api_base", pa.string()),
        ("team", pa.string()),
        ("tenant", pa.string()),
        ("key_hash", pa.string()),
        ("input_tokens", pa.int64()),
        ("cached_input_tokens", pa.int64()),
        ("cache_write_input_tokens", pa.int64()),
        ("output_tokens", pa.int64()),
        ("reasoning_output_tokens", pa.int64()),
        ("tokens_basis", pa.string()),
        ("spend_usd", pa.float64()),
        ("stated_concurrency", pa.float64()),
    ]
)
BATCH_ROWS = 8_192
BLOCK_BYTES = 4 << 20  # of lines that are read at once
MOST_HELD = 32_768  # requests without a total of their own, until the others show how to read them
TEXT_CHARACTERS = 1_000
# The longest contexts have 10 million tokens; a line for a whole batch job may have a thousand times that.
MOST_TOKENS = 10_000_000_000
# Batch jobs take up to days; what took over a month is in another unit.
MOST_SECONDS = 30 * 86_400
MOST_USD = 1_000_000
MOST_CONCURRENCY = 1_000_000
_SHA256 = re.compile(r"[0-9a-f]{64}")
PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


class RequestCollector(Protocol):
    """Reads one source of requests.

    `collect` yields batches of REQUEST_SCHEMA of the requests that began in the window (half-open). Rows and files that
    are not readable are counted in `rejects`; too many of them are a SourceError, after the last batch.
    """

    source: str

    def collect(self, window: Window, rejects: Rejects) -> Iterator[pa.RecordBatch]:
        """The requests that began in the window, in batches; what cannot be read goes into `rejects`."""


@dataclass
class Batches:
    """Gathers the rows of a window into batches of at most BATCH_ROWS. Those that the others of their model show how to
    read come last, or MOST_HELD together."""

    window: Window
    source_kind: str
    constants: Mapping[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    held: list[tuple[Reading, dict[str, Any]]] = field(default_factory=list)
    readings: Readings = field(default_factory=Readings)

    def __post_init__(self) -> None:
        self._from_us, self._until_us = self.window.start_us, self.window.end_us

    def add(self, row: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        """Take one request whose times are microseconds; yields a batch when one is full."""
        reading = row.pop("reading", None)
        row = {"source_kind": self.source_kind, **row, **self.constants}
        if reading is not None and reading.beside is not None:
            for part in reading.counted:
                self.readings.learn(reading.api, row.get("model"), part, part in reading.beside)
        if not self._from_us <= row["started_at"] < self._until_us:
            return
        if reading is not None and reading.beside is None:
            self.held.append((reading, row))
            if len(self.held) >= MOST_HELD:
                yield from self._settled()
            return
        yield from self._added(row)

    def _added(self, row: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        self.rows.append(row)
        if len(self.rows) >= BATCH_ROWS:
            yield from self.rest()

    def _settled(self) -> Iterator[pa.RecordBatch]:
        for reading, row in self.held:
            yield from self._added(row | self.readings.columns(reading, row.get("model")))
        self.held.clear()

    def add_columns(self, columns: Mapping[str, pa.Array], count: int) -> Iterator[pa.RecordBatch]:
        """Take `count` requests by column; what waits goes first."""
        yield from self.rest()
        given = {"source_kind": self.source_kind, **self.constants}
        arrays = [
            pa.repeat(pa.scalar(given[field.name], field.type), count)
            if field.name in given
            else columns.get(field.name, pa.nulls(count, field.type))
            for field in REQUEST_SCHEMA
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=REQUEST_SCHEMA)
        # Such rows have totals, and their parts are within.
        for part, name in PARTS.items():
            if name in columns:
                has_part = pc.fill_null(pc.greater(batch.column(name), 0), False)
                for model in pc.unique(pc.filter(batch.column("model"), has_part)).to_pylist():
                    self.readings.learn(CHAT, model, part, False)
        started = pc.cast(batch.column("started_at"), pa.int64())
        inside = pc.and_(pc.greater_equal(started, self._from_us), pc.less(started, self._until_us))
        if (kept := batch.filter(inside)).num_rows:
            yield kept

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What is gathered."""
        if self.rows:
            yield pa.RecordBatch.from_pylist(self.rows, REQUEST_SCHEMA)
            self.rows.clear()

    def last(self) -> Iterator[pa.RecordBatch]:
        """What is still waiting once all rows are added."""
        yield from self._settled()
        yield from self.rest()


class FileCollector:
    """Reads the requests in the files of a path, a glob or a folder; `constants` are columns that no file has.

    A kind of log adds its `source_kind`, how its files in a folder are called (`inside`), and how one is read.
    """

    source_kind: str
    inside: str
    has_columns = False  # whether its rows are lines that `columns_of` reads many at a time

    def __init__(self, source: str, path: str, constants: Mapping[str, Any], askers: Askers = NO_USERS) -> None:
        self.source = source
        self.path = path
        self.constants = constants
        self.askers = askers

    def read(
        self, path: str, rejects: Rejects
    ) -> tuple[Iterable[tuple[str, Any]], Callable[[Any], dict[str, Any] | None]]:
        """(place, row) of each row of a file, and what makes a request of a row, or raises Reject; None of a row that
        is of something else. SourceError for a file that is not readable at all."""
        raise NotImplementedError

    def columns_of(self, rows: Sequence[bytes]) -> Mapping[str, pa.Array] | None:
        """Some columns of REQUEST_SCHEMA of these lines, as `read` would make them line by line; the others are NULL.
        None where one of the lines has to be read by itself."""
        raise NotImplementedError

    def collect(self, window: Window, rejects: Rejects) -> Iterator[pa.RecordBatch]:
        """Batches of the requests that began in the window, in file order; see Batches for those that wait."""
        batches = Batches(window, self.source_kind, self.constants)
        for path in paths_of(self.path, self.inside):
            try:
                rows, make = self.read(path, rejects)
            except SourceError as refusal:
                rejects.add(refusal.url, refusal.reason)
                continue
            for block in self._parts(rows, make) if self.has_columns else [rows]:
                if isinstance(block, list) and (columns := self.columns_of([row for _, row in block])) is not None:
                    rejects.read += len(block)
                    yield from batches.add_columns(columns, len(block))
                    continue
                for request in readable(block, make, rejects):
                    if request is not None:
                        yield from batches.add(request)
        yield from batches.last()
        self.check()
        rejects.check(self.path)

    def _parts(
        self, rows: Iterable[tuple[str, Any]], make: Callable[[Any], dict[str, Any] | None]
    ) -> Iterable[Iterable[tuple[str, Any]]]:
        """The rows of a file in blocks; together where the first is bad: of a file of something else, few are read."""
        left = iter(rows)
        if (first := next(left, None)) is None:
            return
        whole = chain([first], left)
        try:
            make(first[1])
        except Reject:
            yield whole
        else:
            yield from blocks(whole, BATCH_ROWS, BLOCK_BYTES)

    def check(self) -> None:
        """SourceError where the files are not what the source states; asked when all are read."""


# --- values -----------------------------------------------------------------------------------------------------------


def text(value: Any, name: str) -> str | None:
    """A name as it is in the log; None where it is empty."""
    if value is None or value == "":
        return None
    if isinstance(value, bool | int):
        value = str(value)
    if not isinstance(value, str) or len(value) > TEXT_CHARACTERS:
        raise Reject(f"{name}: got {quoted(value)}, expected a text of at most {TEXT_CHARACTERS} characters")
    return value


def tokens(value: Any, name: str) -> int | None:
    """A count of tokens; None where there is none."""
    number = _number(value, name, "a count of tokens")
    if number is None:
        return None
    if not 0 <= number <= MOST_TOKENS or number != int(number):
        raise Reject(f"{name}: got {quoted(value)}, expected a count of tokens, at most {MOST_TOKENS:,}")
    return int(number)


def seconds(value: Any, name: str, per_second: float = 1.0) -> float | None:
    """A stretch of time in seconds, of a number that counts `per_second` of them; None where there is none."""
    number = _number(value, name, "a number")
    if number is None:
        return None
    if not 0 <= number <= MOST_SECONDS * per_second:
        raise Reject(f"{name}: got {quoted(value)}, expected 0 to {MOST_SECONDS} s")
    return number / per_second


def usd(value: Any, name: str) -> float | None:
    """Dollars; None where there are none."""
    number = _number(value, name, "a number")
    if number is None:
        return None
    if not 0 <= number <= MOST_USD:
        raise Reject(f"{name}: got {quoted(value)}, expected 0 to {MOST_USD:,} USD")
    return float(number)


def concurrency(value: Any, name: str) -> float | None:
    """How many requests a load test kept running; None where that is not stated, or 0 for not bounded."""
    number = _number(value, name, "a number")
    if not number:
        return None
    if not 0 < number <= MOST_CONCURRENCY:
        raise Reject(
            f"{name}: got {quoted(value)}, expected a number of requests at once, at most {MOST_CONCURRENCY:,}"
        )
    return float(number)


def instant_us(value: Any, name: str, unit: str = "s", zone: str = "UTC") -> int | None:
    """Microseconds since the epoch of ISO text (without an offset it is of `zone`) or of a number of `unit` since the
    epoch; None where there is none. Reject for a time outside this century."""
    if value is None or value == "":
        return None
    if isinstance(value, datetime):
        at: int | float = microseconds(value if value.tzinfo else value.replace(tzinfo=UTC))
    elif isinstance(value, str) and not value.replace(".", "", 1).isdigit():
        at = _iso_us(value, name, zone)
    else:
        number = _number(value, name, "a time") or 0
        per_second = PER_SECOND[unit]
        # Whole numbers stay exact.
        is_whole = isinstance(number, int)
        at = number * 1_000_000 // per_second if is_whole else number * (1_000_000 / per_second)
    if not FIRST_US <= at < END_US:
        raise Reject(f"{name}: got {quoted(value)}, expected a time of this century")
    return round(at)


def key_hash(value: Any, name: str) -> str | None:
    """A key as it may be stored: a hash as it came, anything else hashed (as LiteLLM does it: SHA-256, hexadecimal)."""
    key = text(value, name)
    if key is None:
        return None
    if _SHA256.fullmatch(key):
        return key
    return hashlib.sha256(key.removeprefix("Bearer ").encode("utf-8", "surrogatepass")).hexdigest()


def between(start_us: int, end_us: int | None, name: str) -> float | None:
    """Seconds from start to end; Reject when the end comes first."""
    if end_us is None:
        return None
    if end_us < start_us:
        raise Reject(f"{name}: ends {(start_us - end_us) / 1e6:g} s before it starts")
    took_seconds = (end_us - start_us) / 1e6
    if took_seconds > MOST_SECONDS:
        raise Reject(f"{name}: ends {took_seconds:g} s after the start, expected at most {MOST_SECONDS} s")
    return took_seconds


def _iso_us(value: str, name: str, zone: str) -> int:
    # Some logs have seven digits of a second; Python reads at most six.
    head, point, tail = value.strip().partition(".")
    digits = len(tail) - len(tail.lstrip("0123456789"))
    try:
        at = datetime.fromisoformat(f"{head}{point}{tail[: min(digits, 6)]}{tail[digits:]}")
    except ValueError:
        raise Reject(f"{name}: got {quoted(value)}, expected a time such as 2026-10-01T00:00:00Z") from None
    at = at if at.tzinfo else at.replace(tzinfo=ZoneInfo(zone))
    if at.utcoffset() != at.replace(fold=1).utcoffset():
        raise Reject(f"{name}: got {quoted(value)}, which the clocks of {zone} had twice or never")
    return microseconds(at)


def _number(value: Any, name: str, expected: str) -> int | float | None:
    if value is None or value == "":
        return None
    if isinstance(value, str):
        try:
            return number_of(value)
        except ValueError:
            pass
    elif isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value):
        return value
    raise Reject(f"{name}: got {quoted(value)}, expected {expected}")
