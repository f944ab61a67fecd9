{{ config(
    severity='warn',
    meta={
        'description':
            'The claimants of a meter share no more seconds than the interval has, and none is active for longer '
            ~ 'than it is covered (a millionth of a second per claimant is rounding). Otherwise one board is wrong;'
            ~ ' its joules are booked once all the same.',
        'dagster': {'ref': {'name': 'energy_ledger'}},
        'expected': 'at most the interval\'s seconds, none active for longer than covered',
        'remedy': 'report this row to the maintainers; its joules are still booked exactly once'
    }
) }}

select
    date,
    meter_scope,
    meter,
    interval_start_at,
    sum(covered_seconds) as covered_seconds,
    max(active_seconds - covered_seconds) as excess_active_seconds,
    max(interval_seconds) as expected_at_most_seconds
from {{ ref('energy_ledger') }}
where {{ in_run('date') }}
group by date, meter_scope, meter, interval_start_at
having sum(covered_seconds) > max(interval_seconds) + 0.000001 * count(*) or max(active_seconds - covered_seconds) > 0.000001
