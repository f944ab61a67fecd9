-- The figures of the attached `target` whose changes are restatements, of the months that are compared: one row per date,
-- month, site, model, figure and part. A demand charge follows its month's peak, so it counts where the month was over
-- before (months_over).
with costs as (
    select date, billing_month, site, model, part, sum(cost_usd) as cost_usd, sum(billed_cost_usd) as billed_cost_usd
    from target.marts.cost_daily
    where basis = 'fully_loaded'
        and billing_month in (select month from months_compared)
        and (part <> 'demand_charge' or (billing_month, site) in (select (billing_month, site) from months_over))
    group by all
),
energy as (
    select date, billing_month, site, model, sum(facility_energy_kwh) as kwh, sum(location_gco2e)::decimal(28, 12) / 1000 as kg
    from target.marts.model_hourly
    where billing_month in (select month from months_compared)
    group by all
)
select date, billing_month as month, site, model, 'cost' as figure, part, cost_usd::decimal(28, 12) as amount from costs
union all
select date, billing_month, site, model, 'cost at the bill''s price', part, billed_cost_usd::decimal(28, 12) from costs
union all
select date, billing_month, site, model, 'electricity', '', kwh::decimal(28, 12) from energy
union all
select date, billing_month, site, model, 'CO2e', '', kg::decimal(28, 12) from energy
