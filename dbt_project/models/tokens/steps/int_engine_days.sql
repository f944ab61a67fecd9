-- Who the engines are that report tokens on a date: one row per date and engine.
with series as (

    select * from {{ ref('stg_series') }}

),

series_days as (

    select * from {{ ref('stg_series_days') }}

),

copies as (

    select * from {{ ref('int_scrape_copies') }}

),

named_series as (

    select
        series_days.date,
        {% for name in ['engine', 'model', 'namespace', 'pod', 'container', 'node', 'site', 'deployment', 'team', 'role'] -%}
        coalesce(copies.{{ name }}, series.{{ name }}) as {{ name }},
        {% endfor -%}
        -- Without what separates it from another engine of its name.
        coalesce(copies.label_engine, series.engine) as label_engine,
        copies.separated_by,
        series.role_basis,
        series.role_hint,
        series.level
    from series_days
    inner join series on series_days.series_id = series.series_id
    left join copies on series_days.date = copies.date and series_days.series_id = copies.series_id
    where series.stream = 'tokens' and series_days.is_in_run

),

final as (

    select
        date,
        engine,
        max(model) as model,
        max(namespace) as namespace,
        max(pod) as pod,
        max(container) as container,
        max(node) as node,
        max(site) as site,
        max(deployment) as deployment,
        max(team) as team,
        max(role) as role,
        min(role_basis) as role_basis,
        max(role_hint) as role_hint,
        max(level) as level,
        max(label_engine) as label_engine,
        max(separated_by) as separated_by
    from named_series
    group by date, engine
    having max(model) is not null

)

select * from final
