-- The idle floor of an active device, in watts per meter: one row per date, device type, model and scope. Measured as the p10 of the date's own
-- parked intervals (at least an hour of them); a function of the day's raw alone.
with attributed as (

    select * from {{ ref('int_attributed_energy') }}

),

parked as (

    select
        date,
        meter_scope,
        coalesce(device_type, {{ unknown() }}) as device_type,
        model,
        covered_seconds,
        {{ ratio('energy_joules', 'covered_seconds') }} as watts
    from attributed
    where state = 'parked' and attribution_method in ('exclusive', 'node_share') and covered_seconds > 0

),

final as (

    select
        date,
        meter_scope,
        device_type,
        model,
        cast({{ exact('percentile_cont(0.1) within group (order by watts)') }} as double) as baseline_watts
    from parked
    group by date, meter_scope, device_type, model
    having sum(covered_seconds) >= 3600

)

select * from final
