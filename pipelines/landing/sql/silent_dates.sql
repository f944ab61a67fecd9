-- Those of the dates [$start, $end), and of those in raw.unfilled_dates, on which the server $source has no samples up
-- to the end, by what has landed. Dates before the first that landed with samples, or failed, are none: nothing shows
-- that the source was there.
create or replace temp table silent_dates as
with first_landed as (
    select min(cast(window_start_at as date)) as date
    from raw.landings
    where asset = 'raw/telemetry' and source = $source and outcome <> 'empty'
        and window_end_at - window_start_at = interval 1 day
),
dates as (
    select cast(unnest(range(cast($start as timestamp), cast($end as timestamp), interval 1 day)) as date) as date
    union
    select date from raw.unfilled_dates where source = $source
),
spoken as (
    select cast(chunk_start_at as date) as date, max(last_at) as last_at
    from raw.series_chunks where source = $source and cast(chunk_start_at as date) in (select date from dates)
    group by all
)
select dates.date, spoken.last_at as last_sample_at
from dates
cross join first_landed
left join spoken on dates.date = spoken.date
where dates.date >= first_landed.date
    -- As in the alarm sources_speak.
    and (last_at is null or last_at < cast(dates.date + 1 as timestamptz) - to_seconds(greatest(3 * $interval_seconds, 600)))
