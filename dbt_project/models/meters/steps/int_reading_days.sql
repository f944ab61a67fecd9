-- What each reading of a meter covers on each date of the run. A counter also covers the days it was silent between two
-- samples.
with series as (

    select * from {{ ref('stg_series') }}

),

series_days as (

    select * from {{ ref('stg_series_days') }}

),

run_dates as (

    select * from {{ ref('stg_run_dates') }}

),

power_readings as (

    select distinct
        reading_id,
        source,
        source_kind,
        metric,
        quantity,
        kind,
        rank,
        meter,
        meter_scope
    from series
    where stream = 'power' and quantity in ('energy', 'power') and meter is not null

),

ordered_series_days as (

    select
        series_days.*,
        power_readings.kind,
        series.node,
        series.rack,
        series.site,
        max(series_days.last_us) over (
            partition by series_days.reading_id, series_days.date
            order by series_days.first_us, series_days.series_id
            rows between unbounded preceding and 1 preceding
        ) as earlier_series_last_us
    from series_days
    inner join power_readings on series_days.reading_id = power_readings.reading_id
    inner join series on series_days.series_id = series.series_id

),

sampled_days as (

    select
        reading_id,
        date,
        sum(samples) as samples,
        min(first_us) as first_us,
        max(last_us) as last_us,
        {{ value_at_first('first_value', 'first_us') }} as first_value,
        {{ value_at_last('last_value', 'last_us') }} as last_value,
        sum(falls) as falls,
        sum(rejects) as rejects,
        -- Where the meter is belongs to the date, not to its history; int_board_places cuts the date on which it moves.
        max(node) as node,
        max(rack) as rack,
        max(site) as site,
        min(typical_interval_seconds) as typical_interval_seconds,
        min(sampling_interval_seconds) as sampling_interval_seconds,
        {{ gap_cap_us('min(sampling_interval_seconds)') }} as cap_us,
        greatest(max(longest_gap_seconds) * 1e6, coalesce(max(first_us - earlier_series_last_us), 0)) as longest_gap_us,
        -- Only these are differenced sample by sample. The date's own facts decide, so that the order of booking makes
        -- no difference. A gauge falls all the time.
        max(case
            when (kind = 'counter' and falls > 0) or duplicates > 0 or first_us <= earlier_series_last_us then 1 else 0
        end) = 1 as needs_every_sample
    from ordered_series_days
    group by reading_id, date

),

bracketed_days as (

    select
        *,
        lag(last_us) over (partition by reading_id order by date) as previous_last_us,
        lead(first_us) over (partition by reading_id order by date) as next_first_us,
        lead(cap_us) over (partition by reading_id order by date) as next_cap_us,
        lag(last_value) over (partition by reading_id order by date) as previous_last_value,
        lead(first_value) over (partition by reading_id order by date) as next_first_value
    from sampled_days

),

-- A gauge covers the time of its samples; a counter all the time between its samples, over midnight and over gaps.
spans as (

    select
        power_readings.*,
        bracketed_days.date as sampled_date,
        bracketed_days.samples,
        bracketed_days.rejects,
        bracketed_days.node,
        bracketed_days.rack,
        bracketed_days.site,
        bracketed_days.typical_interval_seconds,
        bracketed_days.sampling_interval_seconds,
        bracketed_days.needs_every_sample,
        bracketed_days.first_us,
        bracketed_days.last_us,
        bracketed_days.cap_us,
        -- A silence longer than three of the reading's own intervals, on the date or over its edges.
        coalesce(bracketed_days.longest_gap_us > bracketed_days.cap_us, false)
        or coalesce(bracketed_days.first_us - bracketed_days.previous_last_us > bracketed_days.cap_us, false)
        or coalesce(
            bracketed_days.next_first_us - bracketed_days.last_us > coalesce(bracketed_days.next_cap_us, bracketed_days.cap_us), false
        ) as has_gap,
        bracketed_days.longest_gap_us,
        -- A counter that never fell knows the sum of its gaps.
        power_readings.kind = 'counter'
        and bracketed_days.falls = 0
        and coalesce(bracketed_days.first_value >= bracketed_days.previous_last_value, true)
        and coalesce(bracketed_days.next_first_value >= bracketed_days.last_value, true) as has_only_risen,
        coalesce(bracketed_days.previous_last_us, bracketed_days.first_us) as known_from_us,
        coalesce(bracketed_days.next_first_us, bracketed_days.last_us) as known_to_us,
        case when power_readings.kind = 'counter' then coalesce(bracketed_days.previous_last_us, bracketed_days.first_us)
            else bracketed_days.first_us
        end as covers_from_us,
        case when power_readings.kind = 'counter' then coalesce(bracketed_days.next_first_us, bracketed_days.last_us)
            else bracketed_days.last_us
        end as covers_to_us
    from bracketed_days
    inner join power_readings on bracketed_days.reading_id = power_readings.reading_id

),

days_of_spans as (

    select
        spans.*,
        run_dates.date,
        run_dates.start_us as day_start_us,
        run_dates.end_us as day_end_us,
        row_number() over (
            partition by spans.reading_id, run_dates.date
            order by case when spans.sampled_date = run_dates.date then 0 else 1 end, spans.sampled_date
        ) as preference
    from spans
    inner join run_dates
        on spans.sampled_date = run_dates.date
        or (spans.kind = 'counter' and spans.covers_from_us < run_dates.end_us and spans.covers_to_us > run_dates.start_us)

),

final as (

    select
        reading_id,
        date,
        source,
        source_kind,
        metric,
        quantity,
        kind,
        rank,
        meter,
        meter_scope,
        node,
        rack,
        site,
        sampled_date = date as is_sampled,
        case when sampled_date = date then samples else 0 end as samples,
        case when sampled_date = date then rejects else 0 end as rejects,
        sampling_interval_seconds,
        sampled_date = date and needs_every_sample as needs_every_sample,
        sampled_date <> date or has_gap as has_gap,
        case when sampled_date = date then longest_gap_us end as longest_gap_us,
        has_only_risen,
        cap_us,
        known_from_us,
        known_to_us,
        greatest(known_from_us, day_start_us) as first_known_us,
        least(known_to_us, day_end_us) as last_known_us,
        case
            when kind = 'counter' then least(covers_to_us, day_end_us) - greatest(covers_from_us, day_start_us)
            else least(last_us - first_us, coalesce(samples * typical_interval_seconds * 1e6, 0))
        end / 1e6 as coverage_seconds
    from days_of_spans
    where preference = 1

)

select * from final
