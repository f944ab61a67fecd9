-- What raw has of each reading of power or energy on each date: its ends, its neighbours, its silences and its defects.
-- Reads raw, the catalogues and its own parsing of labels, none of the book's steps. One row per reading and date with
-- samples.
with series as (

    select
        *,
        case meter_scope when 'board' then 1 when 'module' then 2 when 'node' then 3 when 'rack' then 4 else 5 end as coarseness
    from {{ ref('int_label_identities') }}
    where stream = 'power' and quantity in ('energy', 'power') and meter is not null

),

chunks as (

    select
        series.reading_id,
        series.series_id,
        cast(chunks.chunk_start_at as date) as date,
        {{ epoch_us('chunks.first_at') }} as first_us,
        {{ epoch_us('chunks.last_at') }} as last_us,
        chunks.first_value * series.factor as first_value,
        chunks.last_value * series.factor as last_value,
        chunks.samples,
        chunks.falls + chunks.duplicates as troubles,
        chunks.falls,
        chunks.duplicates,
        chunks.typical_interval_seconds,
        chunks.longest_gap_seconds,
        chunks.steepest_rise_per_second * series.factor as steepest_rise_per_second,
        {{ epoch_us('chunks.first_at') }} - max({{ epoch_us('chunks.last_at') }}) over (
            partition by series.reading_id, cast(chunks.chunk_start_at as date)
            order by chunks.first_at, series.series_id rows between unbounded preceding and 1 preceding
        ) as seam_us
    from {{ source('raw', 'series_chunks') }} as chunks
    inner join series on chunks.series_id = series.series_id
    where chunks.samples > 0

),

sources as (

    select * from {{ source('fleet', 'sources') }}

),

readings as (

    select
        series.reading_id,
        series.source,
        series.metric,
        series.kind,
        series.rank,
        series.meter,
        series.meter_scope,
        series.coarseness,
        max(series.node) as node,
        max(series.rack) as rack,
        max(series.site) as site,
        max(series.meter_device_type) as device_type,
        max(sources.interval_seconds) as interval_seconds
    from series
    left join sources on series.source = sources.source
    group by
        series.reading_id, series.source, series.metric, series.kind, series.rank, series.meter, series.meter_scope, series.coarseness

),

reading_dates as (

    select
        reading_id,
        date,
        min(first_us) as first_us,
        {{ value_at_first('first_value', 'first_us') }} as first_value,
        max(last_us) as last_us,
        {{ value_at_last('last_value', 'last_us') }} as last_value,
        sum(troubles) + count(*) - 1 as troubles,
        sum(duplicates) + count(*) - 1 as repeats,
        sum(samples) as samples,
        min(typical_interval_seconds) as typical_interval_seconds,
        greatest(max(longest_gap_seconds) * 1e6, coalesce(max(seam_us), 0)) as longest_silence_us,
        max(steepest_rise_per_second) as steepest_rise_per_second,
        sum(falls) as falls
    from chunks
    group by reading_id, date

),

neighboured_dates as (

    select
        *,
        lag(last_us) over date_window as previous_us,
        lag(last_value) over date_window as previous_value,
        lead(first_us) over date_window as next_us,
        lead(first_value) over date_window as next_value,
        lead(typical_interval_seconds) over date_window as next_interval_seconds,
        coalesce(lag(troubles) over date_window, 0) as previous_troubles,
        coalesce(lead(troubles) over date_window, 0) as next_troubles
    from reading_dates
    window date_window as (partition by reading_id order by date)

),

final as (

    select *
    from neighboured_dates
    inner join readings using (reading_id)

)

select * from final
