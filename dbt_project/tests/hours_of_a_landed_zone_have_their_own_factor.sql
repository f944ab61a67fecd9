{{ config(
    severity='warn',
    meta={
        'description':
            'A zone with an hourly series has the value of every hour. Where one is missing, the yearly factor is'
            ~ ' used instead.',
        'expected': 'a value of the hour itself',
        'remedy':
            'land the missing hours of the zone (grid_intensity in the fleet file). Until then the yearly factor '
            ~ 'is used, where there is one'
    }
) }}

{{ in_doubt_for('yearly_grid_factor') }}
