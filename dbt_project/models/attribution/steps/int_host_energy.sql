-- Host joules per date, interval and booked meter: the node meter above its boards where it shows more than they do, else
-- the mean of what it measured on that date, else the node's stated watts, else what is assumed of a host beside such a
-- board; 0 where the meter of the node, or of more, is booked itself, and of CPU packages, which are a host's own. Boards
-- of a node share it by the time they cover.
with energy as (

    select * from {{ ref('int_energy_intervals') }}

),

meters as (

    select * from {{ ref('int_meter_choices') }}

),

nodes as (

    select * from {{ source('fleet', 'nodes') }}

),

device_types as (

    select * from {{ ref('stg_device_types') }}

),

booked as (

    select
        energy.date,
        energy.meter_scope,
        energy.meter,
        meters.node,
        meters.device_type,
        energy.interval_number,
        {{ exact_sum('energy.energy_joules') }} as energy_joules,
        sum(energy.covered_us) as covered_us
    from energy
    inner join meters on {{ equal_keys('energy', 'meters', ['date', 'meter_scope', 'meter']) }}
    where energy.purpose = 'booked' and meters.purpose = 'booked'
    group by energy.date, energy.meter_scope, energy.meter, meters.node, meters.device_type, energy.interval_number

),

node_meters as (

    select
        date,
        meter as node,
        interval_number,
        {{ ratio(exact_sum('energy_joules'), 'sum(covered_us)') }} * 1e6 as node_watts,
        sum(covered_us) as node_meter_covered_us
    from energy
    where purpose = 'host'
    group by date, meter, interval_number

),

metered_nodes as (

    select distinct
        date,
        node
    from node_meters

),

known as (

    select
        booked.*,
        metered_nodes.node is not null as is_node_metered,
        node_meters.node_watts,
        node_meters.node_meter_covered_us,
        nodes.host_watts,
        case
            when booked.meter_scope <> 'board' then booked.meter_scope || '_meter'
            when device_types.power_limit_watts is not null then 'assumed_watts'
            else 'assumed_ratio'
        end as assumed_basis,
        case
            when booked.meter_scope <> 'board' then {{ exact('0') }}
            when device_types.power_limit_watts is not null then {{ exact(assumed_host_joules()) }}
            else {{ exact('cast(booked.energy_joules as double) * ' ~ host_energy_ratio()) }}
        end as assumed_joules
    from booked
    left join node_meters on {{ equal_keys('booked', 'node_meters', ['date', 'node', 'interval_number']) }}
    left join metered_nodes on booked.date = metered_nodes.date and booked.node = metered_nodes.node
    left join nodes on booked.node = nodes.node
    left join device_types on booked.device_type = device_types.device_type

),

-- The boards of a node side by side, where something is known of the node as a whole.
beside_boards as (

    select
        *,
        cast(sum({{ exact(ratio('energy_joules', 'covered_us') ~ ' * 1e6') }}) over node_window as double) as boards_watts,
        sum(covered_us) over node_window as boards_covered_us,
        max(covered_us) over node_window as node_covered_us,
        coalesce(sum(covered_us) over meter_window, 0) as covered_to_us
    from known
    where meter_scope in ('board', 'module') and (is_node_metered or host_watts is not null)
    window
        node_window as (partition by date, node, interval_number),
        meter_window as (partition by date, node, interval_number order by meter rows unbounded preceding)

),

-- A node meter that covered less than half of what its boards covered, or shows no more than they do, measures no host.
assessed as (

    select
        *,
        coalesce(node_meter_covered_us >= 0.5 * node_covered_us and node_watts > boards_watts, false) as is_measured,
        coalesce(node_meter_covered_us >= 0.5 * node_covered_us and {{ is_below_its_boards() }}, false) as is_host_refuted
    from beside_boards

),

-- Each interval of a node counts once, whatever boards it has.
node_intervals as (

    select
        date,
        node,
        interval_number,
        max((node_watts - boards_watts) * node_covered_us / 1e6) as node_host_joules,
        max(node_covered_us) as node_covered_us
    from assessed
    where is_measured and boards_covered_us > 0
    group by date, node, interval_number

),

mean_hosts as (

    select
        date,
        node,
        {{ ratio(exact_sum(exact('node_host_joules')), 'sum(node_covered_us)') }} * 1e6 as mean_host_watts
    from node_intervals
    group by date, node

),

hosts as (

    select
        assessed.*,
        case
            when is_measured then 'measured'
            when mean_hosts.mean_host_watts is not null then 'measured_mean'
            when host_watts is not null then 'stated_watts'
            else assumed_basis
        end as host_basis,
        case when is_measured then node_watts - boards_watts else coalesce(mean_hosts.mean_host_watts, host_watts) end
        * node_covered_us / 1e6 as node_host_joules
    from assessed
    left join mean_hosts on assessed.date = mean_hosts.date and assessed.node = mean_hosts.node

),

final as (

    select
        date,
        meter_scope,
        meter,
        interval_number,
        host_basis,
        is_host_refuted,
        node_watts,
        boards_watts,
        case
            when host_basis = assumed_basis then assumed_joules
            -- No board of the interval is known: neither is their host.
            when boards_covered_us = 0 then {{ exact('0') }}
            else {{ exact('node_host_joules * (covered_to_us / nullif(cast(boards_covered_us as double), 0))') }}
                - {{ exact('node_host_joules * ((covered_to_us - covered_us) / nullif(cast(boards_covered_us as double), 0))') }}
        end as host_overhead_joules
    from hosts
    union all
    select
        date,
        meter_scope,
        meter,
        interval_number,
        assumed_basis as host_basis,
        false as is_host_refuted,
        cast(null as double) as node_watts,
        cast(null as double) as boards_watts,
        assumed_joules as host_overhead_joules
    from known
    where meter_scope not in ('board', 'module') or (not is_node_metered and host_watts is null)

)

select * from final
