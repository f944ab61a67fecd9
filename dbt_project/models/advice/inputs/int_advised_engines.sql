-- One row per deployment and engine: the engine's nodes and boards in the newest interval of the deployment.
with deployments as (

    select * from {{ ref('int_advised_deployments') }}

),

ledger as (

    select *, coalesce(device_type, {{ unknown() }}) as known_device_type
    from {{ ref('energy_ledger') }}
    where date = (select max(as_of_date) from deployments)

),

unmetered_devices as (

    select * from {{ ref('unmetered_devices') }}

),

-- Nodes of which it is unknown what switching them off saves: the model of a board is unknown, or a device in use has
-- no power meter.
unknown_nodes as (

    select coalesce(node, '') as node from ledger where model = {{ unknown() }}
    union
    select coalesce(node, '') as node
    from unmetered_devices
    where date = (select max(as_of_date) from deployments) and model <> {{ unallocated() }}

),

newest as (

    select *
    from ledger
    qualify interval_start_at = max(interval_start_at) over (partition by site, deployment, model, meter_scope, role)

),

engines as (

    select
        deployments.usage,
        newest.engine,
        list(distinct coalesce(newest.node, '') order by coalesce(newest.node, '')) as nodes,
        list(distinct unknown_nodes.node) filter (where unknown_nodes.node is not null) as unknown_nodes,
        string_agg(distinct newest.meter, ',' order by newest.meter) as gpu_group,
        count(distinct newest.meter) as gpus
    from newest
    inner join deployments
        on {% for key in curve_keys() if key != 'device_type' %}newest.{{ key }} = deployments.{{ key }}
        and {% endfor %}newest.known_device_type = deployments.device_type
    left join unknown_nodes on coalesce(newest.node, '') = unknown_nodes.node
    group by deployments.usage, newest.engine

),

-- An engine's boards are its group.
boards as (

    select
        engine,
        gpu_group,
        unnest(string_split(gpu_group, ',')) as meter
    from engines

),

-- Engines with a board that is also in a different group.
overlapping as (

    select distinct boards.engine
    from boards
    inner join boards as others on boards.meter = others.meter and boards.gpu_group <> others.gpu_group

),

final as (

    select
        engines.usage,
        engines.engine || ' ' || engines.usage as engine,
        engines.nodes[1] as node,
        engines.nodes,
        engines.unknown_nodes,
        engines.gpu_group,
        engines.gpus,
        overlapping.engine is not null as is_overlapping
    from engines
    left join overlapping on engines.engine = overlapping.engine

)

select * from final
