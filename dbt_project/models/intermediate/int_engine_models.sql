-- Which models an engine serves when, for the engines that serve more than one on a date: one row per date, engine, slice of the date and model.
-- Models that follow each other cut the date at the first sample of the later one; models served at once (a base model and its LoRAs) are members
-- of one slice. Other engines have no row.
with series as (

    select * from {{ ref('stg_series') }} where stream = 'tokens' and model is not null

),

series_days as (

    select * from {{ ref('stg_series_days') }} where is_in_run

),

run_dates as (

    select * from {{ ref('stg_run_dates') }}

),

model_days as (

    select
        series_days.date,
        series.engine,
        series.model,
        min(series_days.first_us) as first_us,
        max(series_days.last_us) as last_us,
        {{ gauge_gap_factor() }} * 1e6 * coalesce(max(series_days.typical_interval_seconds), {{ var('grid_seconds') }}) as cap_us
    from series_days
    inner join series on series_days.series_id = series.series_id
    group by series_days.date, series.engine, series.model

),

engine_days as (

    select
        date,
        engine,
        min(first_us) as first_us,
        max(last_us) as last_us,
        max(cap_us) as cap_us,
        count(*) as models
    from model_days
    group by date, engine

),

chosen as (

    select
        engine_days.date,
        engine_days.engine,
        engine_days.first_us,
        engine_days.last_us,
        engine_days.cap_us,
        run_dates.start_us as day_start_us,
        run_dates.end_us as day_end_us
    from engine_days
    inner join run_dates on engine_days.date = run_dates.date
    where engine_days.models > 1

),

-- What was there at the engine's first sample was there from midnight, as far as the date knows; so at its last.
labelled as (

    select
        chosen.date,
        chosen.engine,
        model_days.model,
        case when model_days.first_us - chosen.first_us <= chosen.cap_us then chosen.day_start_us else model_days.first_us end as start_us,
        case when chosen.last_us - model_days.last_us <= chosen.cap_us then chosen.day_end_us else model_days.last_us end as end_us
    from chosen
    inner join model_days on chosen.date = model_days.date and chosen.engine = model_days.engine

),

edges as (

    select date, engine, start_us as edge_us from labelled
    union
    select date, engine, end_us as edge_us from labelled

),

elements as (

    select
        date,
        engine,
        edge_us as start_us,
        lead(edge_us) over (partition by date, engine order by edge_us) as end_us
    from edges

),

-- Between the last sample of one model and the first of the next, the earlier one still holds.
covered as (

    select
        elements.date,
        elements.engine,
        elements.start_us,
        elements.end_us,
        {{ joined_in_order('labelled.model') }} as models
    from elements
    left join labelled
        on elements.date = labelled.date
        and elements.engine = labelled.engine
        and elements.start_us >= labelled.start_us
        and elements.end_us <= labelled.end_us
    where elements.end_us is not null
    group by elements.date, elements.engine, elements.start_us, elements.end_us

),

counted as (

    select
        *,
        count(models) over (partition by date, engine order by start_us rows unbounded preceding) as sight_number
    from covered

),

held as (

    select
        date,
        engine,
        start_us,
        end_us,
        max(models) over (partition by date, engine, sight_number) as models
    from counted

),

compared as (

    select
        *,
        case when lag(models) over (partition by date, engine order by start_us) is distinct from models then 1 else 0 end as is_change
    from held

),

numbered as (

    select
        *,
        sum(is_change) over (partition by date, engine order by start_us rows unbounded preceding) as slice_number
    from compared

),

slices as (

    select
        date,
        engine,
        models,
        min(start_us) as slice_start_us,
        max(end_us) as slice_end_us
    from numbered
    group by date, engine, models, slice_number

),

final as (

    select
        slices.date,
        slices.engine,
        slices.slice_start_us,
        slices.slice_end_us,
        labelled.model,
        count(*) over (partition by slices.date, slices.engine, slices.slice_start_us) as models
    from slices
    inner join labelled
        on slices.date = labelled.date
        and slices.engine = labelled.engine
        and position(',' || labelled.model || ',' in ',' || slices.models || ',') > 0

)

select * from final
