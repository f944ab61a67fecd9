-- One token source per engine, date and token class: by rank among the metrics that cover at least half of what the
-- best one covers. A frontend counts only for models of whose engines none reports in its namespace, a gateway only for
-- models that nothing nearer reports at all; of gateways in line one counts.
with series as (

    select * from {{ ref('stg_series') }}

),

series_days as (

    select * from {{ ref('stg_series_days') }}

),

run_dates as (

    select * from {{ ref('stg_run_dates') }}

),

copies as (

    select * from {{ ref('int_scrape_copies') }}

),

gateways_in_line as (

    select * from {{ ref('int_gateways_in_line') }}

),

series_spans as (

    select
        series_id,
        date,
        coalesce(lag(last_us) over series_window, first_us) as covers_from_us,
        coalesce(lead(first_us) over series_window, last_us) as covers_to_us
    from (
        select series_id, date, min(first_us) as first_us, max(last_us) as last_us
        from series_days
        group by series_id, date
    ) as days
    window series_window as (partition by series_id order by date)

),

candidates as (

    select
        run_dates.date,
        coalesce(copies.engine, series.engine) as engine,
        series.level,
        coalesce(copies.model, series.model) as model,
        coalesce(copies.namespace, series.namespace) as namespace,
        series.token_class,
        series.source,
        series.metric,
        series.rank,
        min(greatest(series_spans.covers_from_us, run_dates.start_us)) as covers_from_us,
        max(least(series_spans.covers_to_us, run_dates.end_us)) as covers_to_us
    from series_spans
    inner join run_dates
        on series_spans.date = run_dates.date
        or (series_spans.covers_from_us < run_dates.end_us and series_spans.covers_to_us > run_dates.start_us)
    inner join series on series_spans.series_id = series.series_id
    left join copies on run_dates.date = copies.date and series_spans.series_id = copies.series_id
    where series.quantity = 'tokens'
    group by all

),

engine_models as (

    select distinct date, model, namespace from candidates where level = 'engine'

),

frontend_models as (

    select distinct date, model from candidates where level in ('engine', 'frontend')

),

-- An engine may serve one model after another: its metric covers both.
nearest as (

    select
        candidates.date,
        candidates.engine,
        candidates.token_class,
        candidates.source,
        candidates.metric,
        candidates.rank,
        max(candidates.covers_to_us) - min(candidates.covers_from_us) as coverage_us
    from candidates
    left join engine_models
        on candidates.level = 'frontend'
        and candidates.date = engine_models.date
        and candidates.model = engine_models.model
        and coalesce(candidates.namespace = engine_models.namespace, true)
    left join frontend_models
        on candidates.level = 'gateway' and candidates.date = frontend_models.date and candidates.model = frontend_models.model
    left join gateways_in_line on candidates.date = gateways_in_line.date and candidates.engine = gateways_in_line.engine
    where engine_models.model is null and frontend_models.model is null and gateways_in_line.engine is null
    group by all

),

compared as (

    select
        *,
        max(coverage_us) over (partition by date, engine, token_class) as best_coverage_us
    from nearest

),

final as (

    select
        date,
        engine,
        token_class,
        source,
        metric
    from compared
    qualify row_number() over (
        partition by date, engine, token_class
        order by case when coverage_us >= 0.5 * best_coverage_us then 0 else 1 end, rank, coverage_us desc, source, metric
    ) = 1

)

select * from final
