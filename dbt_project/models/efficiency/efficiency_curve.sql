-- J/token against tok/s, as observed: the intervals of the lookback, sorted into half octaves of load. Nothing here is
-- fitted.
{{ config(replaces='all') }}

with lookback as (

    select * from {{ ref('int_lookback') }}

),

points as (

    select * from {{ ref('int_curve_points') }}

),

bins as (

    select
        as_of_date,
        {{ curve_keys() | join(', ') }},
        tokens_basis,
        load_bin,
        count(*) as intervals,
        sum(case when is_in_window then 1 else 0 end) as window_intervals,
        count(distinct date) as days,
        {{ exact_sum('gpu_seconds') }} as gpu_seconds,
        {{ exact_sum('tokens') }} as tokens,
        {{ exact_sum('joules') }} as joules,
        percentile_cont(0.1) within group (order by joules_per_token) as joules_per_token_p10,
        percentile_cont(0.5) within group (order by joules_per_token) as joules_per_token_p50,
        percentile_cont(0.9) within group (order by joules_per_token) as joules_per_token_p90,
        percentile_cont(0.5) within group (order by watts_per_gpu) as watts_per_gpu_p50
    from points
    group by as_of_date, {{ curve_keys() | join(', ') }}, tokens_basis, load_bin

),

-- A window holds its load on purpose, so a few of its intervals are as good as an hour of production.
assessed as (

    select
        *,
        case
            when intervals * {{ var('grid_seconds') }} >= 3600 then 'hours'
            when window_intervals >= {{ var('level_intervals') }} then 'run_windows'
        end as level_basis
    from bins

),

-- What is no level is shown, and neither the best point nor a level of the fit.
levels as (

    select
        *,
        level_basis is not null as is_level,
        {{ ratio('tokens', 'gpu_seconds') }} as tokens_per_second_per_gpu,
        {{ ratio('joules', 'tokens') }} as joules_per_token,
        {{ ratio('joules', 'gpu_seconds') }} as watts_per_gpu
    from assessed

),

ranked as (

    select
        *,
        is_level and row_number() over (
            partition by {{ curve_keys() | join(', ') }}
            order by case when is_level then 0 else 1 end, joules_per_token, load_bin desc
        ) = 1 as is_best
    from levels

),

compared as (

    select
        *,
        max(case when is_best then joules_per_token end) over curve as best_joules_per_token,
        max(case when is_best then load_bin end) over curve as best_load_bin
    from ranked
    window curve as (partition by {{ curve_keys() | join(', ') }})

),

-- Returns diminish where a tenth is all that more load would still save.
bent as (

    select
        *,
        is_level and joules_per_token <= 1.1 * best_joules_per_token and load_bin <= best_load_bin as is_near_best
    from compared

),

final as (

    select
        bent.as_of_date,
        {{ curve_keys() | join(', ') }},
        tokens_basis,
        load_bin,
        power(2, load_bin / 2.0) as bin_start_tokens_per_second_per_gpu,
        power(2, (load_bin + 1) / 2.0) as bin_end_tokens_per_second_per_gpu,
        cast(intervals as bigint) as intervals,
        cast(window_intervals as bigint) as window_intervals,
        cast(days as integer) as days,
        gpu_seconds,
        tokens,
        joules,
        tokens_per_second_per_gpu,
        watts_per_gpu,
        watts_per_gpu_p50,
        joules_per_token,
        joules_per_token_p10,
        joules_per_token_p50,
        joules_per_token_p90,
        is_level,
        level_basis,
        is_best,
        is_near_best and row_number() over (
            partition by {{ curve_keys() | join(', ') }}
            order by case when is_near_best then 0 else 1 end, load_bin
        ) = 1 as is_knee,
        lookback.held_back_dates,
        lookback.is_complete
    from bent
    cross join lookback

)

select * from final
