-- The cost of each model and part on the basis allocation, what of it is for work, and how much work that was: one row
-- per date of the lookback and of as many dates before it, site, model and part. A date that is held back is evidence
-- of nothing.

with lookback as (

    select * from {{ ref('int_lookback') }}

),

held_back as (

    select distinct date as held_back_date from {{ ref('held_back_dates') }}

),

-- `day_number` counts days since 1970; dates of one weekday are a multiple of 7 apart.
dates as (

    select
        booked.date,
        {{ int_div(utc_us_of_local('booked.date', "'UTC'"), day_us()) }} as day_number
    from (select distinct date from {{ ref('cost_daily') }}) as booked
    cross join lookback
    left join held_back on booked.date = held_back.held_back_date
    where {{ in_cost_history('booked.date', 'lookback.as_of_date') }} and held_back.held_back_date is null

),

costs as (

    select * from {{ ref('cost_daily') }} where basis in ('variable', 'usage', 'allocation')

),

drivers as (

    select * from {{ ref('cost_drivers_hourly') }} where is_held

),

model_days as (

    select * from {{ ref('model_daily') }}

),

parts as (

    {% for part in cost_parts() -%}
    select '{{ part.name }}' as part, '{{ part_unit(part) }}' as unit{{ ' union all' if not loop.last }}
    {% endfor %}

),

part_days as (

    select
        dates.date,
        dates.day_number,
        costs.site,
        case when costs.deployment in ({{ beside_the_models() }}) then costs.deployment else costs.model end as model,
        costs.part,
        parts.unit,
        {{ money_sum("case when costs.basis = 'allocation' then costs.cost_usd end") }} as cost_usd,
        {{ money_sum(
            "case when costs.basis = (case when parts.unit = 'productive_kwh' then 'variable' else 'usage' end) then costs.cost_usd end"
        ) }} as active_usd,
        min(case when costs.is_cost_complete then 1 else 0 end) = 1 as is_cost_complete
    from costs
    inner join dates on costs.date = dates.date
    inner join parts on costs.part = parts.part
    group by 1, 2, 3, 4, 5, 6

),

work as (

    select
        dates.date,
        drivers.site,
        drivers.model,
        {{ exact_sum('drivers.active_gpu_seconds') }} as active_gpu_seconds,
        {{ exact_sum('drivers.facility_energy_kwh') }} as facility_kwh
    from drivers
    inner join dates on drivers.date = dates.date
    group by dates.date, drivers.site, drivers.model

),

served as (

    select
        dates.date,
        model_days.site,
        model_days.model,
        {{ exact_sum('model_days.productive_joules') }} as productive_joules,
        {{ exact_sum('model_days.total_tokens') }} as total_tokens
    from model_days
    inner join dates on model_days.date = dates.date
    group by dates.date, model_days.site, model_days.model

),

final as (

    select
        part_days.date,
        part_days.day_number,
        part_days.site,
        part_days.model,
        part_days.part,
        part_days.unit,
        part_days.model in ({{ beside_the_models() }}) as is_unheld,
        part_days.cost_usd,
        -- What no model holds does no work, whatever a basis gives away of it.
        case
            when part_days.cost_usd is null then null
            when part_days.model in ({{ beside_the_models() }}) then {{ money('0') }}
            else coalesce(part_days.active_usd, {{ money('0') }})
        end as active_usd,
        case part_days.unit
            when 'productive_kwh' then cast(served.productive_joules as double) / 3.6e6
            when 'facility_kwh' then cast(work.facility_kwh as double)
            else cast(work.active_gpu_seconds as double) / 3600
        end as quantity,
        served.total_tokens,
        part_days.is_cost_complete
    from part_days
    left join work on {{ equal_keys('part_days', 'work', ['date', 'site', 'model']) }}
    left join served on {{ equal_keys('part_days', 'served', ['date', 'site', 'model']) }}

)

select * from final
