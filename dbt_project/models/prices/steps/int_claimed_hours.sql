-- How long each model claimed accelerators in each hour, silences included, until the board is gone: capacity is
-- charged for this time, and covered time is compared with it. Members of a slice claim its covered time as the book
-- shared it, and the rest in the same shares. Joules of a silence longer than max_spread are booked to `__unknown__`;
-- their time stays with the claimant. One row per hour, local date and holder.
{% set holder = ['deployment', 'namespace', 'team', 'model', 'role'] %}

-- A pod claims its board even where its engine is unknown. In a silence between two different pods neither claims it.
with claims as (

    select
        *,
        deployment not in ({{ unallocated() }}, {{ unknown() }})
            or (held_by is not null and coalesce(claim_basis <> 'silence', true)) as is_held
    from {{ ref('int_claims') }}

),

meters as (

    select * from {{ ref('int_meter_choices') }} where purpose = 'booked' and gpu_count > 0

),

attributed as (

    select * from {{ ref('int_attributed_energy') }} where undated_seconds = 0

),

pieces as (

    select * from {{ ref('int_site_hours') }}

),

-- A model with several members of a slice (MIG instances, pods) holds all their shares.
holders as (

    select
        claims.date,
        claims.meter_scope,
        claims.meter,
        claims.slice_start_us,
        case when claims.place_node is not null then claims.place_site else meters.site end as site,
        coalesce(meters.device_type, {{ unknown() }}) as device_type,
        meters.gpu_count,
        {% for name in holder -%}
        claims.{{ name }},
        {% endfor -%}
        min(case when claims.is_held then 1 else 0 end) = 1 as is_held,
        max(claims.held_start_us) as held_start_us,
        max(claims.held_end_us) as held_end_us,
        max(claims.members) as members,
        count(*) as own_members,
        {{ exact_sum(
            exact('1e6 * coalesce(claims.mig_share / claims.models_of_engine, cast(1 as double) / claims.members)')
        ) }} as own_share
    from claims
    inner join meters
        on claims.date = meters.date and claims.meter_scope = meters.meter_scope and claims.meter = meters.meter
    group by 1, 2, 3, 4, 5, 6, 7{% for name in holder %}, claims.{{ name }}{% endfor %}

),

held_pieces as (

    select
        holders.*,
        pieces.hour_start_at,
        pieces.local_date,
        pieces.billing_month,
        pieces.start_us as piece_start_us,
        (least(holders.held_end_us, pieces.end_us) - greatest(holders.held_start_us, pieces.start_us)) / 1e6 as piece_seconds
    from holders
    inner join pieces
        on holders.date = pieces.date
        and holders.site = pieces.site
        and holders.held_start_us < pieces.end_us
        and holders.held_end_us > pieces.start_us

),

shared_slices as (

    select distinct
        date,
        meter_scope,
        meter,
        slice_start_us,
        site
    from holders
    where own_members < members

),

covered_pieces as (

    select
        attributed.date,
        attributed.meter_scope,
        attributed.meter,
        shared_slices.slice_start_us,
        pieces.start_us as piece_start_us,
        {% for name in holder -%}
        attributed.{{ name }},
        {% endfor -%}
        {{ exact_sum('attributed.covered_seconds') }} as covered_seconds
    from attributed
    inner join shared_slices
        on attributed.date = shared_slices.date
        and attributed.meter_scope = shared_slices.meter_scope
        and attributed.meter = shared_slices.meter
        and coalesce(attributed.slice_start_us, shared_slices.slice_start_us) = shared_slices.slice_start_us
    inner join pieces
        on attributed.date = pieces.date
        and shared_slices.site = pieces.site
        and attributed.interval_start_us >= pieces.start_us
        and attributed.interval_start_us < pieces.end_us
    group by 1, 2, 3, 4, 5{% for name in holder %}, attributed.{{ name }}{% endfor %}

),

weighed as (

    select
        held_pieces.*,
        coalesce(covered_pieces.covered_seconds, 0) as covered_seconds,
        cast(sum(coalesce(covered_pieces.covered_seconds, 0)) over piece_window as double) as piece_covered_seconds,
        cast(sum(coalesce(covered_pieces.covered_seconds, 0)) over holder_window as double) as own_covered_seconds,
        cast(sum(coalesce(covered_pieces.covered_seconds, 0)) over slice_window as double) as slice_covered_seconds
    from held_pieces
    left join covered_pieces
        on held_pieces.date = covered_pieces.date
        and held_pieces.meter_scope = covered_pieces.meter_scope
        and held_pieces.meter = covered_pieces.meter
        and held_pieces.slice_start_us = covered_pieces.slice_start_us
        and held_pieces.piece_start_us = covered_pieces.piece_start_us
        {% for name in holder -%}
        and held_pieces.{{ name }} is not distinct from covered_pieces.{{ name }}
        {% endfor %}
    where held_pieces.own_members < held_pieces.members
    window
        slice_window as (partition by held_pieces.date, held_pieces.meter_scope, held_pieces.meter, held_pieces.slice_start_us),
        piece_window as (
            partition by
                held_pieces.date,
                held_pieces.meter_scope,
                held_pieces.meter,
                held_pieces.slice_start_us,
                held_pieces.piece_start_us
        ),
        holder_window as (
            partition by held_pieces.date, held_pieces.meter_scope, held_pieces.meter, held_pieces.slice_start_us
            {%- for name in holder %}, held_pieces.{{ name }}{% endfor %}
        )

),

{% set kept = [
    'date', 'hour_start_at', 'local_date', 'billing_month', 'site', 'device_type', 'meter_scope', 'gpu_count', 'is_held'
] + holder %}
claimed as (

    select
        {{ kept | join(',\n        ') }},
        {{ exact('piece_seconds') }} as claimed_seconds
    from held_pieces
    where own_members = members
    union all
    -- Covered and uncovered time apart: a sum of exact parts is never less than one of them.
    select
        {{ kept | join(',\n        ') }},
        covered_seconds + {{ exact(
            'greatest(piece_seconds - piece_covered_seconds, 0)'
            ~ ' * coalesce(own_covered_seconds / nullif(slice_covered_seconds, 0), cast(own_share as double) / 1e6)'
        ) }} as claimed_seconds
    from weighed

),

final as (

    select
        date,
        hour_start_at,
        local_date,
        billing_month,
        site,
        device_type,
        meter_scope,
        {% for name in holder -%}
        {{ name }},
        {% endfor -%}
        is_held,
        {{ exact_sum('claimed_seconds * gpu_count') }} as claimed_gpu_seconds
    from claimed
    group by
        date,
        hour_start_at,
        local_date,
        billing_month,
        site,
        device_type,
        meter_scope,
        is_held{% for name in holder %},
        {{ name }}{% endfor %}

)

select * from final
