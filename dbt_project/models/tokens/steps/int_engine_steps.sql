-- What each engine's token series report of each moment: one row per engine, grid interval and step between two
-- samples, cut at the interval's edges. A gap is longer than three of a series' own intervals. Over it the counter was
-- `still`, was `bridged` (it moved, at an unknown time), or is `lost`: the process started in it, or had started and
-- was still loading. The time from the start of a process to a first sample soon after it is a step without any of
-- these: its tokens count from zero.
{# Only int_engine_intervals reads it: DuckDB need not store it, and Spark would otherwise plan these steps each time
   that they are used. #}
{{ config(materialized='view' if target.type == 'duckdb' else 'table') }}
{% set flags = ['is_active', 'is_asleep', 'is_sampled', 'is_still', 'is_bridged', 'is_lost'] %}

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

    select
        series_id,
        engine,
        {{ int_div(epoch_us('cast(date as ' ~ timestamp_type() ~ ')'), day_us()) }} as day_number
    from {{ ref('int_scrape_copies') }}

),

choices as (

    select * from {{ ref('int_token_choices') }}

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
        max({{ gap_cap_us('sources.interval_seconds', var('grid_seconds')) }}) as cap_us
    from series
    inner join named_series on series.series_id = named_series.series_id
    left join choices
        on named_series.engine = choices.engine
        and {{ equal_keys('series', 'choices', ['token_class', 'source', 'metric']) }}
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
        case
            when quantity = 'tokens' and value <> previous_value then 1
            when quantity = 'requests_running' and (value > 0 or previous_value > 0) then 1
            else 0
        end as is_active,
        case when quantity = 'awake' and value = 0 and previous_value = 0 then 1 else 0 end as is_asleep,
        -- An engine that is awake may work or not.
        case when quantity = 'awake' and (value > 0 or previous_value > 0) then 0 else 1 end as is_sampled,
        0 as is_still,
        0 as is_bridged,
        0 as is_lost,
        cap_us
    from steps
    where end_us > start_us and end_us - start_us <= cap_us

),

-- Longer than three of the source's stated intervals, but no gap where the series' own intervals are that long.
long_steps as (

    select
        steps.series_id,
        steps.engine,
        steps.quantity,
        steps.cap_us,
        steps.start_us,
        steps.end_us,
        steps.previous_value,
        steps.value,
        steps.end_us - steps.start_us <= {{ gap_cap_us('max(series_days.sampling_interval_seconds)') }} as is_sampled
    from steps
    left join series_days
        on steps.series_id = series_days.series_id
        and {{ int_div('steps.end_us', day_us()) }} = {{ int_div('series_days.first_us', day_us()) }}
    where steps.end_us - steps.start_us > steps.cap_us and not steps.is_complete
    group by
        steps.series_id, steps.engine, steps.quantity, steps.cap_us, steps.start_us, steps.end_us, steps.previous_value, steps.value

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
        long_steps.cap_us,
        long_steps.start_us,
        long_steps.end_us,
        case
            when long_steps.is_sampled then 'sampled'
            when long_steps.value < long_steps.previous_value or restarted_gaps.series_id is not null then 'lost'
            when long_steps.value > long_steps.previous_value then 'bridged'
            else 'still'
        end as kind,
        case when long_steps.is_sampled and long_steps.value <> long_steps.previous_value then 1 else 0 end as is_active
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

starting as (

    select
        series_id,
        engine,
        cap_us,
        greatest(process_start_us, {{ int_div('end_us', day_us()) }} * {{ day_us() }}) as start_us,
        end_us,
        case when end_us - process_start_us > cap_us then 1 else 0 end as is_lost
    from births

),

all_steps as (

    select * from sampled_steps
    union all
    select
        series_id,
        engine,
        start_us,
        end_us,
        is_active,
        0 as is_asleep,
        case when kind = 'sampled' then 1 else 0 end as is_sampled,
        case when kind = 'still' then 1 else 0 end as is_still,
        case when kind = 'bridged' then 1 else 0 end as is_bridged,
        case when kind = 'lost' then 1 else 0 end as is_lost,
        cap_us
    from gaps
    union all
    select
        series_id,
        engine,
        start_us,
        end_us,
        0 as is_active,
        0 as is_asleep,
        0 as is_sampled,
        0 as is_still,
        0 as is_bridged,
        is_lost,
        cap_us
    from starting
    where end_us > start_us

),

numbered_steps as (

    select
        *,
        {{ int_div('start_us', grid_us()) }} as first_interval,
        {{ int_div('end_us - 1', grid_us()) }} as last_interval
    from all_steps
    where end_us > {{ run_start_us() }} and start_us < {{ run_end_us() }}

),

pieces as (

    select
        series_id,
        engine,
        first_interval as interval_number,
        start_us as from_us,
        end_us as to_us,
        cap_us,
        {{ flags | join(', ') }}
    from numbered_steps
    where first_interval = last_interval
    union all
    select
        series_id,
        engine,
        interval_number,
        greatest(start_us, interval_number * {{ grid_us() }}) as from_us,
        least(end_us, (interval_number + 1) * {{ grid_us() }}) as to_us,
        cap_us,
        {{ flags | join(', ') }}
    from (
        select
            *,
            {{ integers_between(
                'greatest(first_interval, ' ~ int_div(run_start_us(), grid_us()) ~ ')',
                'least(last_interval, ' ~ int_div(run_end_us() ~ ' - 1', grid_us()) ~ ')'
            ) }} as interval_number
        from numbered_steps
        where first_interval < last_interval
    ) as spread

),

-- Several series of one engine are scraped at the same moments: one step counts once.
final as (

    select
        coalesce(copies.engine, pieces.engine) as engine,
        pieces.interval_number,
        pieces.from_us,
        pieces.to_us,
        max(pieces.cap_us) as cap_us,
        {% for flag in flags -%}
        max(pieces.{{ flag }}) as {{ flag }}{{ ',' if not loop.last }}
        {% endfor %}
    from pieces
    left join copies
        on pieces.series_id = copies.series_id
        and {{ int_div('pieces.interval_number * ' ~ grid_us(), day_us()) }} = copies.day_number
    group by coalesce(copies.engine, pieces.engine), pieces.interval_number, pieces.from_us, pieces.to_us

)

select * from final
