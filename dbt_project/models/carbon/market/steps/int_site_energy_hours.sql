-- What each site used in each hour of the run, cut where a local date begins, and its CO2 by the grid's average. Hours
-- without a meter are rows, too.
with site_hours as (

    select * from {{ ref('int_site_hours') }}

),

drivers as (

    select * from {{ ref('cost_drivers_hourly') }} where {{ in_run('date') }}

),

loads as (

    select
        site,
        hour_start_at,
        local_date,
        {{ exact_sum('facility_energy_kwh') }} as facility_energy_kwh,
        {{ exact_sum('location_gco2e') }} as location_gco2e
    from drivers
    group by site, hour_start_at, local_date

),

final as (

    select
        site_hours.date,
        site_hours.site,
        site_hours.hour_start_at,
        site_hours.local_date,
        site_hours.piece_seconds,
        loads.facility_energy_kwh,
        loads.location_gco2e
    from site_hours
    left join loads
        on site_hours.site = loads.site
        and site_hours.hour_start_at = loads.hour_start_at
        and site_hours.local_date = loads.local_date
    -- Where every meter has its site there is no other.
    where site_hours.site <> {{ unknown() }} or loads.site is not null

)

select * from final
