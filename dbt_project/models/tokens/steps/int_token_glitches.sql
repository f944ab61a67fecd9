-- Samples of an engine's counters that one bad scrape made. A dip: lower than the one before, and higher again in the
-- next one, while the process start did not change. A process that continues cannot lose what it counted; where its
-- start changed or is unknown, a fall is a restart. A spike: higher than any engine counts in the time, and taken back
-- by the next one.
with series as (

    select distinct
        series_id,
        engine,
        quantity
    from {{ ref('stg_series') }}
    where stream = 'tokens'

),

series_days as (

    select * from {{ ref('stg_series_days') }}

),

{{ process_span_ctes() }},

process_engines as (

    select distinct engine from process_spans

),

-- Only what falls within a date or over a midnight is read sample by sample.
ordered_days as (

    select
        series_days.series_id,
        series.engine,
        {{ int_div('series_days.first_us', day_us()) }} as day_number,
        series_days.falls,
        series_days.first_us,
        series_days.first_value,
        series_days.last_us,
        series_days.last_value,
        series_days.steepest_rise_per_second,
        process_engines.engine is not null as has_process,
        lag(series_days.last_value) over day_window as previous_value,
        lag(series_days.last_us) over day_window as previous_us
    from series_days
    inner join series on series_days.series_id = series.series_id
    left join process_engines on series.engine = process_engines.engine
    where series.quantity in ('tokens', 'ttft_bucket', 'tpot_bucket', 'itl_bucket')
    window day_window as (partition by series_days.series_id order by series_days.first_us)

),

falling_series as (

    select series_id
    from ordered_days
    group by series_id
    having max(case when falls > 0 or first_value < previous_value then 1 else 0 end) = 1
        and (
            max(case when has_process then 1 else 0 end) = 1
            or max(steepest_rise_per_second) > {{ most_tokens_per_second() }}
            or max(case when {{ is_above_token_limit('first_value - previous_value', 'previous_us', 'first_us') }} then 1 else 0 end) = 1
        )

),

falling_days as (

    select ordered_days.*
    from ordered_days
    inner join falling_series on ordered_days.series_id = falling_series.series_id

),

falling_span as (

    select
        min({{ from_epoch_us('day_number * ' ~ day_us()) }}) as start_at,
        max({{ from_epoch_us('(day_number + 1) * ' ~ day_us()) }}) as end_at
    from falling_days
    having count(*) > 0

),

points as (

    select
        falling_days.series_id,
        falling_days.engine,
        {{ epoch_us('samples.observed_at') }} as observed_us,
        max(samples.value) as value
    from {{ ref('stg_token_samples') }} as samples
    inner join (select distinct series_id, engine, day_number from falling_days) as falling_days
        on samples.series_id = falling_days.series_id
        and {{ int_div(epoch_us('samples.observed_at'), day_us()) }} = falling_days.day_number
    cross join falling_span
    where {{ is_valid_sample('samples.value') }}
        and samples.observed_at >= falling_span.start_at
        and samples.observed_at < falling_span.end_at
    group by falling_days.series_id, falling_days.engine, samples.observed_at

),

bracketed as (

    select
        *,
        lag(value) over point_window as before_value,
        lag(observed_us) over point_window as before_us,
        lead(value) over point_window as after_value,
        lead(observed_us) over point_window as after_us
    from points
    window point_window as (partition by series_id order by observed_us)

),

dips as (

    select * from bracketed where value < before_value and after_value >= before_value

),

spikes as (

    select
        series_id,
        observed_us
    from bracketed
    where {{ is_above_token_limit('value - before_value', 'before_us', 'observed_us') }}
        and after_value >= before_value
        and after_value < value
        and not {{ is_above_token_limit('after_value - before_value', 'before_us', 'after_us') }}

),

denied_dips as (

    select
        dips.series_id,
        dips.observed_us
    from dips
    inner join process_spans on dips.engine = process_spans.engine
    group by dips.series_id, dips.observed_us, dips.before_us, dips.after_us
    having max(case when process_spans.start_us <= dips.before_us
            and process_spans.first_seen_us <= dips.after_us
            and process_spans.last_seen_us >= dips.before_us then 1 else 0 end) = 1
        and max(case when process_spans.start_us > dips.before_us and process_spans.start_us <= dips.after_us then 1 else 0 end) = 0

),

final as (

    {% for samples, kind in [('denied_dips', 'dip'), ('spikes', 'spike')] -%}
    select
        series_id,
        observed_us,
        {{ int_div('observed_us', day_us()) }} as day_number,
        '{{ kind }}' as kind
    from {{ samples }}
    {% if not loop.last %}union all{% endif %}
    {% endfor %}

)

select * from final
