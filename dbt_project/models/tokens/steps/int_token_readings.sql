-- Readings of the chosen token counters: first and last per series and interval, single samples where a date needs
-- every sample, and the zero at which a process is known to have started. Neighbours before and after the run close the
-- first and last step.
{# Only int_token_intervals reads it: DuckDB need not store it, and Spark would otherwise plan these steps as one. #}
{{ config(materialized='view' if target.type == 'duckdb' else 'table') }}

with series as (

    select * from {{ ref('stg_series') }}

),

series_days as (

    select * from {{ ref('stg_series_days') }}

),

glitches as (

    select * from {{ ref('int_token_glitches') }}

),

copies as (

    select * from {{ ref('int_scrape_copies') }}

),

choices as (

    select * from {{ ref('int_token_choices') }}

),

token_series as (

    select distinct
        series.series_id,
        series.reading_id,
        series.engine,
        series.source,
        series.metric,
        series.factor,
        cast(null as date) as copied_on
    from series
    inner join choices on {{ equal_keys('series', 'choices', ['engine', 'token_class', 'source', 'metric']) }}
    where series.quantity = 'tokens'
    union
    select
        series.series_id,
        copies.reading_id,
        copies.label_engine as engine,
        series.source,
        series.metric,
        series.factor,
        copies.date as copied_on
    from series
    inner join copies on series.series_id = copies.series_id
    inner join choices
        on copies.date = choices.date
        and copies.engine = choices.engine
        and {{ equal_keys('series', 'choices', ['token_class', 'source', 'metric']) }}
    where series.quantity = 'tokens'

),

-- A step at the edge of a stretch is shared as it is, not as its interval's.
handover_days as (

    select distinct
        token_series.series_id,
        {{ int_div(epoch_us('cast(choices.date as ' ~ timestamp_type() ~ ')'), day_us()) }} as day_number
    from token_series
    inner join choices on {{ equal_keys('token_series', 'choices', ['engine', 'source', 'metric']) }}
    where choices.from_us is not null or choices.to_us is not null

),

{{ engine_counter_ctes('token_series', sampled_days='handover_days') }},

final as (

    select * from started_readings

)

select * from final
