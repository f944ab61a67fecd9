-- What the newest published date cost, and its electricity: how much a date is about that is not booked.
with newest as (
    select max(date) as date from marts.fleet_daily
)

select
    newest.date,
    (select sum(cost_usd)::double from marts.cost_daily as costs where costs.basis = 'allocation' and costs.date = newest.date) as usd,
    (select sum(facility_energy_kwh)::double * 3.6e6 from marts.site_footprint_daily as sites where sites.date = newest.date) as joules
from newest
where newest.date is not null
