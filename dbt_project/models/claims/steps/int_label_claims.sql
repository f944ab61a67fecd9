-- Which pods the labels of a booked meter name, in slices of a date: one row per date, meter, slice and pod. A board
-- has labels of its own (int_board_label_claims). The meter of a node whose boards report no power is held by the pod
-- that the labels of all its boards name; where they name several, or one board is cut into instances, the node's
-- claimant is unknown. `labelled_board`: whose labels they are.
{%- set node_slice = ['date', 'node_meter', 'slice_start_us'] %}
{%- set holder = ['is_silence', 'held_by', 'is_free', 'namespace', 'pod', 'container'] %}
{%- set kept = ['slice_start_us', 'slice_end_us', 'held_start_us', 'held_end_us'] + holder %}
{%- set mig = ['mig_instance', 'mig_slices', 'mig_instance_slices', 'mig_memory_gb'] %}

with board_claims as (

    select * from {{ ref('int_board_label_claims') }}

),

silent_boards as (

    select * from {{ ref('int_silent_boards') }}

),

node_meters as (

    select * from {{ ref('int_meter_choices') }}
    where purpose = 'booked' and meter_scope = 'node' and not coalesce(is_mixed, false) and not is_unplaced

),

boards_of_nodes as (

    select
        node_meters.date,
        node_meters.meter as node_meter,
        silent_boards.meter
    from node_meters
    inner join silent_boards on node_meters.date = silent_boards.date and node_meters.node = silent_boards.node

),

claims_of_nodes as (

    select
        boards_of_nodes.node_meter,
        board_claims.*
    from boards_of_nodes
    inner join board_claims on boards_of_nodes.date = board_claims.date and boards_of_nodes.meter = board_claims.meter
    where board_claims.mig_instance is null

),

edges as (

    select date, node_meter, slice_start_us as edge_us from claims_of_nodes
    union
    select date, node_meter, slice_end_us as edge_us from claims_of_nodes

),

elements as (

    select
        date,
        node_meter,
        edge_us as slice_start_us,
        lead(edge_us) over (partition by date, node_meter order by edge_us) as slice_end_us
    from edges

),

of_elements as (

    select
        {{ columns_of('elements', node_slice) }},
        elements.slice_end_us,
        {{ columns_of('claims_of_nodes', holder) }},
        least(greatest(claims_of_nodes.held_start_us, elements.slice_start_us), elements.slice_end_us) as held_start_us,
        greatest(least(claims_of_nodes.held_end_us, elements.slice_end_us), elements.slice_start_us) as held_end_us,
        claims_of_nodes.meter as labelled_board,
        coalesce(claims_of_nodes.held_by, '') || '|' || coalesce(claims_of_nodes.namespace, '') || '/' || coalesce(claims_of_nodes.pod, '')
        || '/' || coalesce(claims_of_nodes.container, '') as held_as
    from elements
    inner join claims_of_nodes
        on {{ equal_keys('elements', 'claims_of_nodes', ['date', 'node_meter']) }}
        and claims_of_nodes.slice_start_us <= elements.slice_start_us
        and claims_of_nodes.slice_end_us >= elements.slice_end_us

),

slices_of_nodes as (

    select
        {{ (node_slice + holder) | join(', ') }},
        slice_end_us,
        min(held_start_us) over node_window as held_start_us,
        max(held_end_us) over node_window as held_end_us,
        labelled_board,
        count(*) over node_window as boards,
        min(held_as) over node_window = max(held_as) over node_window as is_one_holder,
        row_number() over (partition by {{ node_slice | join(', ') }} order by labelled_board) as board_number
    from of_elements
    window node_window as (partition by {{ node_slice | join(', ') }})

),

-- All boards of the node have the same holder at each moment of the date.
nodes_of_one_holder as (

    select
        slices_of_nodes.date,
        slices_of_nodes.node_meter
    from slices_of_nodes
    inner join (select date, node_meter, count(*) as boards from boards_of_nodes group by date, node_meter) as counted
        on {{ equal_keys('slices_of_nodes', 'counted', ['date', 'node_meter']) }}
    group by slices_of_nodes.date, slices_of_nodes.node_meter
    having min(case when slices_of_nodes.is_one_holder and slices_of_nodes.boards = counted.boards then 1 else 0 end) = 1

),

final as (

    select
        {{ (['date', 'meter'] + kept + mig) | join(', ') }},
        meter as labelled_board
    from board_claims
    union all
    select
        slices_of_nodes.date,
        slices_of_nodes.node_meter as meter,
        {{ columns_of('slices_of_nodes', kept) }},
        cast(null as {{ dbt.type_string() }}) as mig_instance,
        cast(null as integer) as mig_slices,
        cast(null as integer) as mig_instance_slices,
        cast(null as integer) as mig_memory_gb,
        slices_of_nodes.labelled_board
    from slices_of_nodes
    inner join nodes_of_one_holder on {{ equal_keys('slices_of_nodes', 'nodes_of_one_holder', ['date', 'node_meter']) }}
    where slices_of_nodes.board_number = 1

)

select * from final
