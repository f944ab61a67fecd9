with counters as (
    select series.source, series.metric, series.labels, cast(chunks.chunk_start_at as date) as date,
        sum(chunks.samples) as samples,
        min(chunks.first_value) = max(chunks.last_value) and sum(chunks.falls) = 0 as is_still
    from raw.series_chunks as chunks
    join raw.series as series on series.series_id = chunks.series_id
    where exists (
            select 1 from reference.metric_catalog as catalog
            where catalog.quantity = 'energy' and catalog.kind = 'counter' and ends_with(series.metric, catalog.metric)
        )
        and chunks.samples > 0
        and chunks.chunk_start_at >= (select min(date) from run_days)
    group by all
)
select source, metric, labels, date, samples from counters join run_days using (date)
where is_still and samples >= 10 order by all
