-- Readings of the chosen buckets, as in int_token_readings for tokens: a bucket is a counter of the requests within its
-- bound.
{# Only int_histogram_goodput reads it: DuckDB need not store it, and Spark would otherwise plan these steps as one. #}
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

    select * from {{ ref('int_bucket_choices') }}

),

bucket_series as (

    select distinct
        series.series_id,
        series.reading_id,
        choices.engine,
        choices.source,
        series.factor,
        cast(null as date) as copied_on
    from choices
    inner join series on choices.reading_id = series.reading_id
    union
    select
        copies.series_id,
        copies.reading_id,
        choices.engine,
        choices.source,
        series.factor,
        copies.date as copied_on
    from choices
    inner join copies on choices.date = copies.date and choices.reading_id = copies.reading_id
    inner join series on copies.series_id = series.series_id

),

{{ engine_counter_ctes('bucket_series') }},

final as (

    select * from started_readings

)

select * from final
