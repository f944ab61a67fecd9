-- The newest date's metered energy by what it was read from, and how its idle floor and its hosts are known. Each basis
-- adds up to the date's energy, within a meter scope.
with
ledger as (
    select * from marts.energy_ledger where date = (select max(date) from marts.fleet_daily)
),

bases as (
    select 'meter' as what, coalesce(energy_source, 'unknown') as basis, energy_joules from ledger
    union all
    select 'idle floor', coalesce(idle_basis, 'not needed: no idle floor'), energy_joules from ledger
    union all
    select 'host power', coalesce(host_basis, 'unknown'), energy_joules from ledger
    union all
    select 'claim', coalesce(attribution_method, 'unknown'), energy_joules from ledger
)

select
    what,
    basis,
    sum(energy_joules) / 3.6e6 as device_kwh,
    sum(energy_joules) / nullif(sum(sum(energy_joules)) over (partition by what), 0) as energy_ratio
from bases
group by what, basis
order by what, device_kwh desc, basis
