-- Refuted seconds that no other meter books: what their board drew is unknown. `missing_joules` estimates it by what the
-- meter measured in the rest of the date, else by the device type's limit. One row per date, meter and interval.
with refuted as (

    select
        date,
        meter_scope,
        meter,
        basis,
        from_us,
        to_us,
        {{ integers_between(int_div('from_us', grid_us()), int_div('to_us - 1', grid_us())) }} as interval_number
    from {{ ref('int_refuted_stretches') }}
    where not is_caught_up and to_us > from_us

),

ledger as (

    select * from {{ ref('energy_ledger') }} where {{ in_run('date') }}

),

meter_types as (

    select
        choices.date,
        choices.meter_scope,
        choices.meter,
        max(device_types.power_limit_watts) as power_limit_watts
    from {{ ref('int_meter_choices') }} as choices
    left join {{ ref('stg_device_types') }} as device_types on choices.device_type = device_types.device_type
    where choices.purpose = 'booked'
    group by choices.date, choices.meter_scope, choices.meter

),

covered as (

    select
        date,
        meter_scope,
        meter,
        {{ int_div(epoch_us('interval_start_at'), grid_us()) }} as interval_number,
        sum(covered_seconds) as covered_seconds
    from ledger
    group by 1, 2, 3, 4

),

mean_watts as (

    select
        date,
        meter_scope,
        meter,
        {{ ratio('sum(energy_joules)', 'sum(covered_seconds)') }} as mean_watts
    from ledger
    group by date, meter_scope, meter

),

-- Two readings of a meter may be refuted at once.
pieces as (

    select
        date,
        meter_scope,
        meter,
        interval_number,
        max(basis) as basis,
        max(refuted_us) as refuted_us
    from (
        select
            date,
            meter_scope,
            meter,
            basis,
            interval_number,
            sum(least(to_us, (interval_number + 1) * {{ grid_us() }}) - greatest(from_us, interval_number * {{ grid_us() }}))
                as refuted_us
        from refuted
        group by date, meter_scope, meter, basis, interval_number
    ) as by_basis
    group by date, meter_scope, meter, interval_number

),

unknown as (

    select
        pieces.*,
        sum(pieces.refuted_us) over (partition by pieces.date, pieces.meter_scope, pieces.meter) / 1e6 as refuted_seconds_of_date,
        least(pieces.refuted_us, {{ grid_us() }} - coalesce(cast(covered.covered_seconds as double), 0) * 1e6) / 1e6 as unknown_seconds
    from pieces
    left join covered on {{ equal_keys('pieces', 'covered', ['date', 'meter_scope', 'meter', 'interval_number']) }}

),

summed as (

    select
        *,
        sum(greatest(unknown_seconds, 0)) over (partition by date, meter_scope, meter) as unknown_seconds_of_date
    from unknown

),

-- At the edges of a handover a sample's time is in neither reading.
final as (

    select
        summed.date,
        summed.meter_scope,
        summed.meter,
        summed.interval_number,
        summed.basis,
        summed.unknown_seconds,
        summed.unknown_seconds * coalesce(mean_watts.mean_watts, meter_types.power_limit_watts) as missing_joules
    from summed
    inner join meter_types on {{ equal_keys('summed', 'meter_types', ['date', 'meter_scope', 'meter']) }}
    left join mean_watts on {{ equal_keys('summed', 'mean_watts', ['date', 'meter_scope', 'meter']) }}
    where summed.unknown_seconds > 0 and summed.unknown_seconds_of_date >= {{ doubt_threshold() }} * summed.refuted_seconds_of_date

)

select * from final
