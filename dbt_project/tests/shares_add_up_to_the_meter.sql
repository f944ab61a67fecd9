-- Claimants share what their meter measured in an interval: their joules add up to it exactly, their seconds fit into it, and activity fits
-- into the covered time (a millionth of a second per claimant is rounding).
{{ config(meta={'dagster': {'ref': {'name': 'energy_ledger'}}}) }}

with booked as (

    select
        date,
        meter_scope,
        meter,
        interval_start_at,
        count(*) as claims,
        max(interval_seconds) as interval_seconds,
        sum(energy_joules) as booked_joules,
        sum(covered_seconds) as covered_seconds,
        max(active_seconds - covered_seconds) as excess_active_seconds
    from {{ ref('energy_ledger') }}
    where {{ in_run('date') }}
    group by date, meter_scope, meter, interval_start_at

),

measured as (

    select
        date,
        meter_scope,
        meter,
        {{ from_epoch_us('interval_start_us') }} as interval_start_at,
        sum(energy_joules) as measured_joules
    from {{ ref('int_energy_intervals') }}
    where purpose = 'booked'
    group by date, meter_scope, meter, interval_start_us

)

select
    coalesce(booked.date, measured.date) as date,
    coalesce(booked.meter, measured.meter) as meter,
    coalesce(booked.interval_start_at, measured.interval_start_at) as interval_start_at,
    booked.claims,
    measured.measured_joules,
    booked.booked_joules,
    booked.covered_seconds,
    booked.excess_active_seconds
from booked
full outer join measured
    on booked.date = measured.date
    and booked.meter_scope = measured.meter_scope
    and booked.meter = measured.meter
    and booked.interval_start_at = measured.interval_start_at
where booked.booked_joules is distinct from measured.measured_joules
    or booked.covered_seconds > booked.interval_seconds + 0.000001 * booked.claims
    or booked.excess_active_seconds > 0.000001
