-- Claimants share what their meter measured in an interval: their joules add up to it exactly.
with booked as (

    select
        date,
        meter_scope,
        meter,
        interval_start_at,
        sum(energy_joules) as booked_joules
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

),

compared as (

    select
        coalesce(booked.date, measured.date) as date,
        coalesce(booked.meter_scope, measured.meter_scope) as meter_scope,
        coalesce(booked.meter, measured.meter) as meter,
        coalesce(booked.interval_start_at, measured.interval_start_at) as interval_start_at,
        booked.booked_joules,
        measured.measured_joules
    from booked
    full outer join measured on {{ equal_keys('booked', 'measured', ['date', 'meter_scope', 'meter', 'interval_start_at']) }}
    where booked.booked_joules is distinct from measured.measured_joules

)

select
    date,
    'energy_ledger' as table_name,
    {{ row_key(['meter_scope', 'meter', 'interval_start_at']) }} as row_key,
    cast(booked_joules as double) as found,
    'J of all claimants' as unit,
    coalesce(cast(measured_joules as {{ dbt.type_string() }}), 'none') || ' measured' as expected
from compared
