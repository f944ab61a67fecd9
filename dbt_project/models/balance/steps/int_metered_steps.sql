-- Each sample of a meter whose readings take turns, with the next one of its reading, from raw: what a counter rose
-- until then, what a gauge showed. Reads raw, the catalogues and what is refuted, none of the book's other steps. One
-- row per reading of a meter and kept sample; the last has no next, nor has one that begins a refuted standstill.
with shared_days as (

    select * from {{ ref('int_shared_meter_days') }}

),

series as (

    select * from {{ ref('int_label_identities') }} where stream = 'power'

),

device_types as (

    select * from {{ ref('stg_device_types') }}

),

sources as (

    select * from {{ source('fleet', 'sources') }}

),

chunks as (

    select
        series_id,
        {{ int_div(epoch_us('chunk_start_at'), day_us()) }} as day_number,
        {{ epoch_us('first_at') }} as first_us,
        first_value,
        {{ epoch_us('last_at') }} as last_us,
        last_value,
        samples,
        falls,
        typical_interval_seconds
    from {{ source('raw', 'series_chunks') }}
    where samples > 0

),

shared_meters as (

    select
        shared_days.meter_scope,
        shared_days.meter,
        {{ int_div('min(from_us)', day_us()) }} as first_day,
        {{ int_div('max(to_us)', day_us()) }} as last_day,
        max(case when meter_scope = 'board' then {{ possible_power_factor() }} * device_types.power_limit_watts end) as type_watts
    from shared_days
    left join device_types on shared_days.device_type = device_types.device_type
    group by shared_days.meter_scope, shared_days.meter

),

reported_limits as (

    select
        series.meter,
        chunks.day_number,
        max(
            {{ possible_power_factor() }}
                * case
                    when chunks.last_value * series.factor <= {{ ceiling_watts("'board'") }}
                        then chunks.last_value * series.factor
                end
        ) as reported_watts
    from chunks
    inner join series on chunks.series_id = series.series_id and series.quantity = 'power_limit'
    inner join shared_meters
        on series.meter = shared_meters.meter and shared_meters.meter_scope = 'board' and shared_meters.type_watts is null
    group by series.meter, chunks.day_number

),

members as (

    select
        shared_meters.*,
        series.series_id,
        series.reading_id,
        series.factor,
        series.kind = 'counter' as is_counter,
        sources.interval_seconds,
        dense_rank() over (
            partition by shared_meters.meter_scope, shared_meters.meter
            order by series.rank, series.source, series.metric, series.reading_id
        ) as place
    from series
    inner join shared_meters on series.meter_scope = shared_meters.meter_scope and series.meter = shared_meters.meter
    left join sources on series.source = sources.source
    where series.quantity in ('energy', 'power')

),

member_chunks as (

    select
        members.*,
        chunks.day_number,
        chunks.first_us,
        chunks.first_value,
        chunks.last_us,
        chunks.last_value,
        chunks.samples,
        chunks.falls,
        min(chunks.typical_interval_seconds) over (partition by members.reading_id, chunks.day_number) as typical_interval_seconds,
        max(
            case when chunks.day_number < members.first_day then chunks.day_number end
        ) over (partition by members.reading_id) as day_before,
        min(case when chunks.day_number > members.last_day then chunks.day_number end) over (partition by members.reading_id) as day_after
    from chunks
    inner join members on chunks.series_id = members.series_id

),

whole_chunks as (

    select * from member_chunks
    where day_number between first_day and last_day
        or (falls > 0 and (day_number = day_before or day_number = day_after))

),

whole_span as (

    select
        {{ from_epoch_us('min(day_number) * ' ~ day_us()) }} as start_at,
        {{ from_epoch_us('(max(day_number) + 1) * ' ~ day_us()) }} as end_at
    from whole_chunks
    having count(*) > 0

),

sampled as (

    select
        whole_chunks.meter_scope,
        whole_chunks.meter,
        whole_chunks.place,
        whole_chunks.is_counter,
        whole_chunks.type_watts,
        {{ epoch_us('samples.observed_at') }} as observed_us,
        samples.value * whole_chunks.factor as value
    from {{ source('raw', 'power_samples') }} as samples
    inner join whole_chunks
        on samples.series_id = whole_chunks.series_id
        and {{ int_div(epoch_us('samples.observed_at'), day_us()) }} = whole_chunks.day_number
    cross join whole_span
    where {{ is_valid_sample('samples.value') }}
        and samples.observed_at >= whole_span.start_at
        and samples.observed_at < whole_span.end_at
        and (
            whole_chunks.is_counter
            or samples.value * whole_chunks.factor
                <= coalesce(
                    {{ doubted_limit_factor() }} * whole_chunks.type_watts,
                    {{ ceiling_watts('whole_chunks.meter_scope') }}
                )
        )
    union all
    select
        meter_scope,
        meter,
        place,
        is_counter,
        type_watts,
        case when day_number = day_after then first_us else last_us end as observed_us,
        case when day_number = day_after then first_value else last_value end * factor as value
    from member_chunks
    where falls = 0
        and (day_number = day_before or day_number = day_after)
        and (
            is_counter
            or case when day_number = day_after then first_value else last_value end * factor
                <= coalesce({{ doubted_limit_factor() }} * type_watts, {{ ceiling_watts('meter_scope') }})
        )

),

dates_of_places as (

    select
        meter_scope,
        meter,
        place,
        day_number,
        min(first_us) as first_us,
        max(last_us) as last_us,
        {{ gap_cap_us('greatest(min(typical_interval_seconds), max(interval_seconds))') }} as cap_us
    from member_chunks
    group by meter_scope, meter, place, day_number

),

-- Dates on which the limit itself is probably wrong: at least 90 % of the gauge's samples are above it, or without a
-- gauge the counter's mean is, but none by more than doubted_limit_factor().
wrong_limits as (

    select
        meter_days.meter_scope,
        meter_days.meter,
        meter_days.day_number
    from (
        select
            meter_scope,
            meter,
            day_number,
            max(type_watts) as type_watts,
            sum(case when is_counter then 0 else samples end) as gauge_samples,
            {{ exact_sum('case when is_counter and falls = 0 then (last_value - first_value) * factor end') }} as joules,
            sum(case when is_counter and falls = 0 then last_us - first_us end) / 1e6 as seconds
        from member_chunks
        group by meter_scope, meter, day_number
    ) as meter_days
    left join (
        select
            meter_scope,
            meter,
            {{ int_div('observed_us', day_us()) }} as day_number,
            count(*) as samples
        from sampled
        where not is_counter and value > type_watts
        group by meter_scope, meter, {{ int_div('observed_us', day_us()) }}
    ) as above
        on {{ equal_keys('meter_days', 'above', ['meter_scope', 'meter', 'day_number']) }}
    where case
        when meter_days.gauge_samples > 0 then above.samples >= 0.9 * meter_days.gauge_samples
        else cast(meter_days.joules as double) > meter_days.type_watts * meter_days.seconds
            and cast(meter_days.joules as double) <= meter_days.type_watts * meter_days.seconds * {{ doubted_limit_factor() }}
    end

),

accepted as (

    select
        sampled.*,
        ends_of_dates.day_number,
        wrong_limits.meter is not null as has_wrong_limit
    from sampled
    inner join dates_of_places as ends_of_dates
        on {{ equal_keys('sampled', 'ends_of_dates', ['meter_scope', 'meter', 'place']) }}
        and {{ int_div('sampled.observed_us', day_us()) }} = ends_of_dates.day_number
    left join wrong_limits
        on sampled.meter_scope = wrong_limits.meter_scope
        and sampled.meter = wrong_limits.meter
        and ends_of_dates.day_number = wrong_limits.day_number
    where sampled.is_counter
        or wrong_limits.meter is not null
        or sampled.observed_us = ends_of_dates.first_us
        or sampled.observed_us = ends_of_dates.last_us
        or coalesce(sampled.value <= sampled.type_watts, true)

),

stretches as (

    select
        places.meter_scope,
        places.meter,
        places.place,
        places.is_counter,
        stretches.from_us,
        stretches.to_us,
        stretches.is_caught_up,
        stretches.most_watts
    from {{ ref('int_refuted_stretches') }} as stretches
    inner join (select distinct meter_scope, meter, place, is_counter, reading_id from members) as places
        on stretches.reading_id = places.reading_id

),

points as (

    select
        sampled.meter_scope,
        sampled.meter,
        sampled.place,
        sampled.observed_us,
        max(sampled.value) as value,
        max(
            coalesce(sampled.type_watts, reported_limits.reported_watts)
                * case when sampled.has_wrong_limit then {{ doubted_limit_factor() }} else 1 end
        ) as possible_watts,
        max(coalesce(sampled.type_watts, reported_limits.reported_watts)) * {{ doubted_limit_factor() }} as midnight_watts,
        max(case when sampled.is_counter then 1 else 0 end) = 1 as is_counter
    from accepted as sampled
    left join reported_limits
        on sampled.meter = reported_limits.meter and {{ int_div('sampled.observed_us', day_us()) }} = reported_limits.day_number
    where not exists (
        select 1 from stretches
        where {{ equal_keys('stretches', 'sampled', ['meter_scope', 'meter', 'place']) }}
            and (
                (stretches.is_counter and sampled.observed_us > stretches.from_us and sampled.observed_us < stretches.to_us)
                or (
                    not stretches.is_counter
                    and sampled.observed_us >= stretches.from_us
                    and sampled.observed_us <= stretches.to_us
                    and sampled.value <= stretches.most_watts
                )
            )
    )
    group by sampled.meter_scope, sampled.meter, sampled.place, sampled.observed_us

),

seen_points as (

    select
        *,
        lag(value) over point_window as before_value,
        lag(observed_us) over point_window as before_us,
        lead(value) over point_window as after_value,
        lead(observed_us) over point_window as after_us
    from points
    window point_window as (partition by meter_scope, meter, place order by observed_us)

),

kept_points as (

    select * from seen_points
    where not is_counter or not coalesce(
        value < before_value
        and after_value >= before_value
        and case
            when possible_watts is null then true
            when {{ int_div('before_us', day_us()) }} <> {{ int_div('after_us', day_us()) }}
                then after_value - value > midnight_watts * (after_us - observed_us) / 1e6
                and after_value - before_value <= midnight_watts * (after_us - before_us) / 1e6
            else after_value - value > possible_watts * (after_us - observed_us) / 1e6
                and after_value - before_value <= possible_watts * (after_us - before_us) / 1e6
        end,
        false
    )

),

-- Each sample with the next one of its reading.
neighbours as (

    select
        meter_scope,
        meter,
        place,
        is_counter,
        observed_us,
        value,
        lead(observed_us) over point_window as until_us,
        lead(value) over point_window as until_value,
        lead(possible_watts) over point_window as possible_watts,
        lead(midnight_watts) over point_window as midnight_watts
    from kept_points
    window point_window as (partition by meter_scope, meter, place order by observed_us)

),

paired as (

    select
        neighbours.meter_scope,
        neighbours.meter,
        neighbours.place,
        neighbours.is_counter,
        neighbours.observed_us,
        neighbours.value,
        case when stretches.place is null then neighbours.until_us end as until_us,
        neighbours.until_value,
        neighbours.possible_watts,
        neighbours.midnight_watts
    from neighbours
    left join stretches
        on {{ equal_keys('neighbours', 'stretches', ['meter_scope', 'meter', 'place']) }}
        and stretches.is_counter
        and not stretches.is_caught_up
        and neighbours.until_value = neighbours.value
        and neighbours.until_us >= stretches.from_us
        and neighbours.until_us <= stretches.to_us

),

rises as (

    select
        *,
        case when until_value >= value then until_value - value else until_value end as risen,
        case
            when {{ int_div('observed_us', day_us()) }} <> {{ int_div('until_us', day_us()) }}
                then midnight_watts
            else possible_watts
        end as watts,
        {{ ceiling_watts('meter_scope') }} as ceiling,
        observed_us as from_us,
        until_us as to_us
    from paired

),

{{ metered_leap_ctes('rises', 'meter_scope, meter, place') }}

final as (

    select
        {{ columns_of('rises_assessed', [
            'meter_scope', 'meter', 'place', 'is_counter', 'observed_us', 'value', 'until_us', 'until_value', 'risen',
            'possible_watts', 'midnight_watts'
        ]) }},
        is_counter and until_value < value as has_fallen,
        coalesce(is_counter and is_leap, false) as is_counted_leap,
        coalesce(until_us - observed_us > caps.cap_us, false) as is_silence
    from rises_assessed
    left join dates_of_places as caps
        on {{ equal_keys('rises_assessed', 'caps', ['meter_scope', 'meter', 'place']) }}
        and {{ int_div('rises_assessed.until_us', day_us()) }} = caps.day_number

)

select * from final
