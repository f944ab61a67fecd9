-- Energy between consecutive readings of a meter: one row per reading and segment [start_us, end_us). Counter segments
-- are differences, gauge segments trapezoids (`slope_watts` = watts at the end − watts at the start). NULL joules:
-- unknown energy. On dates of a handover the meter's own segments (int_handover_segments) replace those of its
-- readings.
{# Only int_energy_intervals reads it: DuckDB need not store it, and Spark would otherwise plan these steps as one. #}
{{ config(materialized='view' if target.type == 'duckdb' else 'table') }}

with meters as (

    select * from {{ ref('int_meter_choices') }} where purpose in ('booked', 'host')

),

readings as (

    select * from {{ ref('int_energy_readings') }}

),

series as (

    select * from {{ ref('stg_series') }}

),

series_days as (

    select * from {{ ref('stg_series_days') }}

),

power_samples as (

    select
        series_id,
        {{ epoch_us('observed_at') }} as observed_us,
        observed_at,
        value
    from {{ source('raw', 'power_samples') }}
    where {{ is_valid_sample('value') }}

),

handovers as (

    select * from {{ ref('int_handover_segments') }}

),

{{ counter_step_ctes('readings') }},

impossible_steps as (

    select * from assessed_steps where is_impossible

),

impossible_span as (

    select
        {{ from_epoch_us('min(start_us)') }} as start_at,
        {{ from_epoch_us('max(end_us)') }} as end_at
    from impossible_steps
    having count(*) > 0

),

gauges as (

    select
        counters.reading_id,
        series.series_id,
        series.factor
    from (select distinct reading_id, meter, meter_scope from meters where quantity = 'energy') as counters
    inner join series
        on counters.meter = series.meter and counters.meter_scope = series.meter_scope and series.quantity = 'power'

),

gauge_readings as (

    select
        impossible_steps.reading_id,
        impossible_steps.start_us,
        {{ ratio(exact_sum('power_samples.value * gauges.factor'), 'count(*)') }} as mean_watts
    from impossible_steps
    inner join gauges on impossible_steps.reading_id = gauges.reading_id
    inner join power_samples
        on gauges.series_id = power_samples.series_id
        and power_samples.observed_us between impossible_steps.start_us and impossible_steps.end_us
        -- What the counter cannot have, the gauge cannot have either.
        and power_samples.value * gauges.factor <= impossible_steps.most_watts
    cross join impossible_span
    where power_samples.observed_at >= impossible_span.start_at
        and power_samples.observed_at <= impossible_span.end_at
    group by impossible_steps.reading_id, impossible_steps.start_us

),

counter_segments as (

    select
        assessed_steps.reading_id,
        assessed_steps.start_us,
        assessed_steps.end_us,
        case
            when not assessed_steps.is_impossible then assessed_steps.risen
            else gauge_readings.mean_watts * (assessed_steps.end_us - assessed_steps.start_us) / 1e6
        end as energy_joules,
        cast(0 as double) as slope_watts,
        case
            when not assessed_steps.is_impossible then 'counter'
            when gauge_readings.mean_watts is not null then 'gauge'
            else 'unknown'
        end as energy_source,
        assessed_steps.is_reset,
        assessed_steps.is_impossible
    from assessed_steps
    left join gauge_readings
        on assessed_steps.reading_id = gauge_readings.reading_id and assessed_steps.start_us = gauge_readings.start_us

),

gauge_reading_days as (

    select
        meters.reading_id,
        meters.date,
        meters.needs_every_sample as has_repeats,
        meters.is_doubted,
        meters.type_possible_watts,
        coalesce(meters.type_possible_watts, {{ ceiling_watts('meters.meter_scope') }}) as possible_watts
    from meters
    where meters.quantity = 'power'

),

gauge_series as (

    select
        series.series_id,
        series.reading_id,
        series.factor,
        max(case when gauge_reading_days.has_repeats then 1 else 0 end) = 1 as has_repeats,
        max(gauge_reading_days.possible_watts) as possible_watts,
        -- Of the first and the last sample of a date.
        max(
            coalesce(
                gauge_reading_days.type_possible_watts * {{ doubted_limit_factor() }},
                gauge_reading_days.possible_watts
            )
        ) as midnight_watts
    from series
    inner join gauge_reading_days on series.reading_id = gauge_reading_days.reading_id
    group by series.series_id, series.reading_id, series.factor

),

dates_of_gauges as (

    select
        gauge_series.reading_id,
        {{ int_div('series_days.first_us', day_us()) }} as day_number,
        series_days.date,
        max(case when gauge_series.has_repeats then 1 else 0 end) = 1 as has_repeats,
        max(gauge_series.possible_watts) as possible_watts,
        max(gauge_series.midnight_watts) as midnight_watts,
        min(series_days.first_us) as first_us,
        {{ value_at_first('series_days.first_value', 'series_days.first_us') }} as first_watts,
        max(series_days.last_us) as last_us,
        {{ value_at_last('series_days.last_value', 'series_days.last_us') }} as last_watts,
        {{ gap_cap_us('min(series_days.sampling_interval_seconds)') }} as cap_us
    from series_days
    inner join gauge_series on series_days.series_id = gauge_series.series_id
    group by gauge_series.reading_id, series_days.date, {{ int_div('series_days.first_us', day_us()) }}

),

caps as (

    select
        reading_id,
        day_number,
        cap_us,
        first_us,
        lag(last_us) over (partition by reading_id order by day_number) as previous_last_us
    from dates_of_gauges

),

doubted_dates as (

    select distinct
        reading_id,
        {{ int_div(epoch_us('cast(date as ' ~ timestamp_type() ~ ')'), day_us()) }} as day_number
    from gauge_reading_days
    where is_doubted

),

-- The first and the last sample of each date: the two ends of the steps over midnight.
edge_samples as (

    select
        reading_id,
        date,
        day_number,
        has_repeats,
        first_us as observed_us,
        first_watts as watts,
        possible_watts,
        midnight_watts,
        true as is_first
    from dates_of_gauges
    union all
    select
        reading_id,
        date,
        day_number,
        has_repeats,
        last_us as observed_us,
        last_watts as watts,
        possible_watts,
        midnight_watts,
        false as is_first
    from dates_of_gauges
    where last_us > first_us or date < date '{{ start_date() }}'

),

gauge_samples as (

    select
        gauge_series.reading_id,
        gauge_series.has_repeats,
        {{ epoch_us('samples.observed_at') }} as observed_us,
        samples.value * gauge_series.factor as watts
    from {{ source('raw', 'power_samples') }} as samples
    inner join gauge_series on samples.series_id = gauge_series.series_id
    where samples.observed_at >= {{ run_start_at() }}
        and samples.observed_at < {{ run_end_at() }}
        and {{ is_valid_sample('samples.value') }}
        and samples.value * gauge_series.factor <= gauge_series.possible_watts
    union all
    select
        edge_samples.reading_id,
        edge_samples.has_repeats,
        edge_samples.observed_us,
        edge_samples.watts
    from edge_samples
    left join doubted_dates
        on edge_samples.reading_id = doubted_dates.reading_id and edge_samples.day_number = doubted_dates.day_number
    where doubted_dates.reading_id is null
        and {{ in_run('edge_samples.date') }}
        and edge_samples.watts > edge_samples.possible_watts
        and edge_samples.watts <= edge_samples.midnight_watts
    union all
    select
        gauge_series.reading_id,
        gauge_series.has_repeats,
        {{ epoch_us('samples.observed_at') }} as observed_us,
        samples.value * gauge_series.factor as watts
    from {{ source('raw', 'power_samples') }} as samples
    inner join gauge_series on samples.series_id = gauge_series.series_id
    inner join doubted_dates
        on gauge_series.reading_id = doubted_dates.reading_id
        and {{ int_div(epoch_us('samples.observed_at'), day_us()) }} = doubted_dates.day_number
    where samples.observed_at >= {{ run_start_at() }}
        and samples.observed_at < {{ run_end_at() }}
        and {{ is_valid_sample('samples.value') }}
        and samples.value * gauge_series.factor > gauge_series.possible_watts
        and samples.value * gauge_series.factor <= gauge_series.midnight_watts

),

gauge_points as (

    select reading_id, observed_us, watts from gauge_samples where not has_repeats
    union all
    select reading_id, observed_us, max(watts) as watts from gauge_samples where has_repeats
    group by reading_id, observed_us
    union all
    select reading_id, observed_us, watts from edge_samples
    where watts <= midnight_watts
        and ((date < date '{{ start_date() }}' and not is_first) or (date >= date '{{ end_date() }}' and is_first))

),

gauge_steps as (

    select
        reading_id,
        lag(observed_us) over (partition by reading_id order by observed_us) as start_us,
        observed_us as end_us,
        lag(watts) over (partition by reading_id order by observed_us) as start_watts,
        watts as end_watts
    from gauge_points

),

-- A gauge's silence longer than its cap is not filled; the cap is that of the date on which the step ends. A step over
-- midnight goes from the last sample of one date to the first of the next date; if these are not neighbours, there is
-- no step.
gauge_segments as (

    select
        gauge_steps.reading_id,
        gauge_steps.start_us,
        gauge_steps.end_us,
        (gauge_steps.start_watts + gauge_steps.end_watts) / 2 * (gauge_steps.end_us - gauge_steps.start_us) / 1e6 as energy_joules,
        gauge_steps.end_watts - gauge_steps.start_watts as slope_watts,
        'gauge' as energy_source,
        false as is_reset,
        false as is_impossible
    from gauge_steps
    inner join caps
        on gauge_steps.reading_id = caps.reading_id
        and {{ int_div('gauge_steps.end_us', day_us()) }} = caps.day_number
    where gauge_steps.end_us - gauge_steps.start_us <= caps.cap_us
        and (
            {{ int_div('gauge_steps.start_us', day_us()) }} = caps.day_number
            or (gauge_steps.start_us = caps.previous_last_us and gauge_steps.end_us = caps.first_us)
        )

),

final as (

    select
        *,
        cast(null as {{ dbt.type_string() }}) as handed_over_as,
        cast(null as bigint) as gap_us
    from (select * from counter_segments union all select * from gauge_segments) as segments
    union all
    select
        reading_id,
        start_us,
        end_us,
        energy_joules,
        slope_watts,
        energy_source,
        is_reset,
        is_impossible,
        purpose as handed_over_as,
        gap_us
    from handovers

)

select * from final
