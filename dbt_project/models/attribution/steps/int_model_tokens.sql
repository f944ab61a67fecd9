-- What each model of an engine moved that serves several at once: one row per date, engine, model and interval with
-- tokens. Without tokens in an interval, models share it as they share the date: a LoRA that is seldom asked for is not
-- charged half of the waiting.
with claims as (

    select * from {{ ref('int_claims') }}

),

-- What another engine is booked with is no work of this one.
token_intervals as (

    select
        one.date,
        one.engine,
        one.model,
        one.interval_number,
        one.token_class,
        one.tokens - coalesce(handed_over.handed_tokens, 0) as tokens
    from {{ ref('int_token_intervals') }} as one
    left join {{ ref('int_handed_over_tokens') }} as handed_over
        on {{ equal_keys('one', 'handed_over', ['date', 'engine', 'model', 'interval_number', 'token_class']) }}

),

shared_engines as (

    select distinct
        date,
        engine
    from claims
    where models_of_engine > 1

),

moved as (

    select
        token_intervals.date,
        token_intervals.engine,
        token_intervals.model,
        token_intervals.interval_number,
        -- As in int_engine_intervals: some engines count all input, some only what they computed of it.
        {{ exact_sum("case when token_intervals.token_class = 'output' then token_intervals.tokens else 0 end") }}
        + greatest(
            {{ exact_sum("case when token_intervals.token_class = 'input' then token_intervals.tokens else 0 end") }},
            {{ exact_sum("case when token_intervals.token_class = 'computed_input' then token_intervals.tokens else 0 end") }}
        ) as moved_tokens
    from token_intervals
    inner join shared_engines on token_intervals.date = shared_engines.date and token_intervals.engine = shared_engines.engine
    group by token_intervals.date, token_intervals.engine, token_intervals.model, token_intervals.interval_number

),

final as (

    select
        *,
        sum(moved_tokens) over (partition by date, engine, model) as moved_tokens_of_date
    from moved

)

select * from final
