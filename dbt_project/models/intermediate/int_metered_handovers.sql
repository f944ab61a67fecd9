-- What raw says a meter measured on a date on which several of its readings, or the node's meter and its boards, take turns. All sample times
-- of a meter cut its time into moments; each has the joules of the best reading that steps over it, and then the counter's difference
-- settles the sum of its gap. Reads raw and the catalogues, none of the book's steps. One row per date and meter.
with readings as (

    select * from {{ ref('int_metered_readings') }}

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

shared_days as (

    select
        date,
        meter_scope,
        meter,
        min(start_us) as start_us,
        min(end_us) as end_us,
        max(node) as node,
        max(case when is_node_shared then 1 else 0 end) = 1 as is_node_shared,
        max(node_cap_us) as node_cap_us,
        max(device_type) as device_type,
        min(least(start_us, case when kind = 'counter' then coalesce(previous_us, first_us) end)) as from_us,
        max(greatest(end_us - 1, case when kind = 'counter' then coalesce(next_us, last_us) end)) as to_us
    from readings
    where is_shared
    group by date, meter_scope, meter

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
        max({{ possible_power_factor() }} * chunks.last_value * series.factor) as reported_watts
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
            partition by shared_meters.meter_scope, shared_meters.meter order by series.rank, series.source, series.metric, series.reading_id
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
        max(case when chunks.day_number < members.first_day then chunks.day_number end) over (partition by members.reading_id) as day_before,
        min(case when chunks.day_number > members.last_day then chunks.day_number end) over (partition by members.reading_id) as day_after
    from chunks
    inner join members on chunks.series_id = members.series_id

),

whole_chunks as (

    select * from member_chunks
    where day_number between first_day and last_day
        or (falls > 0 and (day_number = day_before or day_number = day_after))

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
    where {{ is_valid_sample('samples.value') }}
        and samples.observed_at >= (select {{ from_epoch_us('min(day_number) * ' ~ day_us()) }} from whole_chunks)
        and samples.observed_at < (select {{ from_epoch_us('(max(day_number) + 1) * ' ~ day_us()) }} from whole_chunks)
        and (whole_chunks.is_counter or samples.value * whole_chunks.factor <= coalesce({{ doubted_limit_factor() }} * whole_chunks.type_watts, {{ ceiling_watts('whole_chunks.meter_scope') }}))
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
        and (is_counter or case when day_number = day_after then first_value else last_value end * factor <= coalesce({{ doubted_limit_factor() }} * type_watts, {{ ceiling_watts('meter_scope') }}))

),

places as (

    select
        meter_scope,
        meter,
        place,
        max(case when is_counter then 1 else 0 end) = 1 as is_counter,
        max(type_watts) as type_watts,
        max(interval_seconds) as interval_seconds
    from members
    group by meter_scope, meter, place

),

caps as (

    select
        meter_scope,
        meter,
        place,
        day_number,
        {{ gauge_gap_factor() }} * 1e6 * coalesce(min(typical_interval_seconds), max(interval_seconds)) as cap_us
    from member_chunks
    group by meter_scope, meter, place, day_number

),

-- Dates on which nearly all that the gauge says, else the counter's mean, is above the limit, but not by more than it may be wrong.
wrong_limits as (

    select
        told.meter_scope,
        told.meter,
        told.day_number
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
    ) as told
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
        on told.meter_scope = above.meter_scope and told.meter = above.meter and told.day_number = above.day_number
    where case
        when told.gauge_samples > 0 then above.samples >= 0.9 * told.gauge_samples
        else cast(told.joules as double) > told.type_watts * told.seconds
            and cast(told.joules as double) <= told.type_watts * told.seconds * {{ doubted_limit_factor() }}
    end

),

ends_of_dates as (

    select
        meter_scope,
        meter,
        place,
        day_number,
        min(first_us) as first_us,
        max(last_us) as last_us
    from member_chunks
    group by meter_scope, meter, place, day_number

),

believed as (

    select
        sampled.*,
        ends_of_dates.day_number,
        wrong_limits.meter is not null as has_wrong_limit
    from sampled
    inner join ends_of_dates
        on sampled.meter_scope = ends_of_dates.meter_scope
        and sampled.meter = ends_of_dates.meter
        and sampled.place = ends_of_dates.place
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

points as (

    select
        sampled.meter_scope,
        sampled.meter,
        sampled.place,
        sampled.observed_us,
        max(sampled.value) as value,
        max(coalesce(places.type_watts, reported_limits.reported_watts) * case when sampled.has_wrong_limit then {{ doubted_limit_factor() }} else 1 end) as possible_watts,
        max(coalesce(places.type_watts, reported_limits.reported_watts)) * {{ doubted_limit_factor() }} as midnight_watts,
        max(case when places.is_counter then 1 else 0 end) = 1 as is_counter
    from believed as sampled
    inner join places
        on sampled.meter_scope = places.meter_scope and sampled.meter = places.meter and sampled.place = places.place
    left join reported_limits
        on sampled.meter = reported_limits.meter and {{ int_div('sampled.observed_us', day_us()) }} = reported_limits.day_number
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
paired as (

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

stepped as (

    select
        paired.*,
        case when until_value >= value then until_value - value else until_value end as risen,
        is_counter and until_value < value as has_fallen,
        case when {{ int_div('observed_us', day_us()) }} <> {{ int_div('until_us', day_us()) }} then paired.midnight_watts else paired.possible_watts end as leap_watts,
        coalesce(until_us - observed_us > caps.cap_us, false) as is_silence
    from paired
    inner join caps
        on paired.meter_scope = caps.meter_scope
        and paired.meter = caps.meter
        and paired.place = caps.place
        and {{ int_div('paired.until_us', day_us()) }} = caps.day_number

),

cuts as (

    select meter_scope, meter, observed_us as at_us from kept_points
    union
    select meter_scope, meter, start_us as at_us from shared_days
    union
    select meter_scope, meter, end_us as at_us from shared_days

),

moments as (

    select
        meter_scope,
        meter,
        at_us,
        lead(at_us) over (partition by meter_scope, meter order by at_us) as to_us
    from cuts

),

-- Every reading of the meter at every moment: the sample that it saw last.
held as (

    select
        moments.meter_scope,
        moments.meter,
        moments.at_us,
        moments.to_us,
        places.place,
        max(kept_points.observed_us) over (
            partition by moments.meter_scope, moments.meter, places.place order by moments.at_us
        ) as held_us
    from moments
    inner join places on moments.meter_scope = places.meter_scope and moments.meter = places.meter
    left join kept_points
        on places.meter_scope = kept_points.meter_scope
        and places.meter = kept_points.meter
        and places.place = kept_points.place
        and moments.at_us = kept_points.observed_us
    where moments.to_us is not null

),

told as (

    select
        held.*,
        stepped.until_us,
        stepped.risen,
        stepped.has_fallen,
        stepped.possible_watts,
        stepped.is_counter and stepped.risen
            > coalesce(stepped.leap_watts, {{ ceiling_watts('held.meter_scope') }}) * (stepped.until_us - held_us) / 1e6 as is_leap,
        stepped.is_silence
        or (stepped.is_counter and stepped.risen
            > coalesce(stepped.leap_watts, {{ ceiling_watts('held.meter_scope') }}) * (stepped.until_us - held_us) / 1e6) as is_open,
        stepped.is_counter,
        case when stepped.is_counter then stepped.risen / (stepped.until_us - held_us) * 1e6
            else value + (until_value - value) * ((at_us - held_us) / cast(until_us - held_us as double))
        end as from_watts,
        case when stepped.is_counter then stepped.risen / (stepped.until_us - held_us) * 1e6
            else value + (until_value - value) * ((to_us - held_us) / cast(until_us - held_us as double))
        end as to_watts
    from held
    inner join stepped
        on held.meter_scope = stepped.meter_scope
        and held.meter = stepped.meter
        and held.place = stepped.place
        and held.held_us = stepped.observed_us

),

ranked as (

    select
        *,
        min(case when not is_open then place end) over (partition by meter_scope, meter, at_us) as best_place,
        min(case when is_open and is_counter then place end) over (partition by meter_scope, meter, at_us) as open_place
    from told

),

-- One row per moment: who tells it, and whose gap it lies in.
resolved as (

    select
        meter_scope,
        meter,
        at_us,
        min(to_us) as to_us,
        min(best_place) as best_place,
        case when min(open_place) < coalesce(min(best_place), 1000000) then min(open_place) end as open_place,
        max(case when place = best_place then from_watts end) as from_watts,
        max(case when place = best_place then to_watts end) as to_watts
    from ranked
    group by meter_scope, meter, at_us

),

valued as (

    select
        *,
        {{ exact('(from_watts + to_watts) / 2 * (to_us - at_us) / 1e6') }} as joules
    from resolved

),

gaps as (

    select
        ranked.meter_scope,
        ranked.meter,
        ranked.place,
        ranked.held_us,
        max(ranked.until_us) - ranked.held_us as gap_us,
        max(ranked.risen) as risen,
        max(ranked.possible_watts) as possible_watts,
        max(case when ranked.has_fallen then 1 else 0 end) = 1 as has_fallen,
        max(case when ranked.is_leap then 1 else 0 end) = 1 as is_leap,
        cast(sum(case when valued.open_place is null then valued.joules end) as double) as better_joules,
        sum(case when valued.open_place < ranked.place then valued.to_us - valued.at_us end) as elsewhere_us,
        cast(sum(case when valued.open_place = ranked.place then valued.joules end) as double) as told_joules,
        sum(case when valued.open_place = ranked.place and valued.best_place is not null then valued.to_us - valued.at_us end) as told_us,
        sum(case when valued.open_place = ranked.place and valued.best_place is null then valued.to_us - valued.at_us end) as untold_us
    from ranked
    inner join valued
        on ranked.meter_scope = valued.meter_scope and ranked.meter = valued.meter and ranked.at_us = valued.at_us
    where ranked.is_open and ranked.is_counter
    group by ranked.meter_scope, ranked.meter, ranked.place, ranked.held_us

),

due as (

    select
        *,
        greatest(
            risen - coalesce(better_joules, 0) - risen * (coalesce(elsewhere_us, 0) / cast(gap_us as double)), 0
        ) as due_joules,
        gap_us > {{ var('max_spread_seconds') | int * 1000000 }} as is_too_long
    from gaps

),

-- What all moments of a gap have together: those that a gauge tells (`told_total`) and the others (`untold_total`).
untold as (

    select
        *,
        case
            when is_leap or (has_fallen and told_us is not null) then null
            when told_us is null then due_joules
            when untold_us is null then 0
            when is_too_long then greatest(due_joules - told_joules, 0)
            when told_joules = 0 then due_joules
            when possible_watts is null then greatest(due_joules - told_joules, 0)
            else least(greatest(due_joules - told_joules, 0), possible_watts * untold_us / 1e6)
        end as untold_total
    from due

),

settled as (

    select
        *,
        case when is_leap or has_fallen or is_too_long then told_joules else due_joules - coalesce(untold_total, 0) end as told_total
    from untold

),

totalled as (

    select
        valued.meter_scope,
        valued.meter,
        valued.at_us,
        valued.to_us,
        case
            when settled.place is null then 1
            when settled.told_joules > 0 then settled.told_total / settled.told_joules
            else 1
        end as scale,
        -- Watts that come from a gap's total alone.
        case
            when valued.open_place is null then 0
            when valued.best_place is null then settled.untold_total / settled.untold_us * 1e6
            when settled.told_joules = 0 and settled.told_total > 0 then settled.told_total / settled.told_us * 1e6
            else 0
        end as flat_watts,
        valued.best_place,
        valued.from_watts,
        valued.to_watts,
        valued.best_place is not null
        or (settled.untold_total is not null and not (settled.is_too_long and settled.told_us is not null and settled.untold_total = 0)) as is_known
    from valued
    left join settled
        on valued.meter_scope = settled.meter_scope
        and valued.meter = settled.meter
        and valued.open_place = settled.place
        and valued.at_us >= settled.held_us
        and valued.at_us < settled.held_us + settled.gap_us

),

dated as (

    select
        shared_days.date,
        shared_days.node,
        shared_days.is_node_shared,
        shared_days.node_cap_us,
        totalled.*,
        coalesce(totalled.from_watts * totalled.scale, 0) + coalesce(totalled.flat_watts, 0) as start_watts,
        coalesce(totalled.to_watts * totalled.scale, 0) + coalesce(totalled.flat_watts, 0) as end_watts
    from totalled
    inner join shared_days
        on totalled.meter_scope = shared_days.meter_scope
        and totalled.meter = shared_days.meter
        and totalled.at_us >= shared_days.start_us
        and totalled.at_us < shared_days.end_us
    where totalled.is_known

),

-- Where a node has a meter of its own: the time between the moments that its boards know, if it is longer than a gap.
board_moments as (

    select date, node, node_cap_us, at_us, to_us from dated where is_node_shared and meter_scope <> 'node'
    union all
    select date, node, node_cap_us, start_us as at_us, start_us as to_us from shared_days where is_node_shared and meter_scope = 'node'
    union all
    select date, node, node_cap_us, end_us as at_us, end_us as to_us from shared_days where is_node_shared and meter_scope = 'node'

),

silences as (

    select
        date,
        node,
        node_cap_us,
        max(to_us) over (partition by date, node order by at_us, to_us rows between unbounded preceding and 1 preceding) as from_us,
        at_us as to_us
    from board_moments

),

metered as (

    select
        date,
        meter_scope,
        meter,
        (start_watts + end_watts) / 2 * (to_us - at_us) / 1e6 as joules
    from dated
    where not (is_node_shared and meter_scope = 'node')
    union all
    select
        dated.date,
        dated.meter_scope,
        dated.meter,
        (
            dated.start_watts + (dated.end_watts - dated.start_watts)
            * ((greatest(dated.at_us, silences.from_us) + least(dated.to_us, silences.to_us)) / 2.0 - dated.at_us) / (dated.to_us - dated.at_us)
        ) * (least(dated.to_us, silences.to_us) - greatest(dated.at_us, silences.from_us)) / 1e6 as joules
    from dated
    inner join silences
        on dated.date = silences.date
        and dated.node = silences.node
        and dated.at_us < silences.to_us
        and dated.to_us > silences.from_us
        and silences.to_us - silences.from_us > silences.node_cap_us
    where dated.is_node_shared and dated.meter_scope = 'node'

),

final as (

    select
        date,
        meter_scope,
        meter,
        {{ exact_sum(exact('joules')) }} as metered_joules
    from metered
    group by date, meter_scope, meter

)

select * from final
