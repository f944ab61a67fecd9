-- Gateways in line: what one passes on, another one counts again. Two gateways of a model count one stream where what
-- they have counted since midnight differs by a constant at every sample, within what moved between two scrapes of the
-- other; side by side, each has requests of its own, and the difference drifts. One counts a part of what another one has
-- where the difference never shrinks, and what moves faster in the part does so in the whole. What the counts do not show:
-- halves that are equal to the token at every scrape are taken for one stream; a part that is small beside the whole is
-- taken for another stream; and which of the two is nearer to the engines, so the longer count is kept, then the
-- better rank, then the first name. Book and balance read this choice. One row per date and gateway that is not added.
with series as (

    select distinct
        series_id,
        engine,
        model,
        level,
        token_class,
        source,
        metric,
        factor,
        rank
    from {{ ref('stg_series') }}
    where quantity = 'tokens' and model is not null

),

series_days as (

    select * from {{ ref('stg_series_days') }} where is_in_run

),

copies as (

    select * from {{ ref('int_scrape_copies') }}

),

births as (

    select * from {{ ref('int_counter_births') }}

),

counters as (

    select
        series_days.date,
        series_days.series_id,
        series.level,
        series.model,
        series.token_class,
        series.source,
        series.metric,
        series.factor,
        series.rank,
        coalesce(copies.engine, series.engine) as engine,
        coalesce(copies.reading_id, series_days.series_id) as reading_id
    from series_days
    inner join series on series_days.series_id = series.series_id
    left join copies on series_days.date = copies.date and series_days.series_id = copies.series_id

),

-- Of models that gateways alone count, and more than one. A window, because a join would be made after all samples are read.
gateway_counters as (

    select *
    from (
        select
            *,
            min(engine) over (partition by date, model) as first_engine,
            max(engine) over (partition by date, model) as last_engine,
            max(case when level = 'gateway' then 0 else 1 end) over (partition by date, model) as has_engines
        from counters
    ) as compared
    where first_engine < last_engine and has_engines = 0

),

readings as (

    select
        counters.date,
        counters.reading_id,
        counters.engine,
        counters.model,
        counters.token_class,
        counters.metric,
        counters.rank,
        {{ epoch_us('samples.observed_at') }} as observed_us,
        max(samples.value * counters.factor) as value,
        max(case when births.series_id is not null then 1 else 0 end) = 1 as is_born
    from {{ ref('stg_token_samples') }} as samples
    inner join gateway_counters as counters
        on samples.series_id = counters.series_id and cast(samples.observed_at as date) = counters.date
    left join births
        on counters.date = births.date
        and counters.series_id = births.series_id
        and {{ epoch_us('samples.observed_at') }} = births.first_us
    where samples.observed_at >= {{ run_start_at() }}
        and samples.observed_at < {{ run_end_at() }}
        and {{ is_valid_sample('samples.value') }}
    group by
        counters.date, counters.reading_id, counters.engine, counters.model, counters.token_class, counters.metric, counters.rank,
        samples.observed_at

),

steps as (

    select
        *,
        case
            when value >= before_value then value - before_value
            when before_value is not null or is_born then value
            else 0
        end as risen
    from (
        select *, lag(value) over (partition by date, reading_id, token_class, metric order by observed_us) as before_value
        from readings
    ) as neighboured

),

-- What each gateway has counted since midnight, at each of its samples.
counted as (

    select
        *,
        cast(sum(risen) over (partition by date, engine, model, token_class, metric order by observed_us) as double) as tokens
    from (
        select
            date,
            engine,
            model,
            token_class,
            metric,
            rank,
            observed_us,
            {{ exact_sum('risen') }} as risen
        from steps
        group by date, engine, model, token_class, metric, rank, observed_us
    ) as moments

),

streams as (

    select
        date,
        engine,
        model,
        token_class,
        metric,
        rank,
        max(tokens) as tokens
    from counted
    group by date, engine, model, token_class, metric, rank

),

pairs as (

    select
        one.date,
        one.model,
        one.token_class,
        one.engine,
        one.metric,
        other.engine as other_engine,
        other.metric as other_metric,
        greatest(one.tokens, other.tokens) as most_tokens,
        -- A scrape more at either end is no longer count.
        case
            when one.tokens > 1.01 * other.tokens then true
            when other.tokens > 1.01 * one.tokens then false
            else one.rank <= other.rank
        end as is_kept
    from streams as one
    inner join streams as other
        on {{ equal_keys('one', 'other', ['date', 'model', 'token_class']) }} and one.engine < other.engine

),

-- The samples of both, each with what the other had counted before and has after it.
beside as (

    select
        *,
        max(other_tokens) over (
            partition by date, model, token_class, engine, metric, other_engine, other_metric order by observed_us
        ) as other_before,
        min(other_tokens) over (
            partition by date, model, token_class, engine, metric, other_engine, other_metric order by observed_us desc
        ) as other_after
    from (
        select
            pairs.*,
            counted.observed_us,
            counted.tokens,
            cast(null as double) as other_tokens
        from pairs
        inner join counted on {{ equal_keys('pairs', 'counted', ['date', 'model', 'token_class', 'engine', 'metric']) }}
        union all
        select
            pairs.*,
            counted.observed_us,
            cast(null as double) as tokens,
            counted.tokens as other_tokens
        from pairs
        inner join counted
            on {{ equal_keys('pairs', 'counted', ['date', 'model', 'token_class']) }}
            and pairs.other_engine = counted.engine
            and pairs.other_metric = counted.metric
    ) as points

),

-- How far the smaller of two has come up on the larger one again since the difference was largest.
drifted as (

    select
        *,
        greatest(
            case when is_kept then 0 else max(other_before - tokens) over earlier - (other_after - tokens) end,
            case when is_kept then max(tokens - other_after) over earlier - (tokens - other_before) else 0 end
        ) as shrunk
    from beside
    where tokens is not null and other_before is not null and other_after is not null
    window earlier as (
        partition by date, model, token_class, engine, metric, other_engine, other_metric order by observed_us
    )

),

-- How much faster than in the five minutes before each of them moves.
bins as (

    select
        date,
        model,
        token_class,
        engine,
        metric,
        other_engine,
        other_metric,
        {{ int_div('observed_us', '300000000') }} as bin,
        max(tokens) as tokens,
        max(other_before) as other_tokens
    from drifted
    group by date, model, token_class, engine, metric, other_engine, other_metric, {{ int_div('observed_us', '300000000') }}

),

quickened as (

    select
        *,
        tokens - 2 * lag(tokens) over bin_window + lag(tokens, 2) over bin_window as quicker,
        other_tokens - 2 * lag(other_tokens) over bin_window + lag(other_tokens, 2) over bin_window as other_quicker
    from bins
    window bin_window as (partition by date, model, token_class, engine, metric, other_engine, other_metric order by bin)

),

correlated as (

    select
        date,
        model,
        token_class,
        engine,
        metric,
        other_engine,
        other_metric,
        -- A constant pace is no evidence.
        count(quicker) >= 36
        and max(abs(quicker)) > 0
        and max(abs(other_quicker)) > 0
        and coalesce(corr(quicker, other_quicker), 0) >= 0.4 as is_in_step
    from quickened
    group by date, model, token_class, engine, metric, other_engine, other_metric

),

-- Ten samples that differ, and a thousandth for what a retry or a broken stream makes different.
compared as (

    select
        drifted.date,
        drifted.model,
        drifted.token_class,
        drifted.engine,
        drifted.other_engine,
        drifted.is_kept,
        count(distinct drifted.tokens) >= 10
        and (
            max(drifted.other_before - drifted.tokens)
            <= min(drifted.other_after - drifted.tokens) + 0.001 * max(drifted.most_tokens)
            or (max(drifted.shrunk) <= 0.001 * max(drifted.most_tokens) and max(case when correlated.is_in_step then 1 else 0 end) = 1)
        ) as is_one_stream
    from drifted
    inner join correlated
        on {{ equal_keys('drifted', 'correlated', ['date', 'model', 'token_class', 'engine', 'metric', 'other_engine', 'other_metric']) }}
    group by
        drifted.date, drifted.model, drifted.token_class, drifted.engine, drifted.metric, drifted.other_engine,
        drifted.other_metric, drifted.is_kept

),

-- In each class of tokens that both count, by one spelling of it at least.
classes as (

    select
        date,
        model,
        token_class,
        engine,
        other_engine,
        max(case when is_kept then 1 else 0 end) as is_kept,
        max(case when is_one_stream then 1 else 0 end) as is_one_stream
    from compared
    group by date, model, token_class, engine, other_engine

),

lines as (

    select
        date,
        model,
        engine,
        other_engine,
        max_by(is_kept, token_class) = 1 as is_kept
    from classes
    group by date, model, engine, other_engine
    having min(is_one_stream) = 1

),

final as (

    select distinct
        date,
        case when is_kept then other_engine else engine end as engine
    from lines

)

select * from final
