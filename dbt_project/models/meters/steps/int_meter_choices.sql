-- One meter books each device and second: by rank (counter before gauge), then by coverage. Each node's second is
-- booked from its finest scope that reports; a node meter above booked boards measures the host. A rack's or a hall's
-- meter books only what nothing finer meters there. Where the best reading has a gap that another one may fill, or no
-- board of a node reports all day, `is_handover` is true: then int_handover_segments decides second by second (decision
-- 0011).
with reading_days as (

    select * from {{ ref('int_reading_days') }}

),

series as (

    select * from {{ ref('stg_series') }}

),

series_days as (

    select * from {{ ref('stg_series_days') }}

),

device_types as (

    select * from {{ ref('stg_device_types') }}

),

doubted_limits as (

    select * from {{ ref('int_doubted_limits') }}

),

unplaced_meters as (

    select * from {{ ref('int_unplaced_meters') }}

),

refuted_days as (

    select distinct date, reading_id from {{ ref('int_refuted_stretches') }}

),

-- What a node's meter measures where none of its boards reports power.
boards_of_nodes as (

    select
        date,
        node,
        count(*) as boards,
        case when min(device_type) = max(device_type) and count(device_type) = count(*) then max(device_type) end as device_type
    from {{ ref('int_silent_boards') }}
    where node is not null
    group by date, node

),

preferred as (

    select
        reading_days.*,
        refuted_days.reading_id is not null as is_refuted,
        row_number() over (
            partition by reading_days.date, meter_scope, meter
            order by rank, case when has_gap then 1 else 0 end, coverage_seconds desc, source, metric
        ) as preference,
        count(*) over (partition by reading_days.date, meter_scope, meter) as readings,
        min(first_known_us) over (partition by reading_days.date, meter_scope, meter) as meter_first_known_us,
        max(last_known_us) over (partition by reading_days.date, meter_scope, meter) as meter_last_known_us,
        case meter_scope when 'board' then 1 when 'module' then 2 when 'node' then 3 when 'rack' then 4 else 5 end as coarseness
    from reading_days
    left join refuted_days on reading_days.date = refuted_days.date and reading_days.reading_id = refuted_days.reading_id

),

finest as (

    select
        *,
        case
            when coarseness <= 3 then min(coarseness) over (partition by date, coalesce(node, meter))
            when coarseness = 4 then min(coarseness) over (partition by date, coalesce(rack, meter))
            else min(coarseness) over (partition by date, site)
        end as finest_coarseness,
        min(case when coarseness = 3 then first_known_us end) over (partition by date, node) as node_first_known_us,
        max(case when coarseness = 3 then last_known_us end) over (partition by date, node) as node_last_known_us
    from preferred

),

-- Boards (else modules) below a node meter: does one of them know all that the node meter knows? Without a cap nothing
-- is known of gaps.
node_days as (

    select
        date,
        node,
        max(case
            when is_refuted or (has_gap and not has_only_risen) then 0
            when first_known_us - node_first_known_us > cap_us or node_last_known_us - last_known_us > cap_us then 0
            else 1
        end) = 0 as is_mixed,
        max(cap_us) as node_cap_us
    from finest
    where coarseness < 3 and coarseness = finest_coarseness and node_first_known_us is not null
    group by date, node

),

power_readings as (

    select distinct
        reading_id,
        meter_scope,
        meter
    from series
    where stream = 'power' and quantity in ('energy', 'power')

),

-- Readings with the same number of samples and the same longest gap were mostly scraped together, and are silent
-- together: an outage of the scraper is no handover. Their sample times decide.
lookalikes as (

    select
        best.date,
        best.reading_id,
        others.reading_id as other_reading_id
    from preferred as best
    inner join preferred as others
        on {{ equal_keys('best', 'others', ['date', 'meter_scope', 'meter']) }}
        and best.reading_id <> others.reading_id
        and best.samples = others.samples
        and best.longest_gap_us = others.longest_gap_us
    where best.preference = 1 and best.has_gap

),

lookalike_series as (

    select distinct
        series.series_id,
        series.reading_id
    from series
    inner join (select reading_id from lookalikes union select other_reading_id as reading_id from lookalikes) as either
        on series.reading_id = either.reading_id

),

scrape_times as (

    select
        lookalike_series.reading_id,
        cast(samples.observed_at as date) as date,
        sum({{ epoch_us('samples.observed_at') }} % {{ day_us() }}) as times_us,
        sum({{ int_div(epoch_us('samples.observed_at') ~ ' % ' ~ day_us(), '1000000') }}
            * {{ int_div(epoch_us('samples.observed_at') ~ ' % ' ~ day_us(), '1000000') }}) as squares
    from {{ source('raw', 'power_samples') }} as samples
    inner join lookalike_series on samples.series_id = lookalike_series.series_id
    where samples.observed_at >= {{ run_start_at() }}
        and samples.observed_at < {{ run_end_at() }}
        and {{ is_valid_sample('samples.value') }}
    group by lookalike_series.reading_id, cast(samples.observed_at as date)

),

scraped_together as (

    select
        lookalikes.date,
        lookalikes.reading_id,
        lookalikes.other_reading_id
    from lookalikes
    inner join scrape_times as own on lookalikes.reading_id = own.reading_id and lookalikes.date = own.date
    inner join scrape_times as others on lookalikes.other_reading_id = others.reading_id and lookalikes.date = others.date
    where own.times_us = others.times_us and own.squares = others.squares

),

-- Gaps that another reading may fill, be it on another date: the counter's difference is the sum over all of the gap.
filled_gaps as (

    select distinct
        preferred.date,
        preferred.reading_id
    from preferred
    inner join power_readings
        on preferred.meter_scope = power_readings.meter_scope
        and preferred.meter = power_readings.meter
        and preferred.reading_id <> power_readings.reading_id
    inner join series_days
        on power_readings.reading_id = series_days.reading_id
        and series_days.last_us > preferred.known_from_us
        and series_days.first_us < preferred.known_to_us
    left join scraped_together
        on preferred.date = scraped_together.date
        and preferred.reading_id = scraped_together.reading_id
        and power_readings.reading_id = scraped_together.other_reading_id
        and series_days.date = scraped_together.date
    where preferred.preference = 1 and preferred.has_gap and scraped_together.reading_id is null

),

assessed as (

    select
        finest.*,
        coalesce(node_days.is_mixed, false) as is_mixed,
        node_days.node_cap_us,
        filled_gaps.reading_id is not null
        or finest.is_refuted
        or (
            finest.readings > 1
            and coalesce(
                finest.first_known_us - finest.meter_first_known_us > finest.cap_us
                or finest.meter_last_known_us - finest.last_known_us > finest.cap_us,
                false
            )
        )
        or coalesce(node_days.is_mixed, false) as is_handover
    from finest
    left join filled_gaps on finest.date = filled_gaps.date and finest.reading_id = filled_gaps.reading_id
    left join node_days
        on finest.date = node_days.date
        and finest.node = node_days.node
        and (finest.coarseness = 3 or finest.coarseness = finest.finest_coarseness)

),

purposes as (

    select
        *,
        case
            when preference > 1 then 'cross_check'
            when coarseness = finest_coarseness then 'booked'
            when meter_scope = 'node' then 'host'
            else 'cross_check'
        end as purpose
    from assessed
    union all
    -- The seconds in which no board of the node reports are its own meter's.
    select
        *,
        'booked' as purpose
    from assessed
    where is_mixed and coarseness = 3 and preference = 1

),

meter_attributes as (

    select
        meter_scope,
        meter,
        max(device_uuid) as device_uuid,
        max(meter_device_type) as device_type,
        max(site) as site,
        max(rack) as rack
    from series
    where stream = 'power' and meter is not null
    group by meter_scope, meter

),

measured_limits as (

    select
        series_days.date,
        series.meter,
        max(series_days.last_value) as power_limit_watts
    from series_days
    inner join series on series_days.series_id = series.series_id
    where series.quantity = 'power_limit'
    group by series_days.date, series.meter

),

final as (

    select
        purposes.reading_id,
        purposes.date,
        purposes.source,
        purposes.metric,
        purposes.quantity,
        purposes.meter,
        purposes.meter_scope,
        purposes.node,
        purposes.sampling_interval_seconds,
        purposes.needs_every_sample,
        meter_attributes.device_uuid,
        coalesce(meter_attributes.device_type, boards_of_nodes.device_type) as device_type,
        -- Another reading of the meter may know what the booked one does not.
        case
            when coalesce(purposes.site, {{ unknown() }}) = {{ unknown() }}
                then coalesce(meter_attributes.site, purposes.site)
            else purposes.site
        end as site,
        case when purposes.node is null then coalesce(purposes.rack, meter_attributes.rack) else purposes.rack end as rack,
        -- A node's meter that books while its boards are silent replaces none of its own: the boards are claimed
        -- themselves. So are those of an unplaced one.
        case
            when unplaced_meters.meter is not null or (purposes.meter_scope = 'node' and coalesce(purposes.is_mixed, false)) then 0
            else greatest(coalesce(device_types.gpus, 1), coalesce(boards_of_nodes.boards, 1))
        end as gpu_count,
        case
            when purposes.meter_scope = 'board' then {{ possible_power_factor() }} * device_types.power_limit_watts
        end as type_possible_watts,
        case when purposes.meter_scope = 'board'
            then {{ possible_power_factor() }} * coalesce(device_types.power_limit_watts, measured_limits.power_limit_watts)
                * case when doubted_limits.meter is null then 1 else {{ doubted_limit_factor() }} end
        end as possible_watts,
        doubted_limits.meter is not null as is_doubted,
        purposes.purpose,
        unplaced_meters.meter is not null as is_unplaced,
        purposes.is_handover and purposes.purpose <> 'cross_check' as is_handover,
        purposes.is_mixed,
        purposes.node_cap_us,
        purposes.known_from_us,
        purposes.known_to_us
    from purposes
    left join meter_attributes
        on purposes.meter_scope = meter_attributes.meter_scope and purposes.meter = meter_attributes.meter
    left join device_types on meter_attributes.device_type = device_types.device_type
    left join doubted_limits
        on purposes.date = doubted_limits.date and purposes.meter = doubted_limits.meter and purposes.meter_scope = 'board'
    left join measured_limits on purposes.date = measured_limits.date and purposes.meter = measured_limits.meter
    left join unplaced_meters on {{ equal_keys('purposes', 'unplaced_meters', ['date', 'meter_scope', 'meter']) }}
    left join boards_of_nodes
        on purposes.date = boards_of_nodes.date
        and purposes.node = boards_of_nodes.node
        and purposes.meter_scope = 'node'
        and purposes.purpose = 'booked'
        and not coalesce(purposes.is_mixed, false)
        and unplaced_meters.meter is null

)

select * from final
