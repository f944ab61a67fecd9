-- Each month at a glance: how much of it is booked, what it cost, and what it will have cost.
with hours as (

    select * from {{ ref('site_power_hourly') }}

),

costs as (

    select * from {{ ref('cost_daily') }}

),

forecasts as (

    select * from {{ source('computed', 'cost_forecast') }} where scope = 'site' and basis = 'allocation'

),

energy as (

    select
        month,
        site,
        {{ exact_sum('facility_energy_kwh') }} as facility_energy_kwh,
        {{ exact('cast(sum(location_gco2e) as double) / 1000') }} as location_kgco2e,
        bool_and(is_booked_whole) as is_booked_whole
    from {{ ref('model_monthly') }}
    group by month, site

),

booked as (

    select
        billing_month as month,
        site,
        sum(hour_seconds) / 3600 as booked_hours,
        max(month_hours) as month_hours
    from hours
    group by billing_month, site

),

cost_months as (

    select
        billing_month as month,
        site,
        {{ on_basis('fully_loaded') }} as known_cost_usd,
        case
            when count(case when basis = 'fully_loaded' then cost_usd end) = count(case when basis = 'fully_loaded' then idle_cost_usd end)
                then {{ on_basis('fully_loaded', 'idle_cost_usd') }}
        end as idle_cost_usd,
        bool_and(is_cost_complete) as is_cost_complete
    from costs
    group by billing_month, site

),

final as (

    select
        booked.month,
        {{ plain_name('booked.site', 'site') }} as site,
        booked.booked_hours,
        booked.month_hours,
        {{ ratio('booked.booked_hours', 'booked.month_hours') }} as booked_ratio,
        coalesce(energy.is_booked_whole, false) as is_booked_whole,
        cost_months.known_cost_usd,
        cost_months.idle_cost_usd,
        forecasts.forecast_usd,
        energy.facility_energy_kwh,
        energy.location_kgco2e,
        coalesce(cost_months.is_cost_complete, false) as is_cost_complete
    from booked
    left join cost_months on booked.month = cost_months.month and booked.site = cost_months.site
    left join energy on booked.month = energy.month and booked.site = energy.site
    left join forecasts on booked.month = forecasts.billing_month and booked.site = forecasts.scope_name

)

select * from final
