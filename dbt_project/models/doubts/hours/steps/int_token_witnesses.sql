-- Who counts a model's output tokens besides its engines and has more of them: a gateway, a frontend, a log of requests.
-- One that has fewer sees a part of the requests; gateways in line have the same ones, so they are not added up. One row
-- per date and booked engine of such a model.
with token_days as (

    select * from {{ ref('int_metered_token_days') }} where token_class = 'output' and model is not null

),

-- What the gateway answered itself no engine has counted.
requests as (

    select
        cast(raw_requests.started_at as date) as date,
        coalesce(model_aliases.model, {{ name_of_source('raw_requests.model') }}) as model,
        raw_requests.source,
        raw_requests.output_tokens
    from {{ source('raw', 'requests') }} as raw_requests
    left join {{ source('fleet', 'model_aliases') }} as model_aliases on raw_requests.model = model_aliases.alias
    where raw_requests.started_at >= {{ run_start_at() }}
        and raw_requests.started_at < {{ run_end_at() }}
        and not coalesce(raw_requests.is_gateway_cached, false)

),

booked as (

    select distinct
        date,
        model,
        engine
    from token_days
    where preference = 1

),

booked_models as (

    select
        date,
        model,
        {{ exact_sum('metered_tokens') }} as tokens
    from token_days
    where preference = 1
    group by date, model

),

counts as (

    select
        date,
        model,
        engine as witness,
        {{ exact_sum('metered_tokens') }} as tokens
    from token_days
    where preference is null
    group by date, model, engine, metric
    union all
    select
        date,
        model,
        source as witness,
        {{ exact_sum('output_tokens') }} as tokens
    from requests
    group by date, model, source

),

witnesses as (

    select * from counts
    qualify row_number() over (partition by date, model order by tokens desc nulls last, witness) = 1

),

final as (

    select
        witnesses.date,
        witnesses.model,
        booked.engine,
        witnesses.witness,
        witnesses.tokens as witness_tokens,
        booked_models.tokens as booked_tokens
    from witnesses
    inner join booked_models on {{ equal_keys('witnesses', 'booked_models', ['date', 'model']) }}
    inner join booked on {{ equal_keys('witnesses', 'booked', ['date', 'model']) }}
    where witnesses.tokens > booked_models.tokens

)

select * from final
