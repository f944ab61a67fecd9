-- What the booking of a date made of its last tick's figures, over the same hours: a row per date, model, meters and
-- figure. Both NULL where a figure is unknown.
create table made.today.differences as
with ticked as (
    select * from made.today.last_ticks where date <> $on
),

booked as (
    select
        hours.date,
        hours.model,
        hours.meter_scope,
        sum(hours.energy_joules) as energy_joules,
        sum(hours.output_tokens) as output_tokens,
        sum(hours.total_tokens) as total_tokens,
        sum(hours.idle_joules) as idle_joules,
        sum(hours.facility_energy_kwh) as facility_energy_kwh,
        sum(hours.location_gco2e) as location_gco2e,
        sum(hours.compute_cost_usd) as compute_cost_usd
    from published_file.marts.model_hourly as hours
    inner join (select date, max(hours_until_at) as hours_until_at from ticked group by date) as dates
        on hours.date = dates.date and hours.hour_start_at < dates.hours_until_at
    group by hours.date, hours.model, hours.meter_scope
),

both_sides as (
    select
        coalesce(ticked.date, booked.date) as date,
        coalesce(ticked.model, booked.model) as model,
        coalesce(ticked.meter_scope, booked.meter_scope) as meter_scope,
        unnest([
            {'figure': 'energy_joules', 'ticked': ticked.energy_joules::double, 'booked': booked.energy_joules::double},
            {'figure': 'output_tokens', 'ticked': ticked.output_tokens::double, 'booked': booked.output_tokens::double},
            {'figure': 'total_tokens', 'ticked': ticked.total_tokens::double, 'booked': booked.total_tokens::double},
            {
                'figure': 'idle_joules',
                'ticked': ticked.estimated_idle_joules::double,
                'booked': booked.idle_joules::double
            },
            {
                'figure': 'facility_energy_kwh',
                'ticked': ticked.estimated_facility_energy_kwh::double,
                'booked': booked.facility_energy_kwh::double
            },
            {
                'figure': 'location_gco2e',
                'ticked': ticked.estimated_location_gco2e::double,
                'booked': booked.location_gco2e::double
            },
            {
                'figure': 'compute_cost_usd',
                'ticked': ticked.estimated_compute_cost_usd::double,
                'booked': booked.compute_cost_usd::double
            }
        ], recursive := true)
    from ticked
    full join booked
        on ticked.date = booked.date and ticked.model = booked.model and ticked.meter_scope = booked.meter_scope
    where coalesce(ticked.date, booked.date) in (select date from booked)
)

select
    date,
    model,
    meter_scope,
    figure,
    ticked,
    booked,
    booked - ticked as difference,
    (booked - ticked) / nullif(booked, 0) as difference_ratio
from both_sides
where ticked is not null or booked is not null
order by all
