-- Electricity by tariff and accelerator-hours by rate, of the rows whose price is known, as in the tables of dates.
-- A rate that includes the electricity is not charged with it again.
with hours as (
    select * from marts.cost_drivers_hourly
    where {condition} and is_priced
        and deployment not in ('__unused_commitment__', '__unmetered__')
)
select site, null as device_type, 'kWh' as unit, tariff_usd_per_kwh as price_usd, null as source,
    sum(facility_energy_kwh) as quantity, sum(energy_cost_usd) as usd
from hours where rate_includes not like '% energy %' group by all
union all
select site, device_type, 'GPU-hours', rate_usd_per_gpu_hour, rate_source,
    sum(claimed_gpu_seconds) / 3600, sum(capacity_cost_usd)
from hours group by all
order by all
