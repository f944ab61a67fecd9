-- One meter books each device and day: by rank (counter before gauge) among the readings that cover at least half of what the best one
-- covers, then by coverage. Each node is booked from its finest scope; a node meter above booked boards measures the host. A rack's or a hall's
-- meter books only what nothing finer meters there.
with reading_days as (

    select * from {{ ref('int_reading_days') }}

),

series as (

    select * from {{ ref('stg_series') }}

),

series_days as (

    select * from {{ ref('stg_series_days') }}

),

device_types as (

    select * from {{ ref('device_types') }}

),

covered as (

    select
        *,
        max(coverage_seconds) over (partition by date, meter_scope, meter) as best_coverage_seconds
    from reading_days

),

preferred as (

    select
        *,
        row_number() over (
            partition by date, meter_scope, meter
            order by
                case when coverage_seconds >= 0.5 * best_coverage_seconds then 0 else 1 end,
                rank,
                coverage_seconds desc,
                source,
                metric
        ) as preference
    from covered

),

scoped as (

    select
        *,
        case meter_scope when 'board' then 1 when 'module' then 2 when 'node' then 3 when 'rack' then 4 else 5 end as coarseness
    from preferred

),

finest as (

    select
        *,
        case
            when coarseness <= 3 then min(coarseness) over (partition by date, coalesce(node, meter))
            when coarseness = 4 then min(coarseness) over (partition by date, coalesce(rack, meter))
            else min(coarseness) over (partition by date, site)
        end as finest_coarseness
    from scoped

),

meter_attributes as (

    select
        meter_scope,
        meter,
        max(device_uuid) as device_uuid,
        max(meter_device_type) as device_type,
        max(site) as site,
        max(rack) as rack
    from series
    where stream = 'power' and meter is not null
    group by meter_scope, meter

),

measured_limits as (

    select
        series_days.date,
        series.meter,
        max(series_days.last_value) as power_limit_watts
    from series_days
    inner join series on series_days.series_id = series.series_id
    where series.quantity = 'power_limit'
    group by series_days.date, series.meter

),

final as (

    select
        finest.reading_id,
        finest.date,
        finest.source,
        finest.source_kind,
        finest.metric,
        finest.quantity,
        finest.meter,
        finest.meter_scope,
        finest.node,
        finest.samples,
        finest.rejects,
        finest.typical_interval_seconds,
        finest.needs_every_sample,
        finest.coverage_seconds,
        meter_attributes.device_uuid,
        meter_attributes.device_type,
        -- Another reading of the meter may know what the booked one does not.
        case when coalesce(finest.site, {{ unknown() }}) = {{ unknown() }} then coalesce(meter_attributes.site, finest.site) else finest.site end as site,
        case when finest.node is null then coalesce(finest.rack, meter_attributes.rack) else finest.rack end as rack,
        coalesce(device_types.gpus, 1) as gpu_count,
        case when finest.meter_scope = 'board' then {{ possible_power_factor() }} * device_types.power_limit_watts end as type_possible_watts,
        case when finest.meter_scope = 'board'
            then {{ possible_power_factor() }} * coalesce(device_types.power_limit_watts, measured_limits.power_limit_watts)
        end as possible_watts,
        case
            when finest.preference > 1 then 'cross_check'
            when finest.coarseness = finest.finest_coarseness then 'booked'
            when finest.meter_scope = 'node' then 'host'
            else 'cross_check'
        end as purpose
    from finest
    left join meter_attributes
        on finest.meter_scope = meter_attributes.meter_scope and finest.meter = meter_attributes.meter
    left join device_types on meter_attributes.device_type = device_types.device_type
    left join measured_limits on finest.date = measured_limits.date and finest.meter = measured_limits.meter

)

select * from final
