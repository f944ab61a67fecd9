-- How many entities of the landed source changed their ends on the landed day, that day, and the dates that became stale.
-- The ends of an entity's day are compared, not of its series': a pod that hands its GPU on changes no neighbour.
-- Among equal times the larger value counts, as everywhere.
with entities as (
    select series_id, concat_ws(chr(31), source, metric, coalesce(device, cast(series_id as varchar))) as entity
    from named_series
    where source in (select source from chunks_before union select source from chunks_after)
),
chunks as (
    select false as is_after, * from chunks_before union all by name select true as is_after, * from chunks_after
),
seen as (
    select *, min(first_at) over (partition by is_after, entity) as entity_first_at,
        max(last_at) over (partition by is_after, entity) as entity_last_at
    from chunks join entities using (series_id) where samples > 0
),
ends as (
    select is_after, entity, min(first_at) as first_at, max(last_at) as last_at,
        min_by(first_value, row(first_at, -first_value)) as first_value,
        max_by(last_value, row(last_at, last_value)) as last_value,
        list_sort(list(series_id) filter (where first_at = entity_first_at)) as first_series,
        list_sort(list(series_id) filter (where last_at = entity_last_at)) as last_series
    from seen
    group by is_after, entity
),
changed as (
    select entity,
        row(b.first_at, b.first_value, b.first_series)
            is distinct from row(a.first_at, a.first_value, a.first_series) as is_first_changed,
        row(b.last_at, b.last_value, b.last_series)
            is distinct from row(a.last_at, a.last_value, a.last_series) as is_last_changed
    from (select * from ends where not is_after) as b
    full join (select * from ends where is_after) as a using (entity)
    where is_first_changed or is_last_changed
),
landed as (
    select date_trunc('day', min(chunk_start_at)) as start_at from chunks
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
