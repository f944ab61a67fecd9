-- The load of each site: its energy per hour and the highest mean power over its demand interval. Hours without a meter
-- are rows, too.
with site_hours as (

    select * from {{ ref('int_site_hours') }}

),

costed_energy as (

    select * from {{ ref('int_costed_energy') }}

),

charges as (

    select * from {{ source('fleet', 'site_charges') }}

),

-- A demand charge counts the mean over its interval: as many of the grid's intervals as fit into it, at least one.
demand_intervals as (

    select
        site_hours.*,
        greatest(coalesce(charges.interval_minutes, 15) * 60000000, {{ grid_us() }}) as demand_us
    from site_hours
    left join charges
        on site_hours.site = charges.site
        and charges.part = 'demand_charge'
        and site_hours.local_date >= charges.valid_from
        and (charges.valid_to is null or site_hours.local_date < charges.valid_to)

),

loads as (

    select
        demand_intervals.site,
        demand_intervals.hour_start_at,
        demand_intervals.local_date,
        demand_intervals.demand_us,
        {{ int_div(epoch_us('costed_energy.interval_start_at'), 'demand_intervals.demand_us') }} as demand_interval,
        {{ exact_sum('costed_energy.facility_energy_kwh') }} as facility_energy_kwh
    from demand_intervals
    inner join costed_energy
        on demand_intervals.site = costed_energy.site
        and demand_intervals.hour_start_at = date_trunc('hour', costed_energy.interval_start_at)
        and demand_intervals.local_date = costed_energy.local_date
    group by 1, 2, 3, 4, 5

),

hourly_loads as (

    select
        site,
        hour_start_at,
        local_date,
        {{ exact_sum('facility_energy_kwh') }} as facility_energy_kwh,
        max(cast(facility_energy_kwh as double) * 3.6e9 / demand_us) as peak_facility_kw
    from loads
    group by site, hour_start_at, local_date

),

final as (

    select
        site_hours.date,
        site_hours.hour_start_at,
        site_hours.local_date,
        site_hours.billing_month,
        site_hours.site,
        site_hours.piece_seconds as hour_seconds,
        site_hours.month_hours,
        hourly_loads.facility_energy_kwh,
        hourly_loads.peak_facility_kw
    from site_hours
    left join hourly_loads
        on site_hours.site = hourly_loads.site
        and site_hours.hour_start_at = hourly_loads.hour_start_at
        and site_hours.local_date = hourly_loads.local_date
    -- Where every meter has its site there is no other.
    where site_hours.site <> {{ unknown() }} or hourly_loads.site is not null

)

select * from final
