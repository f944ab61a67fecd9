-- How an engine's own counters are read, of tokens as of requests: no limit says what is possible, and they begin at zero with their process.

{# CTEs from `counters` (series_id, reading_id, engine, source, factor), `series` and `series_days` to `started_readings`: the readings of an
   engine's counters, and a zero where its process is known to have begun. A first sample counts from zero only where the process is known
   to have started after the engine was last seen or, for an engine never seen before, while its source was watched or just now; elsewhere
   it is a baseline. #}
{% macro engine_counter_ctes(counters) %}
chosen_readings as (

    select
        reading_id,
        cast(null as double) as possible_watts,
        cast(null as double) as ceiling_watts
    from {{ counters }}

),

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
        counters.series_id,
        counters.reading_id,
        counters.factor,
        {{ int_div('series_days.first_us', day_us()) }} as day_number,
        series_days.is_in_run,
        series_days.falls > 0 or (series_days.is_in_run and series_days.duplicates > 0) as needs_every_sample,
        series_days.date,
        series_days.first_us,
        series_days.first_value,
        series_days.last_us,
        series_days.last_value
    from {{ counters }} as counters
    inner join series_days on counters.series_id = series_days.series_id

),

{{ counter_reading_ctes(source('raw', 'token_samples'), unlimited_dips_are_glitches=false) }},

first_readings as (

    select
        counter_readings.reading_id,
        counters.engine,
        counters.source,
        min(counter_readings.first_us) as first_us
    from counter_readings
    inner join {{ counters }} as counters on counter_readings.reading_id = counters.reading_id
    group by counter_readings.reading_id, counters.engine, counters.source

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

started_readings as (

    select * from counter_readings
    union all
    select
        reading_id,
        start_us as first_us,
        cast(0 as double) as first_reading,
        start_us as last_us,
        cast(0 as double) as last_reading,
        cast(null as double) as possible_watts,
        cast(null as double) as ceiling_watts
    from readings_from_zero

)
{% endmacro %}
