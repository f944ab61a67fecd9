-- A billing month holds the hours of its days: energy, CO2 and money, per site.
{{ config(meta={'dagster': {'ref': {'name': 'model_monthly'}}}) }}

with hours as (

    select
        billing_month as month,
        site,
        sum(energy_joules) as energy_joules,
        sum(location_gco2e) as location_gco2e,
        sum(fully_loaded_cost_usd) as fully_loaded_cost_usd,
        sum(total_tokens) as total_tokens
    from {{ ref('model_hourly') }}
    where {{ in_run_months('billing_month') }}
    group by billing_month, site

),

months as (

    select
        month,
        site,
        sum(energy_joules) as energy_joules,
        sum(location_gco2e) as location_gco2e,
        sum(fully_loaded_cost_usd) as fully_loaded_cost_usd,
        sum(total_tokens) as total_tokens
    from {{ ref('model_monthly') }}
    where {{ in_run_months('month') }}
    group by month, site

)

select
    coalesce(hours.month, months.month) as month,
    coalesce(hours.site, months.site) as site,
    hours.energy_joules as hours_joules,
    months.energy_joules as month_joules
from hours
full outer join months on hours.month = months.month and hours.site = months.site
where hours.energy_joules is distinct from months.energy_joules
    or hours.location_gco2e is distinct from months.location_gco2e
    or hours.fully_loaded_cost_usd is distinct from months.fully_loaded_cost_usd
    or hours.total_tokens is distinct from months.total_tokens
