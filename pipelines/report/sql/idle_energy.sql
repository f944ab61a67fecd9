-- Idle electricity and its cost over the last 28 dates, per model and kind (account); the twelve models with the most, then the
-- rest without a name. kWh are at the facility's meter.
with
idle as (
    select *
    from marts.idle_power
    where date > (select max(date) - 28 from marts.fleet_daily)
),

fleet as (
    select case when count(*) = count(facility_energy_kwh) then sum(facility_energy_kwh) end as fleet_kwh
    from marts.fleet_daily
    where date > (select max(date) - 28 from marts.fleet_daily)
),

ranked as (
    select model, row_number() over (order by sum(idle_facility_kwh) desc nulls last, model) as place
    from idle
    group by model
)

select
    case when place <= 12 then model end as model,
    account,
    least(place, 13) as place,
    sum(idle_facility_kwh) as idle_kwh,
    sum(idle_gpu_seconds) / 3600 as idle_gpu_hours,
    sum(idle_location_gco2e) / 1000 as idle_kgco2e,
    sum(idle_energy_cost_usd) as energy_usd,
    sum(idle_capacity_cost_usd) as capacity_usd,
    any_value(fleet_kwh) as fleet_kwh
from idle inner join ranked using (model) cross join fleet
group by 1, account, least(place, 13)
order by place, account
