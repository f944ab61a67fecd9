with future as (
    select chunks.source || ' is stamped ahead of its landing' as what,
        cast(chunks.chunk_start_at as date) as date, max(chunks.last_at) - max(landings.landed_at) as ahead
    from raw.series_chunks as chunks
    join raw.landings as landings
        on landings.source = chunks.source and landings.window_start_at <= chunks.chunk_start_at
        and landings.window_end_at > chunks.chunk_start_at and landings.run_id = $run_id
    group by all having max(chunks.last_at) > max(landings.landed_at) + interval 1 minute
),
starts as (
    select series.source || ' ' || series.labels || ' started after its first sample' as what,
        cast(chunks.chunk_start_at as date) as date, to_timestamp(chunks.first_value) - chunks.first_at as ahead
    from raw.series_chunks as chunks
    join raw.series as series on series.series_id = chunks.series_id
    where series.metric in (select metric from reference.metric_catalog where quantity = 'process_start')
        and chunks.first_value > epoch(chunks.first_at) + 60
        and chunks.first_value < 4102444800  -- from 2100 on: another unit than seconds, or in marts.unreadable_values
)
select what, date, ahead from (select * from future union all select * from starts)
join run_days using (date) order by all
