{{ config(
    severity='warn',
    meta={
        'description':
            'Two counters of one engine, or an engine and its frontend, report the same tokens within 5 %. '
            ~ 'Otherwise one of them is wrong; the book uses the better one. A gateway may miss traffic: it'
            ~ ' is named where it counts more than the engines of its model.',
        'expected': 'at most 5 % between the two counters, or ten minutes of what the engine counts',
        'remedy': 'look at both metrics of this engine over the date: one misses requests or is scraped twice'
    }
) }}

{{ in_doubt_for('token_counters_disagree') }}
