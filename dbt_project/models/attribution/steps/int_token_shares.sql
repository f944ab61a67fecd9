-- Where an engine's tokens of an interval are booked: one row per date, engine, interval and place of its energy (site,
-- node, device type, meter scope). Scopes share by their GPU-seconds, so that no ratio adds up joules of two scopes;
-- the places of a scope by their joules, else by their GPU-seconds. `share_from` and `share_to` bound the place's part
-- of the engine's tokens, from 0 to 1.
{% set engine_keys = ['date', 'engine', 'interval_number'] %}
{% set places = ['site', 'node', 'device_type', 'meter_scope'] %}

with attributed as (

    select * from {{ ref('int_attributed_energy') }} where engine not in ({{ unallocated() }}, {{ unknown() }})

),

device_types as (

    select * from {{ ref('stg_device_types') }}

),

-- The energy that tokens are compared with is that of the time in which they are known.
places_of_engines as (

    select
        {{ engine_keys | join(', ') }},
        site,
        node,
        coalesce(device_type, {{ unknown() }}) as device_type,
        meter_scope,
        max(case when state = 'unknown' then 0 else 1 end) as is_known,
        {{ exact_sum("case when state = 'unknown' then 0 else energy_joules end") }} as known_joules,
        {{ exact_sum('covered_seconds * gpu_count') }} as gpu_seconds
    from attributed
    group by {{ engine_keys | join(', ') }}, site, node, coalesce(device_type, {{ unknown() }}), meter_scope

),

counted as (

    select
        *,
        sum(known_joules) over scope_window as scope_joules,
        sum(gpu_seconds) over scope_window as scope_gpu_seconds,
        sum(gpu_seconds) over engine_window as engine_gpu_seconds,
        count(*) over scope_window as scope_places,
        count(*) over engine_window as engine_places,
        min(meter_scope) over engine_window <> max(meter_scope) over engine_window as has_scopes,
        max(is_known) over engine_window as is_engine_known
    from places_of_engines
    window
        engine_window as (partition by {{ engine_keys | join(', ') }}),
        scope_window as (partition by {{ engine_keys | join(', ') }}, meter_scope)

),

weighed as (

    select
        counted.*,
        -- A meter of a node or module is of as many accelerators as its device type has; an unknown type has an unknown
        -- number.
        case
            when has_scopes and meter_scope <> 'board' and device_types.device_type is null then 1
            when has_scopes and engine_gpu_seconds = 0 then 1
            else 0
        end as is_uncounted,
        case
            when engine_places = 1 then {{ exact('1') }}
            when is_known = 0 and is_engine_known = 1 then {{ exact('0') }}
            else {{ exact(
                'case when has_scopes and engine_gpu_seconds > 0 then cast(scope_gpu_seconds as double) else 1e3 end * coalesce('
                ~ ratio('known_joules', 'scope_joules') ~ ', ' ~ ratio('gpu_seconds', 'scope_gpu_seconds') ~ ', 1e0 / scope_places)'
            ) }}
        end as weight
    from counted
    left join device_types on counted.device_type = device_types.device_type

),

final as (

    select
        {{ (engine_keys + places) | join(', ') }},
        case when engine_places = 1 then 'own' else 'shared' end as tokens_basis,
        max(is_uncounted) over engine_window = 1 as is_uncounted,
        {{ ratio('(sum(weight) over place_window) - weight', 'sum(weight) over engine_window') }} as share_from,
        {{ ratio('sum(weight) over place_window', 'sum(weight) over engine_window') }} as share_to
    from weighed
    window
        engine_window as (partition by {{ engine_keys | join(', ') }}),
        place_window as (
            partition by {{ engine_keys | join(', ') }}
            order by site, coalesce(node, ''), device_type, meter_scope
            rows unbounded preceding
        )

)

select * from final
