-- A board that draws 1.5 to 3 times its limit nearly all day has a limit that is stated too low: it is booked, and
-- named. A warning, by board.
{{ config(
    severity='warn',
    meta={
        'dagster': {'ref': {'name': 'energy_ledger'}},
        'expected': 'at most 1.5 × the limit of the device type',
        'remedy':
            'its joules are booked as measured; state its real limit in the fleet file: device_types: [{name: '
            ~ '<device_type>, power_limit_watts: <watts>}]'
    }
) }}
-- depends_on: {{ ref('energy_ledger') }}, the mart whose check this is

select
    date,
    meter,
    device_type,
    power_limit_watts,
    round(watts_seen, 1) as watts_seen
from {{ ref('int_doubted_limits') }}
where {{ in_run('date') }}
