-- The headline per model and billing month, on the site's own calendar: whole months that the run touched, from the
-- hours.
{{ config(replaces='months') }}

with hours as (

    select * from {{ ref('model_hourly') }} where {{ in_run_months('billing_month') }}

),

summed as (

    select
        billing_month as month,
        {{ model_keys() | join(', ') }},
        count(distinct date) as booked_days,
        max(case when is_opening_balance then 1 else 0 end) = 1 as is_opening_balance,
        {{ summed_facts(of_dates=true) }},
        {{ summed_doubts() }}
    from hours
    group by billing_month, {{ model_keys() | join(', ') }}

),

sites as (

    select site, time_zone from {{ source('fleet', 'sites') }}

),

-- The UTC dates that each site's month touches: 32 where a month of 31 days begins at 07:00 UTC.
site_months as (

    select distinct
        summed.month,
        summed.site,
        {{ utc_date_of_local('summed.month', "coalesce(sites.time_zone, 'UTC')") }} as first_date,
        {{ utc_date_of_local(
            "cast(summed.month + interval 1 month as timestamp) - interval 1 second",
            "coalesce(sites.time_zone, 'UTC')"
        ) }} as last_date
    from summed
    left join sites on summed.site = sites.site

),

booked as (

    select
        site_months.month,
        site_months.site,
        count(distinct fleet_days.date) as booked_dates
    from site_months
    inner join {{ ref('fleet_daily') }} as fleet_days on fleet_days.date between site_months.first_date and site_months.last_date
    group by site_months.month, site_months.site

),

held_back as (

    select
        site_months.month,
        site_months.site,
        {{ joined_in_order('cast(held.date as ' ~ dbt.type_string() ~ ')') }} as held_back_dates
    from site_months
    inner join {{ ref('held_back_dates') }} as held on held.date between site_months.first_date and site_months.last_date
    group by site_months.month, site_months.site

),

final as (

    select
        summed.month,
        cast(summed.booked_days as integer) as booked_days,
        {{ columns_of('summed', model_keys() + energy_facts() + token_facts()) }},
        {{ model_ratios() }},
        {{ doubt_columns() }},
        summed.is_opening_balance,
        held_back.held_back_dates,
        held_back.held_back_dates is null
            and booked.booked_dates = {{ dbt.datediff('site_months.first_date', 'site_months.last_date', 'day') }} + 1
        as is_booked_whole
    from summed
    inner join site_months on summed.month = site_months.month and summed.site = site_months.site
    left join booked on summed.month = booked.month and summed.site = booked.site
    left join held_back on summed.month = held_back.month and summed.site = held_back.site

)

select * from final
