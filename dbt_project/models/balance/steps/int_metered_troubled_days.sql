-- What each meter measured on each date with trouble, sample by sample: a counter's falls, repeats and leaps are looked
-- at one by one; gauges are weighted by the time that each sample covers. One row per date and meter whose energy is no
-- difference of a counter. Reads raw, the catalogues and int_metered_readings alone, on purpose.
{# int_metered_days alone reads it. #}
{{ config(materialized='view' if target.type == 'duckdb' else 'table') }}

with readings as (

    select * from {{ ref('int_metered_readings') }}

),

series as (

    select * from {{ ref('int_label_identities') }}
    where stream = 'power' and quantity in ('energy', 'power') and meter is not null

),

-- `place` is a short key for date, scope and meter while millions of samples are sorted by it.
troubled as (

    select
        *,
        row_number() over (order by date, meter_scope, meter) as place
    from readings
    where preference = 1
        and not is_shared
        and not ({{ is_calm_reading() }})

),

-- Whether the neighbour's first or last sample is a dip is seen only from the sample behind it.
{% for neighbour, beyond, nearest in [('previous', '<', 'max'), ('next', '>', 'min')] -%}
{{ neighbour }}_dips as (

    select
        *,
        {{ int_div(neighbour ~ '_us', day_us()) }} as day_number
    from troubled
    where kind = 'counter'
        {% if neighbour == 'previous' -%}
        and previous_value < coalesce(first_value, next_value)
        and troubles > 0
        {%- else -%}
        and next_value < coalesce(last_value, previous_value)
        {%- endif %}

),

{{ neighbour }}_span as (

    select
        {{ from_epoch_us('min(day_number) * ' ~ day_us()) }} as start_at,
        {{ from_epoch_us('(max(day_number) + 1) * ' ~ day_us()) }} as end_at
    from {{ neighbour }}_dips
    having count(*) > 0

),

beyond_{{ neighbour }} as (

    select
        place,
        start_us,
        {{ nearest }}(observed_us) as observed_us,
        {{ nearest }}_by(value, observed_us) as value
    from (
        select
            dips.place,
            dips.start_us,
            {{ epoch_us('samples.observed_at') }} as observed_us,
            max(samples.value * series.factor) as value
        from {{ source('raw', 'power_samples') }} as samples
        inner join series on samples.series_id = series.series_id
        inner join {{ neighbour }}_dips as dips
            on series.reading_id = dips.reading_id
            and {{ int_div(epoch_us('samples.observed_at'), day_us()) }} = dips.day_number
            and {{ epoch_us('samples.observed_at') }} {{ beyond }} dips.{{ neighbour }}_us
        cross join {{ neighbour }}_span as span
        where samples.observed_at >= span.start_at
            and samples.observed_at < span.end_at
            and {{ is_valid_sample('samples.value') }}
        group by dips.place, dips.start_us, samples.observed_at
    ) as timed
    group by place, start_us

),

{% endfor -%}
troubled_span as (

    select
        {{ from_epoch_us(
            'min(least(troubled.start_us, coalesce(beyond_previous.observed_us, previous_us, troubled.start_us)))'
        ) }} as start_at,
        {{ from_epoch_us('max(greatest(end_us, coalesce(beyond_next.observed_us, next_us, end_us)))') }} as end_at
    from troubled
    left join beyond_previous on troubled.place = beyond_previous.place
    left join beyond_next on troubled.place = beyond_next.place
    having count(*) > 0

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
        and (
            troubled.kind = 'counter'
            or samples.value * series.factor
                <= coalesce(troubled.possible_watts, {{ ceiling_watts('troubled.meter_scope') }})
            or (
                samples.value * series.factor <= troubled.midnight_watts
                and {{ epoch_us('samples.observed_at') }} in (troubled.first_us, troubled.last_us)
            )
        )

),

-- The date's own samples, the last one before the date and the first one after it.
troubled_points as (

    select place, is_counter, start_us, observed_us, value
    from samples_of_troubled
    where not has_repeats
    union all
    select place, is_counter, start_us, observed_us, max(value) as value
    from samples_of_troubled
    where has_repeats
    group by place, is_counter, start_us, observed_us
    {%- for neighbour, own in [('previous', 'first'), ('next', 'last')] %}
    union all
    select
        place,
        kind = 'counter' as is_counter,
        start_us,
        {{ neighbour }}_us as observed_us,
        {{ neighbour }}_value as value
    from troubled
    where {{ neighbour }}_us is not null
        -- Where one of the two samples beside a midnight is refused, the energy between them is unknown.
        and (
            kind = 'counter'
            or greatest({{ neighbour }}_value, {{ own }}_value)
                <= coalesce(midnight_watts, {{ ceiling_watts('meter_scope') }})
        )
    union all
    select place, true as is_counter, start_us, observed_us, value from beyond_{{ neighbour }}
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
            when before_us < start_us or after_us >= end_us
                then after_value - value > midnight_watts * (after_us - observed_us) / 1e6
                and after_value - before_value <= midnight_watts * (after_us - before_us) / 1e6
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
        case
            when before_us < start_us or observed_us >= end_us then troubled.midnight_watts
            else troubled.possible_watts
        end as watts,
        {{ ceiling_watts('troubled.meter_scope') }} as ceiling,
        case when value >= before_value then value - before_value else value end as risen,
        before_us as from_us,
        observed_us as to_us,
        start_us,
        end_us
    from kept_counts
    inner join troubled on kept_counts.place = troubled.place
    where before_us < observed_us and before_us < end_us and observed_us > start_us

),

{{ metered_leap_ctes('differences', 'place') }}

gauge_means as (

    select
        differences.place,
        differences.before_us,
        {{ ratio(exact_sum('samples.value * gauge_series.factor'), 'count(*)') }} as mean_watts
    from differences_assessed as differences
    inner join gauge_series
        on differences.meter = gauge_series.meter
        and differences.meter_scope = gauge_series.meter_scope
    inner join {{ source('raw', 'power_samples') }} as samples
        on gauge_series.series_id = samples.series_id
        and {{ epoch_us('samples.observed_at') }} between differences.before_us and differences.observed_us
        and {{ is_valid_sample('samples.value') }}
        and samples.value * gauge_series.factor
            <= coalesce(differences.watts, differences.ceiling)
    cross join troubled_span
    where differences.is_leap
        and samples.observed_at >= troubled_span.start_at
        and samples.observed_at <= troubled_span.end_at
    group by differences.place, differences.before_us

),

counted as (

    select
        differences.place,
        sum({{ exact(
            "case"
            ~ " when is_leap then coalesce(mean_watts, 0) * (least(to_us, end_us) - greatest(from_us, start_us)) / 1e6"
            ~ " else risen * ((least(to_us, end_us) - greatest(from_us, start_us)) / cast(to_us - from_us as double))"
            ~ " end"
        ) }}) as metered_joules
    from differences_assessed as differences
    left join gauge_means
        on differences.place = gauge_means.place and differences.before_us = gauge_means.before_us
    group by differences.place

),

gauged_steps as (

    select
        gauge_points.*,
        case when observed_us < end_us then cap_us else next_cap_us end as step_cap_us,
        greatest(before_us, start_us) as from_us,
        least(observed_us, end_us) as to_us
    from gauge_points
    inner join troubled on gauge_points.place = troubled.place
    where before_us < observed_us
        and before_us < end_us
        and observed_us > start_us

),

gauged as (

    select
        place,
        sum({{ exact(
            "case"
            ~ " when observed_us - before_us > step_cap_us then 0"
            ~ " else"
            ~ " ((before_value"
            ~ " + (value - before_value) * ((from_us - before_us) / cast(observed_us - before_us as double)))"
            ~ " + (before_value"
            ~ " + (value - before_value) * ((to_us - before_us) / cast(observed_us - before_us as double))))"
            ~ " / 2 * (to_us - from_us) / 1e6"
            ~ " end"
        ) }}) as metered_joules
    from gauged_steps
    group by place

),

final as (

    select
        troubled.date,
        troubled.meter_scope,
        troubled.meter,
        coalesce(counted.metered_joules, gauged.metered_joules) as metered_joules
    from troubled
    left join counted on troubled.place = counted.place
    left join gauged on troubled.place = gauged.place

)

select * from final
