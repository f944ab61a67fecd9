-- Tokens that an engine counts and another one is booked with: prompts that a prefill pool computed and handed to a
-- decoder, and the token that it writes of each answer. One row per date, engine, model, interval and class of an
-- engine with such a role. What came by transfer is handed over as far as the prefill pools of the site's model were
-- given prompts on that date; what a decoder computed or took from its cache stays its own.
with roles as (

    select * from {{ ref('int_engine_roles') }} where role in ('prefill', 'decode')

),

token_intervals as (

    select * from {{ ref('int_token_intervals') }}

),

pool_tokens as (

    select
        token_intervals.*,
        roles.role,
        roles.site
    from token_intervals
    inner join roles on token_intervals.date = roles.date and token_intervals.engine = roles.engine

),

prefilled as (

    select
        date,
        site,
        model,
        -- Some engines count all input, some only its parts.
        greatest(
            sum(case when token_class = 'input' then tokens else 0 end),
            sum(case when token_class in ('computed_input', 'cached_input') then tokens else 0 end)
        ) as tokens
    from pool_tokens
    where role = 'prefill'
    group by date, site, model

),

-- An engine that does not report what came by transfer was handed all that it did not compute.
received as (

    select
        date,
        site,
        engine,
        model,
        interval_number,
        coalesce(
            {{ exact_sum("case when token_class = 'transferred_input' then tokens end") }},
            greatest(
                {{ exact_sum("case when token_class = 'input' then tokens else 0 end") }}
                - {{ exact_sum("case when token_class = 'computed_input' then tokens else 0 end") }},
                {{ exact('0') }}
            )
        ) as tokens
    from pool_tokens
    where role = 'decode'
    group by date, site, engine, model, interval_number

),

handed_ratios as (

    select
        received.date,
        received.site,
        received.model,
        least({{ ratio('max(prefilled.tokens)', 'sum(received.tokens)') }}, 1) as handed_ratio
    from received
    inner join prefilled on {{ equal_keys('received', 'prefilled', ['date', 'site', 'model']) }}
    group by received.date, received.site, received.model

),

handed as (

    select
        received.date,
        received.engine,
        received.model,
        received.interval_number,
        case
            when handed_ratios.handed_ratio < 1 then {{ exact('received.tokens * handed_ratios.handed_ratio') }}
            when handed_ratios.handed_ratio = 1 then received.tokens
            else {{ exact('0') }}
        end as tokens
    from received
    left join handed_ratios on {{ equal_keys('received', 'handed_ratios', ['date', 'site', 'model']) }}

),

shared as (

    select
        pool_tokens.date,
        pool_tokens.engine,
        pool_tokens.model,
        pool_tokens.interval_number,
        pool_tokens.token_class,
        pool_tokens.tokens,
        case when pool_tokens.role = 'prefill' then pool_tokens.tokens else least(handed.tokens, pool_tokens.tokens) end as handed_tokens
    from pool_tokens
    left join handed
        on pool_tokens.role = 'decode' and {{ equal_keys('pool_tokens', 'handed', ['date', 'engine', 'model', 'interval_number']) }}
    where (pool_tokens.role = 'prefill' and pool_tokens.token_class = 'output')
        or (pool_tokens.role = 'decode' and pool_tokens.token_class in ('input', 'cached_input'))

),

final as (

    select
        date,
        engine,
        model,
        interval_number,
        token_class,
        cast(handed_tokens as {{ exact_type() }}) as handed_tokens,
        -- Nothing of the class is the engine's own on the date.
        sum(tokens - handed_tokens) over (partition by date, engine, token_class) = 0 as is_whole
    from shared

)

select * from final
