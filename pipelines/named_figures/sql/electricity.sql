-- What accelerators and hosts of each site drew, of the hours with a PUE, and what it is at the facility.
with unplaced as (
    select site, sum(energy_joules) as joules from marts.energy_ledger
    where {ledger} and unknown_reason = 'unplaced_meter'
        and exists (select 1 from marts.unplaced_meters)
    group by site
)
select
    site,
    sum(energy_joules) - coalesce(any_value(unplaced.joules), 0) as device_joules,
    sum(host_overhead_joules) as host_joules,
    sum(facility_energy_kwh) as kwh,
    -- A hall's meter has the cooling in it already.
    sum(facility_energy_kwh) filter (meter_scope <> 'facility')::double * 3600000
        / nullif(
            sum(energy_joules + host_overhead_joules) filter (meter_scope <> 'facility')
                - coalesce(any_value(unplaced.joules), 0),
            0
        )::double as pue
from marts.model_hourly
left join unplaced using (site)
where {known}
group by site
order by site
