-- The last seven dates by hour and site: what the site emitted, and the carbon intensity of its grid that was used.
with
newest as (
    select max(date) as date from marts.fleet_daily
),

emitted as (
    select
        hour_start_at,
        site,
        sum(location_gco2e) / 1000 as location_kgco2e,
        sum(facility_energy_kwh) as facility_kwh,
        sum(location_gco2e) / nullif(sum(facility_energy_kwh), 0) as fleet_gco2e_per_kwh
    from marts.model_hourly
    where date > (select date - 7 from newest)
    group by hour_start_at, site
),

ranked as (
    select site, row_number() over (order by sum(facility_kwh) desc nulls last, site) as place
    from emitted
    group by site
    qualify place <= 5
)

select
    hour_start_at, site, place, location_kgco2e, facility_kwh, fleet_gco2e_per_kwh,
    grid.location_gco2e_per_kwh as grid_gco2e_per_kwh, grid.zone, grid.carbon_basis
from emitted
inner join ranked using (site)
left join marts.site_carbon_hourly as grid using (hour_start_at, site)
order by place, hour_start_at
