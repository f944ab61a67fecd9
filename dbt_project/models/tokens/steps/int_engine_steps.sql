-- What each engine's token series report of each moment: one row per engine, grid interval and step between two
-- samples, cut at the interval's edges. A gap is longer than three of a series' own intervals. Over it the counter was
-- `still`, was `bridged` (it moved, at an unknown time), or is `lost`: the process started in it, or had started and
-- was still loading. The time from the start of a process to a first sample soon after it is a step without any of
-- these: its tokens count from zero.
{# Only int_engine_intervals reads it: DuckDB need not store it, and Spark would otherwise plan these steps each time
   that they are used. #}
{{ config(materialized='view' if target.type == 'duckdb' else 'table') }}
{% set flags = ['is_active', 'is_asleep', 'is_sampled', 'is_still', 'is_bridged', 'is_lost'] %}
{# A step's flags are bits of one number: of the millions of steps that are grouped one aggregate is kept instead of six. #}
{% set bits = {
    'is_active': 1, 'is_asleep': 2, 'is_sampled': 4, 'is_still': 8, 'is_bridged': 16, 'is_lost': 32, 'has_risen': 64, 'has_fallen': 128
} %}

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
    from {{ ref('stg_token_samples') }}
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

copied_series as (

    select distinct series_id from copies

),

-- Whose steps are grouped: an engine's, but each copied series' for itself, as its engine depends on the date. The number
-- is a short key while millions of steps are grouped.
step_groups as (

    select
        engine,
        copied_series_id,
        row_number() over (order by engine, copied_series_id) as group_number
    from (
        select distinct series.engine, copied_series.series_id as copied_series_id
        from series
        left join copied_series on series.series_id = copied_series.series_id
    ) as named

),

watched_series as (

    select
        series.series_id,
        step_groups.group_number,
        series.quantity = 'tokens' as is_counter,
        series.quantity = 'requests_running' as is_running,
        series.quantity = 'awake' as is_awake,
        max(case when series.is_tokens_complete then 1 else 0 end) = 1 as is_complete,
        max({{ gap_cap_us('sources.interval_seconds', var('grid_seconds')) }}) as cap_us
    from series
    inner join named_series on series.series_id = named_series.series_id
    left join copied_series on series.series_id = copied_series.series_id
    left join step_groups
        on series.engine is not distinct from step_groups.engine
        and copied_series.series_id is not distinct from step_groups.copied_series_id
    left join choices
        on named_series.engine = choices.engine
        and {{ equal_keys('series', 'choices', ['token_class', 'source', 'metric']) }}
    left join sources on series.source = sources.source
    where series.quantity in ('requests_running', 'awake')
        or (series.token_class in ('input', 'computed_input', 'output') and choices.engine is not null)
    group by series.series_id, step_groups.group_number, series.quantity

),

all_points as (

    select
        series_id,
        observed_us,
        value
    from token_samples
    where series_id in (select series_id from watched_series)
    union all
    select
        series_id,
        case when date < date '{{ start_date() }}' then last_us else first_us end as observed_us,
        case when date < date '{{ start_date() }}' then last_value else first_value end as value
    from series_days
    where not is_in_run and series_id in (select series_id from watched_series)

),

points as (

    select all_points.*
    from all_points
    left join glitches on all_points.series_id = glitches.series_id and all_points.observed_us = glitches.observed_us
    where glitches.series_id is null

),

neighboured_points as (

    select
        series_id,
        lag(observed_us) over series_window as start_us,
        observed_us as end_us,
        lag(value) over series_window as previous_value,
        value
    from points
    window series_window as (partition by series_id order by observed_us)

),

steps as (

    select
        neighboured_points.*,
        watched_series.group_number,
        watched_series.is_counter,
        watched_series.is_running,
        watched_series.is_awake,
        watched_series.is_complete,
        watched_series.cap_us
    from neighboured_points
    inner join watched_series on neighboured_points.series_id = watched_series.series_id

),

-- Of a step that may be a gap, and of a counter's first sample, the series is kept.
flagged_steps as (

    select
        group_number,
        case when start_us is null or end_us - start_us > cap_us then series_id end as silent_series_id,
        start_us,
        end_us,
        cap_us,
        case
            when is_counter and value <> previous_value then {{ bits.is_active }}
            when is_running and (value > 0 or previous_value > 0) then {{ bits.is_active }}
            else 0
        end
        + case when is_awake and value = 0 and previous_value = 0 then {{ bits.is_asleep }} else 0 end
        -- An engine that is awake may work or not.
        + case when is_awake and (value > 0 or previous_value > 0) then 0 else {{ bits.is_sampled }} end
        + case when value > previous_value then {{ bits.has_risen }} else 0 end
        + case when value < previous_value then {{ bits.has_fallen }} else 0 end as flags
    from steps
    where (end_us > start_us and end_us - start_us <= cap_us)
        or ((start_us is null or end_us - start_us > cap_us) and is_counter and not is_complete)

),

-- Several series of one engine are scraped at the same moments: one step counts once.
grouped_steps as (

    select
        group_number,
        silent_series_id,
        start_us,
        end_us,
        max(cap_us) as cap_us,
        bit_or(flags) as flags
    from flagged_steps
    group by group_number, silent_series_id, start_us, end_us

),

-- Longer than three of the source's stated intervals, but no gap where the series' own intervals are that long.
long_steps as (

    select
        steps.group_number,
        step_groups.engine,
        steps.silent_series_id as series_id,
        steps.cap_us,
        steps.start_us,
        steps.end_us,
        (steps.flags & {{ bits.has_risen }}) > 0 as has_risen,
        (steps.flags & {{ bits.has_fallen }}) > 0 as has_fallen,
        steps.end_us - steps.start_us <= {{ gap_cap_us('max(series_days.sampling_interval_seconds)') }} as is_sampled
    from grouped_steps as steps
    inner join step_groups on steps.group_number = step_groups.group_number
    left join series_days
        on steps.silent_series_id = series_days.series_id
        and {{ int_div('steps.end_us', day_us()) }} = {{ int_div('series_days.first_us', day_us()) }}
    where steps.silent_series_id is not null and steps.start_us is not null
    group by
        steps.group_number, step_groups.engine, steps.silent_series_id, steps.cap_us, steps.start_us, steps.end_us, steps.flags

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
        long_steps.group_number,
        long_steps.start_us,
        long_steps.end_us,
        long_steps.cap_us,
        case
            when long_steps.is_sampled
                then {{ bits.is_sampled }}
                    + case when long_steps.has_risen or long_steps.has_fallen then {{ bits.is_active }} else 0 end
            when long_steps.has_fallen or restarted_gaps.series_id is not null then {{ bits.is_lost }}
            when long_steps.has_risen then {{ bits.is_bridged }}
            else {{ bits.is_still }}
        end as flags
    from long_steps
    left join restarted_gaps on long_steps.series_id = restarted_gaps.series_id and long_steps.start_us = restarted_gaps.start_us

),

-- A series' first sample, and the start of its process before it.
births as (

    select
        steps.group_number,
        steps.silent_series_id as series_id,
        steps.cap_us,
        steps.end_us,
        max(process_spans.start_us) as process_start_us
    from grouped_steps as steps
    inner join step_groups on steps.group_number = step_groups.group_number
    inner join process_spans on step_groups.engine = process_spans.engine and process_spans.start_us < steps.end_us
    where steps.start_us is null
    group by steps.group_number, steps.silent_series_id, steps.cap_us, steps.end_us

),

starting as (

    select
        group_number,
        greatest(process_start_us, {{ int_div('end_us', day_us()) }} * {{ day_us() }}) as start_us,
        end_us,
        cap_us,
        case when end_us - process_start_us > cap_us then {{ bits.is_lost }} else 0 end as flags
    from births

),

numbered_steps as (

    select
        *,
        {{ int_div('start_us', grid_us()) }} as first_interval,
        {{ int_div('end_us - 1', grid_us()) }} as last_interval
    from (
        select group_number, start_us, end_us, cap_us, flags from grouped_steps where silent_series_id is null
        union all
        select group_number, start_us, end_us, cap_us, flags from gaps
        union all
        select group_number, start_us, end_us, cap_us, flags from starting where end_us > start_us
    ) as all_steps
    where end_us > {{ run_start_us() }} and start_us < {{ run_end_us() }}

),

pieces as (

    select
        group_number,
        first_interval as interval_number,
        start_us as from_us,
        end_us as to_us,
        cap_us,
        flags
    from numbered_steps
    where first_interval = last_interval
    union all
    select
        group_number,
        interval_number,
        greatest(start_us, interval_number * {{ grid_us() }}) as from_us,
        least(end_us, (interval_number + 1) * {{ grid_us() }}) as to_us,
        cap_us,
        flags
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

named_pieces as (

    select
        coalesce(copies.engine, step_groups.engine) as engine,
        pieces.from_us,
        pieces.to_us,
        max(pieces.cap_us) as cap_us,
        bit_or(pieces.flags) as flags
    from pieces
    left join step_groups on pieces.group_number = step_groups.group_number
    left join copies
        on step_groups.copied_series_id = copies.series_id
        and {{ int_div('pieces.interval_number * ' ~ grid_us(), day_us()) }} = copies.day_number
    group by coalesce(copies.engine, step_groups.engine), pieces.from_us, pieces.to_us

),

final as (

    select
        engine,
        {{ int_div('from_us', grid_us()) }} as interval_number,
        from_us,
        to_us,
        cap_us,
        {% for flag in flags -%}
        case when (flags & {{ bits[flag] }}) > 0 then 1 else 0 end as {{ flag }}{{ ',' if not loop.last }}
        {% endfor %}
    from named_pieces

)

select * from final
