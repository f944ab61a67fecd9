-- Who holds which accelerators at the end of the newest date, and with what they are handed back: one row per site,
-- device type, unit and holder. A unit is a whole node where the site rents by the node, else a board.
with deployments as (

    select * from {{ ref('deployment_usage') }}

),

ledger as (

    select * from {{ ref('energy_ledger') }}

),

unmetered_devices as (

    select * from {{ ref('unmetered_devices') }}

),

token_ledger as (

    select * from {{ ref('token_ledger') }}

),

free_boards as (

    select * from {{ ref('free_boards') }} where reason_code = 'engine_without_energy' and gpus_now > 0

),

device_types as (

    select * from {{ ref('stg_device_types') }}

),

sites as (

    select * from {{ source('fleet', 'sites') }}

),

devices as (

    select distinct device_uuid from {{ source('fleet', 'devices') }} where coalesce(spare, false)

),

node_gpus as (

    select * from {{ source('fleet', 'node_gpus') }}

),

newest as (

    select
        max(as_of_date) as as_of_date,
        cast(max(as_of_date) + interval 1 day - interval 1 second as {{ timestamp_type() }}) as last_second_at
    from deployments

),

newest_rows as (

    select
        ledger.claim_start_at,
        ledger.site,
        ledger.deployment,
        ledger.model,
        coalesce(ledger.device_type, {{ unknown() }}) as device_type,
        ledger.meter_scope,
        ledger.role,
        ledger.node,
        ledger.meter,
        ledger.state = 'unallocated' as is_unallocated,
        ledger.gpu_seconds,
        round({{ ratio('ledger.gpu_seconds', 'ledger.covered_seconds') }}) as metered_gpus
    from ledger
    inner join newest on ledger.date = newest.as_of_date
    union all
    select
        unmetered_devices.interval_start_at as claim_start_at,
        unmetered_devices.site,
        unmetered_devices.deployment,
        unmetered_devices.model,
        coalesce(unmetered_devices.device_type, {{ unknown() }}) as device_type,
        'none' as meter_scope,
        unmetered_devices.role,
        unmetered_devices.node,
        unmetered_devices.device_uuid as meter,
        unmetered_devices.engine = {{ unallocated() }} as is_unallocated,
        unmetered_devices.gpu_seconds,
        cast(null as double) as metered_gpus
    from unmetered_devices
    inner join newest on unmetered_devices.date = newest.as_of_date

),

-- A board that is silent by the end of the date is still its last holder's.
last_rows as (

    select *
    from newest_rows
    qualify claim_start_at = max(claim_start_at) over (partition by meter_scope, meter)

),

-- As in free_boards: an engine whose boards are not known may hold a board of its node that looks free.
doubted_nodes as (

    select distinct
        token_ledger.node,
        free_boards.site,
        free_boards.device_type
    from token_ledger
    inner join newest on token_ledger.date = newest.as_of_date
    cross join free_boards
    where not token_ledger.has_power and token_ledger.node is not null

),

-- Holders of one board hold it in the shares of their time.
held as (

    select
        last_rows.site,
        last_rows.device_type,
        last_rows.node,
        last_rows.meter,
        case
            when last_rows.is_unallocated and devices.device_uuid is null and doubted_nodes.node is null then null
            else concat_ws('/', {{ columns_of('last_rows', curve_keys()) }})
        end as holder,
        coalesce(
            max(last_rows.metered_gpus) over (partition by last_rows.meter_scope, last_rows.meter),
            cast(device_types.gpus as double), 1
        ) * coalesce(
            {{ ratio('last_rows.gpu_seconds', 'sum(last_rows.gpu_seconds) over (partition by last_rows.meter_scope, last_rows.meter)') }},
            1.0 / count(*) over (partition by last_rows.meter_scope, last_rows.meter)
        ) as gpus
    from last_rows
    left join devices on last_rows.meter = devices.device_uuid
    left join device_types on last_rows.device_type = device_types.device_type
    left join doubted_nodes
        on last_rows.node = doubted_nodes.node
        and last_rows.site = doubted_nodes.site
        and last_rows.device_type = doubted_nodes.device_type

),

stated as (

    select
        node_gpus.site,
        node_gpus.device_type,
        node_gpus.node,
        node_gpus.gpus,
        sum(node_gpus.gpus) over (partition by node_gpus.node) as node_gpus
    from node_gpus
    cross join newest
    left join sites on node_gpus.site = sites.site
    where {{ local_date('newest.last_second_at', "coalesce(sites.time_zone, 'UTC')") }} >= node_gpus.valid_from
        and coalesce({{ local_date('newest.last_second_at', "coalesce(sites.time_zone, 'UTC')") }} < node_gpus.valid_to, true)

),

-- In a node by the fleet file, and no meter shows them: who holds them is not known, so the node is not empty.
unmetered as (

    select
        stated.site,
        stated.device_type,
        stated.node,
        stated.node || ' without a meter' as meter,
        {{ unmetered() }} as holder,
        least(
            stated.gpus - coalesce(sum(held.gpus) filter (where held.device_type = stated.device_type), 0),
            stated.node_gpus - coalesce(sum(held.gpus), 0)
        ) as gpus
    from stated
    left join held on stated.node = held.node
    group by stated.site, stated.device_type, stated.node, stated.gpus, stated.node_gpus

),

boards as (

    select * from held
    union all
    select * from unmetered where gpus > 0.01

),

final as (

    select
        boards.site,
        boards.device_type,
        case when coalesce(sites.rented_by, 'node') = 'node' then boards.node else boards.meter end as unit,
        boards.holder,
        sum(boards.gpus) as gpus
    from boards
    left join sites on boards.site = sites.site
    group by 1, 2, 3, 4

)

select * from final
