-- How an engine's own counters of tokens and of requests are read: no engine counts more than
-- `limits.tokens_per_second` (their `ceiling_watts`), and they start at zero with their process.

{# CTEs from `series` and `series_days` to `process_spans` (engine, start_us, first_seen_us, last_seen_us): which
   process starts an engine reported, and when. #}
{% macro process_span_ctes() %}
start_days as (

    select
        series.engine,
        series_days.*
    from series_days
    inner join series on series_days.series_id = series.series_id
    where series.quantity = 'process_start'

),

-- A date on which the process changed is read sample by sample.
changing_days as (

    select
        engine,
        series_id,
        {{ int_div('first_us', day_us()) }} as day_number
    from start_days
    where is_in_run and (first_value is distinct from last_value or falls > 0)

),

start_points as (

    select engine, first_us as seen_us, first_value as value from start_days
    union all
    select engine, last_us as seen_us, last_value as value from start_days
    union all
    select
        changing_days.engine,
        {{ epoch_us('samples.observed_at') }} as seen_us,
        {{ moment_of('samples.value', epoch_us('samples.observed_at')) }} as value
    from {{ ref('stg_token_samples') }} as samples
    inner join changing_days
        on samples.series_id = changing_days.series_id
        and {{ int_div(epoch_us('samples.observed_at'), day_us()) }} = changing_days.day_number
    where {{ is_valid_sample('samples.value') }}
        and samples.observed_at >= {{ run_start_at() }}
        and samples.observed_at < {{ run_end_at() }}

),

process_spans as (

    select
        engine,
        {{ moment_us('value') }} as start_us,
        min(seen_us) as first_seen_us,
        max(seen_us) as last_seen_us
    from start_points
    where value is not null
    group by engine, {{ moment_us('value') }}

)
{% endmacro %}

{# CTEs from `counters`, `series`, `series_days` and `glitches` to `started_readings`: the readings of an engine's
   counters, and a zero where the first of them counts from the start of its process. `counters` has series_id,
   reading_id, engine, source, factor and copied_on (the one date of a reading that copies share, else NULL). A first
   sample counts from zero if the process started after the engine was last seen. If the engine was never seen before,
   the process must have started after its source was first seen, or just before the sample. It also does where its page
   was read before without it (int_counter_births). Any other first sample is a baseline: only what follows it counts. The
   days of `sampled_days` (series_id, day_number) are read sample by sample. #}
{% macro engine_counter_ctes(counters, sampled_days=none) %}
chosen_readings as (

    select distinct
        reading_id,
        cast(null as double) as possible_watts,
        {{ most_tokens_per_second() }} as ceiling_watts
    from {{ counters }}

),

dated_limits as (

    select
        reading_id,
        cast(0 as bigint) as day_number,
        possible_watts,
        false as is_doubted
    from chosen_readings
    where possible_watts is not null

),

glitch_days as (

    select distinct series_id, day_number from glitches

),

counter_series_days as (

    select
        counters.series_id,
        counters.reading_id,
        counters.factor,
        {{ int_div('series_days.first_us', day_us()) }} as day_number,
        series_days.is_in_run,
        series_days.falls > 0
        or (series_days.is_in_run and series_days.duplicates > 0)
        or glitch_days.series_id is not null
        or coalesce(series_days.steepest_rise_per_second > {{ most_tokens_per_second() }}, false)
        {% if sampled_days -%}
        or {{ sampled_days }}.series_id is not null
        {% endif -%}
        or counters.copied_on is not null as needs_every_sample,
        series_days.date,
        series_days.first_us,
        series_days.first_value,
        series_days.last_us,
        series_days.last_value
    from {{ counters }} as counters
    inner join series_days
        on counters.series_id = series_days.series_id and coalesce(counters.copied_on = series_days.date, true)
    left join glitch_days
        on series_days.series_id = glitch_days.series_id
        and {{ int_div('series_days.first_us', day_us()) }} = glitch_days.day_number
    {% if sampled_days -%}
    left join {{ sampled_days }}
        on series_days.series_id = {{ sampled_days }}.series_id
        and {{ int_div('series_days.first_us', day_us()) }} = {{ sampled_days }}.day_number
    {%- endif %}

),

{{ counter_reading_ctes(ref('stg_token_samples'), unlimited_dips_are_glitches=false) }},

-- The readings without the samples of bad scrapes.
sound_readings as (

    select counter_readings.*
    from counter_readings
    left join (
        select distinct counters.reading_id, glitches.observed_us
        from glitches
        inner join {{ counters }} as counters on glitches.series_id = counters.series_id
    ) as reading_glitches
        on counter_readings.reading_id = reading_glitches.reading_id and counter_readings.first_us = reading_glitches.observed_us
    where reading_glitches.reading_id is null

),

-- Copies of a counter share a reading on one date alone. To join it to the other dates: the last value of any copy
-- before that date, and the first after it.
copy_ends as (

    {% for end, nearest, beyond in [('last', 'max', '<'), ('first', 'min', '>')] -%}
    select
        counters.reading_id,
        {{ nearest }}(series_days.{{ end }}_us) as observed_us,
        {{ nearest }}_by(series_days.{{ end }}_value, series_days.{{ end }}_us) as reading
    from {{ counters }} as counters
    inner join series_days on counters.series_id = series_days.series_id and series_days.date {{ beyond }} counters.copied_on
    group by counters.reading_id
    {% if not loop.last %}union all{% endif %}
    {% endfor %}

),

all_readings as (

    select * from sound_readings
    union all
    select
        reading_id,
        observed_us as first_us,
        reading as first_reading,
        observed_us as last_us,
        reading as last_reading,
        cast(null as double) as possible_watts,
        false as is_doubted,
        {{ most_tokens_per_second() }} as ceiling_watts
    from copy_ends

),

first_readings as (

    select
        counter_readings.reading_id,
        counters.engine,
        counters.source,
        min(counter_readings.first_us) as first_us
    from all_readings as counter_readings
    inner join {{ counters }} as counters on counter_readings.reading_id = counters.reading_id
    group by counter_readings.reading_id, counters.engine, counters.source

),

sampling_intervals as (

    select
        counters.reading_id,
        min(series_days.sampling_interval_seconds) as sampling_interval_seconds
    from {{ counters }} as counters
    inner join series_days on counters.series_id = series_days.series_id
    group by counters.reading_id

),

process_starts as (

    {% for end in ['first', 'last'] -%}
    select
        series.engine,
        {{ moment_us('series_days.' ~ end ~ '_value') }} as start_us
    from series_days
    inner join series on series_days.series_id = series.series_id
    where series.quantity = 'process_start'
    {% if not loop.last %}union{% endif %}
    {% endfor %}

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
        max(process_starts.start_us) as start_us,
        max(engine_ends.last_us) as previous_us,
        max(sampling_intervals.sampling_interval_seconds) as sampling_interval_seconds,
        max(source_starts.first_us) as source_first_us
    from first_readings
    inner join process_starts
        on first_readings.engine = process_starts.engine and process_starts.start_us < first_readings.first_us
    left join engine_ends
        on first_readings.engine = engine_ends.engine and engine_ends.last_us < first_readings.first_us
    left join source_starts on first_readings.source = source_starts.source
    left join sampling_intervals on first_readings.reading_id = sampling_intervals.reading_id
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
                or first_us - start_us <= {{ gap_cap_us('sampling_interval_seconds') }}
            ))
        )

),

born_readings as (

    select
        counters.reading_id,
        min(births.start_us) as start_us
    from {{ ref('int_counter_births') }} as births
    inner join {{ counters }} as counters
        on births.series_id = counters.series_id and coalesce(counters.copied_on = births.date, true)
    inner join first_readings on counters.reading_id = first_readings.reading_id and births.first_us = first_readings.first_us
    left join readings_from_zero on counters.reading_id = readings_from_zero.reading_id
    where readings_from_zero.reading_id is null
    group by counters.reading_id

),

started_readings as (

    select * from all_readings
    union all
    select
        reading_id,
        start_us as first_us,
        cast(0 as double) as first_reading,
        start_us as last_us,
        cast(0 as double) as last_reading,
        cast(null as double) as possible_watts,
        false as is_doubted,
        {{ most_tokens_per_second() }} as ceiling_watts
    from (select * from readings_from_zero union all select * from born_readings) as zeros

)
{% endmacro %}
