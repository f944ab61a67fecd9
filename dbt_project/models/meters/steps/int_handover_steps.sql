-- What each reading of a meter measures while the best reading has a gap: one row per reading and step between two of
-- its samples. Dates outside the run are included where a counter of the meter is silent over them: its difference is
-- the sum over all of them.
with handovers as (

    select distinct
        date,
        meter_scope,
        meter
    from {{ ref('int_meter_choices') }}
    where is_handover

),

choices as (

    select * from {{ ref('int_meter_choices') }}

),

series as (

    select * from {{ ref('stg_series') }}

),

sources as (

    select * from {{ source('fleet', 'sources') }}

),

refuted as (

    select * from {{ ref('int_refuted_stretches') }}

),

chunks as (

    select
        *,
        {{ int_div(epoch_us('chunk_start_at'), day_us()) }} as day_number
    from {{ source('raw', 'series_chunks') }}
    where samples > 0

),

-- The dates that are handed over, and on both sides those over which a counter of the meter is silent.
spans as (

    select
        handovers.meter_scope,
        handovers.meter,
        min(least(
            {{ epoch_us('cast(handovers.date as ' ~ timestamp_type() ~ ')') }},
            case when choices.quantity = 'energy' then choices.known_from_us end
        )) as from_us,
        max(greatest(
            {{ epoch_us('cast(handovers.date as ' ~ timestamp_type() ~ ')') }} + {{ day_us() }} - 1,
            case when choices.quantity = 'energy' then choices.known_to_us end
        )) as to_us,
        max(choices.type_possible_watts) as type_possible_watts
    from handovers
    inner join choices on {{ equal_keys('handovers', 'choices', ['date', 'meter_scope', 'meter']) }}
    group by handovers.meter_scope, handovers.meter

),

-- The same order on all dates: a gap may cross midnight.
meter_readings as (

    select
        series.reading_id,
        series.meter_scope,
        series.meter,
        series.quantity = 'energy' as is_counter,
        max(sources.interval_seconds) as interval_seconds,
        max(spans.type_possible_watts) as type_possible_watts,
        {{ int_div('min(spans.from_us)', day_us()) }} as first_day,
        {{ int_div('max(spans.to_us)', day_us()) }} as last_day,
        row_number() over (
            partition by series.meter_scope, series.meter order by min(series.rank), series.source, series.metric, series.reading_id
        ) as reading_order
    from series
    inner join spans on series.meter_scope = spans.meter_scope and series.meter = spans.meter
    left join sources on series.source = sources.source
    where series.stream = 'power' and series.quantity in ('energy', 'power')
    group by series.reading_id, series.meter_scope, series.meter, series.quantity, series.source, series.metric

),

limit_days as (

    select
        spans.meter,
        chunks.day_number,
        max(
            {{ possible_power_factor() }}
                * case
                    when chunks.last_value * series.factor <= {{ ceiling_watts("'board'") }}
                        then chunks.last_value * series.factor
                end
        ) as possible_watts
    from spans
    inner join series on spans.meter = series.meter and series.quantity = 'power_limit'
    inner join chunks on series.series_id = chunks.series_id
    where spans.meter_scope = 'board' and spans.type_possible_watts is null
    group by spans.meter, chunks.day_number

),

chunk_days as (

    select
        meter_readings.reading_id,
        meter_readings.first_day,
        meter_readings.last_day,
        chunks.series_id,
        series.factor,
        chunks.day_number,
        chunks.samples,
        chunks.falls,
        chunks.typical_interval_seconds,
        {{ epoch_us('chunks.first_at') }} as first_us,
        chunks.first_value * series.factor as first_value,
        {{ epoch_us('chunks.last_at') }} as last_us,
        chunks.last_value * series.factor as last_value
    from chunks
    inner join series on chunks.series_id = series.series_id
    inner join meter_readings on series.reading_id = meter_readings.reading_id

),

neighbour_days as (

    select
        reading_id,
        max(case when day_number < first_day then day_number end) as previous_day,
        min(case when day_number > last_day then day_number end) as next_day
    from chunk_days
    group by reading_id

),

-- Of the neighbours one sample is enough, unless a fall beside it has to be understood.
read_days as (

    select
        chunk_days.*,
        chunk_days.falls > 0 or chunk_days.day_number between chunk_days.first_day and chunk_days.last_day as is_read_whole
    from chunk_days
    inner join neighbour_days on chunk_days.reading_id = neighbour_days.reading_id
    where chunk_days.day_number between chunk_days.first_day and chunk_days.last_day
        or chunk_days.day_number = neighbour_days.previous_day
        or chunk_days.day_number = neighbour_days.next_day

),

dates_of_readings as (

    select
        read_days.reading_id,
        read_days.day_number,
        min(read_days.first_us) as first_us,
        max(read_days.last_us) as last_us,
        {{ gap_cap_us('greatest(min(read_days.typical_interval_seconds), max(meter_readings.interval_seconds))') }} as cap_us
    from read_days
    inner join meter_readings on read_days.reading_id = meter_readings.reading_id
    group by read_days.reading_id, read_days.day_number

),

read_span as (

    select
        {{ from_epoch_us('min(day_number) * ' ~ day_us()) }} as start_at,
        {{ from_epoch_us('(max(day_number) + 1) * ' ~ day_us()) }} as end_at
    from read_days
    where is_read_whole
    having count(*) > 0

),

values_read as (

    select
        read_days.reading_id,
        {{ epoch_us('samples.observed_at') }} as observed_us,
        samples.value * read_days.factor as value
    from {{ source('raw', 'power_samples') }} as samples
    inner join read_days
        on samples.series_id = read_days.series_id
        and {{ int_div(epoch_us('samples.observed_at'), day_us()) }} = read_days.day_number
    cross join read_span
    where read_days.is_read_whole
        and {{ is_valid_sample('samples.value') }}
        and samples.observed_at >= read_span.start_at
        and samples.observed_at < read_span.end_at
    union all
    select reading_id, first_us as observed_us, first_value as value from read_days
    where not is_read_whole and day_number > last_day
    union all
    select reading_id, last_us as observed_us, last_value as value from read_days
    where not is_read_whole and day_number < first_day

),

-- As int_doubted_limits has it, of all dates that are read here.
near_days as (

    select
        meter_readings.meter,
        {{ int_div('values_read.observed_us', day_us()) }} as day_number,
        count(*) as near_samples
    from values_read
    inner join meter_readings on values_read.reading_id = meter_readings.reading_id
    where meter_readings.meter_scope = 'board'
        and not meter_readings.is_counter
        and values_read.value > meter_readings.type_possible_watts
        and values_read.value <= {{ doubted_limit_factor() }} * meter_readings.type_possible_watts
    group by meter_readings.meter, {{ int_div('values_read.observed_us', day_us()) }}

),

board_days as (

    select
        meter_readings.meter,
        read_days.day_number,
        max(meter_readings.type_possible_watts) as type_possible_watts,
        sum(case when meter_readings.is_counter then 0 else read_days.samples end) as gauge_samples,
        {{ ratio(
            exact_sum("case when meter_readings.is_counter and read_days.falls = 0 then read_days.last_value - read_days.first_value end"),
            "sum(case when meter_readings.is_counter and read_days.falls = 0 then read_days.last_us - read_days.first_us end)"
        ) }} * 1e6 as counted_watts
    from read_days
    inner join meter_readings on read_days.reading_id = meter_readings.reading_id
    where meter_readings.meter_scope = 'board'
    group by meter_readings.meter, read_days.day_number

),

doubted_days as (

    select
        board_days.meter,
        board_days.day_number
    from board_days
    left join near_days on board_days.meter = near_days.meter and board_days.day_number = near_days.day_number
    where case
        when board_days.gauge_samples > 0 then near_days.near_samples >= 0.9 * board_days.gauge_samples
        else board_days.counted_watts > board_days.type_possible_watts
            and board_days.counted_watts <= {{ doubted_limit_factor() }} * board_days.type_possible_watts
    end

),

points as (

    select
        meter_readings.reading_id,
        meter_readings.is_counter,
        values_read.observed_us,
        max(values_read.value) as value,
        max(coalesce(meter_readings.type_possible_watts, limit_days.possible_watts)) as possible_watts,
        max(case when doubted_days.meter is null then 0 else 1 end) = 1 as is_doubted
    from values_read
    inner join meter_readings on values_read.reading_id = meter_readings.reading_id
    inner join dates_of_readings as day_edges
        on values_read.reading_id = day_edges.reading_id
        and {{ int_div('values_read.observed_us', day_us()) }} = day_edges.day_number
    left join doubted_days
        on meter_readings.meter = doubted_days.meter
        and meter_readings.meter_scope = 'board'
        and day_edges.day_number = doubted_days.day_number
    left join limit_days
        on meter_readings.meter = limit_days.meter and {{ int_div('values_read.observed_us', day_us()) }} = limit_days.day_number
    -- Samples of a refuted stretch count as absent: of a gauge those that are too low, of a counter those within.
    left join refuted
        on values_read.reading_id = refuted.reading_id
        and case
            when meter_readings.is_counter then values_read.observed_us > refuted.from_us and values_read.observed_us < refuted.to_us
            else values_read.observed_us between refuted.from_us and refuted.to_us and values_read.value <= refuted.most_watts
        end
    where refuted.reading_id is null
        and (meter_readings.is_counter
        or values_read.value <= coalesce(
            meter_readings.type_possible_watts * case
                when doubted_days.meter is not null or values_read.observed_us in (day_edges.first_us, day_edges.last_us)
                    then {{ doubted_limit_factor() }}
                else 1
            end,
            {{ ceiling_watts('meter_readings.meter_scope') }}
        ))
    group by meter_readings.reading_id, meter_readings.is_counter, values_read.observed_us

),

bracketed as (

    select
        *,
        lag(value) over point_window as previous_value,
        lag(observed_us) over point_window as previous_us,
        lead(value) over point_window as next_value,
        lead(observed_us) over point_window as next_us
    from points
    window point_window as (partition by reading_id order by observed_us)

),

steps as (

    select
        reading_id,
        is_counter,
        lag(observed_us) over (partition by reading_id order by observed_us) as start_us,
        observed_us as end_us,
        lag(value) over (partition by reading_id order by observed_us) as start_value,
        value as end_value,
        possible_watts,
        is_doubted
    from bracketed
    where not (
        is_counter
        and {{ is_dip(
            'value', 'observed_us', 'previous_value', 'previous_us', 'next_value', 'next_us', true,
            '(' ~ accepted_watts('possible_watts', 'is_doubted', 'previous_us', 'next_us') ~ ')'
        ) }}
    )

),

measured as (

    select
        *,
        case
            when not is_counter then (start_value + end_value) / 2 * (end_us - start_us) / 1e6
            when end_value >= start_value then end_value - start_value
            else end_value
        end as energy_joules,
        is_counter and end_value < start_value as is_reset,
        {{ accepted_watts('possible_watts', 'is_doubted', 'start_us', 'end_us') }} as limit_watts
    from steps
    where start_us is not null

),

late_rises as (

    select
        *,
        {{ late_rise_columns('energy_joules', 'limit_watts') }}
    from measured

),

assessed as (

    select
        late_rises.*,
        meter_readings.meter_scope,
        meter_readings.meter,
        meter_readings.reading_order,
        late_rises.is_counter
        and {{ is_impossible_rise('energy_joules', 'limit_watts', ceiling_watts('meter_readings.meter_scope')) }} as is_impossible
    from late_rises
    inner join meter_readings on late_rises.reading_id = meter_readings.reading_id

),

final as (

    select
        assessed.meter_scope,
        assessed.meter,
        assessed.reading_order,
        assessed.reading_id,
        assessed.is_counter,
        assessed.start_us,
        assessed.end_us,
        assessed.energy_joules,
        case when assessed.is_counter then cast(0 as double) else assessed.end_value - assessed.start_value end as slope_watts,
        -- What the uncovered seconds of a gap may share.
        assessed.possible_watts * case when assessed.is_doubted then {{ doubted_limit_factor() }} else 1 end as possible_watts,
        assessed.is_reset,
        assessed.is_impossible,
        assessed.end_us - assessed.start_us > caps.cap_us or refuted.reading_id is not null as is_gap,
        refuted.reading_id is not null as is_refuted
    from assessed
    inner join dates_of_readings as caps
        on assessed.reading_id = caps.reading_id and {{ int_div('assessed.end_us', day_us()) }} = caps.day_number
    -- A step over midnight without a rise is of the standstill that it leads to.
    left join refuted
        on assessed.reading_id = refuted.reading_id
        and assessed.is_counter
        and not refuted.is_caught_up
        and assessed.energy_joules = 0
        and assessed.end_us between refuted.from_us and refuted.to_us

)

select * from final
