{{ config(
    severity='warn',
    meta={
        'description':
            'Good requests and tokens are between none and all, and the low bound is not above the high one. From'
            ~ ' a log, the tokens are those of the log.',
        'expected': '0 <= good <= all, the low bound at most the high one',
        'remedy': 'look at the SLO histograms and request logs of this deployment in that hour'
    }
) }}

{{ in_doubt_for('impossible_goodput') }}
