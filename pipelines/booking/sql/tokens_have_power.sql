-- `write`: the line of the fleet file that ties the engine to its boards: to the only pod without an engine in its
-- namespace, else to a board that is unallocated on its node, else that it has none. Boards of its node without a
-- claimant have their lines in power_has_a_model. An engine without tokens matters where a board of its node is advised
-- as free.
with engines as (
    select engine, model, date, max(node) as node, max(namespace) as namespace, sum(tokens) as tokens
    from marts.token_ledger join run_days using (date)
    where not has_power and token_class in ('input', 'output') group by engine, model, date
),
described as (
    select engines.engine, arg_min(stated.accelerators, stated.entry) as accelerators
    from (select distinct engine from engines) as engines
    join fleet.engines as stated
        on case when stated.is_prefix then starts_with(engines.engine, stated.engine) else engines.engine = stated.engine end
    group by engines.engine
),
pods as (
    select date, namespace, min(held_by) as pod
    from marts.energy_ledger join run_days using (date) where unknown_reason = 'no_engine_for_pod'
    group by date, namespace having min(held_by) = max(held_by)
),
boards as (
    select date, node, min(meter) filter (state = 'unallocated') as unallocated,
        min(meter) filter (unknown_reason = 'no_claimant') as unknown
    from marts.energy_ledger join run_days using (date) where meter_scope = 'board' group by date, node
)
select engine, model, engines.date, tokens,
    case
        when pods.pod is not null then format('engines: [{{engine: {}, pods: [{}]}}]', engine, pods.pod)
        when boards.unallocated is not null
            then format('assignments: [{{device_uuid: {}, engine: "{}", start_at: {}T00:00:00Z}}]',
                boards.unallocated, engine, engines.date)
        when boards.unknown is null then format('engines: [{{engine: "{}", accelerators: false}}]', engine)
    end as write
from engines
left join described using (engine)
left join pods on pods.date = engines.date and pods.namespace is not distinct from engines.namespace
left join boards on boards.date = engines.date and boards.node = engines.node
where coalesce(described.accelerators, true) and (tokens > 0 or boards.unallocated is not null)
order by tokens desc, engine, engines.date
