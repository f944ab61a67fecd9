-- Samples of engines and gateways as they landed, but for series that several processes answer for: those of each
-- process are a series of their own (stg_series_parts). One row per series and time of a sample.
{{ config(materialized='view' if target.type == 'duckdb' else 'ephemeral') }}

with parts as (

    select * from {{ ref('stg_series_parts') }}

),

token_samples as (

    select * from {{ source('raw', 'token_samples') }}

),

final as (

    select
        series_id,
        observed_at,
        value
    from token_samples
    where series_id not in (select landed_series_id from parts)
    union all
    select
        parts.series_id,
        token_samples.observed_at,
        token_samples.value
    from token_samples
    inner join parts
        on token_samples.series_id = parts.landed_series_id
        and parts.track is null
        and {{ epoch_us('token_samples.observed_at') }} >= coalesce(parts.from_us, {{ epoch_us('token_samples.observed_at') }})
        and {{ epoch_us('token_samples.observed_at') }} < coalesce(parts.to_us, {{ epoch_us('token_samples.observed_at') }} + 1)
    union all
    select
        series_id,
        {{ from_epoch_us('observed_us') }} as observed_at,
        value
    from {{ ref('stg_track_samples') }}

)

select * from final
