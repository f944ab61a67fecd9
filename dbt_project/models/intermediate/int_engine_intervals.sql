-- What each engine did in each interval: one row per date, engine and interval with token telemetry. `active_us` is the time in which tokens
-- moved or requests ran, at the samples' own resolution.
with series as (

    select * from {{ ref('stg_series') }}

),

series_days as (

    select * from {{ ref('stg_series_days') }}

),

choices as (

    select * from {{ ref('int_token_choices') }}

),

token_intervals as (

    select * from {{ ref('int_token_intervals') }}

),

token_samples as (

    select
        series_id,
        {{ epoch_us('observed_at') }} as observed_us,
        value
    from {{ source('raw', 'token_samples') }}
    where observed_at >= {{ run_start_at() }}
        and observed_at < {{ run_end_at() }}
        and {{ is_valid_sample('value') }}

),

sources as (

    select * from {{ source('fleet', 'sources') }}

),

watched_series as (

    select
        series.series_id,
        series.engine,
        series.quantity,
        max({{ gauge_gap_factor() }} * 1e6 * coalesce(sources.interval_seconds, {{ var('grid_seconds') }})) as cap_us
    from series
    left join choices
        on series.engine = choices.engine
        and series.token_class = choices.token_class
        and series.source = choices.source
        and series.metric = choices.metric
    left join sources on series.source = sources.source
    where series.quantity in ('requests_running', 'awake')
        or (series.token_class in ('input', 'computed_input', 'output') and choices.engine is not null)
    group by series.series_id, series.engine, series.quantity

),

points as (

    select
        watched_series.series_id,
        watched_series.engine,
        watched_series.quantity,
        watched_series.cap_us,
        token_samples.observed_us,
        token_samples.value
    from token_samples
    inner join watched_series on token_samples.series_id = watched_series.series_id
    union all
    select
        watched_series.series_id,
        watched_series.engine,
        watched_series.quantity,
        watched_series.cap_us,
        case when series_days.date < date '{{ start_date() }}' then series_days.last_us else series_days.first_us end as observed_us,
        case when series_days.date < date '{{ start_date() }}' then series_days.last_value else series_days.first_value end as value
    from series_days
    inner join watched_series on series_days.series_id = watched_series.series_id
    where not series_days.is_in_run

),

steps as (

    select
        engine,
        quantity,
        cap_us,
        lag(observed_us) over series_window as start_us,
        observed_us as end_us,
        lag(value) over series_window as previous_value,
        value
    from points
    window series_window as (partition by series_id order by observed_us)

),

judged_steps as (

    select
        engine,
        start_us,
        end_us,
        case quantity
            when 'tokens' then value <> previous_value
            when 'requests_running' then value > 0 or previous_value > 0
            else false
        end as is_active,
        case when quantity = 'awake' then value = 0 and previous_value = 0 else false end as is_asleep,
        {{ int_div('start_us', grid_us()) }} as first_interval,
        {{ int_div('end_us - 1', grid_us()) }} as last_interval
    from steps
    where end_us > start_us and end_us - start_us <= cap_us

),

pieces as (

    select
        engine,
        first_interval as interval_number,
        start_us as from_us,
        end_us as to_us,
        is_active,
        is_asleep
    from judged_steps
    where first_interval = last_interval
    union all
    select
        engine,
        interval_number,
        greatest(start_us, interval_number * {{ grid_us() }}) as from_us,
        least(end_us, (interval_number + 1) * {{ grid_us() }}) as to_us,
        is_active,
        is_asleep
    from (
        select *, {{ integers_between('first_interval', 'last_interval') }} as interval_number
        from judged_steps
        where first_interval < last_interval
    ) as spread

),

-- Several series of one engine are scraped at the same moments: one step counts once.
engine_steps as (

    select
        engine,
        interval_number,
        from_us,
        to_us,
        max(case when is_active then 1 else 0 end) as is_active,
        max(case when is_asleep then 1 else 0 end) as is_asleep
    from pieces
    group by engine, interval_number, from_us, to_us

),

engine_activity as (

    select
        engine,
        interval_number,
        sum(is_active * (to_us - from_us)) as active_us,
        sum(is_asleep * (to_us - from_us)) as asleep_us
    from engine_steps
    group by engine, interval_number

),

engine_tokens as (

    select
        date,
        engine,
        interval_number,
        max(covered_us) as covered_us,
        -- Some engines count all input, some only what they computed of it.
        {{ exact_sum("case when token_class = 'output' then tokens else 0 end") }}
        + greatest(
            {{ exact_sum("case when token_class = 'input' then tokens else 0 end") }},
            {{ exact_sum("case when token_class = 'computed_input' then tokens else 0 end") }}
        ) as moved_tokens
    from token_intervals
    group by date, engine, interval_number

),

final as (

    select
        engine_tokens.date,
        engine_tokens.engine,
        engine_tokens.interval_number,
        engine_tokens.covered_us,
        engine_tokens.moved_tokens,
        least(coalesce(engine_activity.active_us, 0), {{ grid_us() }}) as active_us,
        engine_tokens.moved_tokens > 0 or coalesce(engine_activity.active_us, 0) > 0 as is_active,
        -- Asleep only if asleep all the time that was seen.
        coalesce(engine_activity.asleep_us, 0) > 0
        and engine_activity.asleep_us >= 0.99 * engine_tokens.covered_us as is_asleep
    from engine_tokens
    left join engine_activity
        on engine_tokens.engine = engine_activity.engine and engine_tokens.interval_number = engine_activity.interval_number

)

select * from final
