{{ config(
    severity='warn',
    meta={
        'description':
            'A site with a grid zone used energy only in hours for which the hour, the year of its zone or that '
            ~ 'of a wider zone has a factor. Without one the CO2 is NULL, and missing from every sum.',
        'expected': 'a factor for every hour in which the site used energy',
        'remedy':
            'land the missing hours of the zone (grid_intensity in the fleet file), or add its yearly factor to '
            ~ 'the seed grid_factors; until then location_gco2e of these hours is NULL'
    }
) }}

{{ in_doubt_for('no_grid_factor') }}
