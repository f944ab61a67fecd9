-- Which source and metric counts an engine's tokens of a class in each stretch of a date: by rank among those that cover
-- at least half of what the best one covers. Before that one begins, and after it ends, the next one counts: an engine
-- changes its kind, a counter its name, monitoring its server. A hole is no end: a counter shows afterwards what it
-- counted over it. A frontend counts only for models of whose engines none reports in its namespace, a gateway only for
-- models that nothing nearer reports at all. One row per date, engine, token class and stretch; the first has no from_us,
-- the last no to_us. The book and its balance both read the stretches here.
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

series_spans as (

    select
        series_id,
        date,
        sampling_interval_seconds,
        coalesce(lag(last_us) over series_window, first_us) as covers_from_us,
        coalesce(lead(first_us) over series_window, last_us) as covers_to_us
    from (
        select
            series_id,
            date,
            max(sampling_interval_seconds) as sampling_interval_seconds,
            min(first_us) as first_us,
            max(last_us) as last_us
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
        max(series_spans.sampling_interval_seconds) as sampling_interval_seconds,
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
        max(candidates.sampling_interval_seconds) as sampling_interval_seconds,
        min(candidates.covers_from_us) as covers_from_us,
        max(candidates.covers_to_us) as covers_to_us,
        max(candidates.covers_to_us) - min(candidates.covers_from_us) as coverage_us
    from candidates
    left join engine_models
        on candidates.level = 'frontend'
        and candidates.date = engine_models.date
        and candidates.model = engine_models.model
        and coalesce(candidates.namespace = engine_models.namespace, true)
    left join frontend_models
        on candidates.level = 'gateway' and candidates.date = frontend_models.date and candidates.model = frontend_models.model
    where engine_models.model is null and frontend_models.model is null
    group by all

),

compared as (

    select
        *,
        max(coverage_us) over class_window as best_coverage_us,
        min(covers_from_us) over class_window as class_from_us,
        max(covers_to_us) over class_window as class_to_us,
        {{ gap_cap_us('max(sampling_interval_seconds) over class_window', var('grid_seconds')) }} as shortest_us
    from nearest
    window class_window as (partition by date, engine, token_class)

),

ranked as (

    select
        *,
        row_number() over (
            partition by date, engine, token_class
            order by case when coverage_us >= 0.5 * best_coverage_us then 0 else 1 end, rank, coverage_us desc, source, metric
        ) as preference
    from compared

),

preferred as (

    select
        *,
        greatest(covers_from_us - class_from_us, class_to_us - covers_to_us) > shortest_us as hands_over
    from ranked
    where preference = 1

),

-- A class that is handed over is cut where any of its metrics begins or ends; a piece is the first one's that covers it.
rivals as (

    select ranked.*
    from ranked
    inner join preferred on {{ equal_keys('ranked', 'preferred', ['date', 'engine', 'token_class']) }}
    where preferred.hands_over

),

edges as (

    select date, engine, token_class, covers_from_us as edge_us from rivals
    union
    select date, engine, token_class, covers_to_us as edge_us from rivals

),

pieces as (

    select
        *,
        lead(edge_us) over (partition by date, engine, token_class order by edge_us) as next_edge_us
    from edges

),

owned_pieces as (

    select
        rivals.*,
        pieces.edge_us,
        pieces.next_edge_us
    from pieces
    inner join rivals
        on {{ equal_keys('pieces', 'rivals', ['date', 'engine', 'token_class']) }}
        and rivals.covers_from_us <= pieces.edge_us
        and rivals.covers_to_us >= pieces.next_edge_us
    qualify row_number() over (
        partition by rivals.date, rivals.engine, rivals.token_class, pieces.edge_us order by rivals.preference
    ) = 1

),

turns as (

    select
        *,
        case when preference = lag(preference) over piece_window then 0 else 1 end as is_turn
    from owned_pieces
    window piece_window as (partition by date, engine, token_class order by edge_us)

),

numbered_turns as (

    select
        *,
        sum(is_turn) over (
            partition by date, engine, token_class order by edge_us rows between unbounded preceding and current row
        ) as turn
    from turns

),

turns_of_metrics as (

    select
        date,
        engine,
        token_class,
        source,
        metric,
        min(edge_us) as begins_us,
        max(next_edge_us) as ends_us,
        max(shortest_us) as shortest_us
    from numbered_turns
    group by date, engine, token_class, source, metric, turn
    having max(next_edge_us) - min(edge_us) > max(shortest_us)

),

-- A stretch begins where the one before it ends: a process counts before its first sample.
stretches as (

    select
        date,
        engine,
        token_class,
        source,
        metric,
        lag(ends_us) over turn_window as from_us,
        case when lead(ends_us) over turn_window is not null then ends_us end as to_us,
        ends_us - begins_us as known_us,
        shortest_us,
        true as is_handed_over
    from turns_of_metrics
    window turn_window as (partition by date, engine, token_class order by begins_us)
    union all
    select
        date,
        engine,
        token_class,
        source,
        metric,
        cast(null as bigint) as from_us,
        cast(null as bigint) as to_us,
        coverage_us as known_us,
        shortest_us,
        false as is_handed_over
    from preferred
    where not hands_over

),

-- Of an engine that is handed over, a class that one of its sources does not count is unknown on the date: what the
-- others count of it would pass for all of it.
known_classes as (

    select
        *,
        max(case when is_handed_over then class_known_us end) over (partition by date, engine) as engine_known_us
    from (
        select
            *,
            sum(known_us) over (partition by date, engine, token_class) as class_known_us
        from stretches
    ) as known

),

final as (

    select
        date,
        engine,
        token_class,
        source,
        metric,
        from_us,
        to_us
    from known_classes
    where coalesce(class_known_us >= engine_known_us - shortest_us, true)

)

select * from final
