-- What the last tick of a date had of its whole hours: what the date's booking is compared with.
create table made.today.last_ticks as
select
    date,
    $hours_until as hours_until_at,
    model,
    meter_scope,
    sum(energy_joules) as energy_joules,
    sum(output_tokens) as output_tokens,
    sum(total_tokens) as total_tokens,
    sum(estimated_idle_joules) as estimated_idle_joules,
    sum(estimated_facility_energy_kwh) as estimated_facility_energy_kwh,
    sum(estimated_location_gco2e) as estimated_location_gco2e,
    sum(estimated_compute_cost_usd) as estimated_compute_cost_usd
from made.today.model_hours
where hour_start_at < $hours_until
group by date, model, meter_scope
