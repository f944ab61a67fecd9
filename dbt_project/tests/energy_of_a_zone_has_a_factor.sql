{{ config(
    severity='warn',
    meta={
        'description':
            'A site with a grid zone used energy only in hours for which the hour, the year of its zone or that '
            ~ 'of a wider zone has a factor. Without one the CO2 is NULL, and missing from every sum.',
        'dagster': {'ref': {'name': 'site_carbon_hourly'}},
        'expected': 'a factor for every hour in which the site used energy',
        'remedy':
            'land the missing hours of the zone (grid_intensity in the fleet file), or add its yearly factor to '
            ~ 'the seed grid_factors; until then location_gco2e of these hours is NULL'
    }
) }}

with site_hours as (

    select
        date,
        site,
        hour_start_at,
        {{ exact_sum('facility_energy_kwh') }} as facility_energy_kwh
    from {{ ref('model_hourly') }}
    where {{ in_run('date') }}
    group by date, site, hour_start_at

)

select
    carbon.site,
    carbon.zone,
    min(carbon.hour_start_at) as first_hour_at,
    max(carbon.hour_start_at) as last_hour_at,
    count(*) as hours,
    sum(site_hours.facility_energy_kwh) as facility_energy_kwh
from {{ ref('site_carbon_hourly') }} as carbon
inner join site_hours on {{ equal_keys('carbon', 'site_hours', ['date', 'site', 'hour_start_at']) }}
where {{ in_run('carbon.date') }}
    and carbon.location_gco2e_per_kwh is null
    and site_hours.facility_energy_kwh > 0
group by carbon.site, carbon.zone
