-- A zone with an hourly series has an hour without a value: the yearly factor stood in. A warning, so that no gap is silent.
{{ config(severity='warn', meta={'dagster': {'ref': {'name': 'site_carbon_hourly'}}, 'expected': 'a value of the hour itself', 'remedy': 'land the missing hours of the zone (grid_intensity in the fleet file); a yearly factor stood in where there is one'}) }}

select
    date,
    site,
    zone,
    hour_start_at,
    carbon_basis
from {{ ref('site_carbon_hourly') }}
where {{ in_run('date') }}
    and zone in (select zone from {{ source('raw', 'grid_intensity') }} where direct_gco2e_per_kwh is not null)
    and coalesce(carbon_basis, '') not in ('hourly', 'hourly_estimated')
