-- The idle floor of an active device, in watts per meter, measured as the p10 of the date's own parked intervals (at least an hour of them): one
-- row per date, scope, device type and model (node NULL), and one per date, scope, device type and node, whatever the models (model NULL). A
-- function of the day's raw alone.
with attributed as (

    select * from {{ ref('int_attributed_energy') }}

),

parked as (

    select
        date,
        meter_scope,
        coalesce(device_type, {{ unknown() }}) as device_type,
        model,
        node,
        covered_seconds,
        {{ ratio('energy_joules', 'covered_seconds') }} as watts
    from attributed
    where state = 'parked' and attribution_method in ('exclusive', 'node_share') and covered_seconds > 0

),

of_models as (

    select
        date,
        meter_scope,
        device_type,
        model,
        cast(null as {{ dbt.type_string() }}) as node,
        cast({{ exact('percentile_cont(0.1) within group (order by watts)') }} as double) as baseline_watts
    from parked
    group by date, meter_scope, device_type, model
    having sum(covered_seconds) >= 3600

),

of_nodes as (

    select
        date,
        meter_scope,
        device_type,
        cast(null as {{ dbt.type_string() }}) as model,
        node,
        cast({{ exact('percentile_cont(0.1) within group (order by watts)') }} as double) as baseline_watts
    from parked
    where node is not null
    group by date, meter_scope, device_type, node
    having sum(covered_seconds) >= 3600

),

final as (

    select * from of_models
    union all
    select * from of_nodes

)

select * from final
