{{ config(
    severity='warn',
    meta={
        'description':
            'No board draws more watts than it can (1.5 × its limit). A reset read as energy, a sentinel or a '
            ~ 'doubled counter shows here.',
        'dagster': {'ref': {'name': 'energy_ledger'}},
        'expected': 'at most possible_watts × covered_seconds',
        'remedy':
            'check the device type of this board (seed device_types, or devices in the fleet file) and its counter'
    }
) }}

with limits as (

    select distinct
        date,
        meter_scope,
        meter,
        possible_watts
    from {{ ref('int_meter_choices') }}
    where purpose = 'booked' and possible_watts is not null

)

select
    ledger.date,
    ledger.meter,
    ledger.interval_start_at,
    ledger.energy_source,
    ledger.energy_joules,
    ledger.covered_seconds,
    limits.possible_watts
from {{ ref('energy_ledger') }} as ledger
inner join limits on {{ equal_keys('ledger', 'limits', ['date', 'meter_scope', 'meter']) }}
where {{ in_run('ledger.date') }}
    and cast(ledger.energy_joules as double) > limits.possible_watts * cast(ledger.covered_seconds as double) + 1e-3
