-- Which part of its board each claimant of a MIG instance has, of capacity and of the idle floor, and what of the board
-- is left: one row per date, board, slice of the date, instance and claimant; what is left has no instance. The parts
-- of a slice add up to 1.
--
-- An instance weighs the greater of its parts of the board's compute and memory. Together they may be more than a board
-- (4g.40gb and 3g.40gb), or leave less than the smallest instance needs; then they are scaled to 1.
{% set slice = ['date', 'meter_scope', 'meter', 'slice_start_us'] %}

with claimants as (

    select * from {{ ref('int_claimants') }}

),

booked_meters as (

    select * from {{ ref('int_meter_choices') }} where purpose = 'booked'

),

unmetered_boards as (

    select * from {{ ref('int_unmetered_boards') }}

),

mig_boards as (

    select * from {{ ref('mig_boards') }}

),

device_type_aliases as (

    select * from {{ ref('stg_device_type_aliases') }}

),

boards as (

    select date, meter_scope, meter, device_type from booked_meters
    union all
    select date, meter_scope, meter, device_type from unmetered_boards

),

-- A name that has no alias is a device type of its own.
cut_types as (

    select
        coalesce(device_type_aliases.device_type, mig_boards.device_name) as device_type,
        max(mig_boards.compute_slices) as compute_slices,
        max(mig_boards.memory_slices) as memory_slices,
        max(mig_boards.profile_memory_gb) as profile_memory_gb
    from mig_boards
    left join device_type_aliases on mig_boards.device_name = device_type_aliases.alias
    group by 1

),

cut_slices as (

    select distinct {{ slice | join(', ') }} from claimants where mig_instance is not null

),

-- Pods may share an instance by turns. A compute instance has a claimant of its own, and its part of its GPU instance's
-- memory.
members as (

    select
        {{ columns_of('claimants', slice) }},
        claimants.mig_instance,
        claimants.engine,
        claimants.pod,
        claimants.mig_slices,
        cut_types.compute_slices,
        cut_types.memory_slices,
        cast(claimants.mig_slices as double) / claimants.mig_instance_slices * greatest(
            1, floor(cast(claimants.mig_memory_gb as double) * cut_types.memory_slices / cut_types.profile_memory_gb + 0.5)
        ) as own_memory_slices,
        case when claimants.mig_slices < claimants.mig_instance_slices then 1
            else count(*) over (partition by {{ columns_of('claimants', slice) }}, claimants.mig_instance)
        end as sharers
    from claimants
    inner join cut_slices on {{ equal_keys('claimants', 'cut_slices', slice) }}
    inner join boards on {{ equal_keys('claimants', 'boards', ['date', 'meter_scope', 'meter']) }}
    left join cut_types on boards.device_type = cut_types.device_type

),

-- In trillionths of a board, so that what is summed is exact.
weighed as (

    select
        *,
        {{ exact('1e6 * greatest(cast(mig_slices as double) / compute_slices, own_memory_slices / memory_slices) / sharers') }} as weight,
        {{ exact('cast(mig_slices as double) / sharers') }} as used_compute_slices,
        {{ exact('own_memory_slices / sharers') }} as used_memory_slices
    from members

),

slices as (

    select
        {{ slice | join(', ') }},
        count(*) as claimants,
        count(weight) = count(*) as is_known,
        {{ exact_sum('weight') }} as weight,
        -- The smallest instance has a slice of each.
        max(compute_slices) - {{ exact_sum('used_compute_slices') }} >= 0.9999
            and max(memory_slices) - {{ exact_sum('used_memory_slices') }} >= 0.9999 as has_room
    from weighed
    group by {{ slice | join(', ') }}

),

wholes as (

    select
        *,
        case when has_room then greatest({{ exact('1e6') }} - weight, 0) else 0 end as left_weight
    from slices

),

final as (

    select
        {{ columns_of('weighed', slice) }},
        weighed.mig_instance,
        weighed.engine,
        weighed.pod,
        cast(weighed.mig_slices as double) / weighed.sharers as mig_slices,
        case
            when wholes.is_known then {{ ratio('weighed.weight', 'wholes.weight + wholes.left_weight') }}
            else cast(1 as double) / wholes.claimants
        end as mig_share,
        wholes.is_known as is_mig_share_known
    from weighed
    inner join wholes on {{ equal_keys('weighed', 'wholes', slice) }}
    union all
    select
        {{ slice | join(', ') }},
        cast(null as {{ dbt.type_string() }}) as mig_instance,
        {{ unallocated() }} as engine,
        cast(null as {{ dbt.type_string() }}) as pod,
        cast(null as double) as mig_slices,
        {{ ratio('left_weight', 'weight + left_weight') }} as mig_share,
        true as is_mig_share_known
    from wholes
    where is_known and left_weight > 0

)

select * from final
