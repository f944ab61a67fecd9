{{ config(
    severity='warn',
    meta={
        'description':
            'The cost of a date is usual: the fleet\'s, and that of each model and part. An unusual cost may be '
            ~ 'right.',
        'dagster': {'ref': {'name': 'cost_anomalies_daily'}},
        'expected': 'a cost within 5 % or 3.5 spreads of the median of its weekday',
        'remedy': 'see marts.cost_change_daily of the date: whether price, efficiency, volume or idle time changed'
    }
) }}

select
    date,
    site,
    model,
    part,
    cost_usd,
    usual_usd,
    robust_z,
    moved_model,
    moved_part
from {{ ref('cost_anomalies_daily') }}
where is_anomaly and {{ in_run('date') }}
