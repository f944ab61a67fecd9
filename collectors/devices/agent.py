"""The agent: reads NVML and pages at fixed intervals, and writes the readings to a spool.

Add here when sources are looked at, and for how long. Keep out how a source is read (`nvml`, `exposition`), how samples
are kept (`spool_writer`), and the command line (`__main__`).
"""

from __future__ import annotations

import csv
import json
import logging
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from arro3.core import Array, DataType, Field, Schema, Table
from arro3.io import write_parquet

from collectors.catalogue import CATALOGUE_FOLDERS, SPELLINGS, spelled
from collectors.devices.nvml import READERS, NvmlSampler
from collectors.devices.spool_writer import COMPRESSION, OBSERVED_AT, SpoolWriter
from collectors.readings import Reading
from collectors.source_errors import SourceError, printable

BUNDLED_CATALOGUE = next(filter(Path.is_file, (folder / "metric_catalog.csv" for folder in CATALOGUE_FOLDERS)))
UNKNOWN_KIND = "page"
# How long a stopping agent waits for a look that hangs; then it writes the readings that it has.
STOP_PATIENCE_SECONDS = 10.0

log = logging.getLogger(__name__)


class Sampler(Protocol):
    """What can be looked at: `NvmlSampler`, `ExpositionPage`.

    After a look, `problems` names what it could not read. `unknown` has the metrics that it saw and did not keep, each
    with its number of series, and `unknown_labels` labels of those that look like a device's power or energy.
    """

    url: str
    unknown: dict[str, int]
    unknown_labels: dict[str, list[str]]

    @property
    def problems(self) -> list[str]:
        """What the newest look had to leave out, a line each."""

    def look(self) -> list[Reading]:
        """One reading per series, as of now. Raises SourceError."""


class Watch(NamedTuple):
    """A sampler and the seconds from one look at it to the next."""

    sampler: Sampler
    interval_seconds: float


class Ticker:
    """Deadlines at start + k × interval: a late look does not delay the next ones, and missed ones are skipped."""

    def __init__(self, interval_seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._interval_seconds = interval_seconds
        self._monotonic = monotonic
        self._start_seconds = monotonic()
        self._tick = 0
        self.skipped = 0

    def wait_seconds(self) -> float:
        """Seconds from now to the next deadline; call it once per tick."""
        elapsed = self._monotonic() - self._start_seconds
        next_tick = max(self._tick + 1, int(elapsed // self._interval_seconds) + 1)
        self.skipped += next_tick - self._tick - 1
        self._tick = next_tick
        return max(0.0, next_tick * self._interval_seconds - elapsed)


def read_families(path: Path) -> dict[str, str]:
    """Metric name -> source kind, from a CSV with a column `metric` (and `source_kind`) or from one name per line.

    Other spellings of a CSV's names are those of the file of spellings beside it.

    OSError where a file cannot be read, ValueError where it holds no name.
    """
    with path.open(newline="", encoding="utf-8") as file:
        lines = [line for line in file if line.strip() and not line.startswith("#")]
    header = next(csv.reader(lines[:1]), [])
    if "metric" in header:
        rows = spelled(csv.DictReader(lines), path.with_name(SPELLINGS))
        families = {row["metric"]: row.get("source_kind") or UNKNOWN_KIND for row in rows}
    else:
        families = {line.strip(): UNKNOWN_KIND for line in lines}
    if not families:
        raise ValueError(f"{path} holds no metric name")
    return families


def families_to_keep(path: Path | None) -> dict[str, str]:
    """The families that `path` lists; without a path, those of the project's catalogue."""
    return read_families(path or BUNDLED_CATALOGUE)


def run_agent(watches: Sequence[Watch], spool: SpoolWriter) -> int:
    """Look and write until SIGTERM or SIGINT, then write the last rows. Exit status 1: these could not be written.

    Each sampler has a thread of its own, so that a page which hangs or a lost GPU delays no other; the spool is
    written by the caller's thread, which must be the main one.
    """
    halt = threading.Event()
    threads = [
        threading.Thread(target=_watch, args=(watch, spool, halt), name=watch.sampler.url, daemon=True)
        for watch in watches
    ]
    with stop_signal() as stopped_within:
        for thread in threads:
            thread.start()
        # Wait one second at most: a sampler's thread that fills a batch makes the spool due at once.
        while not stopped_within(min(1.0, spool.due_in_seconds())):
            if spool.due_in_seconds() == 0:
                spool.flush()
    halt.set()
    give_up_at = time.monotonic() + STOP_PATIENCE_SECONDS
    for thread in threads:
        thread.join(max(0.0, give_up_at - time.monotonic()))
    is_written = spool.flush()
    lost_rows = spool.dropped_rows + (0 if is_written else spool.waiting_rows)
    log.info("stopped: %d rows in %d files, %d rows lost", spool.written_rows, spool.written_files, lost_rows)
    return 0 if is_written else 1


def _watch(watch: Watch, spool: SpoolWriter, halt: threading.Event) -> None:
    sampler = watch.sampler
    ticker = Ticker(watch.interval_seconds)
    state: str | None = None
    while not halt.is_set():
        readings: list[Reading] = []
        try:
            readings = sampler.look()
            now = "; ".join(sampler.problems)
        except SourceError as error:
            now = error.reason if error.status is None else f"HTTP {error.status}: {error.reason}"
        except Exception as error:  # a thread that died would leave a gap without a message
            now = printable(f"{type(error).__name__}: {error}")
        if now != state:
            if now:
                log.warning("%s: %s", sampler.url, now)
            else:
                log.info("%s: %s", sampler.url, "answers" if state is None else "answers again")
            state = now
        spool.add(readings, sampler.unknown, sampler.unknown_labels)
        halt.wait(ticker.wait_seconds())


def record(sampler: NvmlSampler, out: Path, duration_seconds: float, interval_seconds: float) -> int:
    """Sample NVML into one Parquet file for the `files` collector: a row per board and look; returns the rows.

    Columns: observed_at (us, UTC), uuid, node, device_type, pci_bus_id, then one float64 column per metric, null where
    the board does not support it. The file's metadata has driver, boards and start. Ends at SIGTERM and SIGINT too.
    Raises SourceError when the first look fails; later failures leave a gap.
    """
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    rows = _wide_rows(sampler.look())
    boards = sorted({device.labels["device_type"] for device in sampler.devices})
    facts = {"driver": sampler.driver_version(), "boards": ", ".join(boards), "started_at": started_at}
    ticker = Ticker(interval_seconds)
    ends_at = time.monotonic() + duration_seconds
    with stop_signal() as stopped_within:
        while time.monotonic() < ends_at and not stopped_within(ticker.wait_seconds()):
            try:
                rows += _wide_rows(sampler.look())
            except SourceError as error:
                log.warning("%s", error)
    names = ("uuid", "node", "device_type", "pci_bus_id")
    types = {**dict.fromkeys(names, DataType.string()), **dict.fromkeys(READERS, DataType.float64())}
    schema = Schema(
        [Field("observed_at", OBSERVED_AT), *(Field(name, of_column) for name, of_column in types.items())],
        metadata={f"wattledger_{key}": value for key, value in facts.items()},
    )
    columns = [Array([row["observed_at"] for row in rows], DataType.int64()).cast(OBSERVED_AT)]
    columns += [Array([row.get(name) for row in rows], of_column) for name, of_column in types.items()]
    write_parquet(Table.from_arrays(columns, schema=schema), out, compression=COMPRESSION)
    return len(rows)


def _wide_rows(readings: Sequence[Reading]) -> list[dict[str, Any]]:
    rows: dict[tuple[int, str], dict[str, Any]] = {}
    for reading in readings:
        key = (reading.observed_us, reading.labels)
        row = rows.setdefault(key, {"observed_at": reading.observed_us, **json.loads(reading.labels)})
        row[reading.metric] = reading.value
    return list(rows.values())


@contextmanager
def stop_signal() -> Iterator[Callable[[float], bool]]:
    """In this context a first SIGTERM or SIGINT does not end the process. The function that it yields waits for one, at
    most as many seconds as it is given, and returns whether one arrived.

    If one arrives while the caller is busy, the next wait returns at once. A second signal of the same kind ends the
    process.
    """
    # The interpreter itself writes to this socket. An Event, set by the handler, could deadlock with the thread that
    # waits for it.
    awake, asleep = socket.socketpair()
    asleep.setblocking(False)
    earlier = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def noted(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)

    earlier_descriptor = signal.set_wakeup_fd(asleep.fileno())
    for number in earlier:
        signal.signal(number, noted)
    try:
        yield lambda seconds: bool(select.select([awake], [], [], seconds)[0])
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(earlier_descriptor)
        awake.close()
        asleep.close()
