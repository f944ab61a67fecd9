-- Who counts a model's output tokens besides its engines and has others: a gateway, a frontend, a log of requests. One
-- that has fewer sees a part of the requests, unless it has the whole input: then one of the two counts wrong. Gateways in
-- line have the same requests, so they are not added up. One row per date and booked engine of such a model.
{% set same_input = 0.02 %}
{% set not_waited_for = 0.2 %}  {# of the output: answers that clients left are counted by engines alone #}

with token_days as (

    select * from {{ ref('int_metered_token_days') }} where token_class in ('input', 'output') and model is not null

),

-- What the gateway answered itself no engine has counted.
requests as (

    select
        cast(raw_requests.started_at as date) as date,
        coalesce(model_aliases.model, {{ name_of_source('raw_requests.model') }}) as model,
        raw_requests.source,
        raw_requests.input_tokens,
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
    where preference = 1 and token_class = 'output'

),

booked_models as (

    select
        date,
        model,
        {{ exact_sum("case when token_class = 'input' then metered_tokens end") }} as input_tokens,
        {{ exact_sum("case when token_class = 'output' then metered_tokens end") }} as output_tokens
    from token_days
    where preference = 1
    group by date, model

),

counts as (

    select
        date,
        model,
        engine as witness,
        {{ exact_sum("case when token_class = 'input' then metered_tokens end") }} as input_tokens,
        {{ exact_sum("case when token_class = 'output' then metered_tokens end") }} as output_tokens
    from token_days
    where preference is null
    group by date, model, engine, metric
    union all
    select
        date,
        model,
        source as witness,
        {{ exact_sum('input_tokens') }} as input_tokens,
        {{ exact_sum('output_tokens') }} as output_tokens
    from requests
    group by date, model, source

),

witness_days as (

    select
        date,
        model,
        witness,
        max(input_tokens) as input_tokens,
        max(output_tokens) as output_tokens
    from counts
    group by date, model, witness

),

witnesses as (

    select * from witness_days
    qualify row_number() over (partition by date, model order by output_tokens desc nulls last, witness) = 1

),

final as (

    select
        witnesses.date,
        witnesses.model,
        booked.engine,
        witnesses.witness,
        witnesses.output_tokens as witness_tokens,
        booked_models.output_tokens as booked_tokens
    from witnesses
    inner join booked_models on {{ equal_keys('witnesses', 'booked_models', ['date', 'model']) }}
    inner join booked on {{ equal_keys('witnesses', 'booked', ['date', 'model']) }}
    where witnesses.output_tokens > booked_models.output_tokens
        or (
            abs(witnesses.input_tokens - booked_models.input_tokens) <= {{ same_input }} * booked_models.input_tokens
            and witnesses.output_tokens < (1 - {{ not_waited_for }}) * booked_models.output_tokens
        )

)

select * from final
