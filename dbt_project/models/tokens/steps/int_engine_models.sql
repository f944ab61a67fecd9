-- Which models an engine serves when, for engines that serve more than one on a date, or another than their labels
-- name: one row per date, engine, slice of the date and model. Models that follow each other cut the date at the first
-- sample of the later one; models served at once (a base model and its LoRAs) are members of one slice. Timed
-- assignments of the fleet file overrule labels. Other engines have no row.
with series as (

    select * from {{ ref('stg_series') }} where stream = 'tokens'

),

series_days as (

    select * from {{ ref('stg_series_days') }} where is_in_run

),

copies as (

    select * from {{ ref('int_scrape_copies') }}

),

run_dates as (

    select * from {{ ref('stg_run_dates') }}

),

model_aliases as (

    select * from {{ source('fleet', 'model_aliases') }}

),

assignments as (

    select * from {{ source('fleet', 'assignments') }} where engine is not null and model is not null

),

named_days as (

    select
        series_days.date,
        coalesce(copies.engine, series.engine) as engine,
        coalesce(copies.model, series.model) as model,
        series_days.first_us,
        series_days.last_us,
        series_days.sampling_interval_seconds
    from series_days
    inner join series on series_days.series_id = series.series_id
    left join copies on series_days.date = copies.date and series_days.series_id = copies.series_id

),

model_days as (

    select
        date,
        engine,
        model,
        min(first_us) as first_us,
        max(last_us) as last_us,
        {{ gap_cap_us('max(sampling_interval_seconds)', var('grid_seconds')) }} as cap_us
    from named_days
    where model is not null
    group by date, engine, model

),

engine_days as (

    select
        date,
        engine,
        min(first_us) as first_us,
        max(last_us) as last_us,
        max(cap_us) as cap_us,
        count(*) as models,
        max(model) as model
    from model_days
    group by date, engine

),

assigned as (

    select distinct
        run_dates.date,
        assignments.engine,
        coalesce(model_aliases.model, assignments.model) as model,
        greatest({{ epoch_us('assignments.start_at') }}, run_dates.start_us) as start_us,
        least(coalesce({{ epoch_us('assignments.end_at') }}, run_dates.end_us), run_dates.end_us) as end_us
    from assignments
    inner join run_dates
        on {{ epoch_us('assignments.start_at') }} < run_dates.end_us
        and coalesce({{ epoch_us('assignments.end_at') }}, run_dates.end_us) > run_dates.start_us
    left join model_aliases on assignments.model = model_aliases.alias

),

-- Nearly every engine has one model, and its assignment in the fleet file names the same one.
chosen as (

    select date, engine from engine_days where models > 1
    union
    select
        assigned.date,
        assigned.engine
    from assigned
    left join engine_days on assigned.date = engine_days.date and assigned.engine = engine_days.engine
    where engine_days.model is distinct from assigned.model

),

-- The models at an engine's first sample of the date count from midnight on; those at its last sample count until
-- midnight.
labelled as (

    select
        chosen.date,
        chosen.engine,
        model_days.model,
        case
            when model_days.first_us - engine_days.first_us <= engine_days.cap_us then run_dates.start_us
            else model_days.first_us
        end as start_us,
        case when engine_days.last_us - model_days.last_us <= engine_days.cap_us then run_dates.end_us else model_days.last_us end as end_us
    from chosen
    inner join run_dates on chosen.date = run_dates.date
    inner join engine_days on chosen.date = engine_days.date and chosen.engine = engine_days.engine
    inner join model_days on chosen.date = model_days.date and chosen.engine = model_days.engine

),

stated as (

    select assigned.*
    from assigned
    inner join chosen on assigned.date = chosen.date and assigned.engine = chosen.engine

),

edges as (

    select date, engine, start_us as edge_us from labelled
    union
    select date, engine, end_us as edge_us from labelled
    union
    select date, engine, start_us as edge_us from stated
    union
    select date, engine, end_us as edge_us from stated

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
        {{ joined_in_order('stated.model') }} as stated_models,
        {{ joined_in_order('labelled.model') }} as labelled_models
    from elements
    left join stated
        on elements.date = stated.date
        and elements.engine = stated.engine
        and elements.start_us >= stated.start_us
        and elements.end_us <= stated.end_us
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
        count(labelled_models) over (partition by date, engine order by start_us rows unbounded preceding) as sight_number
    from covered

),

held as (

    select
        date,
        engine,
        start_us,
        end_us,
        stated_models is not null as is_stated,
        coalesce(stated_models, max(labelled_models) over (partition by date, engine, sight_number)) as models
    from counted

),

compared as (

    select
        *,
        case
            when (lag(models) over (partition by date, engine order by start_us) is distinct from models) then 1
            when (lag(is_stated) over (partition by date, engine order by start_us) is distinct from is_stated) then 1
            else 0
        end as is_change
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
        is_stated,
        min(start_us) as slice_start_us,
        max(end_us) as slice_end_us
    from numbered
    group by date, engine, models, is_stated, slice_number

),

names as (

    select date, engine, model from labelled
    union
    select date, engine, model from stated

),

final as (

    select
        slices.date,
        slices.engine,
        slices.slice_start_us,
        slices.slice_end_us,
        names.model,
        slices.is_stated,
        count(*) over (partition by slices.date, slices.engine, slices.slice_start_us) as models
    from slices
    inner join names
        on slices.date = names.date
        and slices.engine = names.engine
        and position(',' || names.model || ',' in ',' || slices.models || ',') > 0

)

select * from final
