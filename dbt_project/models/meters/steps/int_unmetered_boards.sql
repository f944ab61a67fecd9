-- Boards that report activity or memory on a date on which no meter measures their power: neither their own nor that of
-- their whole node.
with silent_boards as (

    select * from {{ ref('int_silent_boards') }}

),

meter_choices as (

    select * from {{ ref('int_meter_choices') }}

),

device_types as (

    select * from {{ ref('stg_device_types') }}

),

metered_nodes as (

    select distinct
        date,
        node
    from meter_choices
    where purpose = 'booked' and meter_scope = 'node' and node is not null and not coalesce(is_mixed, false)

),

final as (

    select
        silent_boards.date,
        'board' as meter_scope,
        silent_boards.meter,
        silent_boards.node,
        silent_boards.rack,
        silent_boards.site,
        silent_boards.device_uuid,
        silent_boards.device_type,
        silent_boards.source,
        coalesce(device_types.gpus, 1) as gpu_count
    from silent_boards
    left join device_types on silent_boards.device_type = device_types.device_type
    left join metered_nodes on silent_boards.date = metered_nodes.date and silent_boards.node = metered_nodes.node
    where metered_nodes.node is null

)

select * from final
