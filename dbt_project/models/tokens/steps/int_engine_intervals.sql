-- What each engine did in each interval: one row per date, engine and interval with telemetry. `active_us` is the time
-- in which tokens moved or requests ran, at the samples' own resolution. `unknown_us` is the time of gaps in which the
-- engine may have worked: longer than three times the series' own sampling interval, and its counter moved or its
-- process started in them. A gap over which the counter did not move was idle. A silence in which the process
-- restarted, and the time in which it loads, do not show what the engine did: an interval of such time alone has no
-- row. `seen_from_us` and `seen_to_us` bound what the engine's series show of the interval.
with engine_steps as (

    select * from {{ ref('int_engine_steps') }}

),

token_intervals as (

    select * from {{ ref('int_token_intervals') }}

),

handed_over as (

    select * from {{ ref('int_handed_over_tokens') }}

),

-- Where an engine's series were sampled at different moments or one of them is silent, steps overlap: they are cut at
-- each other's edges.
overlapping as (

    select
        engine,
        interval_number
    from engine_steps
    group by engine, interval_number
    having sum(to_us - from_us) > max(to_us) - min(from_us)

),

overlapping_steps as (

    select engine_steps.*
    from engine_steps
    inner join overlapping
        on engine_steps.engine = overlapping.engine and engine_steps.interval_number = overlapping.interval_number

),

edges as (

    select engine, interval_number, from_us as edge_us from overlapping_steps
    union
    select engine, interval_number, to_us as edge_us from overlapping_steps

),

segments as (

    select
        engine,
        interval_number,
        edge_us as from_us,
        lead(edge_us) over (partition by engine, interval_number order by edge_us) as to_us
    from edges

),

apart as (

    select
        engine_steps.*
    from engine_steps
    left join overlapping
        on engine_steps.engine = overlapping.engine and engine_steps.interval_number = overlapping.interval_number
    where overlapping.engine is null
    union all
    select
        segments.engine,
        segments.interval_number,
        segments.from_us,
        segments.to_us,
        max(overlapping_steps.cap_us) as cap_us,
        max(overlapping_steps.is_active) as is_active,
        max(overlapping_steps.is_asleep) as is_asleep,
        max(overlapping_steps.is_sampled) as is_sampled,
        max(overlapping_steps.is_still) as is_still,
        max(overlapping_steps.is_bridged) as is_bridged,
        max(overlapping_steps.is_lost) as is_lost
    from segments
    inner join overlapping_steps
        on segments.engine = overlapping_steps.engine
        and segments.interval_number = overlapping_steps.interval_number
        and segments.from_us >= overlapping_steps.from_us
        and segments.to_us <= overlapping_steps.to_us
    group by segments.engine, segments.interval_number, segments.from_us, segments.to_us

),

-- A segment in which any series was sampled is known. Where all were silent it is unknown, if a counter moved over the
-- silence (`bridged`) or the process started or loaded in it (`lost`), and known if no counter moved.
assessed as (

    select
        *,
        case
            when is_sampled = 1 then 'known'
            when is_lost = 1 then 'lost'
            when is_bridged = 1 then 'bridged'
            when is_still = 1 then 'known'
        end as knowledge
    from apart

),

engine_activity as (

    select
        engine,
        interval_number,
        sum(is_active * (to_us - from_us)) as active_us,
        sum(is_asleep * (to_us - from_us)) as asleep_us,
        sum(case when knowledge = 'known' then to_us - from_us else 0 end) as known_us,
        sum(case when knowledge in ('bridged', 'lost') then to_us - from_us else 0 end) as unknown_us,
        sum(case when knowledge = 'lost' then to_us - from_us else 0 end) as lost_us,
        min(from_us) as seen_from_us,
        max(to_us) as seen_to_us,
        max(cap_us) as cap_us
    from assessed
    group by engine, interval_number

),

-- What another engine is booked with is no work of this one.
own_tokens as (

    select
        token_intervals.engine,
        token_intervals.interval_number,
        token_intervals.token_class,
        token_intervals.covered_us,
        token_intervals.tokens - coalesce(handed_over.handed_tokens, 0) as tokens
    from token_intervals
    left join handed_over
        on {{ equal_keys('token_intervals', 'handed_over', ['date', 'engine', 'model', 'interval_number', 'token_class']) }}

),

engine_tokens as (

    select
        engine,
        interval_number,
        max(covered_us) as covered_us,
        -- Some engines count all input, some only what they computed of it.
        {{ exact_sum("case when token_class = 'output' then tokens else 0 end") }}
        + greatest(
            {{ exact_sum("case when token_class = 'input' then tokens else 0 end") }},
            {{ exact_sum("case when token_class = 'computed_input' then tokens else 0 end") }}
        ) as moved_tokens
    from own_tokens
    group by engine, interval_number

),

-- Requests may be reported where tokens are not.
engine_reports as (

    select
        coalesce(engine_tokens.engine, engine_activity.engine) as engine,
        coalesce(engine_tokens.interval_number, engine_activity.interval_number) as interval_number,
        engine_tokens.engine is not null as has_tokens,
        engine_tokens.moved_tokens,
        least(greatest(coalesce(engine_tokens.covered_us, 0), coalesce(engine_activity.known_us, 0)), {{ grid_us() }}) as covered_us,
        coalesce(engine_activity.active_us, 0) as active_us,
        coalesce(engine_activity.asleep_us, 0) as asleep_us,
        coalesce(engine_activity.known_us, 0) as known_us,
        coalesce(engine_activity.unknown_us, 0) as unknown_us,
        coalesce(engine_activity.lost_us, 0) as lost_us,
        engine_activity.seen_from_us,
        engine_activity.seen_to_us,
        engine_activity.cap_us
    from engine_tokens
    full outer join engine_activity
        on engine_tokens.engine = engine_activity.engine and engine_tokens.interval_number = engine_activity.interval_number

),

final as (

    select
        {{ date_of_us('interval_number * ' ~ grid_us()) }} as date,
        engine,
        interval_number,
        covered_us,
        moved_tokens,
        least(active_us, {{ grid_us() }}) as active_us,
        unknown_us,
        -- After a restart in a silence, the tokens that the counter shows are real, but when they were written is
        -- unknown.
        active_us > 0 or (coalesce(moved_tokens, 0) > 0 and lost_us = 0) as is_active,
        -- Asleep only if asleep all the time that was seen.
        asleep_us > 0 and asleep_us >= 0.99 * covered_us as is_asleep,
        has_tokens and lost_us = 0 as is_countable,
        coalesce(seen_from_us, interval_number * {{ grid_us() }}) as seen_from_us,
        coalesce(seen_to_us, (interval_number + 1) * {{ grid_us() }}) as seen_to_us,
        coalesce(cap_us, {{ gap_cap_us(var('grid_seconds')) }}) as cap_us
    from engine_reports
    where {{ date_of_us('interval_number * ' ~ grid_us()) }} >= date '{{ start_date() }}'
        and {{ date_of_us('interval_number * ' ~ grid_us()) }} < date '{{ end_date() }}'
        and (known_us > 0 or (has_tokens and lost_us = 0))

)

select * from final
