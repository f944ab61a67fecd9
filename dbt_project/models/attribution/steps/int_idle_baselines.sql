-- The idle floor of an active device, in watts of its meter: the p10 of the date's parked intervals. A board's own come
-- first, of the model that it serves, else of whatever was parked on it; so no other board moves its floor. An hour of
-- them is enough; a quarter of an hour is less sure (another basis), and still nearer than what others drew, if it is
-- like the type's reference. A board that was parked for less has the median over boards: of its device type and model,
-- of its type on the node, of its type in the fleet. Else it has the type's reference. A function of the day's raw alone.
--
-- In a pool each board counts once, with its own p10, if it was parked for five minutes, and all of them together for
-- an hour. A board that draws under half or over twice its type's reference watts counts for itself alone: a median of
-- one or two boards does not show which is odd.
{% set enough_seconds = 3600 %}
{% set fewest_seconds = 900 %}
{% set enough_seconds_of_a_member = 300 %}
{% set pools = ['date', 'meter_scope', 'device_type', 'pooled_by', 'pooled'] %}

with attributed as (

    select * from {{ ref('int_attributed_energy') }}

),

device_types as (

    select * from {{ ref('stg_device_types') }}

),

mig_floors as (

    select * from {{ ref('int_mig_floors') }}

),

active as (

    select distinct
        date,
        meter_scope,
        meter,
        coalesce(device_type, {{ unknown() }}) as device_type,
        model,
        node
    from attributed
    where state = 'active'

),

parked as (

    select
        date,
        meter_scope,
        meter,
        coalesce(device_type, {{ unknown() }}) as device_type,
        model,
        node,
        covered_seconds,
        {{ ratio('energy_joules', 'covered_seconds') }} as watts
    from attributed
    where state = 'parked' and attribution_method in ('exclusive', 'node_share') and covered_seconds > 0

),

boards as (

    {% for pooled_by, pooled in {'model': 'model', 'node': 'node', 'fleet': "'all'"}.items() %}
    select
        date,
        meter_scope,
        device_type,
        '{{ pooled_by }}' as pooled_by,
        {{ pooled }} as pooled,
        meter,
        sum(covered_seconds) as parked_seconds,
        cast({{ exact('percentile_cont(0.1) within group (order by watts)') }} as double) as watts
    from parked
    group by date, meter_scope, device_type, {{ pooled if pooled_by != 'fleet' }}{{ ', ' if pooled_by != 'fleet' }}meter
    {{ 'union all' if not loop.last }}
    {% endfor %}

),

members as (

    select
        {{ columns_of('boards', pools) }},
        boards.parked_seconds,
        boards.watts
    from boards
    left join device_types on boards.device_type = device_types.device_type
    where
        boards.parked_seconds >= {{ enough_seconds_of_a_member }}
        -- Meters of nodes and racks read what is behind them, of any size; and of an unknown type anything may be.
        and (boards.pooled_by <> 'fleet' or (boards.meter_scope in ('board', 'module') and boards.device_type <> {{ unknown() }}))
        and {{ is_like_its_type('boards.watts', 'boards') }}

),

medians as (

    select
        {{ pools | join(',\n        ') }},
        -- Of two boards the median may end between two millionths, where engines round apart; its double does not.
        cast({{ exact('2 * percentile_cont(0.5) within group (order by watts)') }} as double) / 2 as watts
    from members
    group by {{ pools | join(', ') }}
    having sum(parked_seconds) >= {{ enough_seconds }}

),

final as (

    select
        active.date,
        active.meter_scope,
        active.meter,
        active.model,
        active.node,
        case
            when mig_floors.idle_basis is not null then mig_floors.idle_basis
            when boards_with_model.parked_seconds >= {{ enough_seconds }} or boards_with_any.parked_seconds >= {{ enough_seconds }}
                then 'parked_p10_of_board'
            when {{ is_like_its_type('coalesce(boards_with_model.watts, boards_with_any.watts)', 'active') }} then 'parked_minutes_of_board'
            when medians_of_model.watts is not null then 'parked_p10_of_model'
            when medians_of_node.watts is not null then 'parked_p10_of_node'
            when medians_of_fleet.watts is not null then 'parked_p10_of_fleet'
            when device_types.idle_watts_loaded is not null then 'device_type_reference'
            else 'none'
        end as idle_basis,
        coalesce(
            mig_floors.floor_watts,
            case when boards_with_model.parked_seconds >= {{ enough_seconds }} then boards_with_model.watts end,
            case when boards_with_any.parked_seconds >= {{ enough_seconds }} then boards_with_any.watts end,
            case
                when {{ is_like_its_type('coalesce(boards_with_model.watts, boards_with_any.watts)', 'active') }}
                    then coalesce(boards_with_model.watts, boards_with_any.watts)
            end,
            medians_of_model.watts,
            medians_of_node.watts,
            medians_of_fleet.watts,
            device_types.idle_watts_loaded
        ) as baseline_watts
    from active
    left join mig_floors on {{ equal_keys('active', 'mig_floors', ['date', 'meter_scope', 'meter']) }}
    left join boards as boards_with_model
        on {{ equal_keys('active', 'boards_with_model', ['date', 'meter_scope', 'meter']) }}
        and boards_with_model.pooled_by = 'model'
        and active.model = boards_with_model.pooled
        and boards_with_model.parked_seconds >= {{ fewest_seconds }}
    left join boards as boards_with_any
        on {{ equal_keys('active', 'boards_with_any', ['date', 'meter_scope', 'meter']) }}
        and boards_with_any.pooled_by = 'fleet'
        and boards_with_any.parked_seconds >= {{ fewest_seconds }}
    {% for pooled_by, pooled in {'model': 'active.model', 'node': 'active.node', 'fleet': "'all'"}.items() %}
    left join medians as medians_of_{{ pooled_by }}
        on {{ equal_keys('active', 'medians_of_' ~ pooled_by, ['date', 'meter_scope', 'device_type']) }}
        and medians_of_{{ pooled_by }}.pooled_by = '{{ pooled_by }}'
        and medians_of_{{ pooled_by }}.pooled = {{ pooled }}
    {% endfor %}
    left join device_types on active.device_type = device_types.device_type

)

select * from final
