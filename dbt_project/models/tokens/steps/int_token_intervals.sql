-- Tokens per date, engine, model, interval and class: counters differenced per series (an engine's data-parallel ranks
-- add up) and cut at the grid. A model is its series' own: an engine serves several, one after the other or a base
-- model and its LoRAs at once.
with readings as (

    select * from {{ ref('int_token_readings') }}

),

series as (

    select * from {{ ref('stg_series') }}

),

copies as (

    select * from {{ ref('int_scrape_copies') }}

),

choices as (

    select * from {{ ref('int_token_choices') }}

),

engine_days as (

    select * from {{ ref('int_engine_days') }}

),

-- Timed assignments of the fleet file overrule an engine's labels; for several models at once the labels decide.
stated_models as (

    select * from {{ ref('int_engine_models') }} where is_stated and models = 1

),

token_readings as (

    select distinct
        reading_id,
        engine,
        model,
        token_class,
        source,
        metric,
        cast(null as date) as copied_on
    from series
    where quantity = 'tokens'
    union
    select
        copies.reading_id,
        copies.engine,
        copies.model,
        series.token_class,
        series.source,
        series.metric,
        copies.date as copied_on
    from series
    inner join copies on series.series_id = copies.series_id
    where series.quantity = 'tokens'

),

copied_series as (

    select distinct date, series_id from copies

),

{{ counter_step_ctes('readings') }},

{{ counter_cell_ctes(grid_us()) }},

final as (

    select
        choices.date,
        choices.engine,
        -- A series that names no model counts for the one that the engine's others name.
        coalesce(stated_models.model, token_readings.model, engine_days.model, {{ unknown() }}) as model,
        counter_cells.cell_number as interval_number,
        choices.token_class,
        choices.source as token_source,
        choices.metric as token_metric,
        {{ exact_sum('counter_cells.risen') }} as tokens,
        max(counter_cells.covered_us) as covered_us,
        max(counter_cells.resets) = 1 as has_reset
    from counter_cells
    inner join token_readings on counter_cells.reading_id = token_readings.reading_id
    inner join choices
        on {{ equal_keys('token_readings', 'choices', ['engine', 'token_class', 'source', 'metric']) }}
        and {{ int_div('counter_cells.cell_number * ' ~ grid_us(), day_us()) }}
            = {{ int_div(epoch_us('cast(choices.date as ' ~ timestamp_type() ~ ')'), day_us()) }}
        and coalesce(token_readings.copied_on = choices.date, true)
    -- On a date with copies a series has no reading of its own.
    left join copied_series
        on choices.date = copied_series.date
        and token_readings.reading_id = copied_series.series_id
        and token_readings.copied_on is null
    left join engine_days on choices.date = engine_days.date and choices.engine = engine_days.engine
    left join stated_models
        on choices.date = stated_models.date
        and choices.engine = stated_models.engine
        and counter_cells.cell_number * {{ grid_us() }} >= stated_models.slice_start_us
        and counter_cells.cell_number * {{ grid_us() }} < stated_models.slice_end_us
    where copied_series.series_id is null
    group by all

)

select * from final
