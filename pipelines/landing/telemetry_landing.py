"""Landing: one source's answer for one stretch of a UTC day becomes rows of schema `raw`, in one transaction.

Add here what has to hold for every source: that landing twice gives the same rows, that less never replaces more, that
a crash leaves the state before or after. Keep out what is particular to a kind of source (collectors) and what a run
decides (telemetry).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from collectors.collector import Collector
from collectors.limits import DEFAULTS
from collectors.samples import SAMPLE_SCHEMA, Family, SourceError, Window
from collectors.series import SeriesRegister
from pipelines.landing import source_counts, stale_dates
from pipelines.landing.prefetch import read_ahead
from pipelines.landing.stores import HeldDay, Store, WarehouseStore
from pipelines.warehouse import database, due_dates, statements

TELEMETRY = "raw/telemetry"
TABLES = {"power": "power_samples", "tokens": "token_samples"}

# Rows handed to DuckDB at once. One statement costs about 3 ms: 8 M rows went in at 11 M rows/s in groups of 200,000 to
# 1,000,000 and no slower than one reader over all (2 cores, DuckDB 2.0), while a small group keeps memory flat.
GROUP_ROWS = 500_000


@dataclass(frozen=True)
class Landing:
    """What became of one (source, window): the row of raw.landings.

    `outcome` is landed, unchanged (same counts and same ends of every series), empty, refused_fewer, failed, or
    given_up (`relanding`: it is due no longer).
    `rows` is what the source gave, `rows_before` what the window held. `detail` is the reason, or what could not be
    read.
    """

    source: str
    window: Window
    outcome: str
    rows: int
    rows_before: int
    url: str | None = None
    status: str | None = None
    detail: str | None = None

    @classmethod
    def failed(cls, source: str, window: Window, failure: SourceError, rows_before: int = 0) -> Landing:
        """What became of a window that the source did not answer."""
        status = None if failure.status is None else str(failure.status)
        return cls(source, window, "failed", 0, rows_before, failure.url or None, status, failure.reason[:1000])

    @property
    def is_answered(self) -> bool:
        """Whether the source gave a usable answer."""
        return self.outcome not in ("failed", "refused_fewer")


@dataclass(frozen=True)
class Catalogue:
    """What landing knows about meaning: the families to ask for, the labels that identify a device, and the dates
    [start, end) that the fleet books. Rows of other dates are only their neighbours."""

    families: Mapping[str, Family]
    device_labels: list[tuple[str, str, int, str]]
    booked_dates: tuple[date, date | None] | None = None


def land(
    connection: duckdb.DuckDBPyConnection,
    collector: Collector,
    window: Window,
    catalogue: Catalogue,
    *,
    run_id: str,
    store: Store | None = None,
    replica_labels: Collection[str] = (),
    tenant_labels: Collection[str] = (),
    most_series: int = DEFAULTS.series,
    is_neighbour: bool = False,
    is_merged: bool = False,
    counts: pa.Table | None = None,
    force: bool = False,
    is_a_look: bool = False,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Landing:
    """Land what `collector` holds in `window`, which is within one UTC day, and audit it.

    One transaction replaces the (source, day)'s samples and chunks, or, for a source that `is_additive`, merges into
    them; with `is_merged` too: late data of a source that may have forgotten other samples of the day. An answer with
    fewer rows than the day holds is refused unless `force`. What goes wrong in the source is an outcome, not an
    exception; what goes wrong in the warehouse is raised. Either way the old rows stay. `is_neighbour` is true for a
    window that only opens or closes its day, as a neighbour of the next or previous day: a source that has nothing
    there has not failed. `counts` is what the source answered just before about the number of its samples; it is kept
    with them. `store` is where samples are kept: by default the warehouse.
    `is_a_look` is true where the rows are not kept: the source then forgets nothing.
    """
    register = SeriesRegister(collector.source, window, replica_labels, most_series, tenant_labels)
    samples = (store or WarehouseStore()).day(connection, collector.source, window)
    is_additive = is_merged or getattr(collector, "is_additive", False)
    unit = _Unit(connection, samples, collector, window, catalogue, register, is_neighbour, is_additive)
    with database.one_thread(connection):
        connection.execute("begin")
        try:
            landing = unit.merge() if is_additive else unit.replace(force)
            kept = landing.outcome in ("landed", "unchanged")
            if not kept:
                connection.execute("rollback")
                samples.discard()
                connection.execute("begin")
            unit.note_unknown_families()
            audit(connection, landing, run_id, now())
            if kept:
                if counts is not None:
                    question = source_counts.question_of(catalogue.families)
                    source_counts.remember(connection, collector.source, window.start_at.date(), question, counts)
                samples.seal(unit.chunks())
            connection.execute("commit")
        except SourceError as failure:
            connection.execute("rollback")
            samples.discard()
            landing = Landing.failed(collector.source, window, failure, unit.rows_held())
            unit.note_unknown_families(has_failed=True)
            audit(connection, landing, run_id, now())
            return landing
        except BaseException:
            connection.execute("rollback")
            samples.discard()
            raise
    if kept:
        samples.settle()
    if landing.is_answered and hasattr(collector, "landed") and not is_a_look:
        collector.landed(window)  # only now may a spool forget what it held
    return landing


def audit(
    connection: duckdb.DuckDBPyConnection,
    landing: Landing,
    run_id: str,
    landed_at: datetime,
    asset: str = TELEMETRY,
) -> None:
    """Write one row of raw.landings."""
    connection.execute(
        "insert into raw.landings values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            landed_at,
            run_id,
            asset,
            landing.source,
            landing.window.start_at,
            landing.window.end_at,
            landing.outcome,
            landing.rows,
            landing.rows_before,
            landing.url,
            landing.status,
            landing.detail,
        ],
    ).fetchall()


@dataclass
class _Unit:
    """One landing in its transaction."""

    connection: duckdb.DuckDBPyConnection
    samples: HeldDay
    collector: Collector
    window: Window
    catalogue: Catalogue
    register: SeriesRegister
    is_neighbour: bool
    is_additive: bool

    def __post_init__(self) -> None:
        self.source = self.collector.source
        self.day = stale_dates.utc_day(self.window)
        self.before = stale_dates.chunks(self.connection, self.source, self.window)
        self.problems_before = len(getattr(self.collector, "problems", ()))

    def rows_held(self) -> int:
        """Rows that the day held before, by its chunks: counting the samples again would scan them."""
        return rows_of(self.before)

    def replace(self, force: bool) -> Landing:
        held = self.rows_held()
        if self.before.num_rows:
            self.samples.clear()
        self._stream()
        chunks = self.register.chunk_table()
        rows = rows_of(chunks)
        if rows < held and not force:
            return self._landing("refused_fewer", rows, f"the source gave {rows} rows, {held} are held; they stay")
        if rows == 0 and held == 0:
            return self._empty()
        remember_series(self.connection, self.register.series_table())
        # Rows that overlapped as they came (a clock jump, files in no order) have no count of falls and repeats yet.
        overlap = pc.is_in(chunks["series_id"], self._overlapping())
        recounted = self.samples.recount(chunks.filter(overlap)).cast(chunks.schema)
        chunks = pa.concat_tables([chunks.filter(pc.invert(overlap)), recounted])
        replace_chunks(self.connection, self.source, self.day, chunks)
        return self._settled(rows)

    def merge(self) -> Landing:
        self._stream()
        came = self.register.chunk_table()
        rows = rows_of(came)
        if rows == 0:
            return self._empty()
        remember_series(self.connection, self.register.series_table())
        # What came alone and once needs no merging: a spool that is landed daily pays nothing for being additive.
        repeated = came.filter(pc.greater(came["duplicates"], 0))["series_id"]
        mixed = pa.chunked_array([*self.before["series_id"].chunks, *repeated.chunks, self._overlapping()], pa.int64())
        shared = pc.is_in(came["series_id"], mixed)
        merged = self.samples.merge(came.filter(shared))
        alone = came.filter(pc.invert(shared))
        replace_chunks(
            self.connection, self.source, self.day, pa.concat_tables([alone, merged.cast(alone.schema)]), came
        )
        return self._settled(rows)

    def note_unknown_families(self, *, has_failed: bool = False) -> None:
        """Families that the source holds and the catalogue does not know, and the devices that they are about. Of each
        the newest window counts; what the catalogue has got rows for is forgotten."""
        self._forget_known_families()
        seen = {"source": self.source, "seen_at": self.window.end_at}
        unknown = self.register.unknown_table()
        if unknown.num_rows:
            with database.registered(self.connection, unknown_seen=unknown):
                self.connection.execute(statements.read(__file__, "unknown_families"), seen).fetchall()
        if self.is_neighbour:
            return  # an hour may have less devices than its day
        is_partial = has_failed or self.register.unlisted is not None
        is_additive = is_partial or self.is_additive
        with database.registered(self.connection, devices_seen=self.register.unknown_devices_table()):
            older = statements.read(__file__, "older_unknown_devices")
            self.connection.execute(older, {**seen, "is_additive": is_additive}).fetchall()
            self.connection.execute(statements.read(__file__, "unknown_devices"), seen).fetchall()

    def _forget_known_families(self) -> None:
        for table in ("unknown_families", "unknown_devices"):
            self.connection.execute(
                f"delete from raw.{table} where source = ? and metric in (select unnest(?))",
                [self.source, list(self.catalogue.families)],
            ).fetchall()

    def _landing(self, outcome: str, rows: int, detail: str | None = None) -> Landing:
        url = getattr(self.collector, "url", None)
        detail = "; ".join(filter(None, [detail, self._unreadable(), self.register.unlisted]))[:1000] or None
        return Landing(self.source, self.window, outcome, rows, self.rows_held(), url=url, detail=detail)

    def _empty(self) -> Landing:
        """Nothing to land: an empty source, or one of which nothing can be read."""
        if (unreadable := self._unreadable()) and not self.is_neighbour:
            raise SourceError(getattr(self.collector, "url", ""), None, unreadable)
        return self._landing("empty", 0)

    def _unreadable(self) -> str:
        """What could not be read of the source: how many rows, and where the first are; the names of files."""
        rejected = str(self.register.rejects)
        problems = getattr(self.collector, "problems", [])[self.problems_before :]
        return "; ".join([*([rejected] if rejected else []), *problems])

    def _stream(self) -> None:
        """Insert the source's batches as they come, a group of one stream at a time."""
        waiting: dict[str, list[pa.RecordBatch]] = {stream: [] for stream in TABLES}
        families = self.catalogue.families
        for batch in read_ahead(
            self.collector, self.window, lambda: self.collector.collect(self.window, families, self.register)
        ):
            group = waiting[batch.stream]
            group.append(batch.samples)
            if sum(samples.num_rows for samples in group) >= GROUP_ROWS:
                self._insert(TABLES[batch.stream], group)
                group.clear()
        for stream, group in waiting.items():
            if group:
                self._insert(TABLES[stream], group)

    def _insert(self, table: str, group: list[pa.RecordBatch]) -> None:
        samples = pa.Table.from_batches(group, SAMPLE_SCHEMA)
        times = pc.min_max(samples["observed_at"]).as_py()
        if times["min"] is not None and not self.window.start_at <= times["min"] <= times["max"] < self.window.end_at:
            raise ValueError(f"{self.source} gave samples of {times['min']} to {times['max']} for window {self.window}")
        self.samples.insert(table, samples)

    def _overlapping(self) -> pa.Array:
        return pa.array(self.register.overlapping_series(), pa.int64())

    def chunks(self) -> pa.Table:
        """The day's rows of raw.series_chunks as they are now."""
        return stale_dates.chunks(self.connection, self.source, self.window)

    def _settled(self, rows: int) -> Landing:
        """Note in the same transaction which dates became stale."""
        after, on = self.chunks(), self.day.start_at.date()
        changed = stale_dates.mark_stale(
            self.connection,
            self.before,
            after,
            self.catalogue.device_labels,
            is_head=self.is_neighbour,
            booked_dates=self.catalogue.booked_dates,
        )
        is_same = changed == 0 and rows_of(after) == self.rows_held()
        if not self.is_neighbour and (not is_same or due_dates.unasked(self.connection, on, on + timedelta(days=1))):
            # Also where all ends stay: a gap within the day that is filled, or a day that was a neighbour before.
            self._mark_day_due()
        return self._landing("unchanged" if is_same else "landed", rows)

    def _mark_day_due(self) -> None:
        on = self.day.start_at.date()
        start, end = self.catalogue.booked_dates or (date.min, None)
        if start <= on < (end or date.max):
            due_dates.mark(self.connection, due_dates.BOOKING, on, on + timedelta(days=1), landing=on)


def remember_series(connection: duckdb.DuckDBPyConnection, series: pa.Table) -> None:
    """Add rows of raw.series, or widen the times of those that are known."""
    with database.registered(connection, series_seen=series):
        connection.execute(
            """
            merge into raw.series as held using series_seen as seen on held.series_id = seen.series_id
            when matched then update set
                first_seen_at = least(held.first_seen_at, seen.first_seen_at),
                last_seen_at = greatest(held.last_seen_at, seen.last_seen_at)
            when not matched then insert by name
            """
        ).fetchall()


def replace_chunks(
    connection: duckdb.DuckDBPyConnection, source: str, day: Window, chunks: pa.Table, of: pa.Table | None = None
) -> None:
    """Replace the day's rows of raw.series_chunks of a source; with `of`, only those of its series_id."""
    one_by_one = "" if of is None else "and series_id in (select series_id from chunks_chosen)"
    with database.registered(connection, chunks_seen=chunks, chunks_chosen=chunks if of is None else of):
        connection.execute(
            f"""
            delete from raw.series_chunks
            where source = ? and chunk_start_at >= ? and chunk_start_at < ? {one_by_one}
            """,
            [source, day.start_at, day.end_at],
        ).fetchall()
        connection.execute("insert into raw.series_chunks by name select * from chunks_seen").fetchall()


def rows_of(chunks: pa.Table) -> int:
    """Valid and rejected rows, by the facts: also what a file held and no table can, such as a row without a time."""
    return sum(pc.sum(chunks[name]).as_py() or 0 for name in ("samples", "rejects"))
