-- The newest months, the newest first: what each cost, all sites together. The ends of the intervals of several sites
-- are added, as if all erred alike: that is too wide, never too narrow.
select
    month,
    case when bool_and(status = 'open') then 'open' when bool_or(status = 'adjusted') then 'adjusted' else 'closed' end as status,
    sum(booked_hours) / sum(month_hours) as booked_ratio,
    sum(closed_cost_usd) as closed_cost_usd,
    sum(adjustment_usd) as adjustment_usd,
    sum(known_cost_usd) as known_cost_usd,
    -- An open month is as far from its figure as what is known of it; a closed one is frozen.
    sum(case status when 'open' then closed_cost_usd - known_cost_usd + known_cost_usd_low else closed_cost_usd end)
        as closed_cost_usd_low,
    sum(case status when 'open' then closed_cost_usd - known_cost_usd + known_cost_usd_high else closed_cost_usd end)
        as closed_cost_usd_high,
    sum(idle_cost_usd) as idle_cost_usd,
    -- Of a sum each site that has a cost has to be known: else it is divided by NULL.
    sum(forecast_usd) / nullif(cast(count(forecast_usd) = count(known_cost_usd) as integer), 0) as forecast_usd,
    sum(forecast_low_usd) / nullif(cast(count(forecast_usd) = count(known_cost_usd) as integer), 0) as forecast_usd_low,
    sum(forecast_high_usd) / nullif(cast(count(forecast_usd) = count(known_cost_usd) as integer), 0) as forecast_usd_high,
    sum(facility_energy_kwh) as facility_energy_kwh,
    sum(facility_energy_kwh_low) as facility_energy_kwh_low,
    sum(facility_energy_kwh_high) as facility_energy_kwh_high,
    sum(metered_ratio * facility_energy_kwh) / nullif(sum(facility_energy_kwh), 0) as metered_ratio,
    sum(location_kgco2e) as location_kgco2e,
    sum(location_kgco2e_low) as location_kgco2e_low,
    sum(location_kgco2e_high) as location_kgco2e_high,
    any_value(currency) as currency,
    sum(closed_cost_in_currency) as closed_cost_in_currency,
    bool_and(is_cost_complete) as is_cost_complete,
    array_to_string(list_sort(list_distinct(flatten(list(string_split(nullif(doubt_reasons, ''), ','))))), ', ') as doubt_reasons
from finance.months
group by month
having sum(closed_cost_usd) is not null
order by month desc
limit 12
