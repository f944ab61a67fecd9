-- Facts of each landed chunk, but for series that several processes answer for: on such a date each process has a chunk
-- of its own (stg_series_parts). One row per series and chunk.
{{ config(materialized='view' if target.type == 'duckdb' else 'ephemeral') }}

with parts as (

    select * from {{ ref('stg_series_parts') }}

),

chunks as (

    select * from {{ source('raw', 'series_chunks') }}

),

track_facts as (

    select
        series_id,
        count(*) as samples,
        min(observed_us) as first_us,
        min_by(value, observed_us) as first_value,
        max(observed_us) as last_us,
        max_by(value, observed_us) as last_value,
        sum(case when step < 0 then 1 else 0 end) as falls,
        max(step_us) / 1e6 as longest_gap_seconds,
        max(step / (step_us / 1e6)) as steepest_rise_per_second
    from (
        select
            *,
            value - lag(value) over (partition by series_id order by observed_us) as step,
            cast(observed_us - lag(observed_us) over (partition by series_id order by observed_us) as double) as step_us
        from {{ ref('stg_track_samples') }}
    ) as steps
    group by series_id

),

-- Of several chunks of a date the longest interval.
landed_intervals as (

    select
        series_id,
        cast(chunk_start_at as date) as date,
        max(source) as source,
        max(typical_interval_seconds) as typical_interval_seconds
    from chunks
    where series_id in (select landed_series_id from parts)
    group by series_id, cast(chunk_start_at as date)

),

{% set facts = [
    'samples', 'first_at', 'first_value', 'last_at', 'last_value', 'falls', 'duplicates', 'out_of_order', 'rejects',
    'longest_gap_seconds', 'typical_interval_seconds', 'steepest_rise_per_second'
] %}

final as (

    select
        series_id,
        source,
        chunk_start_at,
        chunk_end_at,
        {{ facts | join(', ') }}
    from chunks
    where series_id not in (select landed_series_id from parts)
    union all
    select
        parts.series_id,
        chunks.source,
        chunks.chunk_start_at,
        chunks.chunk_end_at,
        {{ columns_of('chunks', facts) }}
    from chunks
    inner join parts
        on chunks.series_id = parts.landed_series_id
        and parts.track is null
        and {{ epoch_us('chunks.chunk_start_at') }} >= coalesce(parts.from_us, {{ epoch_us('chunks.chunk_start_at') }})
        and {{ epoch_us('chunks.chunk_start_at') }} < coalesce(parts.to_us, {{ epoch_us('chunks.chunk_start_at') }} + 1)
    union all
    select
        parts.series_id,
        landed_intervals.source,
        {{ from_epoch_us('parts.from_us') }} as chunk_start_at,
        {{ from_epoch_us('parts.to_us') }} as chunk_end_at,
        track_facts.samples,
        {{ from_epoch_us('track_facts.first_us') }} as first_at,
        track_facts.first_value,
        {{ from_epoch_us('track_facts.last_us') }} as last_at,
        track_facts.last_value,
        track_facts.falls,
        0 as duplicates,
        0 as out_of_order,
        0 as rejects,
        track_facts.longest_gap_seconds,
        -- Each process answers now and then: twice its turn is no silence.
        2 * parts.tracks * landed_intervals.typical_interval_seconds as typical_interval_seconds,
        track_facts.steepest_rise_per_second
    from parts
    inner join track_facts on parts.series_id = track_facts.series_id
    inner join landed_intervals on parts.landed_series_id = landed_intervals.series_id and parts.date = landed_intervals.date

)

select * from final
