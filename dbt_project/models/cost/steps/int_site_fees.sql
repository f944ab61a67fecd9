-- What each site charges an hour beside electricity and GPU-hours: monthly amounts over the hours of their own local
-- month. One row per date, site, hour and local date with a charge, of whole billing months that the run touched.
-- depends_on: {{ ref('held_back_dates') }}
with site_power as (

    select * from {{ ref('site_power_hourly') }} where {{ in_run_months('billing_month') }}

),

charges as (

    select * from {{ source('fleet', 'site_charges') }}

),

site_charges as (

    select
        site_power.date,
        site_power.site,
        site_power.hour_start_at,
        site_power.local_date,
        site_power.billing_month,
        site_power.hour_seconds / 3600 as hours,
        site_power.month_hours,
        max(case when charges.part = 'demand_charge' then charges.usd end) as usd_per_kw_month,
        max(case when charges.part = 'hosting' then charges.usd end) as hosting_usd_per_kw_month,
        max(case when charges.part = 'hosting' then charges.usd * charges.provisioned_kw end) as hosting_usd_per_month,
        max(case when charges.part = 'operations' then charges.usd end) as operations_usd_per_month,
        max(case when charges.part = 'carbon_price' then charges.usd end) as usd_per_tonne
    from site_power
    inner join charges
        on site_power.site = charges.site
        and site_power.local_date >= charges.valid_from
        and (charges.valid_to is null or site_power.local_date < charges.valid_to)
    group by 1, 2, 3, 4, 5, 6, 7

),

drivers as (

    select * from {{ ref('cost_drivers_hourly') }} where {{ in_run_months('billing_month') }}

),

device_types as (

    select * from {{ ref('stg_device_types') }}

),

-- What shares the fees of an hour: claimed time, claimed time by its power limit, energy.
claims as (

    select
        drivers.site,
        drivers.hour_start_at,
        drivers.local_date,
        {{ exact_sum('drivers.claimed_gpu_seconds') }} as claimed_gpu_seconds,
        {{ exact_sum(exact('cast(drivers.claimed_gpu_seconds as double) * device_types.power_limit_watts')) }} as limit_joules,
        {{ exact_sum('drivers.facility_energy_kwh') }} as facility_energy_kwh
    from drivers
    left join device_types on drivers.device_type = device_types.device_type
    group by drivers.site, drivers.hour_start_at, drivers.local_date

),

peaks as (

    select
        site,
        billing_month,
        max(peak_facility_kw) as peak_kw
    from site_power
    group by site, billing_month

),

-- Monthly amounts are spread over the hours of that local month.
final as (

    select
        site_charges.date,
        site_charges.site,
        site_charges.hour_start_at,
        site_charges.local_date,
        site_charges.billing_month,
        site_charges.usd_per_tonne,
        site_charges.usd_per_kw_month,
        site_charges.hosting_usd_per_kw_month,
        site_charges.operations_usd_per_month,
        {{ money('site_charges.usd_per_kw_month * peaks.peak_kw / site_charges.month_hours * site_charges.hours') }} as demand_usd,
        {{ money('site_charges.hosting_usd_per_month / site_charges.month_hours * site_charges.hours') }} as hosting_usd,
        {{ money('site_charges.operations_usd_per_month / site_charges.month_hours * site_charges.hours') }} as operations_usd,
        coalesce(claims.claimed_gpu_seconds, 0) as site_claimed_gpu_seconds,
        coalesce(claims.limit_joules, 0) as site_limit_joules,
        coalesce(claims.facility_energy_kwh, 0) as site_facility_energy_kwh
    from site_charges
    left join peaks on site_charges.site = peaks.site and site_charges.billing_month = peaks.billing_month
    left join claims
        on site_charges.site = claims.site
        and site_charges.hour_start_at = claims.hour_start_at
        and site_charges.local_date = claims.local_date

)

select * from final
