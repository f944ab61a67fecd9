-- One row per deployment, date of its lookback and half octave of load: what it drew there, and the requests that met
-- their SLO. A row may have only one of the two.
with deployments as (

    select * from {{ ref('int_advised_deployments') }}

),

curve_days as (

    select * from {{ ref('efficiency_curve_daily') }}

),

goodput_hours as (

    select * from {{ ref('goodput_hourly') }}

),

models as (

    select * from {{ source('fleet', 'models') }}

),

levels as (

    select
        deployments.usage,
        curve_days.date,
        curve_days.date >= deployments.held_start_date as is_held,
        curve_days.load_bin,
        cast(curve_days.intervals as double) as intervals,
        cast(curve_days.gpu_seconds as double) as gpu_seconds,
        cast(curve_days.tokens as double) as tokens,
        cast(curve_days.joules as double) as joules
    from curve_days
    {{ of_deployments('curve_days', ref('held_back_dates')) }}

),

loaded_hours as (

    select
        deployments.usage,
        goodput_hours.date,
        goodput_hours.date >= deployments.held_start_date as is_held,
        {{ curve_tokens() | replace('role', 'goodput_hours.role') }} / goodput_hours.matched_gpu_seconds as tokens_per_second_per_gpu,
        goodput_hours.requests,
        goodput_hours.good_requests_low,
        models.slo_attainment_ratio
    from goodput_hours
    inner join models on goodput_hours.model = models.model
    {{ of_deployments('goodput_hours', ref('held_back_dates')) }}
        and models.slo_attainment_ratio is not null
        and goodput_hours.requests > 0
        and goodput_hours.matched_gpu_seconds > 0
        and {{ curve_tokens() | replace('role', 'goodput_hours.role') }} > 0

),

assessed as (

    select
        usage,
        date,
        is_held,
        {{ load_bin('tokens_per_second_per_gpu') }} as load_bin,
        cast(sum(requests) as double) as requests,
        cast(sum(good_requests_low) as double) as good_requests,
        max(slo_attainment_ratio) as attainment
    from loaded_hours
    group by all

),

final as (

    select *
    from levels
    full outer join assessed using (usage, date, is_held, load_bin)

)

select * from final
