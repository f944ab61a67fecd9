-- All samples of token counters on dates that int_metered_counter_days marks as troubled, with a flag for the samples
-- of a bad scrape. Reads raw, none of the book's steps. One row per series and time of a sample.
with counter_days as (

    select * from {{ ref('int_metered_counter_days') }}

),

-- Dates of the run, and those next to them, whose chunk facts do not add up by themselves.
troubled_days as (

    select * from counter_days where is_troubled

),

troubled_span as (

    select
        min(cast(date as {{ timestamp_type() }})) as start_at,
        max(cast(date as {{ timestamp_type() }})) + interval 1 day as end_at
    from troubled_days
    having count(*) > 0

),

troubled_samples as (

    select
        troubled_days.date,
        troubled_days.series_id,
        troubled_days.engine,
        {{ epoch_us('samples.observed_at') }} as observed_us,
        max(samples.value * troubled_days.factor) as value
    from {{ ref('stg_token_samples') }} as samples
    inner join troubled_days
        on samples.series_id = troubled_days.series_id
        and cast(samples.observed_at as date) = troubled_days.date
    cross join troubled_span
    where samples.observed_at >= troubled_span.start_at
        and samples.observed_at < troubled_span.end_at
        and {{ is_valid_sample('samples.value') }}
    group by troubled_days.date, troubled_days.series_id, troubled_days.engine, samples.observed_at

),

-- On the other dates of these series only the first and last sample are read.
other_days as (

    select * from counter_days
    where quantity = 'tokens' and not is_troubled and series_id in (select series_id from troubled_days)

),

points as (

    select date, series_id, engine, observed_us, value from troubled_samples
    union
    select date, series_id, engine, first_us as observed_us, first_value as value from other_days
    union
    select date, series_id, engine, last_us as observed_us, last_value as value from other_days

),

neighboured as (

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

    select * from neighboured where value < before_value and after_value >= before_value

),

-- It rose faster than an engine counts, and the next sample is below it, as if nothing had been.
spikes as (

    select
        series_id,
        observed_us
    from neighboured
    where (value - before_value) * 1e6 > {{ var('most_tokens_per_second') }} * cast(observed_us - before_us as double)
        and value > after_value
        and after_value >= before_value
        and (after_value - before_value) * 1e6 <= {{ var('most_tokens_per_second') }} * cast(after_us - before_us as double)

),

-- Process starts as they were reported around the dips: the ends of each date, and every sample of the dates of a dip.
reported_starts as (

    select engine, first_us as observed_us, first_value as start_seconds from counter_days where quantity = 'process_start'
    union all
    select engine, last_us as observed_us, last_value as start_seconds from counter_days where quantity = 'process_start'
    union all
    select
        process_days.engine,
        {{ epoch_us('samples.observed_at') }} as observed_us,
        {{ metered_start_seconds('samples.value', epoch_us('samples.observed_at')) }} as start_seconds
    from {{ ref('stg_token_samples') }} as samples
    inner join counter_days as process_days
        on samples.series_id = process_days.series_id
        and cast(samples.observed_at as date) = process_days.date
        and process_days.quantity = 'process_start'
    inner join (select distinct engine, date from dips) as dip_days
        on process_days.engine = dip_days.engine and process_days.date = dip_days.date
    cross join troubled_span
    where samples.observed_at >= troubled_span.start_at
        and samples.observed_at < troubled_span.end_at
        and {{ is_valid_sample('samples.value') }}

),

processes as (

    select
        engine,
        start_seconds,
        min(observed_us) as seen_from_us,
        max(observed_us) as seen_to_us
    from reported_starts
    where start_seconds is not null
    group by engine, start_seconds

),

-- A process that goes on cannot lose what it counted: the scrape was bad.
bad_scrapes as (

    select
        dips.series_id,
        dips.observed_us
    from dips
    inner join processes on dips.engine = processes.engine
    where processes.start_seconds * 1e6 <= dips.after_us
    group by dips.series_id, dips.observed_us, dips.before_us, dips.after_us
    having max(cast(processes.start_seconds * 1e6 as bigint)) <= dips.before_us
        and max(case when processes.seen_from_us <= dips.after_us and processes.seen_to_us >= dips.before_us then 1 else 0 end) = 1
    union
    select
        series_id,
        observed_us
    from spikes

),

final as (

    select
        troubled_samples.*,
        bad_scrapes.series_id is not null as is_bad_scrape
    from troubled_samples
    left join bad_scrapes
        on troubled_samples.series_id = bad_scrapes.series_id and troubled_samples.observed_us = bad_scrapes.observed_us

)

select * from final
