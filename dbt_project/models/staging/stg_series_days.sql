-- Chunk facts of the run's dates, and of each reading's neighbours: the last day with samples before, the first after,
-- however far.
with chunks as (

    select * from {{ ref('stg_series_chunks') }} where samples > 0

),

sources as (

    select * from {{ source('fleet', 'sources') }}

),

series as (

    -- A counter of several token classes is one counter.
    select distinct
        series.series_id,
        series.reading_id,
        series.factor,
        series.quantity = 'process_start' as is_moment,
        case when series.quantity = 'power_limit' then {{ ceiling_watts('series.meter_scope') }} end as most_watts,
        sources.interval_seconds
    from {{ ref('stg_series') }} as series
    left join sources on series.source = sources.source

),

days as (

    select
        series.reading_id,
        chunks.series_id,
        cast(chunks.chunk_start_at as date) as date,
        chunks.samples,
        {{ epoch_us('chunks.first_at') }} as first_us,
        case
            when series.is_moment then {{ moment_of('chunks.first_value', epoch_us('chunks.first_at')) }}
            when chunks.first_value * series.factor > series.most_watts then null
            else chunks.first_value * series.factor
        end as first_value,
        {{ epoch_us('chunks.last_at') }} as last_us,
        case
            when series.is_moment then {{ moment_of('chunks.last_value', epoch_us('chunks.last_at')) }}
            when chunks.last_value * series.factor > series.most_watts then null
            else chunks.last_value * series.factor
        end as last_value,
        chunks.falls,
        chunks.duplicates,
        chunks.rejects,
        chunks.longest_gap_seconds,
        chunks.typical_interval_seconds,
        -- The measured interval, or the stated one where that is larger.
        greatest(chunks.typical_interval_seconds, series.interval_seconds) as sampling_interval_seconds,
        -- NULL where the landing did not count it yet.
        chunks.steepest_rise_per_second * series.factor as steepest_rise_per_second
    from chunks
    inner join series on chunks.series_id = series.series_id

),

neighbour_dates as (

    select
        reading_id,
        max(case when date < date '{{ start_date() }}' then date end) as previous_date,
        min(case when date >= date '{{ end_date() }}' then date end) as next_date
    from days
    group by reading_id

),

final as (

    select
        days.*,
        {{ in_run('days.date') }} as is_in_run
    from days
    inner join neighbour_dates on days.reading_id = neighbour_dates.reading_id
    where {{ in_run('days.date') }}
        or days.date = neighbour_dates.previous_date
        or days.date = neighbour_dates.next_date

)

select * from final
