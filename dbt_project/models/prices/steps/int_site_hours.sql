-- The hours of the run at each site, cut where a local date begins: a rate and a billing month hold for a whole piece.
-- One row per date, site, hour and local date.
with site_intervals as (

    select * from {{ ref('int_site_intervals') }}

),

sites as (

    select * from {{ source('fleet', 'sites') }}

),

pieces as (

    select
        date,
        site,
        date_trunc('hour', interval_start_at) as hour_start_at,
        local_date,
        billing_month,
        min(interval_number) * {{ grid_us() }} as start_us,
        (max(interval_number) + 1) * {{ grid_us() }} as end_us
    from site_intervals
    group by 1, 2, 3, 4, 5

),

-- 743 hours of a month in which the clocks go forward.
months as (

    select
        site_months.site,
        site_months.billing_month,
        {{ utc_us_of_local("site_months.billing_month + interval 1 month", "coalesce(sites.time_zone, 'UTC')") }}
        - {{ utc_us_of_local("site_months.billing_month", "coalesce(sites.time_zone, 'UTC')") }} as month_us
    from (select distinct site, billing_month from pieces) as site_months
    left join sites on site_months.site = sites.site

),

final as (

    select
        pieces.*,
        (pieces.end_us - pieces.start_us) / 1e6 as piece_seconds,
        months.month_us / 3.6e9 as month_hours
    from pieces
    inner join months on pieces.site = months.site and pieces.billing_month = months.billing_month

)

select * from final
