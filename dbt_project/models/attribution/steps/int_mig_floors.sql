-- What a board in MIG instances draws while none of them works: one row per date and board. The p10 of the date's
-- intervals in which every instance waits, if there is an hour of them, else its device type's reference. Its claimants
-- share this by their parts of the board; whose work draws the rest is another question (int_attributed_energy).
{% set enough_seconds = 3600 %}

with energy as (

    select * from {{ ref('int_energy_intervals') }} where purpose = 'booked'

),

claims as (

    select * from {{ ref('int_claims') }} where mig_share is not null

),

engine_intervals as (

    select * from {{ ref('int_engine_intervals') }}

),

activity as (

    select * from {{ ref('int_member_activity') }}

),

meters as (

    select * from {{ ref('int_meter_choices') }} where purpose = 'booked'

),

device_types as (

    select * from {{ ref('stg_device_types') }}

),

intervals as (

    select
        energy.date,
        energy.meter_scope,
        energy.meter,
        energy.interval_number,
        energy.slice_start_us,
        max(energy.energy_joules) as energy_joules,
        max(energy.covered_us) as covered_us,
        -- Without tokens and activity, an instance that is held may work.
        max(case
            when engine_intervals.is_active then 1
            when claims.engine = {{ unallocated() }} or engine_intervals.engine is not null or claims.is_tokens_complete then 0
            when activity.activity_ratio = 0 then 0
            else 1
        end) = 1 as may_work
    from energy
    inner join claims
        on {{ equal_keys('energy', 'claims', ['date', 'meter_scope', 'meter']) }}
        and (energy.slice_start_us is null or energy.slice_start_us = claims.slice_start_us)
    left join engine_intervals
        on claims.engine = engine_intervals.engine and energy.interval_number = engine_intervals.interval_number
    left join activity
        on {{ equal_keys('energy', 'activity', ['date', 'meter', 'interval_number']) }}
        and claims.mig_instance = activity.member
    where energy.covered_us > 0 and energy.overspread_joules = 0
    group by energy.date, energy.meter_scope, energy.meter, energy.interval_number, energy.slice_start_us

),

waiting as (

    select
        date,
        meter_scope,
        meter,
        cast(
            {{ exact(
                'percentile_cont(0.1) within group (order by cast(energy_joules as double) * 1e6 / covered_us)'
            ) }} as double
        ) as watts
    from intervals
    where not may_work
    group by date, meter_scope, meter
    having sum(covered_us) >= {{ enough_seconds }} * 1e6

),

final as (

    select
        meters.date,
        meters.meter_scope,
        meters.meter,
        coalesce(waiting.watts, device_types.idle_watts_loaded) as floor_watts,
        case when waiting.watts is not null then 'parked_p10_of_board' else 'device_type_reference' end as idle_basis
    from meters
    inner join (select distinct date, meter_scope, meter from claims) as boards
        on {{ equal_keys('meters', 'boards', ['date', 'meter_scope', 'meter']) }}
    left join waiting on {{ equal_keys('meters', 'waiting', ['date', 'meter_scope', 'meter']) }}
    left join device_types on meters.device_type = device_types.device_type
    where coalesce(waiting.watts, device_types.idle_watts_loaded) is not null

)

select * from final
