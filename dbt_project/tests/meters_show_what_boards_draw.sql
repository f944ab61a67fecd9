{{ config(
    severity='warn',
    meta={
        'description':
            'No meter shows less than half of what its idle board draws while the board works, and every counter '
            ~ 'moves meanwhile. Other seconds are booked by the next meter of the board, else they are unknown.',
        'expected': 'watts and a counter that moves, while utilisation or tokens show that the board works',
        'remedy':
            'see whether the exporter of the board hangs (for DCGM its host engine), and land another meter of it. '
            ~ 'Where nothing else is booked, marts.doubts has the unknown seconds (refuted_meter)',
        'dagster': {'ref': {'name': 'reconciliation_daily'}}
    }
) }}

select
    date,
    meter_scope,
    meter,
    refuted_joules,
    booked_joules
from {{ ref('reconciliation_daily') }}
where refuted_joules is not null and {{ in_run('date') }}
