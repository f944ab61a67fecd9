-- The dates over which counters were silent at an edge of the landed day, of whose device another reading changed on it.
with landed as (
    select date_trunc('day', min(chunk_start_at)) as start_at
    from (select chunk_start_at from chunks_before union all select chunk_start_at from chunks_after) as either
),
meters as (
    select named_series.*, meter_metrics.is_counter
    from named_series join meter_metrics using (metric)
),
touched_readings as (
    select distinct source, metric, device from meters join touched_series using (series_id)
),
counters as (
    select distinct meters.* from meters
    join touched_readings as other
        on meters.device is not distinct from other.device
        and row(meters.source, meters.metric) is distinct from row(other.source, other.metric)
    where meters.is_counter
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
