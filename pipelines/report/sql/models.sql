-- The last 28 published dates, per model: what it cost, drew and served. The full cost is that of every part, fully loaded.
with
newest as (
    select max(date) as date from marts.fleet_daily
),

main_scope as (
    select meter_scope from marts.fleet_daily group by meter_scope order by sum(energy_joules) desc nulls last limit 1
),

costs as (
    select model, sum(cost_usd) as cost_usd, bool_and(is_cost_complete) as is_cost_complete
    from marts.cost_daily
    where basis = 'fully_loaded' and date > (select date - 28 from newest)
    group by model
),

energy as (
    select
        model,
        sum(output_tokens) / 1e6 as output_mtok,
        sum(facility_energy_kwh) as facility_kwh,
        sum(location_gco2e) / 1000 as location_kgco2e,
        sum(matched_joules) filter (meter_scope = (from main_scope))
        / nullif(sum(matched_output_tokens) filter (meter_scope = (from main_scope)), 0) as joules_per_output_token,
        sum(idle_joules) filter (meter_scope = (from main_scope))
        / nullif(sum(productive_joules + idle_joules) filter (meter_scope = (from main_scope)), 0) as idle_energy_ratio,
        1 - sum(active_seconds) / nullif(sum(known_seconds), 0) as idle_time_ratio,
        list_sort(list_distinct(flatten(list(string_split(nullif(doubt_reasons, ''), ','))))) as doubt_reasons,
        count(doubt_reasons) > 0 as is_assessed
    from marts.model_daily
    where date > (select date - 28 from newest)
    group by model
)

select
    model,
    costs.cost_usd,
    costs.cost_usd / nullif(energy.output_mtok, 0) as cost_usd_per_output_mtok,
    energy.output_mtok,
    energy.facility_kwh,
    energy.joules_per_output_token,
    energy.idle_energy_ratio,
    energy.idle_time_ratio,
    energy.location_kgco2e,
    coalesce(costs.is_cost_complete, false) as is_cost_complete,
    case when energy.is_assessed then coalesce(nullif(array_to_string(energy.doubt_reasons, ', '), ''), 'none') end as doubt_reasons
from energy full join costs using (model)
where costs.cost_usd <> 0 or energy.facility_kwh > 0 or energy.output_mtok > 0
order by starts_with(model, '__'), costs.cost_usd desc nulls last, model
