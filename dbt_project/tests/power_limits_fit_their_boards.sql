{{ config(
    severity='warn',
    meta={
        'description':
            'No board draws 1.5 to 3 times its power limit nearly all day: such a limit is stated too low. The '
            ~ 'board is booked as measured.',
        'expected': 'at most 1.5 × the limit of the device type',
        'remedy':
            'its joules are booked as measured; state its real limit in the fleet file: device_types: [{name: '
            ~ '<device_type>, power_limit_watts: <watts>}]'
    }
) }}

{{ in_doubt_for('limit_too_low') }}
