-- What each series measured by itself on a date, from raw alone: a counter what it rose between its samples of the
-- date, a gauge its mean watts over the time of its samples. One row per date and series of power, energy or tokens;
-- series_daily compares the book with it.
with identities as (

    select * from {{ ref('int_label_identities') }}
    where quantity in ('energy', 'power', 'tokens')

),

chunks as (

    select * from {{ ref('stg_series_chunks') }}
    where chunk_start_at >= {{ run_start_at() }} - interval 1 day and chunk_start_at < {{ run_end_at() }}

),

device_types as (

    select * from {{ ref('stg_device_types') }}

),

sources as (

    select * from {{ source('fleet', 'sources') }}

),

-- A counter of several token classes is one series.
identified_series as (

    select
        series_id,
        source,
        metric,
        stream,
        max(quantity) as quantity,
        max(kind) as kind,
        max(factor) as factor,
        max(meter_scope) as meter_scope,
        max(meter) as meter,
        max(meter_device_type) as device_type,
        max(engine) as engine,
        max(case when is_counted then 1 else 0 end) = 1 as is_counted
    from identities
    group by series_id, source, metric, stream

),

-- What rises more steeply is no energy but a leap, which the book leaves out too.
limited_series as (

    select
        identified_series.*,
        case when quantity = 'energy' and kind = 'counter'
            then coalesce(
                case when meter_scope = 'board' then {{ possible_power_factor() }} * device_types.power_limit_watts end,
                {{ ceiling_watts('meter_scope') }}
            ) / factor
            when stream = 'tokens' and kind = 'counter' then {{ var('most_tokens_per_second') }} / factor
        end as possible_per_second,
        quantity = 'energy' and meter_scope = 'board' and device_types.power_limit_watts is not null as is_limited
    from identified_series
    left join device_types on identified_series.device_type = device_types.device_type

),

chunk_days as (

    select
        cast(chunks.chunk_start_at as date) as date,
        chunks.series_id,
        sum(chunks.samples) as samples,
        sum(chunks.rejects + chunks.duplicates) as rejected_samples,
        sum(chunks.falls) + count(*) - 1 as troubles,
        min({{ epoch_us('chunks.first_at') }}) as first_us,
        min_by(chunks.first_value, chunks.first_at) as first_value,
        max({{ epoch_us('chunks.last_at') }}) as last_us,
        max_by(chunks.last_value, chunks.last_at) as last_value,
        greatest(min(chunks.typical_interval_seconds), max(sources.interval_seconds)) as sampling_interval_seconds,
        coalesce(max(chunks.steepest_rise_per_second) > max(limited_series.possible_per_second), false) as has_leapt,
        max(chunks.longest_gap_seconds) * 1e6
            > {{ gap_cap_us('greatest(min(chunks.typical_interval_seconds), max(sources.interval_seconds))') }}
        or count(*) > 1 as has_gaps
    from chunks
    inner join limited_series on chunks.series_id = limited_series.series_id
    left join sources on limited_series.source = sources.source
    group by 1, 2

),

-- With what each counter showed at the end of the day before: below it, the date's first sample is a restart or a bad
-- scrape.
neighboured_days as (

    select
        *,
        case when lag(date) over day_window = date - 1 then lag(last_us) over day_window end as previous_us,
        case when lag(date) over day_window = date - 1 then lag(last_value) over day_window end as previous_value
    from chunk_days
    window day_window as (partition by series_id order by date)

),

series_days as (

    select
        *,
        case when previous_value > first_value then previous_us end as fallen_from_us,
        case when previous_value > first_value then previous_value end as fallen_from
    from neighboured_days
    where {{ in_run('date') }}

),

-- In whole milliwatts: a sum of whole numbers is the same in any order. What no meter of its scope can read is no
-- energy.
gauge_means as (

    select
        {{ date_of_us('day_number * ' ~ day_us()) }} as date,
        series_id,
        milliwatts / 1e3 / samples as mean_watts
    from (
        select
            samples.series_id,
            {{ int_div(epoch_us('samples.observed_at'), day_us()) }} as day_number,
            sum(cast(floor(samples.value * limited_series.factor * 1e3 + 0.5) as bigint)) as milliwatts,
            count(*) as samples
        from {{ source('raw', 'power_samples') }} as samples
        inner join limited_series on samples.series_id = limited_series.series_id and limited_series.quantity = 'power'
        where samples.observed_at >= {{ run_start_at() }}
            and samples.observed_at < {{ run_end_at() }}
            and {{ is_valid_sample('samples.value') }}
            and samples.value * limited_series.factor < {{ ceiling_watts('limited_series.meter_scope') }}
        group by 1, 2
    ) as summed

),

-- Counters that fell or leapt and gauges that paused are looked at sample by sample.
troubled_days as (

    select
        series_days.date,
        series_days.series_id,
        limited_series.stream,
        limited_series.kind,
        limited_series.possible_per_second,
        limited_series.is_limited,
        {{ gap_cap_us('series_days.sampling_interval_seconds') }} as cap_us,
        series_days.fallen_from_us,
        series_days.fallen_from
    from series_days
    inner join limited_series on series_days.series_id = limited_series.series_id
    where (
        limited_series.kind = 'counter'
        and (series_days.troubles > 0 or series_days.has_leapt or series_days.fallen_from is not null)
    )
        or (limited_series.kind = 'gauge' and series_days.has_gaps)

),

troubled_samples as (

    {% for stream in ['power', 'tokens'] -%}
    select
        troubled_days.date,
        troubled_days.cap_us,
        troubled_days.possible_per_second,
        troubled_days.is_limited,
        samples.series_id,
        {{ epoch_us('samples.observed_at') }} as observed_us,
        samples.value
    from {{ source('raw', 'power_samples') if stream == 'power' else ref('stg_token_samples') }} as samples
    inner join troubled_days
        on samples.series_id = troubled_days.series_id
        and {{ int_div(epoch_us('samples.observed_at'), day_us()) }}
            = {{ int_div(epoch_us('cast(troubled_days.date as ' ~ timestamp_type() ~ ')'), day_us()) }}
    where troubled_days.stream = '{{ stream }}'
        and samples.observed_at >= {{ run_start_at() }}
        and samples.observed_at < {{ run_end_at() }}
        and {{ is_valid_sample('samples.value') }}
    union all
    {% endfor -%}
    select date, cap_us, possible_per_second, is_limited, series_id, fallen_from_us as observed_us, fallen_from as value
    from troubled_days
    where kind = 'counter' and fallen_from is not null

),

troubled_steps as (

    select
        *,
        observed_us - lag(observed_us) over sample_window as step_us,
        lag(value) over sample_window as before_value,
        lag(value, 2) over sample_window as earlier_value
    from troubled_samples
    window sample_window as (partition by date, series_id order by observed_us, value)

),

-- Where no type's limit is known, and of tokens, one rise is assessed by itself.
steps as (

    select
        *,
        greatest(value - before_value, 0) as risen,
        case when is_limited then possible_per_second end as watts,
        possible_per_second as ceiling,
        observed_us - step_us as from_us,
        observed_us as to_us
    from troubled_steps

),

{{ metered_leap_ctes('steps', 'date, series_id') }}

-- A value that comes back to where it was before a fall rose from there, not from the bottom of the dip.
looked_at as (

    select
        date,
        series_id,
        {{ exact_sum('case
            when before_value < earlier_value and value >= earlier_value then value - earlier_value
            when is_leap then 0
            when value > before_value then value - before_value
            else 0
        end') }} as risen,
        sum(case when step_us <= cap_us then step_us else 0 end) / 1e6 as covered_seconds
    from steps_assessed
    group by date, series_id

),

final as (

    select
        series_days.*,
        limited_series.source,
        limited_series.metric,
        limited_series.stream,
        limited_series.quantity,
        limited_series.meter_scope,
        limited_series.meter,
        limited_series.engine,
        limited_series.is_counted,
        case
            when series_days.samples = 0 then 0
            when limited_series.kind = 'counter' then (series_days.last_us - series_days.first_us) / 1e6
            else coalesce(looked_at.covered_seconds, (series_days.last_us - series_days.first_us) / 1e6)
        end as covered_seconds,
        case
            when series_days.samples = 0 then null
            when limited_series.kind = 'counter'
                then coalesce(cast(looked_at.risen as double), series_days.last_value - series_days.first_value) * limited_series.factor
        end as risen,
        gauge_means.mean_watts
    from series_days
    inner join limited_series on series_days.series_id = limited_series.series_id
    left join looked_at on series_days.date = looked_at.date and series_days.series_id = looked_at.series_id
    left join gauge_means on series_days.date = gauge_means.date and series_days.series_id = gauge_means.series_id

)

select * from final
