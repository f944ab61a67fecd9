"""Which dates a landing makes stale: those whose neighbours it changed.

A delta between two samples belongs to every date from the first to the second. So when the first or last sample of an
entity's day changes, its dates back to the previous landed sample, or on to the next, are stale and must be booked
again. Keep out what is done with them: they wait in raw.due_dates (`pipelines.warehouse.due_dates`).
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

import duckdb
import pyarrow as pa

from collectors.samples import Window
from pipelines.fleet import catalog
from pipelines.warehouse import due_dates
from pipelines.warehouse.database import registered


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


def mark_stale(
    connection: duckdb.DuckDBPyConnection,
    before: pa.Table,
    after: pa.Table,
    device_labels: list[tuple[str, str, int, str]],
    *,
    is_head: bool = False,
    booked_dates: tuple[date, date | None] | None = None,
) -> int:
    """Mark as due the dates that became stale when one (source, day) changed from `before` to `after`.

    Both are rows of raw.series_chunks of that day, the warehouse already holds `after`. `device_labels` are
    (source kind, label, rank, attribute) of the labels that identify a device: a device's counter runs on when its
    labels change, so its neighbours are looked for over all its series. The day of a mere head is not due itself: it
    will be booked when it has landed. Where another meter of the device changed while its counter was silent, all dates
    of the silence are due: the counter's difference is the sum over them. Dates outside `booked_dates` [start, end) are
    never due. Returns how many entities changed their ends.
    """
    with registered(connection, chunks_before=before, chunks_after=after):
        connection.execute(
            "create or replace temp table device_labels"
            " (source_kind varchar, label varchar, rank integer, attribute varchar)"
        )
        if device_labels:
            connection.executemany("insert into device_labels values (?, ?, ?, ?)", device_labels)
        found: tuple[int, date, date | None, date | None] = connection.execute(_STALE).fetchall()[0]
        changed, day, first, last = found
        counters = catalog.metrics(quantity="energy")
        silent_from, silent_to = connection.execute(
            _SILENT, {"counters": counters, "meters": [*counters, *catalog.metrics(quantity="power")]}
        ).fetchall()[0]
    start, end = booked_dates or (date.min, None)
    for since, until in ((first, last), (silent_from, silent_to)):
        if since is None or until is None:
            continue
        last_end = until if is_head and until == day else until + timedelta(days=1)
        due_dates.mark(connection, due_dates.BOOKING, max(since, start), min(last_end, end or date.max))
    return changed


def _named(which: str) -> str:
    """CTEs up to `named` (series_id, source, metric, device), of the series that a condition picks. A board without a
    UUID is known by its index on its node, as in stg_series; what is no device has NULL."""
    return f"""labelled as (
    select series.series_id, series.source, series.source_kind, series.metric, series.labels,
        min_by(json_extract_string(series.labels, '$."' || device_labels.label || '"'), device_labels.rank)
            filter (where json_extract_string(series.labels, '$."' || device_labels.label || '"') is not null) as uuid
    from raw.series as series
    left join device_labels on device_labels.source_kind = series.source_kind and attribute = 'device_uuid'
    where {which}
    group by all
),
indexed as (
    select labelled.series_id,
        coalesce(min_by(value, rank) filter (where attribute = 'device_index'), any_value(labelled.uuid)) as index,
        min_by(value, rank) filter (where attribute = 'node') as node
    from labelled
    join lateral (
        select device_labels.*, json_extract_string(labelled.labels, '$."' || device_labels.label || '"') as value
        from device_labels
        where device_labels.source_kind = labelled.source_kind and device_labels.attribute <> 'device_uuid'
    ) as told on true
    where value <> ''
        and (labelled.uuid is null or regexp_full_match(labelled.uuid, '(card|nvidia|gpu|accel)?[0-9]{{1,3}}'))
    group by labelled.series_id
),
named as (
    select labelled.series_id, labelled.source, labelled.metric,
        coalesce(indexed.node || '/' || indexed.index, labelled.uuid) as device
    from labelled left join indexed using (series_id)
)"""


# Counters that were silent over an edge of the landed day, and of whose device another reading changed on it.
_SILENT = (
    """
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
"""
    + _named("exists (select 1 from touched) and list_contains($meters, series.metric)")
    + """,
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
        min_by(held.typical_interval_seconds, held.first_at)
            filter (where held.first_at >= edges.edge_at) as interval_seconds
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
)

# The ends of an entity's day are compared, not of its series': a pod that hands its GPU on changes no neighbour.
# Among equal times the larger value stands, as everywhere.
_STALE = (
    "with "
    + _named("series.source in (select source from chunks_before union select source from chunks_after)")
    + """,
entities as (
    select series_id, concat_ws(chr(31), source, metric, coalesce(device, cast(series_id as varchar))) as entity
    from named
),
ends_before as (
    select entity, min(first_at) as first_at, max(last_at) as last_at,
        min_by(first_value, row(first_at, -first_value)) as first_value,
        max_by(last_value, row(last_at, last_value)) as last_value,
        list_sort(list(series_id) filter (where first_at = entity_first_at)) as first_series,
        list_sort(list(series_id) filter (where last_at = entity_last_at)) as last_series
    from (
        select *, min(first_at) over (partition by entity) as entity_first_at,
            max(last_at) over (partition by entity) as entity_last_at
        from chunks_before join entities using (series_id) where samples > 0
    ) as seen
    group by entity
),
ends_after as (
    select entity, min(first_at) as first_at, max(last_at) as last_at,
        min_by(first_value, row(first_at, -first_value)) as first_value,
        max_by(last_value, row(last_at, last_value)) as last_value,
        list_sort(list(series_id) filter (where first_at = entity_first_at)) as first_series,
        list_sort(list(series_id) filter (where last_at = entity_last_at)) as last_series
    from (
        select *, min(first_at) over (partition by entity) as entity_first_at,
            max(last_at) over (partition by entity) as entity_last_at
        from chunks_after join entities using (series_id) where samples > 0
    ) as seen
    group by entity
),
changed as (
    select entity,
        row(b.first_at, b.first_value, b.first_series)
            is distinct from row(a.first_at, a.first_value, a.first_series) as is_first_changed,
        row(b.last_at, b.last_value, b.last_series)
            is distinct from row(a.last_at, a.last_value, a.last_series) as is_last_changed
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
)
