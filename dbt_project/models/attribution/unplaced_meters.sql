-- Wall meters that no host is known for, beside boards without a wall meter: what they measured, which host they may
-- belong to, and the line of the fleet file that places it there. A host is proposed where the watts of both move
-- together, or where one of each is left. More than 50 are only listed.
{% set compared_meters = 50 %}
{% set least_correlation = 0.8 %}

with unplaced as (

    select * from {{ ref('int_unplaced_meters') }}

),

choices as (

    select * from {{ ref('int_meter_choices') }} where purpose = 'booked'

),

intervals as (

    select * from {{ ref('int_energy_intervals') }} where purpose = 'booked'

),

ledger as (

    select * from {{ ref('energy_ledger') }} where {{ in_run('date') }} and unknown_reason = 'unplaced_meter'

),

measured as (

    select
        date,
        site,
        meter_scope,
        meter,
        {{ exact_sum('energy_joules') }} as energy_joules,
        {{ exact_sum('covered_seconds') }} as covered_seconds
    from ledger
    group by date, site, meter_scope, meter

),

wall_nodes as (

    select distinct
        date,
        coalesce(node, meter) as node
    from choices
    where meter_scope = 'node'
    union
    select distinct
        date,
        node
    from {{ ref('int_meter_choices') }}
    where purpose = 'host' and node is not null

),

bare_boards as (

    select distinct
        choices.date,
        choices.meter_scope,
        choices.meter,
        choices.node,
        coalesce(choices.site, {{ unknown() }}) as site
    from choices
    inner join (select distinct date, site from unplaced) as sites
        on choices.date = sites.date and coalesce(choices.site, {{ unknown() }}) = sites.site
    left join wall_nodes on choices.date = wall_nodes.date and choices.node = wall_nodes.node
    where choices.meter_scope in ('board', 'module')
        and choices.node is not null
        and wall_nodes.node is null

),

counts as (

    select
        bare.date,
        bare.site,
        bare.nodes,
        bare.only_node,
        unplaced_of_site.meters
    from (
        select date, site, count(distinct node) as nodes, min(node) as only_node from bare_boards group by date, site
    ) as bare
    inner join (
        select date, site, count(*) as meters from unplaced group by date, site
    ) as unplaced_of_site on bare.date = unplaced_of_site.date and bare.site = unplaced_of_site.site

),

meter_watts as (

    select
        intervals.date,
        unplaced.site,
        intervals.meter,
        intervals.interval_number,
        {{ ratio(exact_sum('intervals.energy_joules'), 'sum(intervals.covered_us)') }} * 1e6 as watts
    from intervals
    inner join unplaced on {{ equal_keys('intervals', 'unplaced', ['date', 'meter_scope', 'meter']) }}
    inner join counts on unplaced.date = counts.date and unplaced.site = counts.site and counts.meters <= {{ compared_meters }}
    group by intervals.date, unplaced.site, intervals.meter, intervals.interval_number

),

board_watts as (

    select
        intervals.date,
        bare_boards.site,
        bare_boards.node,
        intervals.meter,
        intervals.interval_number,
        {{ ratio(exact_sum('intervals.energy_joules'), 'sum(intervals.covered_us)') }} * 1e6 as watts
    from intervals
    inner join bare_boards on {{ equal_keys('intervals', 'bare_boards', ['date', 'meter_scope', 'meter']) }}
    inner join counts on bare_boards.date = counts.date and bare_boards.site = counts.site and counts.meters <= {{ compared_meters }}
    group by intervals.date, bare_boards.site, bare_boards.node, intervals.meter, intervals.interval_number

),

node_watts as (

    select
        date,
        site,
        node,
        interval_number,
        sum(watts) as watts
    from board_watts
    group by date, site, node, interval_number

),

-- Two hours of intervals at least; a host draws more than its boards.
correlations as (

    select
        meter_watts.date,
        meter_watts.site,
        meter_watts.meter,
        node_watts.node,
        round(corr(meter_watts.watts, node_watts.watts), 3) as watts_correlation
    from meter_watts
    inner join node_watts on {{ equal_keys('meter_watts', 'node_watts', ['date', 'site', 'interval_number']) }}
    group by meter_watts.date, meter_watts.site, meter_watts.meter, node_watts.node
    having count(*) * {{ var('grid_seconds') }} >= 7200
        and avg(meter_watts.watts) > avg(node_watts.watts)
        and stddev_pop(meter_watts.watts) > 0
        and stddev_pop(node_watts.watts) > 0

),

ranked as (

    select
        *,
        row_number() over (partition by date, site, meter order by watts_correlation desc, node) as place_of_node,
        row_number() over (partition by date, site, node order by watts_correlation desc, meter) as place_of_meter
    from correlations

),

best as (

    select * from ranked where place_of_node = 1 and place_of_meter = 1 and watts_correlation >= {{ least_correlation }}

),

proposed as (

    select
        measured.*,
        counts.meters,
        counts.nodes,
        best.watts_correlation,
        case
            when best.node is not null then best.node
            when counts.meters = 1 and counts.nodes = 1 then counts.only_node
        end as proposed_node,
        case
            when best.node is not null then 'correlation'
            when counts.meters = 1 and counts.nodes = 1 then 'count'
        end as proposal_basis
    from measured
    left join counts on measured.date = counts.date and coalesce(measured.site, {{ unknown() }}) = counts.site
    left join best on measured.date = best.date and measured.meter = best.meter and counts.site = best.site

),

final as (

    select
        date,
        site,
        meter_scope,
        meter,
        cast(energy_joules as {{ exact_type() }}) as energy_joules,
        cast(covered_seconds as {{ exact_type() }}) as covered_seconds,
        {{ ratio('energy_joules', 'covered_seconds') }} as mean_watts,
        cast(meters as integer) as unplaced_meters,
        cast(nodes as integer) as nodes_without_wall_meter,
        proposed_node,
        proposal_basis,
        watts_correlation,
        'nodes: [{name: ' || coalesce(proposed_node, '<node>') || ', site: ' || coalesce(site, '<site>')
            || ', aliases: ["' || meter || '"]}]' as fleet_file_line
    from proposed

)

select * from final
