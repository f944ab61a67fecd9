-- Counters that begin on a page that was read before: they count from zero, since what the first sample shows came after
-- the page was read without them. Not where a series of the same metric ends on the page then: labels have changed, and
-- what the new series shows is old. A date's own facts and those of the date before decide, so that any run finds the
-- same. Book and balance read this choice; the sums are their own. One row per date and series.
with targets as (

    select distinct series_id, metric, target, quantity from {{ ref('int_scrape_targets') }}

),

raw_series as (

    select series_id, landed_series_id from {{ ref('stg_raw_series') }}

),

series_days as (

    select * from {{ ref('stg_series_days') }}

),

-- By landed series: what one of several processes shows of it (stg_series_parts) does not begin with its turn.
landed_days as (

    select
        targets.target,
        targets.metric,
        targets.quantity,
        raw_series.landed_series_id as series_id,
        series_days.date,
        min(series_days.first_us) as first_us,
        max(series_days.last_us) as last_us,
        {{ value_at_first('series_days.first_value', 'series_days.first_us') }} as first_value,
        max(series_days.longest_gap_seconds) * 1e6 as longest_gap_us,
        max(series_days.steepest_rise_per_second) as steepest_rise_per_second,
        min(series_days.typical_interval_seconds) as typical_interval_seconds,
        max(series_days.sampling_interval_seconds) as sampling_interval_seconds,
        max(case when series_days.series_id = raw_series.landed_series_id then 0 else 1 end) = 1 as is_split
    from series_days
    inner join targets on series_days.series_id = targets.series_id
    inner join raw_series on series_days.series_id = raw_series.series_id
    group by targets.target, targets.metric, targets.quantity, raw_series.landed_series_id, series_days.date

),

-- What is known of a series on a date and the date before.
sights as (

    select
        target,
        metric,
        series_id,
        for_date as date,
        min(first_us) as first_us,
        max(last_us) as last_us,
        greatest(
            max(case when date = for_date then longest_gap_us end),
            min(case when date = for_date then first_us end) - min(case when date < for_date then last_us end)
        ) as silence_us
    from (
        select *, date as for_date from landed_days
        union all
        select *, date + 1 as for_date from landed_days
    ) as either
    where {{ in_run('for_date') }}
    group by target, metric, series_id, for_date

),

-- How often each page is read. Where that is not known, as often as its source states.
pages as (

    select
        target,
        date,
        1e6 * coalesce(min(typical_interval_seconds), min(sampling_interval_seconds)) as interval_us
    from landed_days
    group by target, date

),

first_reads as (

    select
        target,
        date,
        min(first_us) as first_us
    from sights
    group by target, date

),

born as (

    select
        landed_days.*,
        pages.interval_us,
        {{ gap_cap_us('landed_days.sampling_interval_seconds') }} as cap_us
    from landed_days
    inner join sights
        on {{ equal_keys('landed_days', 'sights', ['target', 'metric', 'series_id', 'date']) }}
        and landed_days.first_us = sights.first_us
    inner join pages on landed_days.target = pages.target and landed_days.date = pages.date
    inner join first_reads
        on landed_days.target = first_reads.target
        and landed_days.date = first_reads.date
        -- Pages that are read at other moments may have the same labels of the scraper.
        and landed_days.first_us - first_reads.first_us > 0.9 * pages.interval_us
    where not landed_days.is_split
        and (landed_days.quantity = 'tokens' or landed_days.quantity like '%_bucket')

),

-- The series that were on the page before, and how long the page was not read, if any of them is there after.
others as (

    select
        born.target,
        born.date,
        born.series_id,
        born.metric = sights.metric as is_of_family,
        sights.last_us < born.first_us as has_ended,
        born.first_us - sights.last_us as ended_before_us,
        sights.silence_us,
        min(case when sights.last_us >= born.first_us then greatest(sights.silence_us, born.cap_us) end) over (
            partition by born.target, born.date, born.series_id, born.metric
        ) as unread_us,
        born.metric
    from born
    inner join sights
        on born.target = sights.target
        and born.date = sights.date
        and born.first_us - sights.first_us > 0.9 * born.interval_us

),

-- A series of the family that was absent for longer than the page may have been so when the new one began.
families as (

    select
        target,
        date,
        series_id,
        metric,
        max(case when is_of_family then 1 else 0 end) = 1 as was_there,
        max(case
            when not is_of_family then 0
            when has_ended and ended_before_us <= unread_us then 1
            when not has_ended and silence_us > unread_us then 1
            else 0
        end) = 1 as has_changed
    from others
    where unread_us is not null
    group by target, date, series_id, metric

),

final as (

    select
        born.date,
        born.series_id,
        greatest(
            born.first_us - cast(born.interval_us as bigint), {{ int_div('born.first_us', day_us()) }} * {{ day_us() }}
        ) as start_us,
        born.first_us
    from born
    inner join families on {{ equal_keys('born', 'families', ['target', 'date', 'series_id', 'metric']) }}
    where not families.has_changed
        and born.first_us > {{ int_div('born.first_us', day_us()) }} * {{ day_us() }}
        -- A filter may let through what it kept back for months: that is more than some requests of the size of later
        -- ones. Of a family that was on the page before, a series may have one request and no later ones.
        and (
            born.first_value <= case when families.was_there then 1000 else 10 end
                * born.steepest_rise_per_second * born.interval_us / 1e6
            or (families.was_there and coalesce(born.steepest_rise_per_second, 0) = 0)
        )

)

select * from final
