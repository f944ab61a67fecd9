-- Who holds a meter whose own labels name no claimant, by the fleet file: one row per date, meter, slice of the date
-- and assignment. Where the labels map boards to pods and have none for this one, an assignment of the board itself
-- (not of its node) comes first. A slice without an assignment is `fleet_file_unallocated` where the fleet file assigns
-- the board or its node at another time, `watched_unallocated` where the board is watched (below) and no engine served
-- on its node on that date, else unknown (`none`).
with booked_meters as (

    select * from {{ ref('int_meter_choices') }} where purpose = 'booked'

),

unmetered_boards as (

    select * from {{ ref('int_unmetered_boards') }}

),

label_claims as (

    select * from {{ ref('int_label_claims') }}

),

board_labels as (

    select * from {{ ref('int_board_labels') }}

),

engine_days as (

    select * from {{ ref('int_engine_days') }}

),

devices as (

    select * from {{ source('fleet', 'devices') }}

),

assignments as (

    select
        *,
        {{ epoch_us('start_at') }} as start_us,
        coalesce({{ epoch_us('end_at') }}, 9000000000000000000) as end_us
    from {{ source('fleet', 'assignments') }}
    where device_uuid is not null or node is not null

),

run_dates as (

    select * from {{ ref('stg_run_dates') }}

),

meters as (

    select date, meter_scope, meter, node from booked_meters
    union all
    select date, meter_scope, meter, node from unmetered_boards

),

labelled_meters as (

    select distinct date, meter from label_claims

),

-- Boards that would have a claimant if anything ran on them: the fleet file lists them, or their exporter maps pods and
-- had none to name.
watched_boards as (

    select
        run_dates.date,
        devices.device_uuid as meter
    from devices
    cross join run_dates
    union
    select
        date,
        meter
    from board_labels
    where is_bare_exporters and pod is null

),

serving_nodes as (

    select distinct date, node from engine_days where node is not null

),

file_devices as (

    select distinct device_uuid from assignments where device_uuid is not null

),

file_nodes as (

    select distinct node from assignments where device_uuid is null

),

booked_days as (

    select
        meters.date,
        meters.meter_scope,
        meters.meter,
        meters.node,
        run_dates.start_us as day_start_us,
        run_dates.end_us as day_end_us,
        labelled_meters.meter is not null as is_labelled
    from meters
    inner join run_dates on meters.date = run_dates.date
    left join labelled_meters on meters.date = labelled_meters.date and meters.meter = labelled_meters.meter

),

-- What is left to the fleet file: all day, or while the labels have no pod for a board that it assigns.
open_slices as (

    select
        date,
        meter_scope,
        meter,
        node,
        is_labelled,
        day_start_us as open_start_us,
        day_end_us as open_end_us,
        day_start_us as held_start_us,
        day_end_us as held_end_us
    from booked_days
    where not is_labelled
    union all
    select
        booked_days.date,
        booked_days.meter_scope,
        booked_days.meter,
        booked_days.node,
        booked_days.is_labelled,
        label_claims.slice_start_us as open_start_us,
        label_claims.slice_end_us as open_end_us,
        label_claims.held_start_us,
        label_claims.held_end_us
    from booked_days
    inner join (
        select distinct date, meter, slice_start_us, slice_end_us, held_start_us, held_end_us from label_claims where is_free
    ) as label_claims
        on booked_days.date = label_claims.date and booked_days.meter = label_claims.meter
    inner join file_devices on booked_days.meter = file_devices.device_uuid

),

file_spans as (

    select
        open_slices.date,
        open_slices.meter_scope,
        open_slices.meter,
        open_slices.open_start_us,
        greatest(assignments.start_us, open_slices.open_start_us) as start_us,
        least(assignments.end_us, open_slices.open_end_us) as end_us,
        assignments.namespace,
        assignments.engine,
        assignments.model,
        assignments.deployment,
        assignments.team,
        assignments.role
    from open_slices
    inner join assignments
        on (
            open_slices.meter = assignments.device_uuid
            or (assignments.device_uuid is null and open_slices.node = assignments.node and not open_slices.is_labelled)
        )

),

file_edges as (

    {% for edge in ['start_us', 'end_us'] -%}
    select date, meter_scope, meter, open_start_us, {{ edge }} as edge_us from file_spans where start_us < end_us
    union
    select date, meter_scope, meter, open_start_us, open_{{ edge }} as edge_us from open_slices
    {% if not loop.last %}union
    {% endif -%}
    {% endfor %}

),

file_slices as (

    select
        date,
        meter_scope,
        meter,
        open_start_us,
        edge_us as slice_start_us,
        lead(edge_us) over (partition by date, meter_scope, meter, open_start_us order by edge_us) as slice_end_us
    from file_edges

),

final as (

    select
        file_slices.date,
        file_slices.meter_scope,
        file_slices.meter,
        open_slices.node,
        file_slices.slice_start_us,
        file_slices.slice_end_us,
        least(greatest(open_slices.held_start_us, file_slices.slice_start_us), file_slices.slice_end_us) as held_start_us,
        greatest(least(open_slices.held_end_us, file_slices.slice_end_us), file_slices.slice_start_us) as held_end_us,
        case
            when file_spans.meter is not null then 'fleet_file'
            when file_devices.device_uuid is not null or file_nodes.node is not null then 'fleet_file_unallocated'
            when watched_boards.meter is not null and serving_nodes.node is null then 'watched_unallocated'
            else 'none'
        end as claim_basis,
        file_spans.namespace,
        cast(null as {{ dbt.type_string() }}) as pod,
        cast(null as {{ dbt.type_string() }}) as container,
        cast(null as {{ dbt.type_string() }}) as mig_instance,
        cast(null as integer) as mig_slices,
        cast(null as integer) as mig_instance_slices,
        cast(null as integer) as mig_memory_gb,
        file_spans.engine,
        file_spans.model,
        file_spans.deployment,
        file_spans.team,
        file_spans.role,
        cast(null as {{ dbt.type_string() }}) as held_by
    from file_slices
    inner join open_slices on {{ equal_keys('file_slices', 'open_slices', ['date', 'meter_scope', 'meter', 'open_start_us']) }}
    left join file_spans
        on {{ equal_keys('file_slices', 'file_spans', ['date', 'meter_scope', 'meter', 'open_start_us']) }}
        and file_slices.slice_start_us >= file_spans.start_us
        and file_slices.slice_end_us <= file_spans.end_us
    left join file_devices on file_slices.meter = file_devices.device_uuid
    left join file_nodes on open_slices.node = file_nodes.node
    left join watched_boards on file_slices.date = watched_boards.date and file_slices.meter = watched_boards.meter
    left join serving_nodes on file_slices.date = serving_nodes.date and open_slices.node = serving_nodes.node
    where file_slices.slice_end_us is not null

)

select * from final
