-- Readings of the chosen token counters: first and last per series and interval, single samples where a date needs every sample, and the
-- zero at which a process is known to have begun. Neighbours before and after the run close the first and last step.
{# Only int_token_intervals reads it: DuckDB need not write it down, and Spark would plan these steps as one. #}
{{ config(materialized='view' if target.type == 'duckdb' else 'table') }}

with series as (

    select * from {{ ref('stg_series') }}

),

series_days as (

    select * from {{ ref('stg_series_days') }}

),

choices as (

    select * from {{ ref('int_token_choices') }}

),

token_series as (

    select distinct
        series.series_id,
        series.reading_id,
        series.engine,
        series.source,
        series.metric,
        series.factor
    from series
    inner join choices
        on series.engine = choices.engine
        and series.token_class = choices.token_class
        and series.source = choices.source
        and series.metric = choices.metric
    where series.quantity = 'tokens'

),

chosen_readings as (

    select
        reading_id,
        cast(null as double) as possible_watts
    from token_series

),

-- Tokens know no limit.
dated_limits as (

    select
        reading_id,
        cast(0 as bigint) as day_number,
        possible_watts
    from chosen_readings
    where possible_watts is not null

),

counter_series_days as (

    select
        token_series.series_id,
        token_series.reading_id,
        token_series.factor,
        {{ int_div('series_days.first_us', day_us()) }} as day_number,
        series_days.is_in_run,
        series_days.falls > 0 or (series_days.is_in_run and series_days.duplicates > 0) as needs_every_sample,
        series_days.date,
        series_days.first_us,
        series_days.first_value,
        series_days.last_us,
        series_days.last_value
    from token_series
    inner join series_days on token_series.series_id = series_days.series_id

),

{{ counter_reading_ctes(source('raw', 'token_samples'), unlimited_dips_are_glitches=false) }},

first_readings as (

    select
        counter_readings.reading_id,
        token_series.engine,
        token_series.source,
        min(counter_readings.first_us) as first_us
    from counter_readings
    inner join token_series on counter_readings.reading_id = token_series.reading_id
    group by counter_readings.reading_id, token_series.engine, token_series.source

),

typical_intervals as (

    select
        reading_id,
        min(typical_interval_seconds) as typical_interval_seconds
    from series_days
    group by reading_id

),

process_starts as (

    select
        series.engine,
        series_days.first_value * 1e6 as start_us
    from series_days
    inner join series on series_days.series_id = series.series_id
    where series.quantity = 'process_start'
    union
    select
        series.engine,
        series_days.last_value * 1e6 as start_us
    from series_days
    inner join series on series_days.series_id = series.series_id
    where series.quantity = 'process_start'

),

engine_ends as (

    select
        series.engine,
        series_days.last_us
    from series_days
    inner join series on series_days.series_id = series.series_id
    where series.quantity = 'tokens'

),

source_starts as (

    select
        source,
        min({{ epoch_us('first_seen_at') }}) as first_us
    from {{ source('raw', 'series') }}
    group by source

),

-- A first sample counts from zero only where the process is known to have started after the engine was last seen or, for an engine never
-- seen before, while its source was watched or just now; elsewhere it is a baseline.
starts_from_zero as (

    select
        first_readings.reading_id,
        first_readings.first_us,
        max(cast(process_starts.start_us as bigint)) as start_us,
        max(engine_ends.last_us) as previous_us,
        max(typical_intervals.typical_interval_seconds) as typical_interval_seconds,
        max(source_starts.first_us) as source_first_us
    from first_readings
    inner join process_starts
        on first_readings.engine = process_starts.engine and process_starts.start_us < first_readings.first_us
    left join engine_ends
        on first_readings.engine = engine_ends.engine and engine_ends.last_us < first_readings.first_us
    left join source_starts on first_readings.source = source_starts.source
    left join typical_intervals on first_readings.reading_id = typical_intervals.reading_id
    group by first_readings.reading_id, first_readings.first_us

),

readings_from_zero as (

    select
        reading_id,
        greatest(start_us, {{ int_div('first_us', day_us()) }} * {{ day_us() }}) as start_us
    from starts_from_zero
    where greatest(start_us, {{ int_div('first_us', day_us()) }} * {{ day_us() }}) < first_us
        and first_us - start_us <= {{ var('max_spread_seconds') | int * 1000000 }}
        and (
            start_us > previous_us
            or (previous_us is null and (
                start_us > source_first_us
                or first_us - start_us <= {{ gauge_gap_factor() }} * 1e6 * typical_interval_seconds
            ))
        )

),

final as (

    select * from counter_readings
    union all
    select
        reading_id,
        start_us as first_us,
        cast(0 as double) as first_reading,
        start_us as last_us,
        cast(0 as double) as last_reading,
        cast(null as double) as possible_watts
    from readings_from_zero

)

select * from final
