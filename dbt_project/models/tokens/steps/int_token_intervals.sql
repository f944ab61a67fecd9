-- Tokens per date, engine, model, interval and class: counters differenced per series (an engine's data-parallel ranks
-- add up) and cut at the grid, and where another source begins to count. A model is its series' own: an engine serves
-- several, one after the other or a base model and its LoRAs at once.
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

reading_stretches as (

    select distinct
        token_readings.reading_id,
        {{ int_div(epoch_us('cast(choices.date as ' ~ timestamp_type() ~ ')'), day_us()) }} as day_number,
        choices.from_us,
        choices.to_us
    from token_readings
    inner join choices on {{ equal_keys('token_readings', 'choices', ['engine', 'token_class', 'source', 'metric']) }}
    where choices.from_us is not null or choices.to_us is not null

),

stretch_pieces as (

    select
        pieces.*,
        reading_stretches.from_us as stretch_from_us,
        reading_stretches.to_us as stretch_to_us,
        greatest(reading_stretches.from_us - pieces.from_us, 0) as skipped_us,
        least(reading_stretches.to_us - pieces.from_us, pieces.covered_us) as counted_us
    from pieces
    inner join reading_stretches
        on pieces.reading_id = reading_stretches.reading_id
        and {{ int_div('pieces.from_us', day_us()) }} = reading_stretches.day_number

),

counted_cells as (

    select
        reading_id,
        cell_number,
        cast(null as bigint) as from_us,
        cast(null as bigint) as to_us,
        risen,
        covered_us,
        resets
    from counter_cells
    union all
    select
        reading_id,
        cell_number,
        stretch_from_us as from_us,
        stretch_to_us as to_us,
        {{ exact_sum(
            accumulated('risen', '0', 'counted_us', 'covered_us') ~ ' - ' ~ accumulated('risen', '0', 'skipped_us', 'covered_us')
        ) }} as risen,
        sum(counted_us - skipped_us) as covered_us,
        max(case when is_reset then 1 else 0 end) as resets
    from stretch_pieces
    where skipped_us < counted_us
    group by reading_id, cell_number, stretch_from_us, stretch_to_us

),

final as (

    select
        choices.date,
        choices.engine,
        -- A series that names no model counts for the one that the engine's others name.
        coalesce(stated_models.model, token_readings.model, engine_days.model, {{ unknown() }}) as model,
        counted_cells.cell_number as interval_number,
        choices.token_class,
        -- Of an interval in which one source took over from another, that one.
        max_by(choices.source, coalesce(choices.from_us, 0)) as token_source,
        max_by(choices.metric, coalesce(choices.from_us, 0)) as token_metric,
        {{ exact_sum('counted_cells.risen') }} as tokens,
        coalesce(max(case when choices.from_us is null then counted_cells.covered_us end), 0)
        + coalesce(max(case when choices.from_us is not null then counted_cells.covered_us end), 0) as covered_us,
        max(counted_cells.resets) = 1 as has_reset
    from counted_cells
    inner join token_readings on counted_cells.reading_id = token_readings.reading_id
    inner join choices
        on {{ equal_keys('token_readings', 'choices', ['engine', 'token_class', 'source', 'metric']) }}
        and {{ int_div('counted_cells.cell_number * ' ~ grid_us(), day_us()) }}
            = {{ int_div(epoch_us('cast(choices.date as ' ~ timestamp_type() ~ ')'), day_us()) }}
        and coalesce(token_readings.copied_on = choices.date, true)
        and counted_cells.from_us is not distinct from choices.from_us
        and counted_cells.to_us is not distinct from choices.to_us
    -- On a date with copies a series has no reading of its own.
    left join copied_series
        on choices.date = copied_series.date
        and token_readings.reading_id = copied_series.series_id
        and token_readings.copied_on is null
    left join engine_days on choices.date = engine_days.date and choices.engine = engine_days.engine
    left join stated_models
        on choices.date = stated_models.date
        and choices.engine = stated_models.engine
        and counted_cells.cell_number * {{ grid_us() }} >= stated_models.slice_start_us
        and counted_cells.cell_number * {{ grid_us() }} < stated_models.slice_end_us
    where copied_series.series_id is null
    group by 1, 2, 3, 4, 5

)

select * from final
