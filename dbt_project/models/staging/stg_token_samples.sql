-- Samples of engines and gateways as they landed, but for series that several processes answer for: those of each
-- process are a series of their own (stg_series_parts). One row per series and time of a sample. Nothing in it is a CTE
-- that is read twice, and no `not in`: DuckDB would look in all samples for what a reader asks of a few series.
{{ config(materialized='view' if target.type == 'duckdb' else 'ephemeral') }}

with split_series as (

    select distinct landed_series_id from {{ ref('stg_series_parts') }}

),

stretches as (

    select * from {{ ref('stg_series_parts') }} where track is null

),

track_samples as (

    select * from {{ ref('stg_track_samples') }}

),

final as (

    select
        samples.series_id,
        samples.observed_at,
        samples.value
    from {{ source('raw', 'token_samples') }} as samples
    left join split_series on samples.series_id = split_series.landed_series_id
    where split_series.landed_series_id is null
    union all
    select
        stretches.series_id,
        samples.observed_at,
        samples.value
    from {{ source('raw', 'token_samples') }} as samples
    inner join stretches
        on samples.series_id = stretches.landed_series_id
        and {{ epoch_us('samples.observed_at') }} >= coalesce(stretches.from_us, {{ epoch_us('samples.observed_at') }})
        and {{ epoch_us('samples.observed_at') }} < coalesce(stretches.to_us, {{ epoch_us('samples.observed_at') }} + 1)
    union all
    select
        series_id,
        {{ from_epoch_us('observed_us') }} as observed_at,
        value
    from track_samples

)

select * from final
