-- Electricity by the intensity that its hours had.
select
    factors.zone,
    factors.carbon_basis,
    factors.carbon_source,
    sum(hours.facility_energy_kwh) as kwh,
    sum(hours.location_gco2e) as grams,
    sum(hours.location_gco2e)::double / nullif(sum(hours.facility_energy_kwh)::double, 0) as gco2e_per_kwh
from marts.model_hourly as hours
left join marts.site_carbon_hourly as factors using (site, hour_start_at)
where {condition}
group by all
order by grams desc nulls last
