-- What energy costs and emits at each site in each interval of the run: one row per date, site and interval. NULL
-- factors are unknown.
with sites as (

    select * from {{ source('fleet', 'sites') }}

),

tariffs as (

    select * from {{ source('fleet', 'tariffs') }}

),

carbon_factors as (

    select * from {{ ref('int_carbon_factors') }}

),

run_dates as (

    select * from {{ ref('stg_run_dates') }}

),

intervals as (

    select
        date,
        {{ integers_between(int_div('start_us', grid_us()), int_div('end_us', grid_us()) ~ ' - 1') }} as interval_number
    from run_dates

),

all_sites as (

    select site, zone, time_zone, pue, wue_litres_per_kwh from sites
    union all
    select {{ unknown() }} as site, null as zone, 'UTC' as time_zone, null as pue, null as wue_litres_per_kwh

),

site_intervals as (

    select
        intervals.date,
        intervals.interval_number,
        {{ from_epoch_us('intervals.interval_number * ' ~ grid_us()) }} as interval_start_at,
        all_sites.*
    from intervals
    cross join all_sites
    where {{ is_closed('intervals.interval_number * ' ~ grid_us()) }}

),

local_intervals as (

    select
        *,
        {{ local_hour('interval_start_at', 'time_zone') }} as local_hour,
        {{ local_date('interval_start_at', 'time_zone') }} as local_date
    from site_intervals

),

final as (

    select
        local_intervals.date,
        local_intervals.interval_number,
        local_intervals.interval_start_at,
        local_intervals.site,
        local_intervals.zone,
        local_intervals.pue,
        local_intervals.wue_litres_per_kwh,
        local_intervals.local_date,
        cast(date_trunc('month', local_intervals.local_date) as date) as billing_month,
        tariffs.usd_per_kwh,
        carbon_factors.location_gco2e_per_kwh,
        carbon_factors.lifecycle_gco2e_per_kwh,
        carbon_factors.carbon_basis
    from local_intervals
    left join tariffs
        on local_intervals.site = tariffs.site
        and local_intervals.local_hour >= tariffs.local_hour_from
        and local_intervals.local_hour < tariffs.local_hour_to
        and local_intervals.local_date >= tariffs.valid_from
        and (tariffs.valid_to is null or local_intervals.local_date < tariffs.valid_to)
    left join carbon_factors
        on local_intervals.zone = carbon_factors.zone
        and {{ int_div(epoch_us('local_intervals.interval_start_at'), hour_us()) }} = carbon_factors.hour_number

)

select * from final
