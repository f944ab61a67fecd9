-- What is not booked of the months in progress: one row per site, billing month and UTC date, with the share of the
-- date's hours that are of the month. Dates after the newest booked one, and dates before it that are missing since the
-- site's first one.

with site_power as (

    select * from {{ ref('site_power_hourly') }}

),

sites as (

    select * from {{ source('fleet', 'sites') }}

),

lookback as (

    select as_of_date from {{ ref('int_lookback') }}

),

booked as (

    select
        site,
        date
    from site_power
    group by site, date

),

booked_sites as (

    select
        booked.site,
        min(booked.date) as first_date,
        any_value(coalesce(sites.time_zone, 'UTC')) as time_zone
    from booked
    left join sites on booked.site = sites.site
    group by booked.site

),

months as (

    select
        booked_sites.*,
        lookback.as_of_date,
        all_months.billing_month,
        {{ utc_us_of_local("all_months.billing_month", "booked_sites.time_zone") }} as start_us,
        {{ utc_us_of_local("all_months.billing_month + interval 1 month", "booked_sites.time_zone") }} as end_us
    from booked_sites
    cross join (select distinct billing_month from site_power) as all_months
    cross join lookback

),

-- A site may have months before the fleet's newest one that are over; its newest one is in progress, unless it ends
-- with the newest booked date.
days as (

    select
        *,
        greatest(first_date, {{ date_of_us('start_us') }}) + cast({{ integers_between(0, 32) }} as integer) as date
    from months
    where end_us > {{ utc_us_of_local("as_of_date", "'UTC'") }} + {{ day_us() }}

),

shares as (

    select
        days.site,
        days.billing_month,
        days.date,
        (
            least(days.end_us, {{ utc_us_of_local("days.date", "'UTC'") }} + {{ day_us() }})
            - greatest(days.start_us, {{ utc_us_of_local("days.date", "'UTC'") }})
        ) / {{ day_us() }} as rest_ratio
    from days
    anti join booked on days.site = booked.site and days.date = booked.date

),

final as (

    select * from shares where rest_ratio > 0

)

select * from final
