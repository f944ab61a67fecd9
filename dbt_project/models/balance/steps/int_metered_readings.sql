-- What each reading knows of each meter and date, according to raw, best first: int_metered_days adds up the first and
-- checks it with the second. Reads raw, the catalogues and its own parsing of labels, none of the book's steps. One row
-- per date and reading of a meter that ought to be booked.
{% set reading = [
    'reading_id', 'source', 'metric', 'kind', 'rank', 'meter', 'meter_scope', 'coarseness', 'node', 'rack', 'site', 'device_type',
    'interval_seconds'
] %}

with reading_dates as (

    select * from {{ ref('int_metered_reading_dates') }}

),

series as (

    select series_id, reading_id from {{ ref('int_label_identities') }}
    where stream = 'power' and quantity in ('energy', 'power') and meter is not null

),

dates as (

    select * from {{ ref('stg_run_dates') }}

),

limits as (

    select
        cast(chunks.chunk_start_at as date) as date,
        power_limits.meter,
        max(
            case
                when chunks.last_value * power_limits.factor <= {{ ceiling_watts('power_limits.meter_scope') }}
                    then chunks.last_value * power_limits.factor
            end
        ) as power_limit_watts
    from {{ source('raw', 'series_chunks') }} as chunks
    inner join {{ ref('int_label_identities') }} as power_limits on chunks.series_id = power_limits.series_id
    where power_limits.quantity = 'power_limit'
        and chunks.chunk_start_at >= {{ run_start_at() }}
        and chunks.chunk_start_at < {{ run_end_at() }}
    group by 1, 2

),

device_types as (

    select * from {{ ref('stg_device_types') }}

),

doubts as (

    select * from {{ ref('int_metered_doubts') }}

),

-- What is refuted is decided once, for the book and for its balance.
refuted_dates as (

    select distinct date, reading_id from {{ ref('int_refuted_stretches') }}

),

-- Each date of the run, with the last sample before it and the first one after it. A counter also has the dates without
-- samples.
day_facts as (

    select
        {{ columns_of('reading_dates', reading) }},
        dates.date,
        dates.start_us,
        dates.end_us,
        reading_dates.previous_us,
        reading_dates.previous_value,
        reading_dates.first_us,
        reading_dates.first_value,
        reading_dates.last_us,
        reading_dates.last_value,
        reading_dates.next_us,
        reading_dates.next_value,
        reading_dates.troubles + reading_dates.previous_troubles + reading_dates.next_troubles as troubles,
        reading_dates.repeats > 0 as has_repeats,
        reading_dates.samples,
        reading_dates.typical_interval_seconds,
        reading_dates.next_interval_seconds,
        reading_dates.longest_silence_us,
        reading_dates.steepest_rise_per_second,
        reading_dates.falls
    from reading_dates
    inner join dates on reading_dates.date = dates.date
    union all
    select
        {{ columns_of('reading_dates', reading) }},
        dates.date,
        dates.start_us,
        dates.end_us,
        reading_dates.last_us as previous_us,
        reading_dates.last_value as previous_value,
        null as first_us,
        null as first_value,
        null as last_us,
        null as last_value,
        reading_dates.next_us,
        reading_dates.next_value,
        reading_dates.troubles + reading_dates.next_troubles as troubles,
        false as has_repeats,
        0 as samples,
        null as typical_interval_seconds,
        null as next_interval_seconds,
        null as longest_silence_us,
        null as steepest_rise_per_second,
        0 as falls
    from reading_dates
    inner join dates on reading_dates.date < dates.date and reading_dates.next_us >= dates.end_us
    where reading_dates.kind = 'counter'

),

-- How long a silence may be, on the date and over its end: a step belongs to the date on which it ends.
capped as (

    select
        *,
        {{ gap_cap_us('greatest(typical_interval_seconds, interval_seconds)') }} as cap_us,
        {{ gap_cap_us('greatest(next_interval_seconds, interval_seconds)') }} as next_cap_us
    from day_facts

),

-- A counter knows its day from the sample before to the sample after; a gauge only what its own samples span.
coverage as (

    select
        capped.*,
        case when capped.meter_scope = 'board'
            then {{ possible_power_factor() }}
                * coalesce(device_types.power_limit_watts, case when kind = 'counter' then limits.power_limit_watts end)
                * case when doubts.meter is null then 1 else {{ doubted_limit_factor() }} end
        end as possible_watts,
        -- Over midnight a limit is doubted on all dates.
        case when capped.meter_scope = 'board'
            then {{ possible_power_factor() }}
                * coalesce(device_types.power_limit_watts, case when kind = 'counter' then limits.power_limit_watts end)
                * {{ doubted_limit_factor() }}
        end as midnight_watts,
        case
            when kind = 'counter'
                then least(coalesce(next_us, last_us, previous_us), end_us) - greatest(coalesce(previous_us, first_us, next_us), start_us)
            when first_us is not null then least(last_us - first_us, samples * coalesce(typical_interval_seconds, 0) * 1e6)
        end as coverage_us,
        first_us is null
        or coalesce(
            greatest(longest_silence_us, coalesce(first_us - previous_us, 0)) > cap_us or next_us - last_us > next_cap_us, false
        ) as is_silent_once,
        refuted_dates.reading_id is not null as is_refuted,
        greatest(start_us, coalesce(previous_us, first_us, next_us)) as knows_from_us,
        least(end_us, coalesce(next_us, last_us, previous_us)) as knows_to_us
    from capped
    left join device_types on capped.device_type = device_types.device_type
    left join doubts on capped.date = doubts.date and capped.meter = doubts.meter and capped.meter_scope = 'board'
    left join limits on capped.date = limits.date and capped.meter = limits.meter
    left join refuted_dates on capped.date = refuted_dates.date and capped.reading_id = refuted_dates.reading_id

),

best as (

    select
        *,
        -- What a meter measures: its node, its rack, or all of its site.
        min(coarseness) over (partition by date, coalesce(node, meter)) as finest_of_node,
        min(coarseness) over (partition by date, coalesce(rack, meter)) as finest_of_rack,
        min(coarseness) over (partition by date, site) as finest_of_site,
        min(case when coarseness = 3 then knows_from_us end) over (partition by date, node) as node_knows_from_us,
        max(case when coarseness = 3 then knows_to_us end) over (partition by date, node) as node_knows_to_us
    from coverage

),

-- Nodes with a meter of their own of whose boards none is there all the time.
shared_nodes as (

    select
        date,
        node,
        max(cap_us) as node_cap_us
    from best
    where coarseness < 3 and coarseness = finest_of_node and node_knows_from_us is not null
    group by date, node
    having min(case
        when knows_from_us - node_knows_from_us > cap_us or node_knows_to_us - knows_to_us > cap_us then 1
        when is_refuted then 1
        when not is_silent_once then 0
        -- The difference of a counter that never fell covers its silence.
        when kind = 'counter'
            and falls = 0
            and coalesce(first_value >= previous_value, true)
            and coalesce(next_value >= coalesce(last_value, previous_value), true) then 0
        else 1
    end) = 1

),

preferred as (

    select
        best.*,
        shared_nodes.node is not null as is_node_shared,
        shared_nodes.node_cap_us,
        row_number() over (
            partition by best.date, meter_scope, meter
            order by rank, case when is_silent_once then 1 else 0 end, coverage_us desc, source, metric
        ) as preference,
        min(knows_from_us) over (partition by best.date, meter_scope, meter) as meter_knows_from_us,
        max(knows_to_us) over (partition by best.date, meter_scope, meter) as meter_knows_to_us,
        count(*) over (partition by best.date, meter_scope, meter) as readings
    from best
    left join shared_nodes
        on best.date = shared_nodes.date and best.node = shared_nodes.node and (coarseness = 3 or coarseness = finest_of_node)
    where (shared_nodes.node is not null and coarseness = 3)
        or coarseness = case when coarseness <= 3 then finest_of_node when coarseness = 4 then finest_of_rack else finest_of_site end

),

-- An outage of the scraper silences all readings of a meter at the same moments, and nothing is handed over.
twins as (

    select
        first.date,
        first.reading_id,
        second.reading_id as twin_reading_id
    from preferred as first
    inner join preferred as second
        on {{ equal_keys('first', 'second', ['date', 'meter_scope', 'meter']) }}
        and first.reading_id <> second.reading_id
        and {{ equal_keys('first', 'second', ['samples', 'first_us', 'last_us', 'longest_silence_us']) }}
    where first.preference = 1 and first.is_silent_once

),

twin_moments as (

    select
        series.reading_id,
        {{ int_div(epoch_us('samples.observed_at'), day_us()) }} * {{ day_us() }} as start_us,
        count(*) as moments,
        sum({{ epoch_us('samples.observed_at') }} % {{ day_us() }}) as moments_us,
        sum({{ int_div(epoch_us('samples.observed_at') ~ ' % ' ~ day_us(), '1000000') }}
            * {{ int_div(epoch_us('samples.observed_at') ~ ' % ' ~ day_us(), '1000000') }}) as moments_squared
    from {{ source('raw', 'power_samples') }} as samples
    inner join series on samples.series_id = series.series_id
    inner join (select reading_id from twins union select twin_reading_id as reading_id from twins) as either
        on series.reading_id = either.reading_id
    where samples.observed_at >= {{ run_start_at() }}
        and samples.observed_at < {{ run_end_at() }}
        and {{ is_valid_sample('samples.value') }}
    group by series.reading_id, {{ int_div(epoch_us('samples.observed_at'), day_us()) }} * {{ day_us() }}

),

silent_together as (

    select
        twins.date,
        twins.reading_id,
        twins.twin_reading_id
    from twins
    inner join dates on twins.date = dates.date
    inner join twin_moments as own on twins.reading_id = own.reading_id and dates.start_us = own.start_us
    inner join twin_moments as other
        on twins.twin_reading_id = other.reading_id
        and dates.start_us = other.start_us
        and {{ equal_keys('own', 'other', ['moments', 'moments_us', 'moments_squared']) }}

),

-- Silences in which another reading of the meter saw something, on whatever date.
filled_silences as (

    select distinct
        preferred.date,
        preferred.meter_scope,
        preferred.meter
    from preferred
    inner join reading_dates
        on preferred.meter_scope = reading_dates.meter_scope
        and preferred.meter = reading_dates.meter
        and preferred.reading_id <> reading_dates.reading_id
        and reading_dates.last_us > coalesce(preferred.previous_us, preferred.first_us)
        and reading_dates.first_us < coalesce(preferred.next_us, preferred.last_us)
    left join silent_together
        on preferred.date = silent_together.date
        and preferred.reading_id = silent_together.reading_id
        and reading_dates.reading_id = silent_together.twin_reading_id
        and reading_dates.date = silent_together.date
    where preferred.preference = 1 and preferred.is_silent_once and silent_together.reading_id is null

),

final as (

    select
        preferred.date,
        start_us,
        end_us,
        preferred.meter_scope,
        preferred.meter,
        site,
        reading_id,
        source,
        metric,
        kind,
        previous_us,
        previous_value,
        first_us,
        first_value,
        last_us,
        last_value,
        next_us,
        next_value,
        troubles,
        has_repeats,
        steepest_rise_per_second,
        cap_us,
        next_cap_us,
        possible_watts,
        midnight_watts,
        coverage_us,
        preference,
        node,
        device_type,
        is_node_shared,
        is_refuted,
        node_cap_us,
        -- More than one reading is needed for this meter's day.
        max(case
            when preference = 1 and (
                is_node_shared
                or is_refuted
                or filled_silences.meter is not null
                or (readings > 1 and (knows_from_us - meter_knows_from_us > cap_us or meter_knows_to_us - knows_to_us > cap_us))
            ) then 1
            else 0
        end) over (partition by preferred.date, preferred.meter_scope, preferred.meter) = 1 as is_shared
    from preferred
    left join filled_silences on {{ equal_keys('preferred', 'filled_silences', ['date', 'meter_scope', 'meter']) }}

)

select * from final
