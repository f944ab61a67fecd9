-- The whole cost of the last 28 dates on each basis: what models pay, by part, and the remainder that no model pays. Every
-- basis adds up to the same total, so a sum over several bases means nothing.
with parts as (
    select
        basis, part, starts_with(deployment, '__') as is_remainder, sum(cost_usd) as cost_usd,
        bool_and(is_cost_complete) as is_cost_complete
    from marts.cost_daily
    where date > (select max(date) - 28 from marts.fleet_daily)
    group by all
)

select *
from parts
order by
    case basis when 'variable' then 0 when 'usage' then 1 when 'allocation' then 2 else 3 end,
    is_remainder, cost_usd desc nulls last, part
