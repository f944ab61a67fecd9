-- Tokens per date, engine, interval and class: counters differenced per series (an engine's data-parallel ranks add up) and cut at the grid.
with readings as (

    select * from {{ ref('int_token_readings') }}

),

series as (

    select * from {{ ref('stg_series') }}

),

choices as (

    select * from {{ ref('int_token_choices') }}

),

token_readings as (

    select distinct
        reading_id,
        engine,
        token_class,
        source,
        metric
    from series
    where quantity = 'tokens'

),

{{ counter_step_ctes('readings') }},

gridded_steps as (

    select
        *,
        {{ int_div('start_us', grid_us()) }} as first_interval,
        {{ int_div('end_us - 1', grid_us()) }} as last_interval
    from judged_steps
    where end_us > {{ run_start_us() }} and start_us < {{ run_end_us() }}

),

spread_steps as (

    select
        *,
        {{ integers_between(
            'greatest(first_interval, ' ~ int_div(run_start_us(), grid_us()) ~ ')',
            'least(last_interval, ' ~ int_div(run_end_us() ~ ' - 1', grid_us()) ~ ')'
        ) }} as interval_number
    from gridded_steps
    where first_interval < last_interval

),

spread_pieces as (

    select
        *,
        greatest(start_us, interval_number * {{ grid_us() }}) as from_us,
        least(end_us, (interval_number + 1) * {{ grid_us() }}) as to_us
    from spread_steps

),

pieces as (

    select
        reading_id,
        first_interval as interval_number,
        {{ exact('risen') }} as tokens,
        end_us - start_us as covered_us,
        is_reset
    from gridded_steps
    where first_interval = last_interval
    union all
    select
        reading_id,
        interval_number,
        {{ accumulated('risen', '0', 'to_us - start_us', '(end_us - start_us)') }}
        - {{ accumulated('risen', '0', 'from_us - start_us', '(end_us - start_us)') }} as tokens,
        to_us - from_us as covered_us,
        is_reset
    from spread_pieces

),

series_intervals as (

    select
        reading_id,
        interval_number,
        {{ exact_sum('tokens') }} as tokens,
        sum(covered_us) as covered_us,
        max(case when is_reset then 1 else 0 end) as resets
    from pieces
    group by reading_id, interval_number

),

final as (

    select
        choices.date,
        choices.engine,
        series_intervals.interval_number,
        choices.token_class,
        choices.source as token_source,
        choices.metric as token_metric,
        {{ exact_sum('series_intervals.tokens') }} as tokens,
        max(series_intervals.covered_us) as covered_us,
        max(series_intervals.resets) = 1 as has_reset
    from series_intervals
    inner join token_readings on series_intervals.reading_id = token_readings.reading_id
    inner join choices
        on token_readings.engine = choices.engine
        and token_readings.token_class = choices.token_class
        and token_readings.source = choices.source
        and token_readings.metric = choices.metric
        and {{ int_div('series_intervals.interval_number * ' ~ grid_us(), day_us()) }} = {{ int_div(epoch_us('cast(choices.date as ' ~ timestamp_type() ~ ')'), day_us()) }}
    group by all

)

select * from final
