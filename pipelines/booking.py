"""Which dates a run has to book: its own, and those whose neighbours a landing changed.

A delta between two samples belongs to every date from the first to the second. So when the first or last sample of an
entity's day changes, its dates back to the previous landed sample, or on to the next, are stale. The dates wait in
raw.due_dates, written in the landing's own transaction, until a run has booked and then published them: a crash in
between forgets nothing. Keep out what a booking computes: that is SQL in `dbt_project`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta

import duckdb
import pyarrow as pa

from collectors.samples import Window
from pipelines import catalog, settings

BOOKING, PUBLICATION, SPARK = "booking", "publication", "spark"
HELD_BACK, PUBLISHED = "held_back", "published"  # to be booked again by themselves; published by this warehouse once


def utc_day(window: Window) -> Window:
    """The UTC day that holds the window; ValueError when it crosses midnight."""
    start_at = datetime.combine(window.start_at.astimezone(UTC).date(), time(), UTC)
    day = Window(start_at, start_at + timedelta(days=1))
    if window.end_at > day.end_at:
        raise ValueError(f"a landing lies within one UTC day, got {window}")
    return day


def chunks(connection: duckdb.DuckDBPyConnection, source: str, window: Window) -> pa.Table:
    """The rows of raw.series_chunks of a source on the window's UTC day."""
    day = utc_day(window)
    return connection.sql(
        "select * from raw.series_chunks where source = ? and chunk_start_at >= ? and chunk_start_at < ?",
        params=[source, day.start_at, day.end_at],
    ).to_arrow_table()


def note(
    connection: duckdb.DuckDBPyConnection,
    before: pa.Table,
    after: pa.Table,
    device_labels: list[tuple[str, str, int]],
    is_head: bool = False,
) -> int:
    """Mark as due the dates that became stale when one (source, day) changed from `before` to `after`.

    Both are rows of raw.series_chunks of that day, the warehouse already holds `after`. `device_labels` are
    (source kind, label, rank) of the labels that hold a device's UUID: a device's counter runs on when its labels
    change, so its neighbours are looked for over all its series. The day of a mere head is not due itself: it will be
    booked when it has landed. Where another meter of the device changed while its counter was silent, all dates of the
    silence are due: the counter's difference is the sum over them. Returns how many entities changed their ends.
    """
    with registered(connection, chunks_before=before, chunks_after=after):
        connection.execute(
            "create or replace temp table device_labels (source_kind varchar, label varchar, rank integer)"
        )
        if device_labels:
            connection.executemany("insert into device_labels values (?, ?, ?)", device_labels)
        changed, day, first, last = connection.execute(_STALE).fetchall()[0]
        counters = catalog.metrics(quantity="energy")
        silent_from, silent_to = connection.execute(
            _SILENT, {"counters": counters, "meters": [*counters, *catalog.metrics(quantity="power")]}
        ).fetchall()[0]
    spans = [span for span in ((first, last), (silent_from, silent_to)) if span[0] is not None]
    for since, until in spans:
        end = until if is_head and until == day else until + timedelta(days=1)
        _mark(connection, BOOKING, since, end)
    return changed


def dates_to_book(
    connection: duckdb.DuckDBPyConnection, start: date, end: date, *, on_spark: bool = False
) -> tuple[date, date]:
    """The run's own dates [start, end) widened to all that are due: one contiguous range, half-open.

    On Spark also to those that DuckDB booked since: Spark's own marts do not have them.
    """
    first, end = _hull(connection, BOOKING, start, end)
    return _hull(connection, SPARK, first, end) if on_spark else (first, end)


def begun(connection: duckdb.DuckDBPyConnection, start: date, end: date) -> None:
    """The dates [start, end) are due until they are `booked`, however this run ends."""
    _mark(connection, BOOKING, start, end)


def missed_by_spark(connection: duckdb.DuckDBPyConnection, start: date, end: date) -> None:
    """DuckDB books the dates [start, end) of a fleet that Spark has booked: Spark's next run has to catch up."""
    _mark(connection, SPARK, start, end)


def dates_to_publish(connection: duckdb.DuckDBPyConnection, start: date, end: date) -> tuple[date, date]:
    """The run's own dates [start, end) widened to all that were booked and not published: half-open."""
    return _hull(connection, PUBLICATION, start, end)


def booked(
    connection: duckdb.DuckDBPyConnection,
    start: date,
    end: date,
    *,
    run_id: str = "",
    on_spark: bool = False,
    told: settings.Constants | None = None,
) -> None:
    """The dates [start, end) are booked by a run, with the settings of today where `told`: they wait for publication.

    Those that are held back (marts.held_back_dates) also wait to be booked again, by themselves: they widen no run.
    """
    connection.execute("begin")
    if told is not None:
        settings.record(connection, start, end, told)
    _clear(connection, BOOKING, start, end)
    _clear(connection, HELD_BACK, start, end)
    if on_spark:
        _clear(connection, SPARK, start, end)
    _mark(connection, PUBLICATION, start, end)
    for on in held_back(connection, start, end):
        _mark(connection, HELD_BACK, on, on + timedelta(days=1))
    connection.execute("insert into raw.bookings values (?, ?, ?)", [run_id, start, end]).fetchall()
    connection.execute("commit")


def held_back(connection: duckdb.DuckDBPyConnection, start: date = date.min, end: date = date.max) -> list[date]:
    """The dates in [start, end) for which an invariant does not hold, in order."""
    if not connection.execute(
        "select count(*) from duckdb_tables() where schema_name = 'marts' and table_name = 'held_back_dates'"
        " and database_name = current_database()"
    ).fetchall()[0][0]:
        return []
    rows = connection.execute(
        "select distinct date from marts.held_back_dates where date >= ? and date < ? order by date", [start, end]
    )
    return [on for (on,) in rows.fetchall()]


def published(connection: duckdb.DuckDBPyConnection, start: date, end: date) -> None:
    """The dates [start, end) are published: nothing waits for them."""
    _clear(connection, PUBLICATION, start, end)
    _mark(connection, PUBLISHED, start, end)


def due(connection: duckdb.DuckDBPyConnection, what: str) -> list[date]:
    """The dates of raw.due_dates that wait for `what`, in order."""
    rows = connection.execute("select date from raw.due_dates where due = ? order by date", [what])
    return [on for (on,) in rows.fetchall()]


def _mark(connection: duckdb.DuckDBPyConnection, due: str, start: date, end: date) -> None:
    connection.execute(
        """
        insert into raw.due_dates
        select stale.date, ? from (select cast(unnest(range(?, ?, interval 1 day)) as date) as date) as stale
        where stale.date not in (select date from raw.due_dates where due = ?)
        """,
        [due, datetime.combine(start, time()), datetime.combine(end, time()), due],
    ).fetchall()


def _clear(connection: duckdb.DuckDBPyConnection, due: str, start: date, end: date) -> None:
    connection.execute(
        "delete from raw.due_dates where due = ? and date >= ? and date < ?", [due, start, end]
    ).fetchall()


def _hull(connection: duckdb.DuckDBPyConnection, due: str, start: date, end: date) -> tuple[date, date]:
    first, last = connection.execute("select min(date), max(date) from raw.due_dates where due = ?", [due]).fetchall()[
        0
    ]
    if first is None:
        return start, end
    return min(start, first), max(end, last + timedelta(days=1))


@contextmanager
def registered(connection: duckdb.DuckDBPyConnection, **tables: pa.Table) -> Iterator[None]:
    """Arrow tables as views of these names for the length of a `with` block."""
    for name, table in tables.items():
        connection.register(name, table)
    try:
        yield
    finally:
        for name in tables:
            connection.unregister(name)


# Counters that were silent over an edge of the landed day, and of whose device another reading changed on it.
_SILENT = """
with touched as (
    select series_id from (
        (select series_id, samples, first_at, first_value, last_at, last_value from chunks_before
            except select series_id, samples, first_at, first_value, last_at, last_value from chunks_after)
        union all
        (select series_id, samples, first_at, first_value, last_at, last_value from chunks_after
            except select series_id, samples, first_at, first_value, last_at, last_value from chunks_before)
    ) as changes
),
landed as (
    select date_trunc('day', min(chunk_start_at)) as start_at
    from (select chunk_start_at from chunks_before union all select chunk_start_at from chunks_after) as either
),
named as (
    select series.series_id, series.source, series.metric, min_by(
        json_extract_string(series.labels, '$."' || device_labels.label || '"'), device_labels.rank
    ) filter (where json_extract_string(series.labels, '$."' || device_labels.label || '"') is not null) as device
    from raw.series as series
    left join device_labels on device_labels.source_kind = series.source_kind
    where exists (select 1 from touched) and list_contains($meters, series.metric)
    group by series.series_id, series.source, series.metric
),
touched_readings as (
    select distinct source, metric, device from named join touched using (series_id)
),
counters as (
    select distinct named.* from named
    join touched_readings as other
        on named.device is not distinct from other.device
        and row(named.source, named.metric) is distinct from row(other.source, other.metric)
    where list_contains($counters, named.metric)
),
edges as (
    select start_at as edge_at from landed union all select start_at + interval 1 day from landed
),
silences as (
    select edges.edge_at,
        max(held.last_at) filter (where held.last_at < edges.edge_at) as from_at,
        min(held.first_at) filter (where held.first_at >= edges.edge_at) as to_at,
        min_by(held.typical_interval_seconds, held.first_at) filter (where held.first_at >= edges.edge_at)
            as interval_seconds
    from counters
    join raw.series_chunks as held on held.series_id = counters.series_id and held.samples > 0
    cross join edges
    group by edges.edge_at, counters.source, counters.metric,
        coalesce(counters.device, cast(counters.series_id as varchar))
)
select min(cast(from_at as date)), max(cast(to_at as date))
from silences
where epoch(to_at) - epoch(from_at) > 3 * coalesce(interval_seconds, 0)
"""

# The ends of an entity's day are compared, not of its series': a pod that hands its GPU on changes no neighbour.
# Among equal times the larger value stands, as everywhere.
_STALE = """
with entities as (
    select series.series_id, concat_ws(chr(31), series.source, series.metric, coalesce(
        min_by(json_extract_string(series.labels, '$."' || device_labels.label || '"'), device_labels.rank)
            filter (where json_extract_string(series.labels, '$."' || device_labels.label || '"') is not null),
        cast(series.series_id as varchar))) as entity
    from raw.series as series
    left join device_labels on device_labels.source_kind = series.source_kind
    where series.source in (select source from chunks_before union select source from chunks_after)
    group by series.series_id, series.source, series.metric
),
ends_before as (
    select entities.entity, min(first_at) as first_at, max(last_at) as last_at,
        min_by(first_value, row(first_at, -first_value)) as first_value,
        max_by(last_value, row(last_at, last_value)) as last_value
    from chunks_before join entities using (series_id) where samples > 0 group by entities.entity
),
ends_after as (
    select entities.entity, min(first_at) as first_at, max(last_at) as last_at,
        min_by(first_value, row(first_at, -first_value)) as first_value,
        max_by(last_value, row(last_at, last_value)) as last_value
    from chunks_after join entities using (series_id) where samples > 0 group by entities.entity
),
changed as (
    select entity,
        row(b.first_at, b.first_value) is distinct from row(a.first_at, a.first_value) as is_first_changed,
        row(b.last_at, b.last_value) is distinct from row(a.last_at, a.last_value) as is_last_changed
    from ends_before as b full join ends_after as a using (entity)
    where is_first_changed or is_last_changed
),
landed as (
    select date_trunc('day', min(chunk_start_at)) as start_at
    from (select chunk_start_at from chunks_before union all select chunk_start_at from chunks_after) as either
),
neighbours as (
    select changed.entity, changed.is_first_changed, changed.is_last_changed,
        max(held.last_at) filter (where held.last_at < landed.start_at) as previous_at,
        min(held.first_at) filter (where held.first_at >= landed.start_at + interval 1 day) as next_at
    from changed
    cross join landed
    join entities on entities.entity = changed.entity
    left join raw.series_chunks as held on held.series_id = entities.series_id and held.samples > 0
    group by all
)
select count(*) as changed, cast(any_value(landed.start_at) as date) as day,
    min(cast(case when is_first_changed then coalesce(previous_at, landed.start_at) else landed.start_at end as date)),
    max(cast(case when is_last_changed then coalesce(next_at, landed.start_at) else landed.start_at end as date))
from neighbours cross join landed
"""
