-- Market-based CO2 of each model and date: its site's of each hour, by kWh. One row per date and model keys of a site
-- that has it.
with drivers as (

    select * from {{ ref('cost_drivers_hourly') }} where {{ in_run('date') }}

),

scope2 as (

    select * from {{ ref('site_scope2_hourly') }} where {{ in_run('date') }}

),

running as (

    select
        drivers.date,
        {% for key in model_keys() -%}
        drivers.{{ key }},
        {% endfor -%}
        drivers.facility_energy_kwh,
        scope2.facility_energy_kwh as site_kwh,
        scope2.scope2_market_gco2e as site_gco2e,
        sum(drivers.facility_energy_kwh) over (
            partition by drivers.site, drivers.hour_start_at, drivers.local_date
            order by {% for key in model_keys() if key != 'site' %}drivers.{{ key }} nulls last, {% endfor %}drivers.is_held
            rows unbounded preceding
        ) as kwh_to
    from drivers
    inner join scope2
        on drivers.site = scope2.site
        and drivers.hour_start_at = scope2.hour_start_at
        and drivers.local_date = scope2.local_date
    where scope2.scope2_market_gco2e is not null and drivers.facility_energy_kwh is not null

),

shared as (

    select
        *,
        case
            when facility_energy_kwh > 0
                then {{ shared_up_to('site_gco2e', 'kwh_to', 'site_kwh', 'market_gco2e') }}
                    - {{ shared_up_to('site_gco2e', '(kwh_to - facility_energy_kwh)', 'site_kwh', 'market_gco2e') }}
            else 0
        end as market_gco2e
    from running

),

final as (

    select
        date,
        {{ model_keys() | join(', ') }},
        {{ exact_sum('market_gco2e') }} as market_gco2e
    from shared
    group by date, {{ model_keys() | join(', ') }}

)

select * from final
