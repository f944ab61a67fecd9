-- Where a reading of power or energy shows what a working board cannot draw, before it is known whether the board
-- works: samples of a gauge below half of the board's bare idle (`below_idle`), in five minutes of the clock; the time for
-- which a counter keeps its value (`standstill`). Rows of MIG instances and of all partitions but the first are 0 where
-- their board has the watts. One row per date, reading and stretch.
{% set cell_us = suspect_cell_us() %}
{# As a constant the greatest bound is looked at while samples are read: see int_impossible_samples. #}
{{ config(pre_hook="set variable greatest_suspect = (
    select max(coalesce(device_types.idle_watts_bare, 0) / 2 / series.factor)
    from {{ ref('stg_series') }} as series
    left join {{ ref('stg_device_types') }} as device_types on series.meter_device_type = device_types.device_type
    where series.stream = 'power' and series.quantity = 'power' and series.meter_scope = 'board'
)" if target.type == 'duckdb' else []) }}

with series as (

    select * from {{ ref('stg_series') }}
    where stream = 'power' and quantity in ('energy', 'power') and meter is not null

),

labels as (

    select
        series_id,
        regexp_extract(labels, '"gpu_partition_id": ?"([0-9]+)"', 1) as partition_number
    from {{ ref('stg_raw_series') }}

),

device_types as (

    select * from {{ ref('stg_device_types') }}

),

meter_types as (

    select
        meter_scope,
        meter,
        max(meter_device_type) as device_type
    from series
    group by meter_scope, meter

),

readings as (

    select
        series.series_id,
        series.reading_id,
        series.meter_scope,
        series.meter,
        series.quantity,
        series.factor,
        device_types.idle_watts_bare
    from series
    inner join meter_types on series.meter_scope = meter_types.meter_scope and series.meter = meter_types.meter
    left join labels on series.series_id = labels.series_id
    left join device_types on meter_types.device_type = device_types.device_type
    where series.mig_instance is null
        and series.meter not like 'MIG-%'
        and coalesce(labels.partition_number, '') in ('', '0')

),

gauges as (

    select * from readings where quantity = 'power' and meter_scope = 'board'

),

low_stretches as (

    select
        cast(samples.observed_at as date) as date,
        gauges.reading_id,
        gauges.meter_scope,
        gauges.meter,
        'below_idle' as basis,
        min({{ epoch_us('samples.observed_at') }}) as from_us,
        max({{ epoch_us('samples.observed_at') }}) as to_us,
        max(gauges.idle_watts_bare) as idle_watts_bare,
        max(samples.value * gauges.factor) as most_watts,
        {{ ratio(exact_sum('samples.value * gauges.factor'), 'count(*)') }} as mean_watts
    from {{ source('raw', 'power_samples') }} as samples
    inner join gauges on samples.series_id = gauges.series_id
    where samples.observed_at >= {{ run_start_at() }}
        and samples.observed_at < {{ run_end_at() }}
        and {{ is_valid_sample('samples.value') }}
        and samples.value <= {{ "coalesce(getvariable('greatest_suspect'), 1e300)" if target.type == 'duckdb' else '1e300' }}
        and (samples.value <= 0 or samples.value * gauges.factor < gauges.idle_watts_bare / 2)
    group by
        cast(samples.observed_at as date),
        gauges.reading_id,
        gauges.meter_scope,
        gauges.meter,
        {{ int_div(epoch_us('samples.observed_at'), cell_us) }}

),

counters as (

    select * from readings where quantity = 'energy'

),

counter_cells as (

    select
        counters.reading_id,
        samples.series_id,
        {{ int_div(epoch_us('samples.observed_at'), cell_us) }} as cell,
        min(samples.value * counters.factor) as least_value,
        max(samples.value * counters.factor) as value,
        min({{ epoch_us('samples.observed_at') }}) as from_us,
        max({{ epoch_us('samples.observed_at') }}) as to_us
    from {{ source('raw', 'power_samples') }} as samples
    inner join counters on samples.series_id = counters.series_id
    where samples.observed_at >= {{ run_start_at() }}
        and samples.observed_at < {{ run_end_at() }}
        and {{ is_valid_sample('samples.value') }}
    group by counters.reading_id, samples.series_id, {{ int_div(epoch_us('samples.observed_at'), cell_us) }}

),

-- A reading does not move if none of its series moves; one board of several rows has its value in the greatest.
still_cells as (

    select
        reading_id,
        cell,
        max(value) as value,
        min(from_us) as from_us,
        max(to_us) as to_us
    from counter_cells
    group by reading_id, cell
    having max(case when least_value < value then 1 else 0 end) = 0

),

-- In whole cells; the standstill goes on for up to a cell on both sides.
candidates as (

    select
        reading_id,
        {{ int_div('from_us', day_us()) }} as day_number,
        value
    from still_cells
    group by reading_id, {{ int_div('from_us', day_us()) }}, value
    having max(to_us) - min(from_us) + {{ 2 * cell_us }} >= {{ least_standstill_us() }}
        and (count(*) > 1 or max(to_us) > min(from_us))

),

points as (

    select
        counters.reading_id,
        {{ int_div(epoch_us('samples.observed_at'), day_us()) }} as day_number,
        {{ epoch_us('samples.observed_at') }} as observed_us,
        max(samples.value * counters.factor) as value
    from {{ source('raw', 'power_samples') }} as samples
    inner join counters on samples.series_id = counters.series_id
    where samples.observed_at >= {{ run_start_at() }}
        and samples.observed_at < {{ run_end_at() }}
        and {{ is_valid_sample('samples.value') }}
        and counters.reading_id in (select reading_id from candidates)
    group by counters.reading_id, samples.observed_at

),

neighboured as (

    select
        *,
        lag(value) over point_window as previous_value,
        lag(observed_us) over point_window as previous_us,
        lead(value) over point_window as next_value,
        lead(observed_us) over point_window as next_us,
        lead(value, 2) over point_window as second_value,
        lead(observed_us, 2) over point_window as second_us
    from points
    window point_window as (partition by reading_id, day_number order by observed_us)

),

-- What the counter rises by at least: its step, where it moved on the date.
least_rises as (

    select
        reading_id,
        day_number,
        min(value - previous_value) as step_joules
    from neighboured
    where value > previous_value
    group by reading_id, day_number

),

standstills as (

    select
        neighboured.reading_id,
        neighboured.day_number,
        min(neighboured.observed_us) as from_us,
        max(neighboured.observed_us) as to_us,
        max(neighboured.next_us) as next_us,
        {{ value_at_last('neighboured.next_value - neighboured.value', 'neighboured.observed_us') }} as jump_joules,
        greatest(
            coalesce({{ value_at_first(
                '(neighboured.value - neighboured.previous_value) / ((neighboured.observed_us - neighboured.previous_us) / 1e6)',
                'neighboured.observed_us'
            ) }}, 0),
            coalesce({{ value_at_last(
                '(neighboured.second_value - neighboured.next_value) / ((neighboured.second_us - neighboured.next_us) / 1e6)',
                'neighboured.observed_us'
            ) }}, 0)
        ) as usual_watts
    from neighboured
    inner join candidates on {{ equal_keys('neighboured', 'candidates', ['reading_id', 'day_number', 'value']) }}
    group by neighboured.reading_id, neighboured.day_number, neighboured.value

),

final as (

    select
        date,
        reading_id,
        meter_scope,
        meter,
        basis,
        from_us,
        to_us,
        idle_watts_bare,
        most_watts,
        mean_watts,
        cast(null as double) as step_joules,
        cast(null as bigint) as next_us,
        cast(null as double) as late_joules
    from low_stretches
    union all
    select
        {{ date_of_us('standstills.from_us') }} as date,
        standstills.reading_id,
        metered.meter_scope,
        metered.meter,
        'standstill' as basis,
        standstills.from_us,
        standstills.to_us,
        metered.idle_watts_bare,
        cast(null as double) as most_watts,
        cast(0 as double) as mean_watts,
        coalesce(least_rises.step_joules, metered.factor) as step_joules,
        standstills.next_us,
        -- What the next sample has above the usual: the joules of the standstill, if there are enough of them.
        standstills.jump_joules - standstills.usual_watts * (standstills.next_us - standstills.to_us) / 1e6 as late_joules
    from standstills
    inner join (
        select
            reading_id,
            meter_scope,
            meter,
            max(factor) as factor,
            max(idle_watts_bare) as idle_watts_bare
        from counters
        group by reading_id, meter_scope, meter
    ) as metered on standstills.reading_id = metered.reading_id
    left join least_rises on standstills.reading_id = least_rises.reading_id and standstills.day_number = least_rises.day_number
    where standstills.to_us - standstills.from_us >= {{ least_standstill_us() }}

)

select * from final
