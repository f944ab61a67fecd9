-- Boards that draw 1.5 to 3 times the limit of their device type nearly all of a date: the stated limit is too low, and
-- twice as much is accepted on this date. Evidence is 90 % of the gauge's samples, or without a gauge the counter's
-- mean of the date. Only the date's own raw is used. One row per date and board.
with impossible_samples as (

    select * from {{ ref('int_impossible_samples') }} where meter_scope = 'board'

),

series as (

    select * from {{ ref('stg_series') }}
    where stream = 'power' and meter_scope = 'board' and quantity in ('energy', 'power') and meter is not null

),

series_days as (

    select * from {{ ref('stg_series_days') }} where is_in_run

),

device_types as (

    select * from {{ ref('stg_device_types') }} where power_limit_watts is not null

),

meter_types as (

    select
        meter,
        max(meter_device_type) as device_type
    from series
    group by meter

),

board_days as (

    select
        series_days.date,
        series.meter,
        coalesce(sum(case when series.quantity = 'power' then series_days.samples end), 0) as gauge_samples,
        {{ ratio(
            exact_sum(
                "case when series.quantity = 'energy' and series_days.falls = 0 then series_days.last_value - series_days.first_value end"
            ),
            "sum(case when series.quantity = 'energy' and series_days.falls = 0 then series_days.last_us - series_days.first_us end)"
        ) }} * 1e6 as counted_watts
    from series_days
    inner join series on series_days.series_id = series.series_id
    group by series_days.date, series.meter

),

assessed as (

    select
        board_days.date,
        board_days.meter,
        meter_types.device_type,
        device_types.power_limit_watts,
        case when board_days.gauge_samples > 0 then impossible_samples.greatest_near_watts else board_days.counted_watts end as watts_seen,
        case
            when board_days.gauge_samples > 0 then impossible_samples.near_samples >= 0.9 * board_days.gauge_samples
            else board_days.counted_watts > {{ possible_power_factor() }} * device_types.power_limit_watts
                and board_days.counted_watts
                    <= {{ doubted_limit_factor() }} * {{ possible_power_factor() }} * device_types.power_limit_watts
        end as is_doubted
    from board_days
    inner join meter_types on board_days.meter = meter_types.meter
    inner join device_types on meter_types.device_type = device_types.device_type
    left join impossible_samples on board_days.date = impossible_samples.date and board_days.meter = impossible_samples.meter

),

final as (

    select
        date,
        meter,
        device_type,
        power_limit_watts,
        watts_seen
    from assessed
    where is_doubted

)

select * from final
