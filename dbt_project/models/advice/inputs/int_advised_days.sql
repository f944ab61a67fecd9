-- One row per deployment and date of its lookback: watts, demand, and the power limit of its boards. A date may have
-- only one of the two.
with deployments as (

    select * from {{ ref('int_advised_deployments') }}

),

intervals as (

    select * from {{ ref('int_advised_intervals') }}

),

power_limits as (

    select * from {{ ref('power_limits_daily') }}

),

days as (

    select
        usage,
        date,
        is_held,
        cast(sum(matched_joules) as double) as joules,
        cast(sum(matched_gpu_seconds) as double) as gpu_seconds,
        cast(coalesce(sum(matched_joules) filter (where is_parked), 0) as double) as parked_joules,
        cast(coalesce(sum(matched_gpu_seconds) filter (where is_parked), 0) as double) as parked_gpu_seconds,
        cast(sum(tokens) as double) as tokens,
        cast(sum(seconds) as double) as seconds
    from intervals
    group by usage, date, is_held

),

-- Only dates on which every board reported its limit, and all had the same.
limits as (

    select
        deployments.usage,
        power_limits.date,
        power_limits.date >= deployments.held_start_date as is_held,
        power_limits.power_limit_watts_max as limit_watts
    from power_limits
    {{ of_deployments('power_limits', ref('held_back_dates')) }}
        and power_limits.meters_with_limit = power_limits.meters
        and power_limits.power_limit_watts_min = power_limits.power_limit_watts_max

),

final as (

    select *
    from days
    full outer join limits using (usage, date, is_held)

)

select * from final
