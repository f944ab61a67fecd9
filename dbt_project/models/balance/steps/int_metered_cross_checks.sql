-- What each meter's runner-up reading showed, beside the reading that the balance adds up: one row per date and meter
-- with two readings. Roughly: a counter by its day's difference, a gauge by its mean over the time that the first
-- reading covers. Reads raw, the catalogues and int_metered_readings alone, on purpose.
{# int_metered_days alone reads it. #}
{{ config(materialized='view' if target.type == 'duckdb' else 'table') }}

with readings as (

    select * from {{ ref('int_metered_readings') }}

),

series as (

    select * from {{ ref('int_label_identities') }}
    where stream = 'power' and quantity in ('energy', 'power') and meter is not null

),

runners_up as (

    select
        readings.date,
        readings.meter_scope,
        readings.meter,
        readings.reading_id,
        readings.source,
        readings.kind,
        readings.last_value - readings.first_value as counted_joules,
        readings.last_us - readings.first_us as span_us,
        chosen.coverage_us as booked_coverage_us
    from readings
    inner join readings as chosen on {{ equal_keys('readings', 'chosen', ['date', 'meter_scope', 'meter']) }}
    where readings.preference = 2
        and readings.first_us is not null
        and chosen.preference = 1
        -- Of a part of the time, or read more often in a part of it, it has another mean.
        and least(
            readings.coverage_us,
            least(readings.last_us, chosen.last_us) - greatest(readings.first_us, chosen.first_us)
        ) >= 0.9 * chosen.coverage_us

),

days_of_series as (

    select
        runners_up.date,
        runners_up.meter_scope,
        runners_up.meter,
        series.series_id,
        series.factor,
        count(*) over (partition by runners_up.date, runners_up.meter_scope, runners_up.meter) = 1
        and chunks.duplicates = 0 as has_moments_once
    from runners_up
    inner join series on runners_up.reading_id = series.reading_id
    inner join {{ source('raw', 'series_chunks') }} as chunks
        on series.series_id = chunks.series_id and runners_up.date = cast(chunks.chunk_start_at as date)
    where runners_up.kind = 'gauge' and chunks.samples > 0

),

samples as (

    select
        days_of_series.date,
        days_of_series.meter_scope,
        days_of_series.meter,
        days_of_series.has_moments_once,
        samples.observed_at,
        samples.value * days_of_series.factor as watts
    from {{ source('raw', 'power_samples') }} as samples
    inner join days_of_series
        on samples.series_id = days_of_series.series_id
        and {{ int_div(epoch_us('samples.observed_at'), day_us()) }}
            = {{ int_div(epoch_us('cast(days_of_series.date as ' ~ timestamp_type() ~ ')'), day_us()) }}
    where samples.observed_at >= {{ run_start_at() }}
        and samples.observed_at < {{ run_end_at() }}
        and {{ is_valid_sample('samples.value') }}
        and samples.value * days_of_series.factor <= {{ ceiling_watts('days_of_series.meter_scope') }}

),

-- MIG instances report the same watts of their board, and there can be more of them in one hour than in another: a
-- moment counts once. One series that repeats no time needs no grouping by moments, which takes ten times as long.
runner_up_moments as (

    select date, meter_scope, meter, watts from samples where has_moments_once
    union all
    select
        date,
        meter_scope,
        meter,
        max(watts) as watts
    from samples
    where not has_moments_once
    group by date, meter_scope, meter, observed_at

),

runner_up_means as (

    select
        date,
        meter_scope,
        meter,
        {{ ratio(exact_sum('watts'), 'count(*)') }} as mean_watts
    from runner_up_moments
    group by date, meter_scope, meter

),

final as (

    select
        runners_up.date,
        runners_up.meter_scope,
        runners_up.meter,
        runners_up.source,
        case
            when runners_up.kind = 'gauge' then runner_up_means.mean_watts * runners_up.booked_coverage_us / 1e6
            else runners_up.counted_joules
                * (runners_up.booked_coverage_us / nullif(cast(runners_up.span_us as double), 0))
        end as cross_check_joules
    from runners_up
    left join runner_up_means
        on {{ equal_keys('runners_up', 'runner_up_means', ['date', 'meter_scope', 'meter']) }}

)

select * from final
