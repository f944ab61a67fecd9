-- The hours of each date by the clock of its site: one row per site, billing month, UTC date, local date and local hour, of
-- dates that are booked in the last 26 weeks or to come. A date of two billing months has its hours in each.
with site_power as (

    select * from {{ ref('site_power_hourly') }}

),

rests as (

    select * from {{ ref('int_advised_month_rests') }}

),

sites as (

    select site, time_zone from {{ source('fleet', 'sites') }}

),

lookback as (

    select as_of_date from {{ ref('int_lookback') }}

),

dates as (

    select distinct
        site_power.site,
        site_power.billing_month,
        site_power.date,
        cast(null as double) as rest_ratio
    from site_power
    inner join lookback on site_power.date > lookback.as_of_date - interval 182 day
    union all
    select
        site,
        billing_month,
        date,
        rest_ratio
    from rests

),

-- The hours of a local date begin at any quarter of an hour of a UTC one.
quarters as (

    select
        dates.*,
        coalesce(sites.time_zone, 'UTC') as time_zone,
        {{ integers_between(0, 95) }} as quarter
    from dates
    left join sites on dates.site = sites.site

),

moments as (

    select
        *,
        {{ from_epoch_us(utc_us_of_local("date", "'UTC'") ~ ' + quarter * 900000000') }} as quarter_start_at
    from quarters

),

hours as (

    select
        site,
        billing_month,
        date,
        rest_ratio,
        {{ local_date('quarter_start_at', 'time_zone') }} as local_date,
        {{ local_hour('quarter_start_at', 'time_zone') }} as local_hour,
        count(*) as quarters
    from moments
    group by 1, 2, 3, 4, 5, 6

),

final as (

    select *
    from hours
    where cast(date_trunc('month', local_date) as date) = billing_month

)

select * from final
