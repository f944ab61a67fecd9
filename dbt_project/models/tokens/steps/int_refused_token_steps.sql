-- Rises of an engine's token counters that no engine can count (`limits.tokens_per_second`): the sample that ends each,
-- on its date. The book leaves them out, int_token_intervals step by step; a spike that the next sample takes back is
-- left out as a sample (int_token_glitches).
with series as (

    select distinct series_id from {{ ref('stg_series') }} where quantity = 'tokens'

),

series_days as (

    select * from {{ ref('stg_series_days') }}

),

glitches as (

    select * from {{ ref('int_token_glitches') }}

),

neighboured_days as (

    select
        series_days.*,
        lag(series_days.last_value) over day_window as previous_value,
        lag(series_days.last_us) over day_window as previous_us
    from series_days
    inner join series on series_days.series_id = series.series_id
    window day_window as (partition by series_days.series_id order by series_days.first_us)

),

leaping_days as (

    select
        series_id,
        {{ int_div('first_us', day_us()) }} as day_number,
        previous_us,
        previous_value
    from neighboured_days
    where is_in_run
        and (
            steepest_rise_per_second > {{ most_tokens_per_second() }}
            or {{ is_above_token_limit('first_value - previous_value', 'previous_us', 'first_us') }}
        )

),

points as (

    select
        leaping_days.series_id,
        leaping_days.day_number,
        {{ epoch_us('samples.observed_at') }} as observed_us,
        max(samples.value) as value
    from {{ ref('stg_token_samples') }} as samples
    inner join leaping_days
        on samples.series_id = leaping_days.series_id
        and {{ int_div(epoch_us('samples.observed_at'), day_us()) }} = leaping_days.day_number
    where {{ is_valid_sample('samples.value') }}
        and samples.observed_at >= {{ run_start_at() }}
        and samples.observed_at < {{ run_end_at() }}
    group by leaping_days.series_id, leaping_days.day_number, samples.observed_at
    union all
    select series_id, day_number, previous_us as observed_us, previous_value as value
    from leaping_days
    where previous_us is not null

),

steps as (

    select
        points.*,
        lag(points.value) over point_window as before_value,
        lag(points.observed_us) over point_window as before_us
    from points
    left join glitches on points.series_id = glitches.series_id and points.observed_us = glitches.observed_us
    where glitches.series_id is null
    window point_window as (partition by points.series_id, points.day_number order by points.observed_us)

),

refused as (

    select
        series_id,
        observed_us,
        value
    from steps
    where {{ is_above_token_limit('case when value >= before_value then value - before_value else value end', 'before_us', 'observed_us') }}
    union all
    select
        points.series_id,
        points.observed_us,
        points.value
    from points
    inner join glitches on points.series_id = glitches.series_id and points.observed_us = glitches.observed_us
    where glitches.kind = 'spike' and {{ int_div('points.observed_us', day_us()) }} = points.day_number

),

final as (

    select
        {{ date_of_us('observed_us') }} as date,
        series_id,
        observed_us,
        value
    from refused

)

select * from final
