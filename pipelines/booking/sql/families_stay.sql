-- Per family of a source the days on which it gave samples, of those that the run landed and the days before them.
with family_days as (
    select distinct series.source, series.metric, cast(chunks.chunk_start_at as date) as date
    from raw.series_chunks as chunks
    join raw.series as series on series.series_id = chunks.series_id
    where chunks.samples > 0
        and chunks.chunk_start_at >= (select min(date) from run_days) - interval 1 day
        and chunks.chunk_start_at < (select max(date) from run_days) + interval 1 day
),
source_days as (select distinct source, date from family_days),
changes as (
    select source, metric, date + 1 as date, 'vanished' as change from family_days
    union all
    select source, metric, date, 'appeared' as change from family_days
)
select source || ' ' || metric as family, changes.date, change
from changes
join run_days using (date)
join source_days as today using (source, date)
join source_days as yesterday on yesterday.source = changes.source and yesterday.date = changes.date - 1
anti join family_days as same
    on same.source = changes.source and same.metric = changes.metric
    and same.date = case change when 'vanished' then changes.date else changes.date - 1 end
order by all
