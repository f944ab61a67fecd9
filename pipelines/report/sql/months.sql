-- The newest months, the newest first: what each cost, all sites together.
select
    month,
    case when bool_and(status = 'open') then 'open' when bool_or(status = 'adjusted') then 'adjusted' else 'closed' end as status,
    sum(booked_hours) / sum(month_hours) as booked_ratio,
    sum(closed_cost_usd) as closed_cost_usd,
    sum(adjustment_usd) as adjustment_usd,
    sum(known_cost_usd) as known_cost_usd,
    sum(idle_cost_usd) as idle_cost_usd,
    sum(forecast_usd) as forecast_usd,
    sum(facility_energy_kwh) as facility_energy_kwh,
    sum(location_kgco2e) as location_kgco2e,
    bool_and(is_cost_complete) as is_cost_complete
from finance.months
group by month
having sum(closed_cost_usd) is not null
order by month desc
limit 12
