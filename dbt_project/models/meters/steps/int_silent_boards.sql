-- Boards that report activity or memory on a date on which they have no power reading of their own.
with series as (

    select * from {{ ref('stg_series') }}

),

series_days as (

    select * from {{ ref('stg_series_days') }}

),

reading_days as (

    select * from {{ ref('int_reading_days') }}

),

metered_boards as (

    select distinct
        date,
        meter
    from reading_days
    where meter_scope = 'board'

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

    select reported.*
    from reported
    left join metered_boards on reported.date = metered_boards.date and reported.meter = metered_boards.meter
    where metered_boards.meter is null

)

select * from final
