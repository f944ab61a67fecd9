-- What raw says each meter measured on each date: the other side of the balance. Reads raw and the catalogues, none of the book's steps.
-- Calm counters telescope from the chunk facts, troubled ones are added up sample by sample, gauges are weighted by the time each sample
-- stands for. One row per date and meter that ought to be booked.
with series as (

    select
        *,
        case meter_scope when 'board' then 1 when 'node' then 3 else 5 end as coarseness
    from {{ ref('stg_series') }}
    where stream = 'power' and quantity in ('energy', 'power') and meter is not null

),

chunks as (

    select
        series.reading_id,
        series.series_id,
        cast(chunks.chunk_start_at as date) as date,
        {{ epoch_us('chunks.first_at') }} as first_us,
        {{ epoch_us('chunks.last_at') }} as last_us,
        chunks.first_value * series.factor as first_value,
        chunks.last_value * series.factor as last_value,
        chunks.samples,
        chunks.falls + chunks.duplicates as troubles,
        chunks.duplicates,
        chunks.typical_interval_seconds
    from {{ source('raw', 'series_chunks') }} as chunks
    inner join series on chunks.series_id = series.series_id
    where chunks.samples > 0

),

dates as (

    select * from {{ ref('stg_run_dates') }}

),

limits as (

    select
        cast(chunks.chunk_start_at as date) as date,
        power_limits.meter,
        max(chunks.last_value * power_limits.factor) as power_limit_watts
    from {{ source('raw', 'series_chunks') }} as chunks
    inner join {{ ref('stg_series') }} as power_limits on chunks.series_id = power_limits.series_id
    where power_limits.quantity = 'power_limit'
        and chunks.chunk_start_at >= {{ run_start_at() }}
        and chunks.chunk_start_at < {{ run_end_at() }}
    group by 1, 2

),

device_types as (

    select * from {{ ref('device_types') }}

),

readings as (

    select
        reading_id,
        source,
        metric,
        kind,
        rank,
        meter,
        meter_scope,
        coarseness,
        max(node) as node,
        max(site) as site,
        max(meter_device_type) as device_type
    from series
    group by reading_id, source, metric, kind, rank, meter, meter_scope, coarseness

),

reading_dates as (

    select
        reading_id,
        date,
        min(first_us) as first_us,
        min_by(first_value, first_us) as first_value,
        max(last_us) as last_us,
        max_by(last_value, last_us) as last_value,
        sum(troubles) + count(*) - 1 as troubles,
        sum(duplicates) + count(*) - 1 as repeats,
        sum(samples) as samples,
        min(typical_interval_seconds) as typical_interval_seconds
    from chunks
    group by reading_id, date

),

neighboured_dates as (

    select
        *,
        lag(last_us) over date_window as previous_us,
        lag(last_value) over date_window as previous_value,
        lead(first_us) over date_window as next_us,
        lead(first_value) over date_window as next_value,
        coalesce(lag(troubles) over date_window, 0) as previous_troubles,
        coalesce(lead(troubles) over date_window, 0) as next_troubles
    from reading_dates
    window date_window as (partition by reading_id order by date)

),

-- Each date of the run with the last sample before its own and the first one after; a counter also has the dates that it was silent on.
day_facts as (

    select
        readings.*,
        dates.date,
        dates.start_us,
        dates.end_us,
        neighboured_dates.previous_us,
        neighboured_dates.previous_value,
        neighboured_dates.first_us,
        neighboured_dates.first_value,
        neighboured_dates.last_us,
        neighboured_dates.last_value,
        neighboured_dates.next_us,
        neighboured_dates.next_value,
        neighboured_dates.troubles + neighboured_dates.previous_troubles + neighboured_dates.next_troubles as troubles,
        neighboured_dates.repeats > 0 as has_repeats,
        neighboured_dates.samples,
        neighboured_dates.typical_interval_seconds
    from neighboured_dates
    inner join dates on neighboured_dates.date = dates.date
    inner join readings on neighboured_dates.reading_id = readings.reading_id
    union all
    select
        readings.*,
        dates.date,
        dates.start_us,
        dates.end_us,
        neighboured_dates.last_us as previous_us,
        neighboured_dates.last_value as previous_value,
        null as first_us,
        null as first_value,
        null as last_us,
        null as last_value,
        neighboured_dates.next_us,
        neighboured_dates.next_value,
        neighboured_dates.troubles + neighboured_dates.next_troubles as troubles,
        false as has_repeats,
        0 as samples,
        null as typical_interval_seconds
    from neighboured_dates
    inner join dates on neighboured_dates.date < dates.date and neighboured_dates.next_us >= dates.end_us
    inner join readings on neighboured_dates.reading_id = readings.reading_id
    where readings.kind = 'counter'

),

-- A counter knows its day from the sample before to the sample after; a gauge only what its own samples span.
coverage as (

    select
        day_facts.*,
        case when day_facts.meter_scope = 'board'
            then {{ possible_power_factor() }} * coalesce(device_types.power_limit_watts, case when kind = 'counter' then limits.power_limit_watts end)
        end as possible_watts,
        case
            when kind = 'counter'
                then least(coalesce(next_us, last_us, previous_us), end_us) - greatest(coalesce(previous_us, first_us, next_us), start_us)
            when first_us is not null then least(last_us - first_us, samples * coalesce(typical_interval_seconds, 0) * 1e6)
        end as coverage_us
    from day_facts
    left join device_types on day_facts.device_type = device_types.device_type
    left join limits on day_facts.date = limits.date and day_facts.meter = limits.meter

),

best as (

    select
        *,
        max(coverage_us) over (partition by date, meter_scope, meter) as best_coverage_us,
        min(coarseness) over (partition by date, coalesce(node, meter)) as finest_coarseness
    from coverage

),

preferred as (

    select
        *,
        row_number() over (
            partition by date, meter_scope, meter
            order by case when coverage_us >= 0.5 * best_coverage_us then 0 else 1 end, rank, coverage_us desc, source, metric
        ) as preference
    from best
    where coarseness = finest_coarseness

),

chosen as (

    select
        *,
        -- Nothing fell, repeated or leapt, on the date or over its edges: the counter's difference is its energy.
        kind = 'counter'
        and troubles = 0
        and coalesce(first_value >= previous_value, true)
        and coalesce(next_value >= coalesce(last_value, previous_value), true)
        and coalesce(first_value - previous_value <= possible_watts * (first_us - previous_us) / 1e6, true)
        and coalesce(next_value - coalesce(last_value, previous_value) <= possible_watts * (next_us - coalesce(last_us, previous_us)) / 1e6, true)
        and coalesce(last_value - first_value <= possible_watts * (last_us - first_us) / 1e6, true) as is_calm
    from preferred
    where preference = 1

),

calm as (

    select
        date,
        meter_scope,
        meter,
        {{ exact(
            'coalesce(last_value - first_value, 0)'
            ~ ' + coalesce((first_value - previous_value) * ((first_us - greatest(start_us, previous_us)) / cast(first_us - previous_us as double)), 0)'
            ~ ' + coalesce((next_value - last_value) * ((least(end_us, next_us) - last_us) / cast(next_us - last_us as double)), 0)'
            ~ ' + case when first_us is null then (next_value - previous_value) * ((end_us - start_us) / cast(next_us - previous_us as double)) else 0 end'
        ) }} as metered_joules
    from chosen
    where is_calm

),

-- `place` stands for date, scope and meter while millions of samples are sorted by it.
troubled as (

    select
        *,
        row_number() over (order by date, meter_scope, meter) as place,
        {{ gauge_gap_factor() }} * 1e6 * typical_interval_seconds as cap_us
    from chosen
    where not is_calm

),

troubled_span as (

    select
        {{ from_epoch_us('min(least(start_us, coalesce(previous_us, start_us)))') }} as start_at,
        {{ from_epoch_us('max(greatest(end_us, coalesce(next_us, end_us)))') }} as end_at
    from troubled

),

gauge_series as (

    select
        meter,
        meter_scope,
        series_id,
        factor
    from series
    where quantity = 'power'

),

samples_of_troubled as (

    select
        troubled.place,
        troubled.kind = 'counter' as is_counter,
        troubled.has_repeats,
        troubled.start_us,
        troubled.cap_us,
        {{ epoch_us('samples.observed_at') }} as observed_us,
        samples.value * series.factor as value
    from {{ source('raw', 'power_samples') }} as samples
    inner join series on samples.series_id = series.series_id
    inner join troubled
        on series.reading_id = troubled.reading_id
        and {{ int_div(epoch_us('samples.observed_at'), day_us()) }} * {{ day_us() }} = troubled.start_us
    where samples.observed_at >= {{ run_start_at() }}
        and samples.observed_at < {{ run_end_at() }}
        and {{ is_valid_sample('samples.value') }}
        and (troubled.kind = 'counter' or samples.value * series.factor <= coalesce(troubled.possible_watts, 1e300))

),

-- The date's own samples, and of its neighbours the one before and the one after.
troubled_points as (

    select place, is_counter, start_us, cap_us, observed_us, value from samples_of_troubled where not has_repeats
    union all
    select place, is_counter, start_us, cap_us, observed_us, max(value) as value from samples_of_troubled where has_repeats
    group by place, is_counter, start_us, cap_us, observed_us
    {%- for neighbour in ['previous', 'next'] %}
    union all
    select place, kind = 'counter' as is_counter, start_us, cap_us, {{ neighbour }}_us as observed_us, {{ neighbour }}_value as value
    from troubled
    where {{ neighbour }}_us is not null and (kind = 'counter' or {{ neighbour }}_value <= coalesce(possible_watts, 1e300))
    {%- endfor %}

),

seen_counts as (

    select
        place,
        observed_us,
        value,
        lag(value) over point_window as before_value,
        lag(observed_us) over point_window as before_us,
        lead(value) over point_window as after_value,
        lead(observed_us) over point_window as after_us
    from troubled_points
    where is_counter
    window point_window as (partition by place order by observed_us)

),

kept_counts as (

    select
        seen_counts.place,
        seen_counts.observed_us,
        seen_counts.value,
        lag(seen_counts.value) over point_window as before_value,
        lag(seen_counts.observed_us) over point_window as before_us
    from seen_counts
    inner join troubled on seen_counts.place = troubled.place
    where not coalesce(
        value < before_value
        and after_value >= before_value
        and case
            when possible_watts is null then true
            else after_value - value > possible_watts * (after_us - observed_us) / 1e6
                and after_value - before_value <= possible_watts * (after_us - before_us) / 1e6
        end,
        false
    )
    window point_window as (partition by seen_counts.place order by seen_counts.observed_us)

),

gauge_points as (

    select
        place,
        start_us,
        cap_us,
        observed_us,
        value,
        lag(value) over point_window as before_value,
        lag(observed_us) over point_window as before_us
    from troubled_points
    where not is_counter
    window point_window as (partition by place order by observed_us)

),

differences as (

    select
        kept_counts.*,
        troubled.meter_scope,
        troubled.meter,
        troubled.possible_watts,
        case when value >= before_value then value - before_value else value end as risen,
        greatest(before_us, start_us) as from_us,
        least(observed_us, end_us) as to_us
    from kept_counts
    inner join troubled on kept_counts.place = troubled.place
    where before_us < observed_us and before_us < end_us and observed_us > start_us

),

gauge_means as (

    select
        differences.place,
        differences.before_us,
        {{ ratio(exact_sum('samples.value * gauge_series.factor'), 'count(*)') }} as mean_watts
    from differences
    inner join gauge_series on differences.meter = gauge_series.meter and differences.meter_scope = gauge_series.meter_scope
    inner join {{ source('raw', 'power_samples') }} as samples
        on gauge_series.series_id = samples.series_id
        and {{ epoch_us('samples.observed_at') }} between differences.before_us and differences.observed_us
        and {{ is_valid_sample('samples.value') }}
    where differences.risen > differences.possible_watts * (differences.observed_us - differences.before_us) / 1e6
        and samples.observed_at >= (select start_at from troubled_span)
        and samples.observed_at <= (select end_at from troubled_span)
    group by differences.place, differences.before_us

),

counted as (

    select
        differences.place,
        sum({{ exact(
            "case"
            ~ " when risen > coalesce(possible_watts * (observed_us - differences.before_us) / 1e6, 1e300)"
            ~ " then coalesce(mean_watts, 0) * (to_us - from_us) / 1e6"
            ~ " else risen * ((to_us - from_us) / cast(observed_us - differences.before_us as double))"
            ~ " end"
        ) }}) as metered_joules
    from differences
    left join gauge_means
        on differences.place = gauge_means.place and differences.before_us = gauge_means.before_us
    group by differences.place

),

gauged_steps as (

    select
        *,
        greatest(before_us, start_us) as from_us,
        least(observed_us, start_us + {{ day_us() }}) as to_us
    from gauge_points
    where before_us < observed_us and before_us < start_us + {{ day_us() }} and observed_us > start_us

),

gauged as (

    select
        place,
        sum({{ exact(
            "case"
            ~ " when observed_us - before_us > cap_us then 0"
            ~ " else"
            ~ " ((before_value + (value - before_value) * ((from_us - before_us) / cast(observed_us - before_us as double)))"
            ~ " + (before_value + (value - before_value) * ((to_us - before_us) / cast(observed_us - before_us as double))))"
            ~ " / 2 * (to_us - from_us) / 1e6"
            ~ " end"
        ) }}) as metered_joules
    from gauged_steps
    group by place

),

added_up as (

    select
        troubled.date,
        troubled.meter_scope,
        troubled.meter,
        coalesce(counted.metered_joules, gauged.metered_joules) as metered_joules
    from troubled
    left join counted on troubled.place = counted.place
    left join gauged on troubled.place = gauged.place

),

totals as (

    select date, meter_scope, meter, metered_joules from calm
    union all
    select date, meter_scope, meter, metered_joules from added_up

),

-- The runner-up, roughly: a counter by its day's difference, a gauge by its mean over the time that the booked reading covers.
runners_up as (

    select
        preferred.date,
        preferred.meter_scope,
        preferred.meter,
        preferred.reading_id,
        preferred.source,
        preferred.kind,
        preferred.last_value - preferred.first_value as counted_joules,
        preferred.last_us - preferred.first_us as span_us,
        chosen.coverage_us as booked_coverage_us
    from preferred
    inner join chosen
        on preferred.date = chosen.date and preferred.meter_scope = chosen.meter_scope and preferred.meter = chosen.meter
    where preferred.preference = 2 and preferred.first_us is not null

),

runner_up_means as (

    select
        runners_up.date,
        runners_up.meter_scope,
        runners_up.meter,
        {{ ratio(exact_sum('samples.value * series.factor'), 'count(*)') }} as mean_watts
    from {{ source('raw', 'power_samples') }} as samples
    inner join series on samples.series_id = series.series_id
    inner join runners_up
        on series.reading_id = runners_up.reading_id
        and {{ int_div(epoch_us('samples.observed_at'), day_us()) }} = {{ int_div(epoch_us('cast(runners_up.date as ' ~ timestamp_type() ~ ')'), day_us()) }}
    where runners_up.kind = 'gauge'
        and samples.observed_at >= {{ run_start_at() }}
        and samples.observed_at < {{ run_end_at() }}
        and {{ is_valid_sample('samples.value') }}
    group by runners_up.date, runners_up.meter_scope, runners_up.meter

),

cross_checks as (

    select
        runners_up.date,
        runners_up.meter_scope,
        runners_up.meter,
        runners_up.source,
        case
            when runners_up.kind = 'gauge' then runner_up_means.mean_watts * runners_up.booked_coverage_us / 1e6
            else runners_up.counted_joules * (runners_up.booked_coverage_us / nullif(cast(runners_up.span_us as double), 0))
        end as cross_check_joules
    from runners_up
    left join runner_up_means
        on runners_up.date = runner_up_means.date
        and runners_up.meter_scope = runner_up_means.meter_scope
        and runners_up.meter = runner_up_means.meter

),

final as (

    select
        chosen.date,
        chosen.site,
        chosen.meter,
        chosen.meter_scope,
        chosen.source,
        chosen.metric,
        totals.metered_joules,
        max(cross_checks.source) as cross_check_source,
        {{ exact('max(cross_checks.cross_check_joules)') }} as cross_check_joules
    from chosen
    left join totals
        on chosen.date = totals.date and chosen.meter_scope = totals.meter_scope and chosen.meter = totals.meter
    left join cross_checks
        on chosen.date = cross_checks.date and chosen.meter_scope = cross_checks.meter_scope and chosen.meter = cross_checks.meter
    group by chosen.date, chosen.site, chosen.meter, chosen.meter_scope, chosen.source, chosen.metric, totals.metered_joules

)

select * from final
