-- Requests with the model's canonical name: one row per request.
{{ config(materialized='view') }}

with requests as (

    select * from {{ source('raw', 'requests') }}

),

model_aliases as (

    select * from {{ source('fleet', 'model_aliases') }}

),

final as (

    select
        requests.source,
        requests.window_id,
        requests.started_at,
        requests.ttft_seconds,
        requests.end_to_end_seconds,
        requests.is_ok,
        coalesce(model_aliases.model, requests.model) as model,
        requests.engine,
        requests.input_tokens,
        requests.cached_input_tokens,
        requests.output_tokens,
        requests.stated_concurrency
    from requests
    left join model_aliases on requests.model = model_aliases.alias

)

select * from final
