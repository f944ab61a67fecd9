-- Readings of the chosen buckets, as int_token_readings has them of tokens: a bucket is a counter of the requests within its bound.
{# Only int_histogram_goodput reads it: DuckDB need not write it down, and Spark would plan these steps as one. #}
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

choices as (

    select * from {{ ref('int_bucket_choices') }}

),

bucket_series as (

    select distinct
        series.series_id,
        series.reading_id,
        choices.engine,
        choices.source,
        series.factor
    from choices
    inner join series on choices.reading_id = series.reading_id

),

{{ engine_counter_ctes('bucket_series') }},

final as (

    select * from started_readings

)

select * from final
