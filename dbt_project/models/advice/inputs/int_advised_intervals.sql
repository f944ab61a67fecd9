-- One row per deployment and interval of its lookback: its demand, the hour of its site's own week, and whether its
-- engines had enough.
-- A table, as the other models of advice and the asset itself read it: as a view it would be made five times.
{{ config(materialized='table') }}
{% set pressure_keys = ['site', 'deployment', 'model', 'role'] %}
{% set hour_number = int_div(epoch_us('intervals.interval_start_at'), hour_us()) %}

with deployments as (

    select * from {{ ref('int_advised_deployments') }}

),

intervals as (

    select * from {{ ref('model_intervals') }}

),

pressure_hours as (

    select
        {{ pressure_keys | join(', ') }},
        {{ int_div(epoch_us('hour_start_at'), hour_us()) }} as hour_number,
        running_requests_max,
        queued_intervals,
        finished_requests,
        preemptions > 0 or kv_cache_usage_ratio_max >= 0.9 as is_full
    from {{ ref('pressure_hourly') }}
    where date >= (select min(lookback_start_date) from deployments)

),

sites as (

    select * from {{ source('fleet', 'sites') }}

),

-- Local times of the sites are computed once per time, not once per deployment.
times as (

    select distinct
        site,
        interval_start_at
    from intervals
    where date >= (select min(lookback_start_date) from deployments)

),

local_times as (

    select
        times.*,
        timezone(coalesce(sites.time_zone, 'UTC'), times.interval_start_at) as local_at
    from times
    left join sites on times.site = sites.site

),

final as (

    select
        deployments.usage,
        intervals.date,
        intervals.date >= deployments.held_start_date as is_held,
        intervals.interval_start_at,
        cast((isodow(local_times.local_at) - 1) * 24 + hour(local_times.local_at) as integer) as slot,
        cast(local_times.local_at as date) as local_date,
        intervals.interval_seconds as seconds,
        {{ curve_tokens() | replace('role', 'intervals.role') }} as tokens,
        cast(tokens as double) / intervals.interval_seconds as tokens_per_second,
        tokens_per_second * intervals.interval_seconds
            / nullif(cast(intervals.matched_gpu_seconds as double), 0) as tokens_per_second_per_gpu,
        {{ ratio('tokens', 'intervals.matched_gpu_seconds') }} / deployments.capacity_tokens_per_second_per_gpu as load_ratio,
        -- What is not known is not parked.
        coalesce({{ moved_tokens() | replace('role', 'intervals.role') }} = 0, false) as is_parked,
        -- Requests waited in so many intervals of the hour: those with the most tokens.
        coalesce(pressure_hours.is_full, false) or row_number() over (
            partition by deployments.usage, {{ hour_number }} order by tokens desc nulls last, intervals.interval_start_at
        ) <= coalesce(pressure_hours.queued_intervals, 0) as is_pressed,
        -- Of one request if as many ran all the time as ever in the hour: it had no less.
        cast(tokens as double) / intervals.interval_seconds
            / nullif(intervals.engines * greatest(pressure_hours.running_requests_max, 1), 0) as request_tokens_per_second,
        pressure_hours.finished_requests as hour_finished_requests,
        intervals.matched_joules,
        intervals.matched_gpu_seconds
    from intervals
    inner join local_times
        on intervals.site = local_times.site and intervals.interval_start_at = local_times.interval_start_at
    left join pressure_hours
        on {{ equal_keys('intervals', 'pressure_hours', pressure_keys) }}
        and {{ hour_number }} = pressure_hours.hour_number
    {{ of_deployments('intervals', ref('held_back_dates')) }}

)

select * from final
