-- What each engine did in each interval: one row per date, engine and interval of which its telemetry says something. `active_us` is the time in
-- which tokens moved or requests ran, at the samples' own resolution. `unknown_us` is silence: a gap of more than three of a series' own intervals
-- over which its counter moved, or its process started. A gap over which a counter stood still was idle. A restart in a silence, and the time
-- in which a process loads, say nothing of what the engine did: an interval of nothing else has no row.
with series as (

    select * from {{ ref('stg_series') }}

),

series_days as (

    select * from {{ ref('stg_series_days') }}

),

glitches as (

    select * from {{ ref('int_token_glitches') }}

),

copies as (

    select * from {{ ref('int_scrape_copies') }}

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

{{ process_span_ctes() }},

-- Under its own name, and on a date with copies under theirs.
named_series as (

    select distinct series_id, engine from series
    union
    select distinct series_id, engine from copies

),

watched_series as (

    select
        series.series_id,
        series.engine,
        series.quantity,
        max(case when series.is_tokens_complete then 1 else 0 end) = 1 as is_complete,
        max({{ gauge_gap_factor() }} * 1e6 * coalesce(sources.interval_seconds, {{ var('grid_seconds') }})) as cap_us
    from series
    inner join named_series on series.series_id = named_series.series_id
    left join choices
        on named_series.engine = choices.engine
        and series.token_class = choices.token_class
        and series.source = choices.source
        and series.metric = choices.metric
    left join sources on series.source = sources.source
    where series.quantity in ('requests_running', 'awake')
        or (series.token_class in ('input', 'computed_input', 'output') and choices.engine is not null)
    group by series.series_id, series.engine, series.quantity

),

all_points as (

    select
        watched_series.series_id,
        watched_series.engine,
        watched_series.quantity,
        watched_series.is_complete,
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
        watched_series.is_complete,
        watched_series.cap_us,
        case when series_days.date < date '{{ start_date() }}' then series_days.last_us else series_days.first_us end as observed_us,
        case when series_days.date < date '{{ start_date() }}' then series_days.last_value else series_days.first_value end as value
    from series_days
    inner join watched_series on series_days.series_id = watched_series.series_id
    where not series_days.is_in_run

),

points as (

    select all_points.*
    from all_points
    left join glitches on all_points.series_id = glitches.series_id and all_points.observed_us = glitches.observed_us
    where glitches.series_id is null

),

steps as (

    select
        series_id,
        engine,
        quantity,
        is_complete,
        cap_us,
        lag(observed_us) over series_window as start_us,
        observed_us as end_us,
        lag(value) over series_window as previous_value,
        value
    from points
    window series_window as (partition by series_id order by observed_us)

),

sampled_steps as (

    select
        series_id,
        engine,
        start_us,
        end_us,
        'sampled' as kind,
        case quantity
            when 'tokens' then value <> previous_value
            when 'requests_running' then value > 0 or previous_value > 0
            else false
        end as is_active,
        case when quantity = 'awake' then value = 0 and previous_value = 0 else false end as is_asleep,
        quantity <> 'awake' as tells_activity
    from steps
    where end_us > start_us and end_us - start_us <= cap_us

),

-- Longer than three intervals as the source states them: still no gap where the series' own are as long.
long_steps as (

    select
        steps.series_id,
        steps.engine,
        steps.quantity,
        steps.start_us,
        steps.end_us,
        steps.previous_value,
        steps.value,
        steps.end_us - steps.start_us <= {{ gauge_gap_factor() }} * 1e6 * max(coalesce(series_days.typical_interval_seconds, 0)) as is_sampled
    from steps
    left join series_days
        on steps.series_id = series_days.series_id
        and {{ int_div('steps.end_us', day_us()) }} = {{ int_div('series_days.first_us', day_us()) }}
    where steps.end_us - steps.start_us > steps.cap_us and not steps.is_complete
    group by
        steps.series_id, steps.engine, steps.quantity, steps.start_us, steps.end_us, steps.previous_value, steps.value

),

restarted_gaps as (

    select distinct
        long_steps.series_id,
        long_steps.start_us
    from long_steps
    inner join process_spans
        on long_steps.engine = process_spans.engine
        and process_spans.start_us > long_steps.start_us
        and process_spans.start_us <= long_steps.end_us

),

gaps as (

    select
        long_steps.series_id,
        long_steps.engine,
        long_steps.start_us,
        long_steps.end_us,
        case
            when long_steps.is_sampled then 'sampled'
            when long_steps.value < long_steps.previous_value or restarted_gaps.series_id is not null then 'lost'
            when long_steps.value > long_steps.previous_value then 'bridged'
            else 'still'
        end as kind,
        long_steps.is_sampled and long_steps.value <> long_steps.previous_value as is_active
    from long_steps
    left join restarted_gaps on long_steps.series_id = restarted_gaps.series_id and long_steps.start_us = restarted_gaps.start_us
    where long_steps.quantity = 'tokens'

),

-- A series' first sample, and the start of its process before it.
births as (

    select
        steps.series_id,
        steps.engine,
        steps.cap_us,
        steps.end_us,
        max(process_spans.start_us) as process_start_us
    from steps
    inner join process_spans on steps.engine = process_spans.engine and process_spans.start_us < steps.end_us
    where steps.start_us is null and steps.quantity = 'tokens' and not steps.is_complete
    group by steps.series_id, steps.engine, steps.cap_us, steps.end_us

),

loading as (

    select
        series_id,
        engine,
        greatest(process_start_us, {{ int_div('end_us', day_us()) }} * {{ day_us() }}) as start_us,
        end_us
    from births
    where end_us - process_start_us > cap_us

),

told_steps as (

    select * from sampled_steps
    union all
    select series_id, engine, start_us, end_us, kind, is_active, false as is_asleep, true as tells_activity from gaps
    union all
    select series_id, engine, start_us, end_us, 'lost' as kind, false as is_active, false as is_asleep, true as tells_activity
    from loading
    where end_us > start_us

),

judged_steps as (

    select
        *,
        {{ int_div('start_us', grid_us()) }} as first_interval,
        {{ int_div('end_us - 1', grid_us()) }} as last_interval
    from told_steps
    where end_us > {{ run_start_us() }} and start_us < {{ run_end_us() }}

),

pieces as (

    select
        series_id,
        engine,
        first_interval as interval_number,
        start_us as from_us,
        end_us as to_us,
        kind,
        is_active,
        is_asleep,
        tells_activity
    from judged_steps
    where first_interval = last_interval
    union all
    select
        series_id,
        engine,
        interval_number,
        greatest(start_us, interval_number * {{ grid_us() }}) as from_us,
        least(end_us, (interval_number + 1) * {{ grid_us() }}) as to_us,
        kind,
        is_active,
        is_asleep,
        tells_activity
    from (
        select
            *,
            {{ integers_between(
                'greatest(first_interval, ' ~ int_div(run_start_us(), grid_us()) ~ ')',
                'least(last_interval, ' ~ int_div(run_end_us() ~ ' - 1', grid_us()) ~ ')'
            ) }} as interval_number
        from judged_steps
        where first_interval < last_interval
    ) as spread

),

-- Several series of one engine are scraped at the same moments: one step counts once.
engine_steps as (

    select
        coalesce(copies.engine, pieces.engine) as engine,
        pieces.interval_number,
        pieces.from_us,
        pieces.to_us,
        max(case when is_active then 1 else 0 end) as is_active,
        max(case when is_asleep then 1 else 0 end) as is_asleep,
        max(case when kind = 'sampled' and (tells_activity or is_asleep) then 1 else 0 end) as is_sampled,
        max(case when kind = 'still' then 1 else 0 end) as is_still,
        max(case when kind = 'bridged' then 1 else 0 end) as is_bridged,
        max(case when kind = 'lost' then 1 else 0 end) as is_lost
    from pieces
    left join copies
        on pieces.series_id = copies.series_id
        and {{ date_of_us('pieces.interval_number * ' ~ grid_us()) }} = copies.date
    group by coalesce(copies.engine, pieces.engine), pieces.interval_number, pieces.from_us, pieces.to_us

),

-- Where an engine's series were sampled at different moments or one of them is silent, steps overlap: they are cut at each other's edges.
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

-- What any series sampled is known; where all were silent, what one of them counted meanwhile makes the silence unknown.
judged as (

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
        sum(case when knowledge = 'lost' then to_us - from_us else 0 end) as lost_us
    from judged
    group by engine, interval_number

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
    from token_intervals
    group by engine, interval_number

),

-- Requests may be reported where tokens are not.
told as (

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
        coalesce(engine_activity.lost_us, 0) as lost_us
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
        -- Tokens that a restart in a silence left are real; when they were written is unknown.
        active_us > 0 or (coalesce(moved_tokens, 0) > 0 and lost_us = 0) as is_active,
        -- Asleep only if asleep all the time that was seen.
        asleep_us > 0 and asleep_us >= 0.99 * covered_us as is_asleep,
        has_tokens and lost_us = 0 as is_countable
    from told
    where {{ date_of_us('interval_number * ' ~ grid_us()) }} >= date '{{ start_date() }}'
        and {{ date_of_us('interval_number * ' ~ grid_us()) }} < date '{{ end_date() }}'
        and (known_us > 0 or (has_tokens and lost_us = 0))

)

select * from final
