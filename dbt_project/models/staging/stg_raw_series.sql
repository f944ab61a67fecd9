-- The landed series, and the parts of those that several processes answer for (stg_series_parts) with the same labels.
-- One row per series_id.
{{ config(materialized='view' if target.type == 'duckdb' else 'ephemeral') }}

with raw_series as (

    select * from {{ source('raw', 'series') }}
    where series_id not in (select series_id from {{ source('raw', 'refused_series') }})

),

parts as (

    select * from {{ ref('stg_series_parts') }}

),

final as (

    select
        series_id,
        series_id as landed_series_id,
        source,
        source_kind,
        metric,
        labels,
        first_seen_at,
        last_seen_at
    from raw_series
    union all
    select
        parts.series_id,
        parts.landed_series_id,
        raw_series.source,
        raw_series.source_kind,
        raw_series.metric,
        raw_series.labels,
        raw_series.first_seen_at,
        raw_series.last_seen_at
    from parts
    inner join raw_series on parts.landed_series_id = raw_series.series_id
    where parts.series_id <> parts.landed_series_id

)

select * from final
