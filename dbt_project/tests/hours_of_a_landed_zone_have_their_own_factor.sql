{{ config(
    severity='warn',
    meta={
        'description':
            'A zone with an hourly series has the value of every hour. Where one is missing, the yearly factor is'
            ~ ' used instead.',
        'dagster': {'ref': {'name': 'site_carbon_hourly'}},
        'expected': 'a value of the hour itself',
        'remedy':
            'land the missing hours of the zone (grid_intensity in the fleet file). Until then the yearly factor '
            ~ 'is used, where there is one'
    }
) }}

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
