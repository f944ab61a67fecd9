-- Accelerators that are in a node, by the fleet file, and that no booked meter shows: what they draw and who holds them
-- is unknown. One row per site, device type, hour and local date.
with pieces as (

    select * from {{ ref('int_site_hours') }}

),

node_gpus as (

    select * from {{ source('fleet', 'node_gpus') }}

),

claims as (

    select * from {{ ref('int_claims') }}

),

meters as (

    select * from {{ ref('int_meter_choices') }} where purpose = 'booked' and gpu_count > 0

),

stated as (

    select
        pieces.date,
        pieces.site,
        pieces.hour_start_at,
        pieces.local_date,
        pieces.billing_month,
        pieces.start_us,
        pieces.end_us,
        node_gpus.node,
        node_gpus.device_type,
        {{ exact('node_gpus.gpus * pieces.piece_seconds') }} as stated_gpu_seconds
    from pieces
    inner join node_gpus
        on pieces.site = node_gpus.site
        and pieces.local_date >= node_gpus.valid_from
        and (node_gpus.valid_to is null or pieces.local_date < node_gpus.valid_to)

),

node_pieces as (

    select distinct
        date,
        site,
        node,
        start_us,
        end_us
    from stated

),

-- A slice that several members share is one accelerator.
slices as (

    select
        claims.date,
        claims.meter_scope,
        claims.meter,
        claims.slice_start_us,
        meters.device_type,
        meters.gpu_count,
        coalesce(claims.place_node, meters.node) as node,
        max(claims.held_start_us) as held_start_us,
        max(claims.held_end_us) as held_end_us
    from claims
    inner join meters on {{ equal_keys('claims', 'meters', ['date', 'meter_scope', 'meter']) }}
    group by 1, 2, 3, 4, 5, 6, 7

),

claimed as (

    select
        node_pieces.site,
        node_pieces.node,
        node_pieces.start_us,
        slices.device_type,
        {{ exact_sum(exact(
            'slices.gpu_count'
            ~ ' * (least(slices.held_end_us, node_pieces.end_us) - greatest(slices.held_start_us, node_pieces.start_us))'
            ~ ' / 1e6'
        )) }} as claimed_gpu_seconds
    from node_pieces
    inner join slices
        on node_pieces.date = slices.date
        and node_pieces.node = slices.node
        and slices.held_start_us < node_pieces.end_us
        and slices.held_end_us > node_pieces.start_us
    group by 1, 2, 3, 4

),

claimed_nodes as (

    select
        site,
        node,
        start_us,
        {{ exact_sum('claimed_gpu_seconds') }} as claimed_gpu_seconds
    from claimed
    group by site, node, start_us

),

compared as (

    select
        stated.*,
        greatest(stated.stated_gpu_seconds - coalesce(claimed.claimed_gpu_seconds, 0), 0) as missing_gpu_seconds,
        least(stated.stated_gpu_seconds, coalesce(claimed.claimed_gpu_seconds, 0)) as of_type_gpu_seconds,
        coalesce(claimed_nodes.claimed_gpu_seconds, 0) as node_claimed_gpu_seconds
    from stated
    left join claimed on {{ equal_keys('stated', 'claimed', ['site', 'node', 'start_us', 'device_type']) }}
    left join claimed_nodes on {{ equal_keys('stated', 'claimed_nodes', ['site', 'node', 'start_us']) }}

),

-- GPU seconds that are claimed under another or an unknown device type, or of a meter of the whole node, belong to
-- accelerators that the fleet file lists for the node too. So they leave its missing seconds, from each type in
-- proportion.
weighed as (

    select
        *,
        cast(sum(missing_gpu_seconds) over node_window as double) as node_missing_gpu_seconds,
        cast(node_claimed_gpu_seconds - sum(of_type_gpu_seconds) over node_window as double) as other_gpu_seconds
    from compared
    window node_window as (partition by site, node, start_us)

),

final as (

    select
        date,
        site,
        hour_start_at,
        local_date,
        billing_month,
        device_type,
        {{ exact_sum(exact(
            'cast(missing_gpu_seconds as double) * greatest(1 - other_gpu_seconds / node_missing_gpu_seconds, 0)'
        )) }} as unmetered_gpu_seconds
    from weighed
    where missing_gpu_seconds > 0 and other_gpu_seconds < node_missing_gpu_seconds
    group by date, site, hour_start_at, local_date, billing_month, device_type

)

select * from final
