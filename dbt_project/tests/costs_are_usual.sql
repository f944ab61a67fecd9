{{ config(
    severity='warn',
    meta={
        'description':
            'The cost of a date is usual: the fleet\'s, and that of each model and part. An unusual cost may be '
            ~ 'right.',
        'expected': 'a cost within 5 % or 3.5 spreads of the median of its weekday',
        'remedy': 'see marts.cost_change_daily of the date: whether price, efficiency, volume or idle time changed'
    }
) }}

{{ in_doubt_for('unusual_cost') }}
