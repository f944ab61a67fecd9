-- A board that draws 1.5 to 3 times its limit nearly all day has a limit that is stated too low: its samples are refused. A warning, by board.
{{ config(severity='warn', meta={'dagster': {'ref': {'name': 'int_impossible_samples'}}, 'expected': 'at most 1.5 × the limit of the device type', 'remedy': 'state its real limit in the fleet file: device_types: [{name: <device_type>, power_limit_watts: <watts>}], then re-book the date'}) }}

with series as (

    select * from {{ ref('stg_series') }}

),

series_days as (

    select * from {{ ref('stg_series_days') }}

),

device_types as (

    select * from {{ ref('stg_device_types') }}

),

sampled as (

    select
        series_days.date,
        series.meter,
        max(case when series.quantity = 'energy' and series_days.falls = 0
            then (series_days.last_value - series_days.first_value) / nullif(series_days.last_us - series_days.first_us, 0) * 1e6
        end) as counted_watts,
        max(series.meter_device_type) as device_type,
        sum(case when series.quantity = 'power' then series_days.samples end) as gauge_samples
    from series_days
    inner join series on series_days.series_id = series.series_id
    where series_days.is_in_run and series.meter_scope = 'board' and series.quantity in ('energy', 'power') and series.meter is not null
    group by series_days.date, series.meter

),

refused as (

    select * from {{ ref('int_impossible_samples') }} where meter_scope = 'board'

)

select
    sampled.date,
    sampled.meter,
    sampled.device_type,
    device_types.power_limit_watts,
    round(coalesce(refused.greatest_near_watts, sampled.counted_watts), 1) as watts_seen
from sampled
inner join device_types on sampled.device_type = device_types.device_type
left join refused on sampled.date = refused.date and sampled.meter = refused.meter
where refused.near_samples >= 0.9 * sampled.gauge_samples
    or (
        sampled.counted_watts > {{ possible_power_factor() }} * device_types.power_limit_watts
        and sampled.counted_watts <= 2 * {{ possible_power_factor() }} * device_types.power_limit_watts
    )
