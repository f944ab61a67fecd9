-- How long each model held each booked meter, the time without samples included: what its covered time is measured against. Members of a
-- slice hold it by the share of its covered time that the book gave them, so that all of them are covered as well as the board is. Joules
-- over a silence longer than max_spread are booked to `__unknown__`, not to the claimant: that time is held by `__unknown__` as well. A node's
-- meter that books while its boards are silent holds the seconds that it booked; its boards are held all the time.
{% set holder = ['deployment', 'namespace', 'team', 'model', 'role'] %}

with claims as (

    select * from {{ ref('int_claims') }}

),

meters as (

    select * from {{ ref('int_meter_choices') }} where purpose = 'booked'

),

attributed as (

    select * from {{ ref('int_attributed_energy') }}

),

-- A model with several members of a slice (MIG instances, pods) holds all their shares.
holders as (

    select
        date,
        meter_scope,
        meter,
        slice_start_us,
        {{ holder | join(',\n        ') }},
        max(slice_end_us - slice_start_us) / 1e6 as slice_seconds,
        max(members) as members,
        count(*) as own_members
    from claims
    group by date, meter_scope, meter, slice_start_us, {{ holder | join(', ') }}

),

shared_slices as (

    select distinct
        date,
        meter_scope,
        meter,
        slice_start_us
    from claims
    where members > 1

),

covered_shares as (

    select
        attributed.date,
        attributed.meter_scope,
        attributed.meter,
        shared_slices.slice_start_us,
        {% for name in holder -%}
        attributed.{{ name }},
        {% endfor -%}
        {{ exact_sum('attributed.covered_seconds - attributed.undated_seconds') }} as covered_seconds
    from attributed
    inner join shared_slices
        on attributed.date = shared_slices.date
        and attributed.meter_scope = shared_slices.meter_scope
        and attributed.meter = shared_slices.meter
        and coalesce(attributed.slice_start_us, shared_slices.slice_start_us) = shared_slices.slice_start_us
    group by
        attributed.date,
        attributed.meter_scope,
        attributed.meter,
        shared_slices.slice_start_us,
        {% for name in holder %}attributed.{{ name }}{{ ', ' if not loop.last }}{% endfor %}

),

weighed as (

    select
        holders.*,
        coalesce(covered_shares.covered_seconds, 0) as covered_seconds,
        cast(sum(coalesce(covered_shares.covered_seconds, 0)) over slice_window as double) as slice_covered_seconds
    from holders
    left join covered_shares
        on holders.date = covered_shares.date
        and holders.meter_scope = covered_shares.meter_scope
        and holders.meter = covered_shares.meter
        and holders.slice_start_us = covered_shares.slice_start_us
        {% for name in holder -%}
        and holders.{{ name }} is not distinct from covered_shares.{{ name }}
        {% endfor %}
    window slice_window as (partition by holders.date, holders.meter_scope, holders.meter, holders.slice_start_us)

),

-- Covered and uncovered time apart: a sum of exact parts is never less than one of them.
slices as (

    select
        *,
        {{ exact(
            'greatest(slice_seconds - slice_covered_seconds, 0)'
            ~ ' * coalesce(cast(covered_seconds as double) / nullif(slice_covered_seconds, 0), own_members / cast(members as double))'
        ) }} as uncovered_seconds
    from weighed

),

held as (

    select
        date,
        meter_scope,
        meter,
        {{ holder | join(',\n        ') }},
        case when own_members = members then {{ exact('slice_seconds') }} else covered_seconds + uncovered_seconds end as held_seconds,
        false as is_of_node
    from slices
    union all
    select
        date,
        meter_scope,
        meter,
        {{ holder | join(',\n        ') }},
        undated_seconds as held_seconds,
        false as is_of_node
    from attributed
    where undated_seconds > 0
    union all
    select
        date,
        meter_scope,
        meter,
        {{ holder | join(',\n        ') }},
        covered_seconds as held_seconds,
        true as is_of_node
    from attributed
    where meter_scope = 'node'

),

final as (

    select
        held.date,
        held.meter_scope,
        held.meter,
        meters.site,
        coalesce(meters.device_type, {{ unknown() }}) as device_type,
        {% for name in holder -%}
        held.{{ name }},
        {% endfor -%}
        {{ exact_sum('held.held_seconds * meters.gpu_count') }} as held_gpu_seconds
    from held
    inner join meters
        on held.date = meters.date
        and held.meter_scope = meters.meter_scope
        and held.meter = meters.meter
        and held.is_of_node = (coalesce(meters.is_mixed, false) and held.meter_scope = 'node')
    group by
        held.date,
        held.meter_scope,
        held.meter,
        meters.site,
        coalesce(meters.device_type, {{ unknown() }}),
        {% for name in holder %}held.{{ name }}{{ ', ' if not loop.last }}{% endfor %}

)

select * from final
