-- Requests during the run's dates and its open windows, with the model's canonical name: one row per request.
with windows as (

    select
        min(start_at) as start_at,
        max(end_at) as end_at
    from {{ source('raw', 'run_windows') }}
    where {{ overlaps_run('start_at', 'end_at') }}

),

requests as (

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
        coalesce(model_aliases.model, {{ name_of_source('requests.model') }}) as model,
        {{ name_of_source('requests.engine') }} as engine,
        requests.input_tokens,
        requests.cached_input_tokens,
        requests.output_tokens,
        requests.stated_concurrency
    from requests
    inner join windows on requests.started_at >= windows.start_at and requests.started_at < windows.end_at
    left join model_aliases on requests.model = model_aliases.alias

)

select * from final
