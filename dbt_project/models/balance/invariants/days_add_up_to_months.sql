-- A billing month holds the hours of its days: energy, CO2 and money, per site.
with hours as (

    select
        billing_month as month,
        site,
        sum(energy_joules) as energy_joules,
        sum(location_gco2e) as location_gco2e,
        sum(compute_cost_usd) as compute_cost_usd,
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
        sum(compute_cost_usd) as compute_cost_usd,
        sum(total_tokens) as total_tokens
    from {{ ref('model_monthly') }}
    where {{ in_run_months('month') }}
    group by month, site

),

compared as (

    select
        coalesce(hours.month, months.month) as month,
        coalesce(hours.site, months.site) as site,
        hours.energy_joules as hours_joules,
        months.energy_joules as months_joules
    from hours
    full outer join months on hours.month = months.month and hours.site = months.site
    where hours.energy_joules is distinct from months.energy_joules
        or hours.location_gco2e is distinct from months.location_gco2e
        or hours.compute_cost_usd is distinct from months.compute_cost_usd
        or hours.total_tokens is distinct from months.total_tokens

)

select
    cast(null as date) as date,
    'model_monthly' as table_name,
    {{ row_key(['month', 'site']) }} as row_key,
    cast(months_joules as double) as found,
    'J (or their CO2, USD, tokens)' as unit,
    coalesce(cast(hours_joules as {{ dbt.type_string() }}), 'none') || ' in its hours' as expected
from compared
