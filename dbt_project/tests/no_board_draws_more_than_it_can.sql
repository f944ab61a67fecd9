{{ config(
    severity='warn',
    meta={
        'description':
            'No board draws more watts than it can (1.5 × its limit). A reset read as energy, a sentinel or a '
            ~ 'doubled counter shows here.',
        'expected': 'at most possible_watts × covered_seconds',
        'remedy':
            'check the device type of this board (seed device_types, or devices in the fleet file) and its counter'
    }
) }}

{{ in_doubt_for('above_limit') }}
