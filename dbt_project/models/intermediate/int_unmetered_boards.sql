-- Boards that report activity or memory on a date on which no meter measures their power: neither their own nor that of their whole node.
with series as (

    select * from {{ ref('stg_series') }}

),

series_days as (

    select * from {{ ref('stg_series_days') }}

),

reading_days as (

    select * from {{ ref('int_reading_days') }}

),

meter_choices as (

    select * from {{ ref('int_meter_choices') }}

),

device_types as (

    select * from {{ ref('stg_device_types') }}

),

metered_boards as (

    select distinct
        date,
        meter
    from reading_days
    where meter_scope = 'board'

),

metered_nodes as (

    select distinct
        date,
        node
    from meter_choices
    where purpose = 'booked' and meter_scope = 'node' and node is not null and not coalesce(is_mixed, false)

),

reported as (

    select
        series_days.date,
        series.meter,
        max(series.node) as node,
        max(series.rack) as rack,
        max(series.site) as site,
        max(series.device_uuid) as device_uuid,
        max(series.meter_device_type) as device_type,
        min(series.source) as source
    from series_days
    inner join series on series_days.series_id = series.series_id
    where series_days.is_in_run
        and series.meter_scope = 'board'
        and series.quantity in ('activity', 'memory_used')
        and series.meter is not null
    group by series_days.date, series.meter

),

final as (

    select
        reported.date,
        'board' as meter_scope,
        reported.meter,
        reported.node,
        reported.rack,
        reported.site,
        reported.device_uuid,
        reported.device_type,
        reported.source,
        coalesce(device_types.gpus, 1) as gpu_count
    from reported
    left join metered_boards on reported.date = metered_boards.date and reported.meter = metered_boards.meter
    left join metered_nodes on reported.date = metered_nodes.date and reported.node = metered_nodes.node
    left join device_types on reported.device_type = device_types.device_type
    where metered_boards.meter is null and metered_nodes.node is null

)

select * from final
