-- The deployments that advice is for, numbered: `usage` names a row in everything that Python computes of it.
{{ config(materialized='ephemeral') }}

with deployments as (

    select * from {{ ref('deployment_usage') }}

),

final as (

    select
        *,
        row_number() over (order by {{ curve_keys() | join(', ') }}) - 1 as usage,
        cast(lookback_start_at as date) as lookback_start_date,
        -- The last quarter of the lookback is held back: advice made from the rest is replayed on it.
        as_of_date + 1 - cast(greatest(span_days // 4, 1) as integer) as held_start_date
    from deployments

)

select * from final
