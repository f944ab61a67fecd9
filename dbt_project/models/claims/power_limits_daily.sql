-- Under which power limit a deployment worked, from its boards' own telemetry. The effect of another limit shows only
-- where there were two.
with claims as (

    select * from {{ ref('int_claims') }} where model not in ({{ unallocated() }}, {{ unknown() }})

),

meters as (

    select * from {{ ref('int_meter_choices') }} where purpose = 'booked'

),

series as (

    select * from {{ ref('stg_series') }} where quantity = 'power_limit' and meter_scope = 'board'

),

series_days as (

    select * from {{ ref('stg_series_days') }} where is_in_run and last_value > 0

),

-- A limit that changed within the date differs between the first and the last scrape.
reported_limits as (

    select
        series_days.date,
        series.meter,
        series.rank,
        series.source,
        series.metric,
        min(least(series_days.first_value, series_days.last_value)) as limit_watts_min,
        max(greatest(series_days.first_value, series_days.last_value)) as limit_watts_max,
        max_by(series_days.last_value, series_days.last_us) as limit_watts
    from series_days
    inner join series on series_days.series_id = series.series_id
    group by series_days.date, series.meter, series.rank, series.source, series.metric

),

limits as (

    select *
    from reported_limits
    qualify row_number() over (partition by date, meter order by rank, source, metric) = 1

),

boards as (

    select distinct
        claims.date,
        meters.site,
        claims.deployment,
        claims.model,
        coalesce(meters.device_type, {{ unknown() }}) as device_type,
        claims.meter_scope,
        claims.role,
        claims.meter,
        meters.gpu_count
    from claims
    inner join meters on {{ equal_keys('claims', 'meters', ['date', 'meter_scope', 'meter']) }}

),

final as (

    select
        boards.date,
        {{ columns_of('boards', curve_keys()) }},
        cast(count(*) as integer) as meters,
        cast(count(limits.meter) as integer) as meters_with_limit,
        {{ ratio(exact_sum(exact('limits.limit_watts / boards.gpu_count')), 'count(limits.meter)') }} as power_limit_watts_mean,
        min(limits.limit_watts_min / boards.gpu_count) as power_limit_watts_min,
        max(limits.limit_watts_max / boards.gpu_count) as power_limit_watts_max
    from boards
    left join limits on boards.date = limits.date and boards.meter = limits.meter
    group by boards.date, {{ columns_of('boards', curve_keys()) }}

)

select * from final
