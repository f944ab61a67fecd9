-- Energy segments of meters whose joules pass from one reading to another within a date: one row per date, purpose,
-- meter and segment, as in int_energy_segments, with the reading that covers the segment. Seconds in which no board of
-- a node reports are booked by the node's own meter; in all others it measures the host.
{# int_energy_segments and series_daily read it. #}
{{ config(materialized='view' if target.type == 'duckdb' else 'table') }}
{% set day_columns = ['date', 'node', 'reading_id', 'purpose', 'is_mixed', 'node_cap_us', 'day_start_us', 'day_end_us'] %}

with cells as (

    select * from {{ ref('int_handover_cells') }}

),

steps as (

    select * from {{ ref('int_handover_steps') }}

),

choices as (

    select * from {{ ref('int_meter_choices') }} where is_handover

),

run_dates as (

    select * from {{ ref('stg_run_dates') }}

),

meter_days as (

    select
        choices.*,
        run_dates.start_us as day_start_us,
        run_dates.end_us as day_end_us
    from choices
    inner join run_dates on choices.date = run_dates.date

),

dated_cells as (

    select
        {{ columns_of('meter_days', day_columns) }},
        cells.meter_scope,
        cells.meter,
        greatest(cells.start_us, meter_days.day_start_us) as start_us,
        least(cells.end_us, meter_days.day_end_us) as end_us,
        cells.covered_by,
        cells.scale,
        cells.uncovered_joules,
        cells.gap_us,
        cells.is_reset,
        cells.is_impossible
    from cells
    inner join meter_days
        on cells.meter_scope = meter_days.meter_scope
        and cells.meter = meter_days.meter
        and cells.start_us < meter_days.day_end_us
        and cells.end_us > meter_days.day_start_us

),

-- Of each node with a meter of its own and meters of its boards: the times in which the energy of at least one board is
-- known.
board_times as (

    select
        date,
        node,
        node_cap_us,
        start_us,
        end_us
    from dated_cells
    where is_mixed and meter_scope <> 'node' and (covered_by is not null or uncovered_joules is not null)

),

board_edges as (

    select date, node, start_us, end_us, node_cap_us from board_times
    union all
    {% for edge in ['day_start_us', 'day_end_us'] -%}
    select distinct date, node, {{ edge }} as start_us, {{ edge }} as end_us, node_cap_us
    from dated_cells
    where is_mixed and meter_scope = 'node'
    {% if not loop.last %}union all{% endif %}
    {% endfor %}

),

ordered_board_edges as (

    select
        *,
        max(end_us) over (
            partition by date, node order by start_us, end_us rows between unbounded preceding and 1 preceding
        ) as known_until_us
    from board_edges

),

-- The times in which no board is known, if they are longer than a gap may be. Shorter ones are at each end of a date:
-- no sample is at midnight exactly.
node_times as (

    select
        date,
        node,
        known_until_us as start_us,
        start_us as end_us,
        'booked' as purpose
    from ordered_board_edges
    where start_us - known_until_us > node_cap_us

),

node_edges as (

    select date, node, start_us as edge_us from node_times
    union
    select date, node, end_us as edge_us from node_times
    union
    select date, node, day_start_us as edge_us from meter_days where is_mixed and meter_scope = 'node'
    union
    select date, node, day_end_us as edge_us from meter_days where is_mixed and meter_scope = 'node'

),

node_stretches as (

    select
        date,
        node,
        edge_us as start_us,
        lead(edge_us) over (partition by date, node order by edge_us) as end_us
    from node_edges

),

purposes as (

    select
        node_stretches.date,
        node_stretches.node,
        node_stretches.start_us,
        node_stretches.end_us,
        coalesce(node_times.purpose, 'host') as purpose
    from node_stretches
    left join node_times on {{ equal_keys('node_stretches', 'node_times', ['date', 'node', 'start_us']) }}
    where node_stretches.end_us is not null

),

purposed_cells as (

    select * from dated_cells where not (is_mixed and meter_scope = 'node')
    union all
    select
        {{ columns_of('dated_cells', day_columns) }},
        dated_cells.meter_scope,
        dated_cells.meter,
        greatest(dated_cells.start_us, purposes.start_us) as start_us,
        least(dated_cells.end_us, purposes.end_us) as end_us,
        dated_cells.covered_by,
        dated_cells.scale,
        dated_cells.uncovered_joules
        * ((least(dated_cells.end_us, purposes.end_us) - greatest(dated_cells.start_us, purposes.start_us))
            / cast(dated_cells.end_us - dated_cells.start_us as double)) as uncovered_joules,
        dated_cells.gap_us,
        dated_cells.is_reset,
        dated_cells.is_impossible
    from dated_cells
    inner join purposes
        on {{ equal_keys('dated_cells', 'purposes', ['date', 'node', 'purpose']) }}
        and dated_cells.start_us < purposes.end_us
        and dated_cells.end_us > purposes.start_us
    where dated_cells.is_mixed and dated_cells.meter_scope = 'node'

),

covered_segments as (

    select
        cells.date,
        cells.purpose,
        cells.reading_id,
        steps.reading_id as covering_reading_id,
        greatest(steps.start_us, cells.start_us) as start_us,
        least(steps.end_us, cells.end_us) as end_us,
        cells.scale * cast({{ clipped_joules('steps', 'cells.start_us', 'cells.end_us') }} as double) as energy_joules,
        cells.scale * steps.slope_watts
        * ((least(steps.end_us, cells.end_us) - greatest(steps.start_us, cells.start_us)) / cast(steps.end_us - steps.start_us as double))
            as slope_watts,
        case
            when steps.is_counter then 'counter'
            when cells.scale = 1 then 'gauge'
            else 'counter_and_gauge'
        end as energy_source,
        steps.is_reset,
        cells.is_impossible,
        cast(null as bigint) as gap_us
    from purposed_cells as cells
    inner join steps
        on cells.meter_scope = steps.meter_scope
        and cells.meter = steps.meter
        and cells.covered_by = steps.reading_order
        and steps.start_us < cells.end_us
        and steps.end_us > cells.start_us

),

final as (

    select * from covered_segments
    union all
    select
        date,
        purpose,
        reading_id,
        cast(null as bigint) as covering_reading_id,
        start_us,
        end_us,
        uncovered_joules as energy_joules,
        cast(0 as double) as slope_watts,
        case when uncovered_joules is null then 'unknown' else 'counter' end as energy_source,
        is_reset,
        is_impossible,
        gap_us
    from purposed_cells
    where covered_by is null and (uncovered_joules is not null or is_impossible)

)

select * from final
