-- Other counts of the tokens that are booked: one row per date, engine and token class. An engine's booked counter is
-- compared with its next best one; a frontend or gateway that is not booked, with the sum of what its model's nearer
-- sources count.
with token_days as (

    select * from {{ ref('int_metered_token_days') }}

),

booked as (

    select * from token_days where preference = 1

),

-- An engine's counters against each other: all of its models together.
engine_days as (

    select
        date,
        engine,
        token_class,
        source,
        metric,
        preference,
        {{ exact_sum('metered_tokens') }} as metered_tokens
    from token_days
    where preference <= 2
    group by date, engine, token_class, source, metric, preference

),

runners_up as (

    select
        runners_up.date,
        runners_up.engine,
        runners_up.token_class,
        runners_up.source,
        runners_up.metric,
        runners_up.metered_tokens as cross_check_tokens,
        {{ exact_sum('booked.metered_tokens') }} as checked_tokens
    from engine_days as runners_up
    inner join engine_days as booked on {{ equal_keys('runners_up', 'booked', ['date', 'engine', 'token_class']) }}
    where runners_up.preference = 2 and booked.preference = 1
    group by
        runners_up.date, runners_up.engine, runners_up.token_class, runners_up.source, runners_up.metric, runners_up.metered_tokens

),

farther as (

    select *
    from token_days
    where preference is null
    qualify row_number() over (partition by date, engine, token_class order by metered_tokens desc, source, metric) = 1

),

onlookers as (

    select
        farther.date,
        farther.engine,
        farther.token_class,
        farther.source,
        farther.metric,
        farther.metered_tokens as cross_check_tokens,
        {{ exact_sum('booked.metered_tokens') }} as checked_tokens
    from farther
    inner join booked
        on {{ equal_keys('farther', 'booked', ['date', 'model', 'token_class']) }}
        and (farther.level = 'gateway' or coalesce(farther.namespace = booked.namespace, true))
    group by farther.date, farther.engine, farther.token_class, farther.source, farther.metric, farther.metered_tokens

),

final as (

    select
        *,
        {{ ratio('cross_check_tokens - checked_tokens', 'checked_tokens') }} as cross_check_ratio
    from (select * from runners_up union all select * from onlookers) as checks

)

select * from final
