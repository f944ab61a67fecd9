-- A board that falls silent while others of its node go on: its exporter is not down, nor its node gone. What it draws
-- from then on is in no total.
with meters as (
    select date, site, meter, max(interval_start_at) as last_at, max_by(node, interval_start_at) as node
    from marts.energy_ledger join run_days using (date)
    where meter_scope = 'board' and covered_seconds > 0 group by date, site, meter
),
nodes as (select date, site, node, max(last_at) as last_at from meters group by date, site, node)
select meter, node, date, meters.last_at, nodes.last_at as others_until
from meters join nodes using (date, site, node)
where meters.last_at < nodes.last_at - interval 15 minutes
order by meters.last_at, meter, date
