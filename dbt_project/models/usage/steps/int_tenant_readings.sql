-- Readings of the token counters that gateways and frontends have by tenant: those with a label that the fleet file's
-- source states under `tenant_labels` or `team_labels`, and their neighbours without one.
{# Only int_tenant_counters reads it: DuckDB need not store it, and Spark would otherwise plan these steps as one. #}
{{ config(materialized='view' if target.type == 'duckdb' else 'table') }}

with all_series as (

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

tenant_labels as (

    select * from {{ source('fleet', 'tenant_labels') }}

),

-- Process starts as they are of any engine: by them a bad scrape is no restart.
series as (

    select all_series.*
    from all_series
    where all_series.quantity = 'process_start'
    union all
    select all_series.*
    from all_series
    inner join (select distinct source from tenant_labels) as sources on all_series.source = sources.source
    where all_series.quantity = 'tokens' and all_series.level in ('frontend', 'gateway')

),

tenant_series as (

    select distinct
        series_id,
        reading_id,
        engine,
        source,
        factor,
        cast(null as date) as copied_on
    from series
    where quantity = 'tokens'
    union
    select
        series.series_id,
        copies.reading_id,
        copies.label_engine as engine,
        series.source,
        series.factor,
        copies.date as copied_on
    from series
    inner join copies on series.series_id = copies.series_id
    where series.quantity = 'tokens'

),

{{ engine_counter_ctes('tenant_series') }},

final as (

    select * from started_readings

)

select * from final
