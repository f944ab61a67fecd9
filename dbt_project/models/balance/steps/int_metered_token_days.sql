-- What each engine moved on each date according to raw, per token class: the other side of the token book's balance.
-- Reads raw and the catalogues, none of the book's steps (int_metered_token_parts counts) but which source counts when
-- (int_token_choices). One row per date, engine, model, token class and metric that a source
-- counts; `preference` 1 ought to be booked, the others check it, and those farther from the engines have none.
with series as (

    select * from {{ ref('int_label_identities') }} where stream = 'tokens' and is_counted

),

copies as (

    select * from {{ ref('int_scrape_copies') }}

),

gateways_in_line as (

    select * from {{ ref('int_gateways_in_line') }}

),

dates as (

    select * from {{ ref('stg_run_dates') }}

),

parts as (

    select * from {{ ref('int_metered_token_parts') }}

),

choices as (

    select * from {{ ref('int_token_choices') }}

),

changing_engines as (

    select distinct date, engine from choices where from_us is not null or to_us is not null

),

chosen as (

    select
        date,
        engine,
        token_class,
        source,
        metric,
        max(case when to_us is null then 1 else 0 end) = 1 as is_last
    from choices
    group by date, engine, token_class, source, metric

),

handed_over as (

    select
        date,
        engine,
        model,
        token_class,
        {{ exact_sum('handed_tokens') }} as handed_tokens,
        max(case when is_whole then 1 else 0 end) = 1 as is_whole
    from {{ ref('int_handed_over_tokens') }}
    group by date, engine, model, token_class

),

days as (

    select
        chunks.series_id,
        cast(chunks.chunk_start_at as date) as date,
        min({{ epoch_us('chunks.first_at') }}) as first_us,
        max({{ epoch_us('chunks.last_at') }}) as last_us
    from {{ ref('stg_series_chunks') }} as chunks
    inner join (select distinct series_id from series where quantity = 'tokens') as counters on chunks.series_id = counters.series_id
    where chunks.samples > 0
    group by chunks.series_id, cast(chunks.chunk_start_at as date)

),

-- The order of sources and metrics: the lowest rank among those that cover at least half of what the best one covers.
known_spans as (

    select
        series_id,
        last_us,
        coalesce(lag(last_us) over (partition by series_id order by date), first_us) as since_us
    from days

),

known_times as (

    select
        coalesce(copies.engine, series.engine) as engine,
        series.level,
        coalesce(copies.model, series.model) as model,
        coalesce(copies.namespace, series.namespace) as namespace,
        series.token_class,
        series.source,
        series.metric,
        series.rank,
        dates.date,
        min(greatest(known_spans.since_us, dates.start_us)) as known_from_us,
        max(least(known_spans.last_us, dates.end_us)) as known_to_us
    from known_spans
    inner join dates on known_spans.since_us < dates.end_us and known_spans.last_us >= dates.start_us
    inner join series on known_spans.series_id = series.series_id
    left join copies on dates.date = copies.date and known_spans.series_id = copies.series_id
    where series.quantity = 'tokens'
    group by all

),

-- Only the source nearest to the model's own engines counts: engines before the frontends of their namespace, both
-- before gateways, one gateway of those in line.
nearer as (

    select
        farther.date,
        farther.engine
    from known_times as farther
    inner join known_times as near
        on farther.date = near.date
        and farther.model = near.model
        and (
            (near.level = 'engine' and farther.level = 'gateway')
            or (near.level = 'engine' and farther.level = 'frontend' and coalesce(near.namespace = farther.namespace, true))
            or (near.level = 'frontend' and farther.level = 'gateway')
        )
    union
    select date, engine from gateways_in_line

),

-- A metric of an engine is known as long as any of its models was served.
metric_times as (

    select
        known_times.date,
        known_times.engine,
        known_times.token_class,
        known_times.source,
        known_times.metric,
        known_times.rank,
        max(case when nearer.engine is not null then 1 else 0 end) = 1 as is_farther,
        min(known_times.known_from_us) as known_from_us,
        max(known_times.known_to_us) as known_to_us,
        max(known_times.known_to_us) - min(known_times.known_from_us) as known_us
    from known_times
    left join nearer on known_times.date = nearer.date and known_times.engine = nearer.engine
    group by all

),

ranked as (

    select
        *,
        row_number() over (
            partition by date, engine, token_class
            order by case when known_us >= 0.5 * most_known_us then 0 else 1 end, rank, known_us desc, source, metric
        ) as place
    from (
        select
            *,
            max(known_us) over class_window as most_known_us,
            max(known_to_us) over class_window - min(known_from_us) over class_window as class_known_us
        from metric_times
        window class_window as (partition by date, engine, token_class)
    ) as compared

),

-- Where sources take turns, all that do are booked; only one that knows all of the date checks what is booked.
roles as (

    select
        ranked.*,
        coalesce(chosen.is_last, true) as is_last,
        case
            when chosen.engine is not null then 'booked'
            when ranked.known_us < 0.95 * ranked.class_known_us
                and (changing_engines.engine is not null or chosen_classes.engine is not null) then 'part'
            when changing_engines.engine is not null or chosen_classes.engine is not null then 'check'
            else 'alone'
        end as role
    from ranked
    left join changing_engines on ranked.date = changing_engines.date and ranked.engine = changing_engines.engine
    left join chosen on {{ equal_keys('ranked', 'chosen', ['date', 'engine', 'token_class', 'source', 'metric']) }}
    left join (select distinct date, engine, token_class from chosen) as chosen_classes
        on {{ equal_keys('ranked', 'chosen_classes', ['date', 'engine', 'token_class']) }}

),

preferred as (

    select
        *,
        case
            when is_farther then null
            when role = 'alone' then place
            when role = 'booked' then 1
            when role = 'check' then 1 + row_number() over (partition by date, engine, token_class, role order by place)
            else 2 + place
        end as preference
    from roles

),

copy_readings as (

    select distinct
        copies.date,
        copies.reading_id,
        copies.engine,
        copies.model,
        copies.namespace,
        series.token_class,
        series.source,
        series.metric
    from copies
    inner join series on copies.series_id = series.series_id
    where series.quantity = 'tokens'

),

named_parts as (

    select
        parts.date,
        series.engine,
        series.model,
        series.namespace,
        series.token_class,
        series.source,
        series.metric,
        parts.from_us,
        parts.to_us,
        parts.tokens
    from parts
    inner join series on parts.series_id = series.series_id
    where series.quantity = 'tokens'
    union all
    select
        parts.date,
        copy_readings.engine,
        copy_readings.model,
        copy_readings.namespace,
        copy_readings.token_class,
        copy_readings.source,
        copy_readings.metric,
        parts.from_us,
        parts.to_us,
        parts.tokens
    from parts
    inner join copy_readings on parts.date = copy_readings.date and parts.reading_id = copy_readings.reading_id

),

-- Of a source that counts for a part of the date, what is in that part.
counted_parts as (

    select
        named_parts.*,
        case
            when choices.from_us is null and choices.to_us is null then named_parts.tokens
            when named_parts.to_us > named_parts.from_us
                then named_parts.tokens * greatest(
                    (least(named_parts.to_us, choices.to_us) - greatest(named_parts.from_us, choices.from_us))
                    / cast(named_parts.to_us - named_parts.from_us as double),
                    0
                )
            else 0
        end as counted_tokens
    from named_parts
    left join choices on {{ equal_keys('named_parts', 'choices', ['date', 'engine', 'token_class', 'source', 'metric']) }}

),

metered as (

    select
        date,
        engine,
        model,
        namespace,
        token_class,
        source,
        metric,
        sum({{ exact('counted_tokens') }}) as metered_tokens
    from counted_parts
    group by all

),

final as (

    select
        known_times.date,
        known_times.engine,
        known_times.level,
        known_times.model,
        known_times.namespace,
        known_times.token_class,
        known_times.source,
        known_times.metric,
        preferred.preference,
        metered.metered_tokens
        - case when preferred.is_last then coalesce(handed_over.handed_tokens, 0) else 0 end as metered_tokens
    from known_times
    inner join preferred on {{ equal_keys('known_times', 'preferred', ['date', 'engine', 'token_class', 'source', 'metric']) }}
    left join metered
        on known_times.date = metered.date
        and known_times.engine = metered.engine
        and known_times.model is not distinct from metered.model
        and known_times.namespace is not distinct from metered.namespace
        and {{ equal_keys('known_times', 'metered', ['token_class', 'source', 'metric']) }}
    left join handed_over on {{ equal_keys('known_times', 'handed_over', ['date', 'engine', 'model', 'token_class']) }}
    where known_times.token_class <> 'transferred_input' and not coalesce(handed_over.is_whole, false)

)

select * from final
