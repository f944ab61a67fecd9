-- Who the engines are that report tokens on a date: one row per date and engine.
with series as (

    select * from {{ ref('stg_series') }}

),

series_days as (

    select * from {{ ref('stg_series_days') }}

),

final as (

    select
        series_days.date,
        series.engine,
        max(series.model) as model,
        max(series.namespace) as namespace,
        max(series.pod) as pod,
        max(series.container) as container,
        max(series.node) as node,
        max(series.site) as site,
        max(series.deployment) as deployment,
        max(series.team) as team,
        max(series.role) as role,
        max(series.level) as level
    from series_days
    inner join series on series_days.series_id = series.series_id
    where series.stream = 'tokens' and series_days.is_in_run
    group by series_days.date, series.engine
    having max(series.model) is not null

)

select * from final
