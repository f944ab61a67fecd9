-- The balance of tokens: what each engine moved according to raw, compared with the token book. The metered side reads
-- raw and the catalogues alone, without grid or readings, in another way than the book.
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

    select
        date,
        engine,
        token_class,
        {{ joined_in_order('source') }} as source,
        {{ joined_in_order('metric') }} as metric,
        {{ exact_sum('metered_tokens') }} as metered_tokens
    from {{ ref('int_metered_token_days') }}
    where preference = 1
    group by date, engine, token_class

),

cross_checks as (

    select * from {{ ref('int_token_cross_checks') }}

),

-- All counters of the class, also those of an engine whose samples were all rejected.
refused as (

    select
        cast(chunks.chunk_start_at as date) as date,
        coalesce(copies.engine, series.engine) as engine,
        series.token_class,
        sum(chunks.rejects + chunks.duplicates) as rejected_samples,
        sum(chunks.out_of_order) as out_of_order_samples
    from {{ source('raw', 'series_chunks') }} as chunks
    inner join {{ ref('stg_series') }} as series on chunks.series_id = series.series_id
    left join {{ ref('int_scrape_copies') }} as copies
        on chunks.series_id = copies.series_id and cast(chunks.chunk_start_at as date) = copies.date
    where chunks.chunk_start_at >= {{ run_start_at() }}
        and chunks.chunk_start_at < {{ run_end_at() }}
        and series.stream = 'tokens'
        and series.quantity = 'tokens'
        and series.token_class <> 'transferred_input'
        and chunks.rejects + chunks.duplicates + chunks.out_of_order > 0
    group by 1, 2, 3

),

-- Rises that no engine can count.
refused_steps as (

    select
        steps.date,
        coalesce(copies.engine, series.engine) as engine,
        series.token_class,
        count(*) as refused_samples
    from {{ ref('int_refused_token_steps') }} as steps
    inner join {{ ref('stg_series') }} as series on steps.series_id = series.series_id
    left join {{ ref('int_scrape_copies') }} as copies on steps.series_id = copies.series_id and steps.date = copies.date
    where series.quantity = 'tokens' and series.token_class <> 'transferred_input'
    group by 1, 2, 3

),

final as (

    select
        date,
        engine,
        token_class,
        metered.source,
        metered.metric,
        cast(metered.metered_tokens as {{ exact_type() }}) as metered_tokens,
        cast(booked_engines.booked_tokens as {{ exact_type() }}) as booked_tokens,
        cast(
            coalesce(booked_engines.booked_tokens, {{ exact('0') }})
                - coalesce(metered.metered_tokens, {{ exact('0') }}) as {{ exact_type() }}
        ) as difference_tokens,
        cast(coalesce(refused.rejected_samples, 0) + coalesce(refused_steps.refused_samples, 0) as bigint) as rejected_samples,
        cast(coalesce(refused.out_of_order_samples, 0) as bigint) as out_of_order_samples,
        cross_checks.source as cross_check_source,
        cross_checks.metric as cross_check_metric,
        cast(cross_checks.cross_check_tokens as {{ exact_type() }}) as cross_check_tokens,
        cross_checks.cross_check_ratio
    from metered
    full outer join booked_engines using (date, engine, token_class)
    full outer join refused using (date, engine, token_class)
    full outer join refused_steps using (date, engine, token_class)
    full outer join cross_checks using (date, engine, token_class)

)

select * from final
