{{ config(
    severity='warn',
    meta={
        'description':
            'No node meter shows less than its boards together, beyond the errors of both. Where it does, it measures no'
            ~ ' host: that is taken from the rest of the date, stated or assumed.',
        'expected': 'the watts of a node are those of its boards and of its host',
        'remedy': 'do what marts.doubts has as `remedy` of the board (refuted_host), then re-book the date'
    }
) }}

{{ in_doubt_for('refuted_host') }}
