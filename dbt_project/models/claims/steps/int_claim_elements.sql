-- Each board's time between two sightings, first to last: one row per date, board and element [start_us, end_us).
-- `kind`: `held` (seen, or silent for at most 3 intervals, or for at most max_spread with the same claimants on both
-- sides), `silence` (longer, or of different claimants), `head` and `tail` (nothing was ever seen before or after).
{% set meter_day = ['date', 'meter', 'cap_us', 'day_start_us', 'day_end_us'] %}

with runs as (

    select * from {{ ref('int_claim_runs') }}

),

run_dates as (

    select * from {{ ref('stg_run_dates') }}

),

edges as (

    select date, meter, start_us as edge_us, max(cap_us) as cap_us from runs group by date, meter, start_us
    union
    select date, meter, end_us as edge_us, max(cap_us) as cap_us from runs group by date, meter, end_us

),

neighboured_edges as (

    select
        edges.date,
        edges.meter,
        edges.cap_us,
        run_dates.start_us as day_start_us,
        run_dates.end_us as day_end_us,
        edges.edge_us,
        lag(edges.edge_us) over (partition by edges.date, edges.meter order by edges.edge_us) as previous_us,
        lead(edges.edge_us) over (partition by edges.date, edges.meter order by edges.edge_us) as next_us
    from edges
    inner join run_dates on edges.date = run_dates.date

),

-- Of claimants seen at once, those with a name, and the instances without one.
{% for name, edge in [('ending', 'end_us'), ('starting', 'start_us')] -%}
{{ name }} as (

    select
        date,
        meter,
        {{ edge }},
        coalesce(
            {{ joined_in_order("case when pod is not null or mig_instance is not null then claim_key end") }},
            max(claim_key)
        ) as claim_keys,
        coalesce({{ joined_in_order("case when pod is not null then held_by end") }}, max(held_by)) as held_by
    from runs
    group by date, meter, {{ edge }}

),

{% endfor -%}
covering as (

    select
        edges.date,
        edges.meter,
        edges.edge_us as start_us,
        coalesce(
            {{ joined_in_order(
                "case when runs.pod is not null or runs.mig_instance is not null then runs.claim_key end"
            ) }},
            max(runs.claim_key)
        ) as claim_keys
    from neighboured_edges as edges
    inner join runs
        on edges.date = runs.date
        and edges.meter = runs.meter
        and edges.edge_us >= runs.start_us
        -- A claimant that was seen only once has a run of length 0: it holds until the next sample.
        and (
            edges.next_us <= runs.end_us
            or (runs.start_us = runs.end_us and edges.edge_us = runs.start_us and edges.next_us - edges.edge_us <= edges.cap_us)
        )
    group by edges.date, edges.meter, edges.edge_us

),

spans as (

    select
        {{ columns_of('edges', meter_day) }},
        edges.edge_us as start_us,
        edges.next_us as end_us,
        covering.claim_keys as seen_keys,
        ending.claim_keys as keys_before,
        ending.held_by as held_by_before,
        starting.claim_keys as keys_after,
        starting.held_by as held_by_after
    from neighboured_edges as edges
    left join covering on edges.date = covering.date and edges.meter = covering.meter and edges.edge_us = covering.start_us
    left join ending on edges.date = ending.date and edges.meter = ending.meter and edges.edge_us = ending.end_us
    left join starting on edges.date = starting.date and edges.meter = starting.meter and edges.next_us = starting.start_us
    where edges.next_us is not null

),

final as (

    select
        {{ meter_day | join(', ') }},
        start_us,
        end_us,
        case
            when seen_keys is not null or end_us - start_us <= cap_us then 'held'
            when keys_before = keys_after and end_us - start_us <= {{ var('max_spread_seconds') | int * 1000000 }} then 'held'
            else 'silence'
        end as kind,
        coalesce(seen_keys, keys_before) as claim_keys,
        held_by_before,
        held_by_after
    from spans
    where end_us > day_start_us and start_us < day_end_us
    union all
    select
        {{ columns_of('edges', meter_day) }},
        edges.day_start_us as start_us,
        edges.edge_us as end_us,
        case when edges.edge_us - edges.day_start_us <= edges.cap_us then 'held' else 'head' end as kind,
        starting.claim_keys,
        cast(null as {{ dbt.type_string() }}) as held_by_before,
        starting.held_by as held_by_after
    from neighboured_edges as edges
    inner join starting on edges.date = starting.date and edges.meter = starting.meter and edges.edge_us = starting.start_us
    where edges.previous_us is null and edges.edge_us > edges.day_start_us
    union all
    select
        {{ columns_of('edges', meter_day) }},
        edges.edge_us as start_us,
        edges.day_end_us as end_us,
        case when edges.day_end_us - edges.edge_us <= edges.cap_us then 'held' else 'tail' end as kind,
        ending.claim_keys,
        ending.held_by as held_by_before,
        cast(null as {{ dbt.type_string() }}) as held_by_after
    from neighboured_edges as edges
    inner join ending on edges.date = ending.date and edges.meter = ending.meter and edges.edge_us = ending.end_us
    where edges.next_us is null and edges.edge_us < edges.day_end_us

)

select * from final
