-- Wall meters of nodes that nothing else names, at a site with boards that have no wall meter: they probably measure
-- the same hosts under another name, such as the address of a BMC, and their joules would be counted twice. One row per
-- date and meter. A site of wall meters alone has none.
with reading_days as (

    select * from {{ ref('int_reading_days') }}

),

series as (

    select * from {{ ref('stg_series') }}

),

-- A host is known by the boards, sockets and engines that ever named it, and by the fleet file.
named_nodes as (

    select node from series where meter_scope in ('board', 'module') or stream = 'tokens'
    union
    select node from {{ source('fleet', 'nodes') }}
    union
    select node from {{ source('fleet', 'node_gpus') }}
    union
    select node from {{ source('fleet', 'devices') }}
    union
    select node from {{ source('fleet', 'engines') }}
    union
    select node from {{ source('fleet', 'assignments') }}
    union
    select node from {{ source('raw', 'run_windows') }}

),

metered as (

    select distinct
        date,
        coalesce(site, {{ unknown() }}) as site,
        meter_scope,
        meter,
        coalesce(node, meter) as node
    from reading_days
    where meter_scope in ('board', 'module', 'node')

),

wall_meters as (

    select * from metered where meter_scope = 'node'

),

sites_with_bare_boards as (

    select distinct
        metered.date,
        metered.site
    from metered
    left join wall_meters on metered.date = wall_meters.date and metered.node = wall_meters.node
    where metered.meter_scope <> 'node' and wall_meters.node is null

),

final as (

    select distinct
        wall_meters.date,
        wall_meters.site,
        wall_meters.meter_scope,
        wall_meters.meter
    from wall_meters
    inner join sites_with_bare_boards on wall_meters.date = sites_with_bare_boards.date and wall_meters.site = sites_with_bare_boards.site
    left join named_nodes on wall_meters.node = named_nodes.node
    where named_nodes.node is null

)

select * from final
