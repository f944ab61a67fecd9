{{ config(
    severity='warn',
    meta={
        'description':
            'Two meters of one device report the same energy within 5 %. Otherwise one of them is wrong; the book'
            ~ ' uses the better one.',
        'dagster': {'ref': {'name': 'reconciliation_daily'}},
        'expected': 'at most 5 % between the two meters',
        'remedy':
            'compare both readings of this meter with what the board reports itself (nvidia-smi); a wrong one can be '
            ~ 'left out by the source\'s matchers'
    }
) }}

with disagreeing as (

    select * from {{ ref('reconciliation_daily') }}
    where {{ in_run('date') }} and abs(cross_check_ratio) > 0.05

),

booked_time as (

    select
        ledger.date,
        ledger.meter_scope,
        ledger.meter,
        sum(ledger.covered_seconds) as covered_seconds
    from {{ ref('energy_ledger') }} as ledger
    inner join disagreeing on {{ equal_keys('ledger', 'disagreeing', ['date', 'meter_scope', 'meter']) }}
    where {{ in_run('ledger.date') }}
    group by ledger.date, ledger.meter_scope, ledger.meter

)

select
    disagreeing.date,
    disagreeing.meter_scope,
    disagreeing.meter,
    disagreeing.source,
    disagreeing.metric,
    round({{ ratio('disagreeing.metered_joules', 'booked_time.covered_seconds') }}, 1) as watts,
    disagreeing.cross_check_source,
    round({{ ratio('disagreeing.cross_check_joules', 'booked_time.covered_seconds') }}, 1) as cross_check_watts,
    disagreeing.cross_check_ratio
from disagreeing
left join booked_time on {{ equal_keys('disagreeing', 'booked_time', ['date', 'meter_scope', 'meter']) }}
