{{ config(
    severity='warn',
    meta={
        'description':
            'The samples of a gauge cover at least nine tenths of the time between its first and last one of a '
            ~ 'date. Otherwise energy is lost that nothing else shows. Sources of run windows are left out: a '
            ~ 'benchmark\'s log has nothing between its runs.',
        'expected': 'at least 90 % of the seconds between the first and the last sample of the date',
        'remedy':
            'see whether the exporter or its scrape was down. If the meter is read less often than the fleet file '
            ~ 'states, set interval_seconds of its source to the longest usual time between two samples, and re-book '
            ~ 'the date'
    }
) }}

{{ in_doubt_for('unread_gauge') }}
