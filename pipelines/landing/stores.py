"""Where the samples of a landing are stored: in the warehouse itself, or in a lake beside it.

Landing, collectors and assets use a `Store` and do not know which. The small tables (series, chunks, audit) are
rows of the warehouse with both. Add a store here for another place of samples. Keep out what holds for every
landing (`telemetry_landing`) and where files are in a lake (`lake`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import duckdb
import pyarrow as pa

from collectors import file_systems
from collectors.samples import SAMPLE_SCHEMA, Window, url_without_secrets
from pipelines.fleet.fleet_errors import FleetError
from pipelines.fleet.sources import SpoolSource
from pipelines.landing import merging, stale_dates
from pipelines.landing.lake import SAMPLE_TABLES, TABLES, Lake, LakeError, Manifest, folder, new_landing_id
from pipelines.landing.parquet_files import Writer
from pipelines.warehouse import database, step_deadline
from pipelines.warehouse.raw_tables import create_tables

if TYPE_CHECKING:
    from pipelines.fleet.fleet_file import Fleet
    from pipelines.fleet.landing_targets import LandingLimits

Result = TypeVar("Result")

logger = logging.getLogger(__name__)


class HeldDay(Protocol):
    """The samples of one (source, UTC day) while a landing changes them, inside the landing's transaction.

    First `clear` or nothing, then `insert`s, perhaps `merge` or `recount`; then `seal` as the last step before the
    transaction commits and `settle` after it; or `discard` after a rollback. Until `seal`, readers see the old rows.
    """

    def clear(self) -> None:
        """Delete the rows that the warehouse already holds of this window."""

    def insert(self, table: str, samples: pa.Table) -> None:
        """Add rows of SAMPLE_SCHEMA to power_samples or token_samples."""

    def merge(self, came: pa.Table) -> pa.Table:
        """Leave one row per (series, time) of the series in `came`; see `merging`. Returns their chunks, recounted."""

    def recount(self, came: pa.Table) -> pa.Table:
        """Insert every row of the series in `came`, and return their chunks, counted in time order."""

    def seal(self, chunks: pa.Table) -> None:
        """Make the new rows the ones that count. `chunks` is what raw.series_chunks now holds of the day."""

    def settle(self) -> None:
        """The landing is committed."""

    def discard(self) -> None:
        """The landing is rolled back."""


class WarehouseStore:
    """Samples are rows of raw.power_samples and raw.token_samples; the transaction does the rest."""

    def day(self, connection: duckdb.DuckDBPyConnection, source: str, window: Window) -> HeldDay:
        """The samples of a source on the day, in tables of the warehouse."""
        return _WarehouseDay(connection, source, stale_dates.utc_day(window))


class LakeStore:
    """Samples are files of a lake. The manifest put comes before the warehouse's commit; `healing` closes the gap."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake

    def day(self, connection: duckdb.DuckDBPyConnection, source: str, window: Window) -> HeldDay:
        """The samples of a source on the day, in files of the lake."""
        return _LakeDay(self.lake, connection, source, window)


Store = WarehouseStore | LakeStore


def store_of(fleet: Fleet) -> Store:
    """The store that the fleet file names. LakeError when no installed package serves the lake's URL."""
    return LakeStore(Lake(fleet.landing.lake_path)) if fleet.landing.target == "lake" else WarehouseStore()


def within_limits(fleet: Fleet, land: Callable[..., Result], *arguments: Any) -> Result:
    """What `land(*arguments)` returns or raises. Where a server holds the lake or a spool, in a process of its own,
    which ends once no window was landed for `landing.limits.window_seconds`: LakeError then."""
    places = [source.path for source in fleet.sources if isinstance(source, SpoolSource)]
    if fleet.landing.path is not None:
        places.insert(0, fleet.landing.path)
    remote = [url_without_secrets(place) for place in places if file_systems.is_remote(place)]
    if not remote:
        return land(*arguments)
    seconds = fleet.landing.limits.window_seconds
    try:
        return step_deadline.within(seconds, land, *arguments)
    except step_deadline.StepTookTooLong:
        raise LakeError(
            f"{', '.join(remote)}: no window was landed for {seconds:g} s, so the landing was ended; what was landed"
            " before stays, and the next run lands the rest. Look whether the store answers; if a day of one source"
            " takes that long, raise landing.limits.window_seconds"
        ) from None


def probe(path: str, limits: LandingLimits) -> None:
    """LakeError unless the lake at `path` can be written, and answers in time."""
    if not file_systems.is_remote(path):
        return _probe(path)
    try:
        return step_deadline.within(limits.answer_seconds, _probe, path)
    except step_deadline.StepTookTooLong:
        raise LakeError(
            f"{url_without_secrets(path)}: no answer within {limits.answer_seconds:g} s"
            " (landing.limits.answer_seconds): is the address right, and the store up?"
        ) from None


def _probe(path: str) -> None:
    Lake(path).probe()


def validate(fleet: Fleet) -> None:
    """FleetError unless the store can be written and is the one that this fleet has landed in so far."""
    is_lake = fleet.landing.target == "lake"
    try:
        if is_lake:
            probe(fleet.landing.lake_path, fleet.landing.limits)
    except LakeError as refusal:
        raise FleetError(fleet.path, [f"landing.path: {refusal}"]) from refusal
    if not fleet.warehouse.exists():
        return
    with database.connect(fleet.warehouse) as connection:
        create_tables(connection)
        is_in_lake = connection.execute("select count(*) from raw.lake_days").fetchall() != [(0,)]
        is_here = any(_holds_rows(connection, table) for table in SAMPLE_TABLES)
        if not is_lake and not is_in_lake:
            _restore_tables(connection)
    if is_here if is_lake else is_in_lake:
        held, wanted = ("the warehouse", "a lake") if is_lake else ("a lake", "the warehouse")
        raise FleetError(
            fleet.path,
            [
                f"landing.target: this fleet's samples are in {held}, not in {wanted}: give the fleet a new name, or"
                f" remove {fleet.warehouse} and land again"
            ],
        )


def _holds_rows(connection: duckdb.DuckDBPyConnection, table: str) -> bool:
    """Whether samples are in the warehouse's own table; a lake's view of that name is no table."""
    return table in database.tables(connection, "raw") and connection.execute(
        f"select 1 from raw.{table} limit 1"
    ).fetchall() == [(1,)]


def _restore_tables(connection: duckdb.DuckDBPyConnection) -> None:
    """Drop the views over a lake if nothing was landed into it."""
    views = connection.execute("select view_name from duckdb_views() where schema_name = 'raw'").fetchall()
    for (view,) in views:
        connection.execute(f"drop view raw.{view}")
    create_tables(connection)


class _WarehouseDay:
    def __init__(self, connection: duckdb.DuckDBPyConnection, source: str, day: Window) -> None:
        self.connection, self.source, self.window = connection, source, day

    def clear(self) -> None:
        for table in SAMPLE_TABLES:
            self.connection.execute(
                f"""
                delete from raw.{table} where observed_at >= ? and observed_at < ?
                and series_id in (select series_id from raw.series where source = ?)
                """,
                [self.window.start_at, self.window.end_at, self.source],
            ).fetchall()

    def insert(self, table: str, samples: pa.Table) -> None:
        # Not `database.registered`: DuckDB keeps a dropped name, and with it the rows, until the transaction ends.
        self.connection.from_arrow(samples).insert_into(f"raw.{table}")

    def merge(self, came: pa.Table) -> pa.Table:
        if not came.num_rows:
            return came
        span = (self.window.start_at, self.window.end_at)
        with database.registered(self.connection, chunks_came=came):
            for table in SAMPLE_TABLES:
                held = f"raw.{table} where observed_at >= ? and observed_at < ? and {merging.OF_CAME}"
                self.connection.execute(
                    f"create or replace temp table merged as {merging.one_per_time(held)}", span
                ).fetchall()
                self.connection.execute(f"delete from {held}", span).fetchall()
                self.connection.execute(f"insert into raw.{table} select * from merged {merging.ORDER}").fetchall()
            self.connection.execute("drop table merged")
        return self.recount(came)

    def recount(self, came: pa.Table) -> pa.Table:
        if not came.num_rows:
            return came
        with database.registered(self.connection, chunks_came=came):
            return merging.recounted(
                self.connection, self.source, self.window, "raw.power_samples", "raw.token_samples"
            )

    def seal(self, chunks: pa.Table) -> None:
        """Nothing: the transaction's commit is what counts."""

    def settle(self) -> None:
        """Nothing is left behind."""

    def discard(self) -> None:
        """Nothing: the rollback was all."""


class _LakeDay:
    def __init__(self, lake: Lake, connection: duckdb.DuckDBPyConnection, source: str, window: Window) -> None:
        self.lake, self.connection, self.source, self.window = lake, connection, source, window
        self.whole = stale_dates.utc_day(window)
        self.date = self.whole.start_at.date()
        self.landing_id = new_landing_id()
        self.is_sealed = False
        manifest = lake.manifest(source, self.date)
        self.held = {table: manifest.files[table] if manifest else () for table in SAMPLE_TABLES}
        self.rows_held = manifest.rows if manifest else 0
        self.is_head_held = manifest is None or manifest.end_at < self.whole.end_at
        self.writers = {table: self._writer(table, SAMPLE_SCHEMA) for table in SAMPLE_TABLES}
        self.superseded: list[Writer] = []

    def clear(self) -> None:
        self.held = dict.fromkeys(SAMPLE_TABLES, ())
        self.rows_held = 0
        self.is_head_held = True

    def insert(self, table: str, samples: pa.Table) -> None:
        self.writers[table].write(samples)

    def merge(self, came: pa.Table) -> pa.Table:
        """Files cannot be changed, so the day is written anew, in order; untouched where nothing is shared."""
        if not came.num_rows:
            return came
        with database.registered(self.connection, chunks_came=came):
            for table in SAMPLE_TABLES:
                arrived = self.writers[table]
                arrived.close()
                self.superseded.append(arrived)
                files = [self.lake.uri(path) for path in (*self.held[table], *arrived.files)]
                rows = f"({self.lake.select(self.connection, files)})"
                query = (
                    f"{merging.one_per_time(f'{rows} where {merging.OF_CAME}')}"
                    f" union all select series_id, observed_at, value from {rows} where not {merging.OF_CAME}"
                    f" {merging.ORDER}"
                )
                self.writers[table] = self._writer(table, SAMPLE_SCHEMA, "merged-")
                if files:
                    for batch in self.connection.sql(query).to_arrow_reader(2**20):
                        self.writers[table].write(batch.cast(SAMPLE_SCHEMA))
                self.writers[table].close()
            self.held, self.rows_held = dict.fromkeys(SAMPLE_TABLES, ()), 0
        return self.recount(came)

    def recount(self, came: pa.Table) -> pa.Table:
        if not came.num_rows:
            return came
        rows = {}
        for table in SAMPLE_TABLES:
            self.writers[table].close()
            files = [self.lake.uri(path) for path in (*self.held[table], *self.writers[table].files)]
            rows[table] = f"({self.lake.select(self.connection, files)})"
        with database.registered(self.connection, chunks_came=came):
            return merging.recounted(
                self.connection, self.source, self.whole, *(rows[table] for table in SAMPLE_TABLES)
            )

    def seal(self, chunks: pa.Table) -> None:
        with database.registered(self.connection, chunks_of_day=chunks):
            series = self.connection.sql(
                "select * from raw.series where series_id in (select series_id from chunks_of_day) order by series_id"
            ).to_arrow_table()
        for table, rows in (("series_chunks", chunks), ("series", series)):
            self.writers[table] = self._writer(table, rows.schema)
            self.writers[table].write(rows)
        for table, writer in self.writers.items():
            writer.close(is_needed=table not in SAMPLE_TABLES)
        remember(self.connection, self.source, self.date, self.landing_id)
        manifest = Manifest(
            self.source,
            self.date,
            self.landing_id,
            self.rows_held + sum(self.writers[table].rows for table in SAMPLE_TABLES),
            self.window.end_at if self.is_head_held else self.whole.end_at,
            {table: (*self.held.get(table, ()), *self.writers[table].files) for table in TABLES},
        )
        # A put that raises may have arrived all the same: from here on its files stay.
        self.is_sealed = True
        self.lake.put_manifest(manifest)

    def settle(self) -> None:
        """Remove what no manifest names: the files replaced, and whatever a crash left of this day."""
        try:
            self.lake.remove(self.lake.orphans(self.source, self.date))
        except Exception as refusal:  # the rows are safe; the day's next landing removes what stays
            logger.warning("%s %s: old files stay in the lake: %s", self.source, self.date, refusal)

    def discard(self) -> None:
        if self.is_sealed:
            return
        for writer in (*self.writers.values(), *self.superseded):
            try:
                writer.abandon()
            except Exception as refusal:  # what made the landing fail is the error to report
                logger.warning("%s %s: a file stays in the lake: %s", self.source, self.date, refusal)

    def _writer(self, table: str, schema: pa.Schema, mark: str = "") -> Writer:
        place = folder(table, self.source, self.date)
        return Writer(self.lake, lambda n: f"{place}/{self.landing_id}-{mark}{n}.parquet", schema)


def remember(connection: duckdb.DuckDBPyConnection, source: str, on: object, landing_id: str) -> None:
    """Note which landing of a lake's (source, date) the warehouse's small tables describe."""
    connection.execute("delete from raw.lake_days where source = ? and date = ?", [source, on]).fetchall()
    connection.execute("insert into raw.lake_days values (?, ?, ?)", [source, on, landing_id]).fetchall()
