-- `write`: the line of the fleet file that names who uses the device, where one can: not where the engine is known, or
-- named in the file already, and reports no tokens. ENGINE is for the user to fill in; it is filled where a single engine
-- of the pod's namespace has tokens and no board.
with devices as (
    select date, meter_scope, node, meter, sum(energy_joules) as joules,
        sum(case when model = '__unknown__' then energy_joules end) as orphan_joules,
        max_by(unknown_reason, energy_joules) filter (model = '__unknown__') as unknown_reason,
        max_by(held_by, energy_joules) filter (model = '__unknown__') as held_by,
        max_by(namespace, energy_joules) filter (model = '__unknown__') as namespace
    from marts.energy_ledger join run_days using (date) group by date, meter_scope, node, meter
),
shares as (
    -- Joules of a board and of a whole node are not added.
    select *, sum(orphan_joules) over (partition by date, meter_scope)
        / sum(joules) over (partition by date, meter_scope) as orphan_ratio
    from devices
),
named as (
    select distinct shares.held_by
    from shares
    inner join fleet.engines as engines
        on shares.held_by = engines.engine or (engines.is_prefix and starts_with(shares.held_by, engines.engine))
),
boardless as (
    select date, namespace, min(engine) as engine
    from marts.token_ledger join run_days using (date) where not has_power
    group by date, namespace having min(engine) = max(engine)
)
select meter, node, shares.date, round(orphan_joules / 3.6e6, 3) as kwh, shares.held_by, unknown_reason,
    case
        when unknown_reason = 'no_engine_for_pod' and named.held_by is null
            then format(
                'engines: [{{engine: {}, pods: [{}]}}]',
                coalesce(boardless.engine, 'ENGINE'), replace(shares.held_by, ',', ', ')
            )
        when unknown_reason = 'no_claimant'
            then format('assignments: [{{{}: "{}", engine: ENGINE, start_at: {}T00:00:00Z}}]',
                case meter_scope when 'board' then 'device_uuid' else 'node' end,
                case meter_scope when 'board' then meter else node end, shares.date)
    end as write
from shares
left join named on shares.held_by = named.held_by
left join boardless on shares.date = boardless.date and shares.namespace is not distinct from boardless.namespace
where orphan_joules > 0 and orphan_ratio > 0.01
order by kwh desc, meter, shares.date
