-- The balance of tokens: what each engine's raw says it moved against what the token book holds. The metered side reads raw and the catalogues
-- alone, without grid or readings, in another way than the book.
with booked_engines as (

    select
        date,
        engine,
        token_class,
        {{ exact_sum('tokens') }} as booked_tokens
    from {{ ref('token_ledger') }}
    where {{ in_run('date') }}
    group by date, engine, token_class

),

metered as (

    select * from {{ ref('int_metered_token_days') }}

),

final as (

    select
        coalesce(metered.date, booked_engines.date) as date,
        coalesce(metered.engine, booked_engines.engine) as engine,
        coalesce(metered.token_class, booked_engines.token_class) as token_class,
        metered.source,
        metered.metric,
        cast(metered.metered_tokens as {{ exact_type() }}) as metered_tokens,
        cast(booked_engines.booked_tokens as {{ exact_type() }}) as booked_tokens,
        cast(
            coalesce(booked_engines.booked_tokens, {{ exact('0') }}) - coalesce(metered.metered_tokens, {{ exact('0') }}) as {{ exact_type() }}
        ) as difference_tokens,
        cast(coalesce(metered.rejected_samples, 0) as bigint) as rejected_samples
    from metered
    full outer join booked_engines
        on metered.date = booked_engines.date
        and metered.engine = booked_engines.engine
        and metered.token_class = booked_engines.token_class

)

select * from final
