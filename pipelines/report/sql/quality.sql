-- How much of the newest date and of the last 28 published dates is known. Each share is seconds, joules, tokens or kWh
-- over the same of the whole.
with
newest as (
    select max(date) as date from marts.fleet_daily
),

spans as (
    select 'newest date' as span, date as first_date, date as last_date from newest
    union all
    select 'last 28 days', (date - 27)::date, date from newest
)

select
    span,
    first_date,
    last_date,
    count(distinct fleet.date) as published_dates,
    last_date - first_date + 1 as dates,
    sum(least(fleet.gpu_seconds, fleet.claimed_gpu_seconds)) / nullif(sum(fleet.claimed_gpu_seconds), 0) as coverage_ratio,
    sum(fleet.matched_joules) / nullif(sum(fleet.energy_joules), 0) as matched_ratio,
    sum(fleet.unknown_joules) / nullif(sum(fleet.energy_joules), 0) as unknown_energy_ratio,
    1 - sum(fleet.unpriced_gpu_seconds) / nullif(sum(fleet.claimed_gpu_seconds), 0) as priced_ratio,
    sum(fleet.hourly_carbon_kwh) / nullif(sum(fleet.facility_energy_kwh), 0) as hourly_carbon_ratio,
    1 - sum(fleet.carbon_unknown_joules) / nullif(sum(fleet.energy_joules), 0) as carbon_known_ratio,
    sum(fleet.error_joules) / nullif(sum(fleet.energy_joules), 0) as energy_error_ratio
from spans inner join marts.fleet_daily as fleet on fleet.date between spans.first_date and spans.last_date
group by all
order by first_date desc
