-- What was billed for each billing month that the run touched, per site and kind, beside the hours of the month that
-- are booked. Kinds without a bill are rows, too. It reads no cost, so that cost_daily can be scaled to it.
with site_power as (

    select * from {{ ref('site_power_hourly') }} where {{ in_run_months('billing_month') }}

),

sites as (

    select * from {{ source('fleet', 'sites') }}

),

held_back as (

    select * from {{ ref('held_back_dates') }}

),

bills as (

    select * from {{ ref('stg_bills') }}

),

kinds as (

    select distinct kind from {{ ref('bill_kinds') }}

),

booked as (

    select
        billing_month,
        site,
        sum(hour_seconds) / 3600 as booked_hours,
        max(month_hours) as month_hours
    from site_power
    group by billing_month, site

),

months as (

    select
        booked.*,
        {{ utc_us_of_local("booked.billing_month", "coalesce(sites.time_zone, 'UTC')") }} as start_us,
        {{ utc_us_of_local("booked.billing_month + interval 1 month", "coalesce(sites.time_zone, 'UTC')") }} as end_us
    from booked
    left join sites on booked.site = sites.site

),

held_months as (

    select distinct
        site_power.billing_month,
        site_power.site
    from site_power
    inner join held_back on site_power.date = held_back.date

),

billed as (
    {{ billed_in('months', ['billing_month', 'site']) }}
),

final as (

    select
        months.billing_month,
        months.site,
        kinds.kind,
        billed.billed_usd,
        billed.billed_us / 3.6e9 as billed_hours,
        months.booked_hours,
        months.month_hours,
        billed.is_prorated,
        months.booked_hours = months.month_hours and held_months.site is null as is_booked_whole,
        coalesce(billed.billed_us = months.end_us - months.start_us, false) as is_billed
    from months
    cross join kinds
    left join billed on {{ equal_keys('months', 'billed', ['billing_month', 'site']) }} and kinds.kind = billed.kind
    left join held_months on {{ equal_keys('months', 'held_months', ['billing_month', 'site']) }}

)

select * from final
