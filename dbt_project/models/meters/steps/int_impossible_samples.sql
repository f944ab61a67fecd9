-- Samples of power gauges above what their meter can draw (1.5 × the device type's limit, else the ceiling of the
-- scope): they are refused, unless the limit itself is in doubt, and counted here. One pass over the samples' values.
{# As a constant the least limit is looked at while samples are read: three times as fast on DuckDB as a subquery, which
   is asked afterwards. #}
{{ config(pre_hook="set variable least_impossible = (
    select min(watts / factor)
    from (
        select
            min(
                coalesce(
                    {{ possible_power_factor() }} * device_types.power_limit_watts,
                    {{ ceiling_watts('series.meter_scope') }}
                )
            ) as watts,
            max(case when series.quantity = 'power' then series.factor end) as factor
        from {{ ref('stg_series') }} as series
        left join {{ ref('stg_device_types') }} as device_types
            on series.meter_device_type = device_types.device_type and series.meter_scope = 'board'
        where series.stream = 'power' and series.meter is not null
        group by series.meter_scope, series.meter
    ) as meters
)" if target.type == 'duckdb' else []) }}

with series as (

    select * from {{ ref('stg_series') }}

),

device_types as (

    select * from {{ ref('stg_device_types') }}

),

date_edges as (

    select
        reading_id,
        date,
        min(first_us) as first_us,
        max(last_us) as last_us
    from {{ ref('stg_series_days') }}
    where is_in_run
    group by reading_id, date

),

meter_types as (

    select
        meter_scope,
        meter,
        max(meter_device_type) as device_type,
        max(site) as site
    from series
    where stream = 'power' and meter is not null
    group by meter_scope, meter

),

gauges as (

    select
        series.series_id,
        series.reading_id,
        series.meter_scope,
        series.meter,
        meter_types.site,
        series.factor,
        series.meter_scope = 'board' and device_types.power_limit_watts is not null as has_limit,
        coalesce(
            case when series.meter_scope = 'board' then {{ possible_power_factor() }} * device_types.power_limit_watts end,
            {{ ceiling_watts('series.meter_scope') }}
        ) as possible_watts
    from series
    inner join meter_types on series.meter_scope = meter_types.meter_scope and series.meter = meter_types.meter
    left join device_types on meter_types.device_type = device_types.device_type
    where series.stream = 'power' and series.quantity = 'power'

),

final as (

    select
        cast(samples.observed_at as date) as date,
        gauges.meter_scope,
        gauges.meter,
        gauges.site,
        count(*) as impossible_samples,
        -- Up to three times the limit: many such samples mean that the stated limit is too low.
        sum(
            case
                when samples.value * gauges.factor <= {{ doubted_limit_factor() }} * gauges.possible_watts then 1
                else 0
            end
        ) as near_samples,
        -- Of these, the first and the last sample of the date: they are accepted on every date.
        sum(case
            when gauges.has_limit
                and samples.value * gauges.factor <= {{ doubted_limit_factor() }} * gauges.possible_watts
                and {{ epoch_us('samples.observed_at') }} in (date_edges.first_us, date_edges.last_us) then 1
            else 0
        end) as near_edge_samples,
        max(
            case
                when samples.value * gauges.factor <= {{ doubted_limit_factor() }} * gauges.possible_watts
                    then samples.value * gauges.factor
            end
        ) as greatest_near_watts
    from {{ source('raw', 'power_samples') }} as samples
    inner join gauges on samples.series_id = gauges.series_id
    left join date_edges on gauges.reading_id = date_edges.reading_id and cast(samples.observed_at as date) = date_edges.date
    where samples.observed_at >= {{ run_start_at() }}
        and samples.observed_at < {{ run_end_at() }}
        and {{ is_valid_sample('samples.value') }}
        and samples.value > {{ "coalesce(getvariable('least_impossible'), 0)" if target.type == 'duckdb' else '0' }}
        and samples.value * gauges.factor > gauges.possible_watts
    group by 1, 2, 3, 4

)

select * from final
