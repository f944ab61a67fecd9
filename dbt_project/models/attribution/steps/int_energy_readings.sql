-- Counter readings of the booked and host meters, in joules: first and last per series and interval ("aggregate first,
-- difference second"). Days with a fall, a leap, a duplicate, overlapping series or a change of claimant are listed
-- sample by sample instead. The last reading before the run and the first one after it complete the first and the last
-- segment.
{# Only int_energy_segments reads it: DuckDB need not store it, and Spark would otherwise plan these steps as one. #}
{{ config(materialized='view' if target.type == 'duckdb' else 'table') }}

with meters as (

    select * from {{ ref('int_meter_choices') }} where purpose in ('booked', 'host')

),

claims as (

    select * from {{ ref('int_claims') }}

),

series as (

    select * from {{ ref('stg_series') }}

),

series_days as (

    select * from {{ ref('stg_series_days') }}

),

chosen_readings as (

    select
        reading_id,
        max(meter) as meter,
        max(type_possible_watts) as possible_watts,
        max({{ ceiling_watts('meter_scope') }}) as ceiling_watts
    from meters
    where quantity = 'energy'
    group by reading_id

),

-- Where the device type has no limit, the one that its driver reported on the date.
reported_limits as (

    select
        chosen_readings.reading_id,
        {{ int_div('series_days.first_us', day_us()) }} as day_number,
        max({{ possible_power_factor() }} * series_days.last_value) as possible_watts,
        0 as is_doubted
    from series_days
    inner join series on series_days.series_id = series.series_id
    inner join chosen_readings on series.meter = chosen_readings.meter
    where series.quantity = 'power_limit'
    group by chosen_readings.reading_id, {{ int_div('series_days.first_us', day_us()) }}

),

doubted_dates as (

    select distinct
        reading_id,
        {{ int_div(epoch_us('cast(date as ' ~ timestamp_type() ~ ')'), day_us()) }} as day_number,
        cast(null as double) as possible_watts,
        1 as is_doubted
    from meters
    where is_doubted and quantity = 'energy'

),

dated_limits as (

    select
        reading_id,
        day_number,
        max(possible_watts) as possible_watts,
        max(is_doubted) = 1 as is_doubted
    from (select * from reported_limits union all select * from doubted_dates) as either
    group by reading_id, day_number

),

cut_meter_days as (

    select distinct
        date,
        meter_scope,
        meter
    from claims
    where claims_of_day > members

),

-- Whether a date is read sample by sample depends on that date alone, so any order of booking gives the same rows.
slow_reading_days as (

    select distinct
        meters.reading_id,
        meters.date
    from meters
    left join cut_meter_days on {{ equal_keys('meters', 'cut_meter_days', ['date', 'meter_scope', 'meter']) }}
    where meters.needs_every_sample or cut_meter_days.meter is not null

),

counter_series_days as (

    select
        series.series_id,
        series.reading_id,
        series.factor,
        {{ int_div('series_days.first_us', day_us()) }} as day_number,
        series_days.is_in_run,
        -- A leap is found in the step that holds it: an interval or a day around it may look possible.
        case
            when series_days.is_in_run then slow_reading_days.reading_id is not null
            else series_days.falls > 0
        end
        or coalesce(
            series_days.steepest_rise_per_second
            > coalesce(
                coalesce(chosen_readings.possible_watts, dated_limits.possible_watts)
                * case when dated_limits.is_doubted then {{ doubted_limit_factor() }} else 1 end,
                chosen_readings.ceiling_watts
            ),
            false
        ) as needs_every_sample,
        series_days.date,
        series_days.first_us,
        series_days.first_value,
        series_days.last_us,
        series_days.last_value
    from series
    inner join series_days on series.series_id = series_days.series_id
    inner join chosen_readings on series.reading_id = chosen_readings.reading_id
    left join slow_reading_days
        on series.reading_id = slow_reading_days.reading_id and series_days.date = slow_reading_days.date
    left join dated_limits
        on series.reading_id = dated_limits.reading_id
        and {{ int_div('series_days.first_us', day_us()) }} = dated_limits.day_number

),

{{ counter_reading_ctes(source('raw', 'power_samples'), unlimited_dips_are_glitches=true) }}
select * from counter_readings
